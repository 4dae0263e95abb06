"""What programs meet through public functions, by its operation types: functions that are called, readers and datasets
of files, accumulators, checkpoints and variables of the first kind; for `make_step_fixture.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tests.oracles.step_cases import Drained, function_of, in_order, sample, written


def branches_that_are_called(tf: Any) -> list[Any]:
    R = tf.raw_ops

    @function_of(tf, tf.float32)
    def squared(x: Any) -> Any:
        return x * x + 1.0

    @function_of(tf, tf.float32)
    def halved(x: Any) -> Any:
        return tf.sin(x) * 0.5

    @function_of(tf, tf.int32, tf.float32)
    def counted(i: Any, x: Any) -> Any:
        return x * 0.5 + tf.cast(i, tf.float32)

    x, tout = tf.placeholder_with_default(np.float32([0.5, np.nan, -2, np.inf]), [None]), [tf.float32]
    index = tf.placeholder_with_default(np.int32(1), [])
    steps: list[Any] = [
        R.If(cond=cond, input=[x], Tout=tout, then_branch=squared, else_branch=halved)
        for cond in (index > 0, index < 0, index, index - 1)
    ]
    steps += [
        R.Case(branch_index=i, input=[x], Tout=tout, branches=[squared, halved])
        for i in (index - 1, index, index + 3, index - 9)
    ]
    steps += [
        R.For(start=start, limit=limit, delta=delta, input=[x], body=counted)
        for start, limit, delta in ((0, index + 3, 1), (index, 1, 1), (5, index, -2))
    ]
    z = tf.constant(np.float32([0.5, 3, -2]))
    chosen = R.If(cond=index > 0, input=[z], Tout=tout, then_branch=squared, else_branch=halved)[0]
    called = R.StatefulPartitionedCall(args=[x], Tout=tout, f=squared)
    return [*steps, tf.gradients(chosen, z), called]


def readers_of_parts(tf: Any) -> list[Any]:
    R, steps = tf.raw_ops, []
    lines = written("lines", b"head\none\n\n\xff two\nlast")
    numbers = written("numbers", bytes(range(11)))
    records = written("records", b"")
    with tf.python_io.TFRecordWriter(records) as writer:
        for text in (b"a", b"", b"ccc"):
            writer.write(text)
    readers = {
        lines: R.TextLineReaderV2(skip_header_lines=1, shared_name="l"),
        numbers: R.FixedLengthRecordReaderV2(
            header_bytes=2, record_bytes=3, footer_bytes=1, hop_bytes=2, shared_name="n"
        ),
        records: R.TFRecordReaderV2(shared_name="t"),
        "any text": R.IdentityReaderV2(shared_name="i"),
    }
    for number, (path, reader) in enumerate(readers.items()):
        queue = R.FIFOQueueV2(component_types=[tf.string], shapes=[[]], capacity=9, shared_name=f"q{number}")
        read = R.ReaderReadV2(reader_handle=reader, queue_handle=queue)
        steps += [
            R.QueueEnqueueV2(handle=queue, components=[path]),
            R.QueueCloseV2(handle=queue),
            Drained([tf.strings.regex_replace(read.key, ".*/", ""), read.value]),
            R.ReaderNumRecordsProducedV2(reader_handle=reader),
        ]
    return steps


def datasets_of_lines(tf: Any) -> list[Any]:
    R, steps = tf.raw_ops, []
    lines = [written("one", b"a\n\nb\r\nlast"), written("none", b""), written("two", b"\xff\n")]
    types = {"output_types": [tf.string], "output_shapes": [[]]}
    for dataset in (
        R.TextLineDataset(filenames=lines, compression_type="", buffer_size=np.int64(0)),
        R.TextLineDataset(filenames=lines[:1], compression_type="", buffer_size=np.int64(2)),
        R.TextLineDataset(filenames=[*lines, "nothing"], compression_type="", buffer_size=np.int64(0)),
    ):
        iterator = R.Iterator(shared_name="", container="", **types)
        made = R.MakeIterator(dataset=dataset, iterator=iterator)
        steps += [made, Drained(list(R.IteratorGetNextSync(iterator=iterator, **types)))]
    return steps


def sums_of_rows(tf: Any) -> list[Any]:
    R, steps = tf.raw_ops, []
    for reduction in ("MEAN", "SUM"):
        a = R.SparseConditionalAccumulator(dtype=tf.float32, shape=[4, 2], reduction_type=reduction)

        def given(step: int, rows: list[int], values: Any, a: Any = a) -> Any:
            return R.SparseAccumulatorApplyGradient(
                handle=a,
                local_step=np.int64(step),
                gradient_indices=np.int64(rows),
                gradient_values=np.float32(values),
                gradient_shape=np.int64([4, 2]),
                has_known_shape=True,
            )

        steps += [
            given(0, [0, 2], [[1, 2], [3, np.inf]]),
            given(0, [2, 3], [[5, 6], [7, 8]]),
            R.AccumulatorNumAccumulated(handle=a),
            R.SparseAccumulatorTakeGradient(handle=a, num_required=2, dtype=tf.float32),
            given(0, [1], [[9, 9]]),
            given(1, [1], [[9, np.nan]]),
            given(1, [1], [[9, 9, 9]]),
            R.SparseAccumulatorTakeGradient(handle=a, num_required=1, dtype=tf.float32),
        ]
    return steps


def checkpoints_of_the_first_kind(tf: Any) -> list[Any]:
    R = tf.raw_ops
    folder = Path(written("x", b"")).parent
    path, sliced = str(folder / "old.ckpt"), str(folder / "sliced.ckpt")
    data = [sample(2, 3), np.int64([[1], [-2]]), np.float64([])]
    names = ["m", "n", "empty"]
    spec = "4 3 0,2:-"
    types = [(tf.float32, "m"), (tf.int64, "n"), (tf.float64, "empty"), (tf.float32, "none"), (tf.int32, "m")]
    parts = [str(folder / f"part{i}") for i in range(2)]
    merged = str(folder / "merged")
    return [
        R.Save(filename=path, tensor_names=names, data=data),
        *(R.Restore(file_pattern=path, tensor_name=name, dt=dtype) for dtype, name in types),
        R.SaveSlices(filename=sliced, tensor_names=["m"], shapes_and_slices=[spec], data=data[:1]),
        R.RestoreSlice(file_pattern=sliced, tensor_name="m", shape_and_slice="4 3 1,1:0,2", dt=tf.float32),
        R.RestoreSlice(file_pattern=sliced, tensor_name="m", shape_and_slice="4 3 3,1:-", dt=tf.float32),
        *(
            R.SaveV2(prefix=part, tensor_names=[name], shape_and_slices=[""], tensors=[value])
            for part, name, value in zip(parts, names, data, strict=False)
        ),
        R.MergeV2Checkpoints(checkpoint_prefixes=parts, destination_prefix=merged),
        R.RestoreV2(prefix=merged, tensor_names=names[:2], shape_and_slices=["", ""], dtypes=[tf.float32, tf.int64]),
    ]


def other_state(tf: Any) -> list[Any]:
    R = tf.raw_ops
    v = R.Variable(shape=[2], dtype=tf.float32, shared_name="v")
    table = R.MutableHashTableV2(key_dtype=tf.string, value_dtype=tf.int64)
    keys = np.array(["a", "", "c"], object)
    queue = R.RandomShuffleQueue(component_types=[tf.int64], shapes=[[]], capacity=9, min_after_dequeue=0, seed=3)
    taken = R.QueueDequeueMany(handle=queue, n=4, component_types=[tf.int64])[0]
    array = R.TensorArrayV3(size=2, dtype=tf.float32, element_shape=[2])
    wrote = R.TensorArrayWriteV3(handle=array.handle, index=0, value=sample(2), flow_in=array.flow)
    like = R.TensorArrayGradWithShape(handle=array.handle, flow_in=wrote, shape_to_prepend=[3], source="g")
    shown = R.Print(input=tf.constant(np.float32([1, np.nan])), data=[tf.constant(3)], message="told: ", summarize=1)
    doubled = tf.py_func(lambda x: x * 2, [np.float64([1, np.inf])], tf.float64)
    return [
        v,
        R.Assign(ref=v, value=np.float32([1, -np.inf])),
        v,
        R.LookupTableInsertV2(table_handle=table, keys=keys, values=np.int64([1, 2, 3])),
        R.LookupTableRemoveV2(table_handle=table, keys=np.array(["", "x"], object)),
        R.LookupTableFindV2(table_handle=table, keys=keys, default_value=np.int64(-1)),
        R.LookupTableSizeV2(table_handle=table),
        R.QueueEnqueueMany(handle=queue, components=[np.arange(4)]),
        tf.sort(taken),
        in_order(tf, [lambda: R.TensorArraySizeV3(handle=like.grad_handle, flow_in=like.flow_out)]),
        R.TensorArrayCloseV3(handle=array.handle),
        shown,
        doubled,
    ]
