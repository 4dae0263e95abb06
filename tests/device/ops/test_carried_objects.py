"""Handles and lists of tensors where tensors of any type may stand: pushed, staged, queued, kept by datasets, reshaped.

TensorFlow's own graphs need it: the gradient of a nested loop pushes handles of tensor arrays to stacks, that of a
conditional in a loop puts lists into optionals.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.graph.graph import Graph
from anabranch.pipeline import lowering_everything

R = tf.raw_ops

#: a value, and what makes a tensor of numbers of it
Made = tuple[Any, Callable[[Any], Any]]


def _dense() -> Made:
    made = R.TensorListFromTensor(tensor=tf.constant([[1.0, 2.0], [3.0, 4.0]]), element_shape=[2])
    return made, lambda v: R.TensorListStack(input_handle=v, element_shape=[2], element_dtype=tf.float32)


def _ragged() -> Made:
    made = R.TensorListSplit(tensor=tf.constant([1.0, 2.0, 3.0]), element_shape=[-1], lengths=[1, 2])
    return made, lambda v: R.TensorListGetItem(input_handle=v, index=1, element_shape=[-1], element_dtype=tf.float32)


def _table() -> Made:
    made = R.MutableHashTableV2(key_dtype=tf.string, value_dtype=tf.float32)
    return made, lambda v: R.LookupTableSizeV2(table_handle=v)


def _array() -> Made:
    made, flow = R.TensorArrayV3(size=2, dtype=tf.float32)
    return made, lambda v: R.TensorArraySizeV3(handle=v, flow_in=flow)


def _queue() -> Made:
    return R.FIFOQueueV2(component_types=[tf.float32]), lambda v: R.QueueSizeV2(handle=v)


def _dataset() -> Made:
    made = R.TensorDataset(components=[tf.constant([1.0, 2.0])], output_shapes=[[2]])
    return made, lambda v: R.DatasetToSingleElement(dataset=v, output_types=[tf.float32], output_shapes=[[2]])[0]


def _optional() -> Made:
    made = R.OptionalFromValue(components=[tf.constant([1.0, 2.0])])
    return made, lambda v: R.OptionalGetValue(optional=v, output_types=[tf.float32], output_shapes=[[2]])[0]


OBJECTS = [_dense, _ragged, _table, _array, _queue, _dataset, _optional]


def _after(done: Any, take: Callable[[], Any]) -> Any:
    with tf.control_dependencies([done]):
        return take()


def _pushed(v: Any) -> Any:
    stack = R.StackV2(max_size=-1, elem_type=v.dtype)
    return _after(R.StackPushV2(handle=stack, elem=v), lambda: R.StackPopV2(handle=stack, elem_type=v.dtype))


def _in_optional(v: Any) -> Any:
    optional = R.OptionalFromValue(components=[v])
    return R.OptionalGetValue(optional=optional, output_types=[v.dtype], output_shapes=[[]])[0]


def _staged(v: Any) -> Any:
    return _after(R.Stage(values=[v], shared_name="s"), lambda: R.Unstage(dtypes=[v.dtype], shared_name="s")[0])


def _staged_by_key(v: Any) -> Any:
    key = tf.constant(1, tf.int64)
    put = R.MapStage(key=key, indices=[0], values=[v], dtypes=[v.dtype], shared_name="m")
    return _after(put, lambda: R.MapUnstage(key=key, indices=[0], dtypes=[v.dtype], shared_name="m")[0])


def _queued(v: Any) -> Any:
    queue = R.FIFOQueueV2(component_types=[v.dtype], shapes=[[]])
    put = R.QueueEnqueueV2(handle=queue, components=[v])
    return _after(put, lambda: R.QueueDequeueV2(handle=queue, component_types=[v.dtype])[0])


def _queued_in_batches(v: Any) -> Any:
    queue = R.FIFOQueueV2(component_types=[v.dtype], shapes=[[]])
    put = R.QueueEnqueueV2(handle=queue, components=[v])
    batch = _after(put, lambda: R.QueueDequeueManyV2(handle=queue, n=1, component_types=[v.dtype])[0])
    return tf.reshape(batch, [])


def _in_dataset(v: Any) -> Any:
    dataset = R.TensorDataset(components=[v], output_shapes=[[]])
    return R.DatasetToSingleElement(dataset=dataset, output_types=[v.dtype], output_shapes=[[]])[0]


def _iterated(v: Any) -> Any:
    dataset = R.TensorDataset(components=[v], output_shapes=[[]])
    iterator = R.IteratorV2(output_types=[v.dtype], output_shapes=[[]], shared_name="", container="")
    made = R.MakeIterator(dataset=dataset, iterator=iterator)
    return _after(made, lambda: R.IteratorGetNext(iterator=iterator, output_types=[v.dtype], output_shapes=[[]])[0])


def _in_array(v: Any) -> Any:
    array, flow = R.TensorArrayV3(size=1, dtype=v.dtype)
    flow = R.TensorArrayWriteV3(handle=array, index=0, value=v, flow_in=flow)
    return R.TensorArrayReadV3(handle=array, index=0, flow_in=flow, dtype=v.dtype)


def _in_list(v: Any) -> Any:
    made = R.TensorListReserve(element_shape=tf.constant([], tf.int32), num_elements=1, element_dtype=v.dtype)
    made = R.TensorListSetItem(input_handle=made, index=0, item=v)
    return R.TensorListGetItem(input_handle=made, index=0, element_shape=-1, element_dtype=v.dtype)


def _at_the_end_of_a_list(v: Any) -> Any:
    made = R.EmptyTensorList(element_shape=tf.constant([], tf.int32), max_num_elements=-1, element_dtype=v.dtype)
    made = R.TensorListPushBack(input_handle=made, tensor=v)
    return R.TensorListPopBack(input_handle=made, element_shape=-1, element_dtype=v.dtype).tensor


def _chosen(v: Any) -> Any:
    return tf.cond(tf.placeholder_with_default(True, []), lambda: tf.identity(v), lambda: tf.identity(v))


def _switched(v: Any) -> Any:
    return R.Merge(inputs=list(R.Switch(data=v, pred=tf.placeholder_with_default(True, []))))[0]


def _looped(v: Any) -> Any:
    return tf.while_loop(lambda i, _: i < 3, lambda i, w: (i + 1, tf.identity(w)), (0, v))[1]


CARRIERS: list[Callable[[Any], Any]] = [
    *(_pushed, _in_optional, _staged, _staged_by_key, _queued, _queued_in_batches, _in_dataset, _iterated, _in_array),
    *(_in_list, _at_the_end_of_a_list, _chosen, _switched, _looped),
    lambda v: R.IdentityN(input=[v])[0],
    lambda v: tf.unstack(tf.stack([v, v]))[1],
    lambda v: tf.reshape(tf.reshape(v, [1]), []),
    lambda v: tf.gather(tf.reshape(v, [1]), 0),
    lambda v: tf.concat([tf.reshape(v, [1])] * 2, 0)[1],
    lambda v: R.PlaceholderWithDefault(input=v, shape=[]),
]


@pytest.mark.parametrize("made", OBJECTS)
@pytest.mark.parametrize(("carry", "lowered"), [*((c, False) for c in CARRIERS), (_chosen, True), (_looped, True)])
def test_it_comes_back_as_it_was(carry: Callable[[Any], Any], made: Callable[[], Made], lowered: bool) -> None:
    with Graph().as_default(), tf.Session() as session:
        value, use = made()
        expected = session.run(use(value))
        carried = carry(value)
        assert carried.dtype is value.dtype
        with lowering_everything() if lowered else contextlib.nullcontext():
            np.testing.assert_array_equal(session.run(use(carried)), expected)


@pytest.mark.parametrize("made", OBJECTS)
def test_a_function_of_a_dataset_takes_it_and_gives_it_back(made: Callable[[], Made]) -> None:
    with Graph().as_default(), tf.Session() as session:
        value, use = made()
        expected = session.run(use(value))
        captured = tf.data.Dataset.range(2).map(lambda _: use(tf.identity(value)))
        iterator = captured.make_initializable_iterator()
        following = iterator.get_next()
        session.run(iterator.initializer)
        for _ in range(2):
            np.testing.assert_array_equal(session.run(following), expected)


def test_zeros_of_an_optional_are_an_optional_of_zeros() -> None:
    with Graph().as_default(), tf.Session() as session:
        value, use = _dense()
        for made in (R.OptionalFromValue(components=[tf.constant([1.0, 2.0]), value]), R.OptionalNone()):
            zeros = R.ZerosLike(x=made)
            has_value = session.run([R.OptionalHasValue(optional=v) for v in (made, zeros)])
            assert has_value[0] == has_value[1]
            if has_value[0]:
                types, shapes = [tf.float32, tf.variant], [[2], []]
                number, rows = R.OptionalGetValue(optional=zeros, output_types=types, output_shapes=shapes)
                assert not any(np.any(v) for v in session.run([number, use(rows)]))
