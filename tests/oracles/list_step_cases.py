"""Lists of tensors, ragged and sparse values, batches and calls of functions, for `make_step_fixture.py`."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.oracles.step_cases import function_of, sample

_X = sample(4, 3)


def _listed(tf: Any, values: Any, shape: Any) -> Any:
    return tf.raw_ops.TensorListFromTensor(tensor=tf.constant(values), element_shape=np.int32(shape))


def _stacked(tf: Any, handle: Any, shape: Any, dtype: Any) -> Any:
    return tf.raw_ops.TensorListStack(input_handle=handle, element_shape=np.int32(shape), element_dtype=dtype)


def lists(tf: Any) -> list[Any]:
    R, steps = tf.raw_ops, []
    for values in (
        _X,
        _X.astype(np.int64),
        np.array(["a", "", "c"]),
        np.float64([np.nan, np.inf]),
        np.zeros((0, 2), "f"),
    ):
        dtype, shape = tf.constant(values).dtype, list(values.shape[1:])
        lst = _listed(tf, values, shape)
        found = [
            R.TensorListLength(input_handle=lst),
            R.TensorListElementShape(input_handle=lst, shape_type=tf.int32),
            R.TensorListElementShape(input_handle=lst, shape_type=tf.int64),
            R.TensorListLength(input_handle=R.TensorListResize(input_handle=lst, size=7)),
            R.TensorListLength(input_handle=R.TensorListConcatLists(input_a=lst, input_b=lst, element_dtype=dtype)),
        ]
        if len(values) >= 2:
            asked = {"element_shape": np.int32(shape), "element_dtype": dtype}
            found += [
                R.TensorListGather(input_handle=lst, indices=np.int32([1, 0, 1]), **asked),
                R.TensorListGather(input_handle=lst, indices=np.int32([]), **asked),
                _stacked(tf, R.TensorListResize(input_handle=lst, size=1), shape, dtype),
                _stacked(tf, R.TensorListConcatLists(input_a=lst, input_b=lst, element_dtype=dtype), shape, dtype),
                _stacked(
                    tf,
                    R.TensorListScatter(
                        tensor=values, indices=np.arange(len(values), dtype="i")[::-1], element_shape=np.int32(shape)
                    ),
                    shape,
                    dtype,
                ),
                _stacked(
                    tf,
                    R.TensorListScatterV2(
                        tensor=values[:1], indices=[0], element_shape=np.int32(shape), num_elements=1
                    ),
                    shape,
                    dtype,
                ),
                _stacked(
                    tf,
                    R.TensorListScatterIntoExistingList(input_handle=lst, tensor=values[:2], indices=[1, 0]),
                    shape,
                    dtype,
                ),
                _stacked(
                    tf,
                    R.TensorListScatterIntoExistingList(input_handle=lst, tensor=values[:2], indices=[len(values), 0]),
                    shape,
                    dtype,
                ),
            ]
        steps.append(found)
    return steps


def lists_that_are_lengthened(tf: Any) -> list[Any]:
    """What TensorFlow gives for rows that were never written is whatever the memory holds."""
    R, lst = tf.raw_ops, _listed(tf, _X[:2], [3])
    longer = R.TensorListScatterIntoExistingList(input_handle=lst, tensor=_X[2:], indices=[5, 1])
    items = [
        R.TensorListGetItem(input_handle=longer, index=i, element_shape=np.int32([3]), element_dtype=tf.float32)
        for i in (0, 1, 5)
    ]
    return [
        [*items, R.TensorListLength(input_handle=longer)],
        R.TensorListLength(input_handle=R.TensorListResize(input_handle=lst, size=-1)),
    ]


def pieces_of_lists(tf: Any) -> list[Any]:
    R = tf.raw_ops
    rows = sample(6, 2, seed=1)
    split = R.TensorListSplit(tensor=rows, element_shape=np.int32([-1, 2]), lengths=np.int64([1, 0, 5]))
    one = {"element_shape": np.int32([-1, 2]), "element_dtype": tf.float32}
    joined = R.TensorListConcat(input_handle=split, element_dtype=tf.float32, element_shape=[None, 2])
    led = R.TensorListConcatV2(input_handle=split, leading_dims=np.int64([]), **one)
    empty = R.EmptyTensorList(element_shape=np.int32([-1, 2]), max_num_elements=-1, element_dtype=tf.float32)
    short = R.TensorListSplit(tensor=rows, element_shape=np.int32([-1, 2]), lengths=np.int64([1, 2]))
    last = R.TensorListGetItem(input_handle=split, index=2, **one)
    reserved = R.TensorListReserve(element_shape=np.int32([2, 2]), num_elements=3, element_dtype=tf.float32)
    return [
        [*joined, *led, last],
        R.TensorListConcatV2(input_handle=empty, leading_dims=np.int64([]), **one),
        R.TensorListConcatV2(input_handle=reserved, leading_dims=np.int64([2, 2, 2]), **one),
        R.TensorListLength(input_handle=short),
        R.TensorListGather(input_handle=split, indices=[3], **one),
        R.TensorListGather(input_handle=split, indices=[0, 2], **one),
    ]


def gradients_of_lists(tf: Any) -> list[Any]:
    R, found = tf.raw_ops, []
    x = tf.constant(_X)
    y = tf.constant(sample(2, 3, seed=2))
    lst, asked = (
        R.TensorListFromTensor(tensor=x, element_shape=np.int32([3])),
        {"element_shape": np.int32([3]), "element_dtype": x.dtype},
    )
    weight = tf.constant(sample(8, 3, seed=3))
    into = R.TensorListScatterIntoExistingList(input_handle=lst, tensor=y, indices=[2, 0])
    flat = R.TensorListFromTensor(tensor=tf.reshape(x, [2, 2, 3]), element_shape=np.int32([2, 3]))

    def rows(handle: Any) -> Any:
        return _stacked(tf, handle, [3], x.dtype)

    values = [
        R.TensorListGather(input_handle=lst, indices=[3, 1], **asked),
        rows(R.TensorListResize(input_handle=lst, size=3)),
        rows(R.TensorListConcatLists(input_a=lst, input_b=lst, element_dtype=x.dtype)),
        rows(R.TensorListScatterV2(tensor=x, indices=[3, 1, 0, 2], element_shape=np.int32([3]), num_elements=4)),
        rows(R.TensorListScatter(tensor=x, indices=[3, 1, 0, 2], element_shape=np.int32([3]))),
        rows(into),
        R.TensorListConcatV2(
            input_handle=flat, leading_dims=np.int64([2, 2]), element_shape=np.int32([-1, 3]), element_dtype=x.dtype
        )[0],
        R.TensorListConcat(input_handle=flat, element_dtype=x.dtype, element_shape=[None, 3])[0],
        R.TensorListGetItem(
            input_handle=R.TensorListSplit(tensor=x, element_shape=np.int32([-1, 3]), lengths=np.int64([1, 3])),
            index=1,
            element_shape=np.int32([3, 3]),
            element_dtype=x.dtype,
        ),
    ]
    for value in values:
        loss = tf.reduce_sum(tf.square(value) * weight[: tf.shape(value)[0]])
        found.append([g for g in tf.gradients(loss, [x, y]) if g is not None])
    return [found]


def ragged_variants(tf: Any) -> list[Any]:
    R, steps = tf.raw_ops, []
    for splits in (np.int64([0, 2, 2, 4]), np.int32([0, 2, 2, 4])):
        for values in (
            np.float32([1, np.nan, np.inf, 4]),
            np.array(["a", "", "c", "d"]),
            sample(4, 2, dtype=np.float64),
        ):
            to = {"Tvalues": tf.constant(values).dtype, "Tsplits": tf.as_dtype(splits.dtype)}
            whole = R.RaggedTensorToVariant(rt_nested_splits=[splits], rt_dense_values=values, batched_input=False)
            rows = R.RaggedTensorToVariant(rt_nested_splits=[splits], rt_dense_values=values, batched_input=True)
            steps.append(
                [
                    tf.shape(whole),
                    tf.shape(rows),
                    R.RaggedTensorFromVariant(encoded_ragged=whole, input_ragged_rank=1, output_ragged_rank=1, **to),
                    R.RaggedTensorFromVariant(encoded_ragged=rows, input_ragged_rank=0, output_ragged_rank=1, **to),
                    R.RaggedTensorFromVariant(
                        encoded_ragged=tf.stack([whole, whole]), input_ragged_rank=1, output_ragged_rank=2, **to
                    ),
                    R.RaggedTensorFromVariant(encoded_ragged=rows[:0], input_ragged_rank=0, output_ragged_rank=1, **to),
                ]
            )
    return steps


def sparse_values_kept_aside(tf: Any) -> list[Any]:
    R, steps = tf.raw_ops, []
    for k, values in enumerate((np.float32([1, np.nan, 3]), np.array(["a", "", "c"]), np.int64([4, 5, 6]))):
        shared = {"shared_name": f"map{k}"}
        dtype = tf.constant(values).dtype
        indices, shape = np.int64([[0, 1], [0, 2], [2, 0]]), np.int64([3, 4])
        many = R.AddManySparseToTensorsMap(sparse_indices=indices, sparse_values=values, sparse_shape=shape, **shared)
        one = R.AddSparseToTensorsMap(
            sparse_indices=indices[:, 1:], sparse_values=values, sparse_shape=shape[1:], **shared
        )
        both = tf.concat([tf.gather(many, [2, 0, 1]), [one]], 0)
        steps.append(R.TakeManySparseFromTensorsMap(sparse_handles=both, dtype=dtype, **shared))
        text = R.SerializeSparse(sparse_indices=indices, sparse_values=values, sparse_shape=shape)
        rows = R.SerializeManySparse(sparse_indices=indices, sparse_values=values, sparse_shape=shape)
        steps.append(
            [
                R.DeserializeSparse(serialized_sparse=text, dtype=dtype),
                R.DeserializeSparse(serialized_sparse=tf.stack([text, text]), dtype=dtype),
                R.DeserializeSparse(serialized_sparse=rows, dtype=dtype),
                R.DeserializeSparse(
                    serialized_sparse=tf.reshape(tf.gather(rows, [2, 1, 0, 1]), [2, 2, 3]), dtype=dtype
                ),
            ]
        )
    return [*steps, R.TakeManySparseFromTensorsMap(sparse_handles=np.int64([99]), dtype=tf.int64, shared_name="map2")]


def batches(tf: Any) -> list[Any]:
    R, steps = tf.raw_ops, []
    alone = {"num_batch_threads": 1, "max_batch_size": 4, "batch_timeout_micros": 100}
    for values in (sample(2, 3), np.int64([[1], [2], [3]]), np.float64([np.nan])):
        batched = R.Batch(in_tensors=[values], grad_timeout_micros=10**6, **alone)
        x = batched.batched_tensors[0]
        back = R.Unbatch(batched_tensor=x * x, batch_index=batched.batch_index, id=batched.id, timeout_micros=10**6)
        grad = R.UnbatchGrad(original_input=x, batch_index=batched.batch_index, grad=back, id=batched.id)
        steps.append([x, batched.batch_index[:, 1:], back, grad])

    @function_of(tf, tf.float32, tf.float32)
    def scaled(x: Any, y: Any) -> Any:
        return x * y, tf.reduce_sum(x, 1)

    called = R.BatchFunction(
        in_tensors=[sample(2, 3)], captured_tensors=[np.float32(3)], f=scaled, Tout=[tf.float32, tf.float32], **alone
    )
    return [*steps, called]


def calls_of_functions(tf: Any) -> list[Any]:
    R = tf.raw_ops

    @function_of(tf, tf.float32)
    def squared(x: Any) -> Any:
        return x * x + 1.0

    @function_of(tf, tf.float32)
    def doubled(x: Any) -> Any:
        return tf.sin(x) * 2.0

    @function_of(tf, tf.float32, tf.float32)
    def weighted(x: Any, y: Any) -> Any:
        return tf.reduce_sum(x * y), tf.square(x)

    x, tout = tf.constant(np.float32([0.5, np.nan, -2])), [tf.float32]
    index = tf.placeholder_with_default(np.int32(1), [])
    which = [
        R.StatelessCase(branch_index=i, input=[x], Tout=tout, branches=[squared, doubled])
        for i in (index - 1, index, index + 1, index - 2)
    ]
    z = tf.constant(np.float32([0.5, 3, -2]))
    chosen = R.StatelessCase(branch_index=index, input=[z], Tout=tout, branches=[squared, doubled])[0]
    gradient = R.SymbolicGradient(input=[x, np.float32([1, 1, np.inf])], Tout=tout, f=squared)
    rows = R.MapDefun(
        arguments=[sample(3, 2), sample(3, 2, seed=5)],
        captured_inputs=[],
        output_types=[tf.float32, tf.float32],
        output_shapes=[[], [2]],
        f=weighted,
    )
    again = R.MapDefun(
        arguments=[sample(3, 2)],
        captured_inputs=[np.float32([2, 3])],
        output_types=[tf.float32, tf.float32],
        output_shapes=[[], [2]],
        f=weighted,
    )
    none = R.MapDefun(
        arguments=[np.zeros((0, 2), "f")], captured_inputs=[], output_types=tout, output_shapes=[[2]], f=squared
    )
    there = R.RemoteCall(target="/job:localhost/replica:0/task:0/device:CPU:0", args=[x], Tout=tout, f=squared)
    return [which, tf.gradients(chosen, z), gradient, rows, again, none, there]


def calls_of_python(tf: Any) -> list[Any]:
    without = tf.py_func(lambda x: (x + 1, b"t"), [np.float64([1, np.nan])], [tf.float64, tf.string], stateful=False)
    wrong = tf.py_func(lambda x: x, [np.float64([1])], tf.float32, stateful=False)
    return [without, wrong]


def remembered_rows(tf: Any) -> list[Any]:
    R, steps = tf.raw_ops, []
    for dtype in (tf.float32, tf.string):
        given = sample(3, 2) if dtype == tf.float32 else np.array([["a", ""], ["b", "c"], ["d", "e"]])
        array = R.TensorArrayV3(size=3, dtype=dtype)
        flow = R.TensorArrayScatterV3(handle=array.handle, indices=[0, 1, 2], value=given, flow_in=array.flow)
        joined = R.TensorArrayConcatV3(handle=array.handle, flow_in=flow, dtype=dtype)
        steps.append([joined.value, joined.lengths])
    return steps
