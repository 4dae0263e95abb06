"""Variables of version 1 and resources, for `make_step_fixture.py`."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from tests.oracles.step_cases import WithResources, in_order, sample, written

_DTYPES = (np.float32, np.float64, np.int32, np.int64, np.float16)


def _variable(tf: Any, value: Any) -> tuple[Any, Any]:
    """A variable by reference, and what gives it its value."""
    ref = tf.raw_ops.VariableV2(shape=np.shape(value), dtype=tf.as_dtype(value.dtype))
    return ref, tf.raw_ops.Assign(ref=ref, value=tf.constant(value))


def rows_of_references(tf: Any) -> list[Any]:
    steps = []
    for i, dtype in enumerate(_DTYPES):
        start = np.arange(1, 9).reshape(4, 2).astype(dtype)
        chosen, assigned, outside = [], [], []
        for name in ("Add", "Sub", "Mul", "Div", "Min", "Max", "Update"):
            ref, assign = _variable(tf, start)
            scatter = functools.partial(getattr(tf.raw_ops, f"Scatter{name}"), ref=ref)
            rows = np.array([[2, 3], [-1, 5]]).astype(dtype)
            makers = [
                functools.partial(scatter, indices=np.array([3, 1], np.int32 if i % 2 else np.int64), updates=rows),
                functools.partial(scatter, indices=np.int32(2), updates=rows[0]),
                functools.partial(scatter, indices=np.zeros((0,), np.int32), updates=rows[:0]),
                functools.partial(scatter, indices=np.int32([0, 0]), updates=np.array(2, dtype)),
            ]
            assigned.append(assign)
            chosen += in_order(tf, makers)[-1:]
            outside.append(scatter(indices=np.int32([4]), updates=rows[:1]))
        steps += [assigned, chosen]
        if not i:
            steps += outside
    return steps


def cells_of_references(tf: Any) -> list[Any]:
    steps = []
    for i, dtype in enumerate(_DTYPES):
        for name in ("Add", "Sub", "Update", "Min", "Max"):
            if i >= 4 and name in ("Min", "Max"):
                continue
            ref, assign = _variable(tf, np.arange(12).reshape(4, 3).astype(dtype))
            scatter = getattr(tf.raw_ops, f"ScatterNd{name}")
            cells = scatter(ref=ref, indices=np.int32([[0, 1], [3, 2]]), updates=np.array([5, -7]).astype(dtype))
            rows = scatter(ref=ref, indices=np.int64([[2]]), updates=np.array([[1, 9, -3]]).astype(dtype))
            none = scatter(ref=ref, indices=np.zeros((0, 1), np.int32), updates=np.zeros((0, 3), dtype))
            outside = scatter(ref=ref, indices=np.int32([[4, 0]]), updates=np.array([1], dtype))
            steps += [assign, cells, rows] if i else [assign, cells, rows, none, outside, tf.identity(ref)]
    return steps


def numbers_that_are_none(tf: Any) -> list[Any]:
    steps = []
    start = np.float32([1, np.nan, np.inf, -np.inf])
    for name in ("Add", "Sub", "Mul", "Div", "Update"):
        ref, assign = _variable(tf, start)
        scatter = getattr(tf.raw_ops, f"Scatter{name}")
        updates = np.float32([np.nan, 1, np.inf, 0])
        steps += [assign, scatter(ref=ref, indices=np.int32([0, 1, 2, 3]), updates=updates)]
    for name in ("AssignAdd", "AssignSub"):
        ref, assign = _variable(tf, start)
        steps += [assign, getattr(tf.raw_ops, name)(ref=ref, value=np.float32([1, 2, np.inf, np.inf]))]
    return steps


def cells_of_resources(tf: Any) -> list[Any]:
    R, steps = tf.raw_ops, []
    for dtype in (np.float32, np.float64, np.int32, np.int64):
        v = R.VarHandleOp(dtype=tf.as_dtype(dtype), shape=[4, 3], shared_name=f"cells {np.dtype(dtype).name}")
        read = R.ReadVariableOp(resource=v, dtype=tf.as_dtype(dtype))
        start = np.arange(12).reshape(4, 3).astype(dtype)
        steps.append(R.AssignVariableOp(resource=v, value=start))
        for name in ("Max", "Min"):
            scatter = getattr(R, f"ResourceScatterNd{name}")
            steps += [
                scatter(ref=v, indices=np.int32([[0, 1], [3, 2]]), updates=np.array([5, -7]).astype(dtype)),
                read,
                scatter(ref=v, indices=np.int64([[2]]), updates=np.array([[1, 9, -3]]).astype(dtype)),
                read,
                scatter(ref=v, indices=np.int32([[0, 3]]), updates=np.array([1]).astype(dtype)),
            ]
        for indices in ([[0, 1], [2, 2]], [[3], [0]], np.zeros((0, 2), np.int32), np.zeros((2, 0), np.int32), [[4, 0]]):
            at = np.asarray(indices, np.int32)
            steps.append(R.ResourceGatherNd(resource=v, indices=at, dtype=tf.as_dtype(dtype)))
        exists = R.VarIsInitializedOp(resource=v)
        destroy = R.DestroyResourceOp(resource=v, ignore_lookup_error=False)
        steps += [exists, destroy, exists, destroy, R.DestroyResourceOp(resource=v, ignore_lookup_error=True), read]
    return steps


def rows_of_resources(tf: Any) -> list[Any]:
    R, steps = tf.raw_ops, []
    start = np.float32([[1, 2], [3, np.nan], [5, 6]])
    for name in ("Add", "Sub", "Mul", "Div", "Min", "Max", "Update"):
        v = R.VarHandleOp(dtype=tf.float32, shape=[3, 2], shared_name=f"rows {name}")
        scatter = functools.partial(getattr(R, f"ResourceScatter{name}"), resource=v)
        read = functools.partial(R.ReadVariableOp, resource=v, dtype=tf.float32)
        makers = [
            functools.partial(R.AssignVariableOp, resource=v, value=start),
            functools.partial(scatter, indices=np.int32([2, 1]), updates=np.float32([[4, -3], [2, np.inf]])),
            functools.partial(scatter, indices=np.int64([[0, 0]]), updates=np.float32(2)),
            functools.partial(R.ResourceGather, resource=v, indices=np.int32([[2, 1], [0, 0]]), dtype=tf.float32),
            read,
        ]
        steps.append(in_order(tf, makers)[-2:])
        if name not in ("Mul", "Div"):  # of these TensorFlow does not say so
            steps.append(scatter(indices=np.int32([3]), updates=np.float32([[1, 1]])))
    v = R.VarHandleOp(dtype=tf.float32, shape=[3, 2], shared_name="cells")
    makers = [functools.partial(R.AssignVariableOp, resource=v, value=start)]
    for name in ("Add", "Sub", "Update"):
        scatter = getattr(R, f"ResourceScatterNd{name}")
        makers.append(functools.partial(scatter, ref=v, indices=np.int32([[0, 1], [2, 0]]), updates=np.float32([3, 4])))
        makers.append(functools.partial(R.ReadVariableOp, resource=v, dtype=tf.float32))
    return [*steps, in_order(tf, makers)[2::2]]


def small_things_of_resources(tf: Any) -> list[Any]:
    R = tf.raw_ops
    counter = R.VarHandleOp(dtype=tf.int32, shape=[], shared_name="counter")
    v = R.VarHandleOp(dtype=tf.float32, shape=[2, 2], shared_name="sliced")
    read = R.ReadVariableOp(resource=v, dtype=tf.float32)
    count = R.ResourceCountUpTo(resource=counter, limit=2, T=tf.int32)
    slices = {"begin": np.int32([0, 1]), "end": np.int32([2, 2]), "strides": np.int32([1, 1])}
    return [
        [
            R.AssignVariableOp(resource=counter, value=np.int32(0)),
            R.AssignVariableOp(resource=v, value=np.eye(2, dtype="f")),
        ],
        count,
        count,
        count,
        R.ResourceStridedSliceAssign(ref=v, value=np.float32([[9], [np.nan]]), **slices),
        read,
        R.ResourceStridedSliceAssign(ref=v, value=np.float32([4, 5]), shrink_axis_mask=1, begin_mask=2, **slices),
        read,
        R.AssignSubVariableOp(resource=v, value=np.ones((2, 2), np.float32)),
        read,
    ]


def gradients_of_gathered_cells(tf: Any) -> list[Any]:
    v = tf.Variable(sample(4, 3), use_resource=True)
    steps: list[Any] = [v.initializer]
    for indices in ([[0, 1], [2, 2], [0, 1]], [[3], [0], [3]]):
        y = tf.raw_ops.ResourceGatherNd(resource=v.handle, indices=np.int32(indices), dtype=tf.float32)
        steps.append(tf.convert_to_tensor(tf.gradients(tf.square(y), v)[0]))
    return steps


def small_things_of_references(tf: Any) -> list[Any]:
    R = tf.raw_ops
    ref, assign = _variable(tf, np.float32([[1, 2], [3, np.nan]]))
    other, assign_other = _variable(tf, np.float32([[5, 6], [7, 8]]))
    counter, start = _variable(tf, np.int32(0))
    long, start_long = _variable(tf, np.int64(7))
    slices = {"begin": np.int32([0, 1]), "end": np.int32([2, 2]), "strides": np.int32([1, 1])}
    write = R.StridedSliceAssign(ref=ref, value=np.float32([[9], [8]]), **slices)
    last = R.StridedSliceAssign(
        ref=ref, value=np.float32([4, 4]), shrink_axis_mask=1, begin_mask=2, end_mask=2, **slices
    )
    count = R.CountUpTo(ref=counter, limit=2)
    set_up = [R.IsVariableInitialized(ref=ref), R.IsVariableInitialized(ref=counter)]
    return [
        set_up,
        ref,
        [assign, assign_other, start, start_long],
        set_up,
        count,
        count,
        count,
        counter,
        R.CountUpTo(ref=long, limit=7),
        R.RefIdentity(input=ref),
        R.RefSelect(index=1, inputs=[ref, other]),
        write,
        ref,
        last,
        ref,
        R.AssignAdd(ref=R.RefSelect(index=0, inputs=[ref, other]), value=np.ones((2, 2), np.float32)),
        [ref, other],
        R.DebugGradientRefIdentity(input=other),
    ]


def temporary_variables(tf: Any) -> list[Any]:
    R, steps = tf.raw_ops, []
    for i, dtype in enumerate((tf.float32, tf.int64)):
        t = R.TemporaryVariable(shape=[2], dtype=dtype, var_name=f"t{i}")
        filled = R.AssignAdd(ref=R.Assign(ref=t, value=tf.cast([1, 2], dtype)), value=tf.cast([3, 4], dtype))
        steps.append(R.DestroyTemporaryVariable(ref=filled, var_name=f"t{i}"))
    return steps


def mutexes(tf: Any) -> list[Any]:
    R = tf.raw_ops
    m = R.MutexV2(shared_name="m")

    def take() -> Any:
        return R.ConsumeMutexLock(mutex_lock=R.MutexLock(mutex=m))

    return [take(), in_order(tf, [take, take])]


def values_kept_for_a_session(tf: Any) -> list[Any]:
    R, steps = tf.raw_ops, []
    for value in (np.float32([1, np.nan]), np.array(["a", ""]), np.int64(3), np.zeros((0, 2), bool)):
        handle = tf.get_session_handle(tf.constant(value))

        def kept(session: Any, handle: Any = handle) -> Any:
            held = session.run(handle)
            values = [held.eval(), held.eval()]
            held.delete()
            return values

        steps.append(kept)
    steps += [
        tf.shape(R.GetSessionHandleV2(value=np.float32(1))),
        R.GetSessionTensor(handle="nothing", dtype=tf.float32),
    ]
    return [*steps, R.DeleteSessionTensor(handle="nothing")]


def constants_of_a_file(tf: Any) -> list[Any]:
    steps = []
    for value in (sample(2, 3), np.int64([1, -2]), np.float64(0.5)):
        path = written("region", value.tobytes())
        dtype = tf.as_dtype(value.dtype)
        steps.append(tf.raw_ops.ImmutableConst(dtype=dtype, shape=value.shape, memory_region_name=path))
    path = written("region", b"abc")
    return [*steps, tf.raw_ops.ImmutableConst(dtype=tf.float32, shape=[2], memory_region_name=path)]


def new_memory(tf: Any) -> list[Any]:
    R = tf.raw_ops
    dtypes = (tf.float32, tf.int32, tf.bool, tf.string, tf.complex64)
    empty = [R.Empty(shape=np.int32(s), dtype=d, init=True) for d in dtypes for s in ([], [2, 3], [0])]
    copied = [R.DeepCopy(x=x) for x in (np.float32([np.nan, 1]), np.int64(4), np.zeros((0, 2), np.complex64))]
    return [
        empty,
        copied,
        R.Empty(shape=[-1], dtype=tf.float32, init=True),
        R.PrintV2(input="", output_stream="stderr", end=""),
    ]


def tables_by_reference(tf: Any) -> list[Any]:
    return _tables_by_reference(tf, tf.raw_ops)


def tables_by_resource(tf: Any) -> list[Any]:
    return _tables_by_reference(tf, WithResources(tf))


def _tables_by_reference(tf: Any, R: Any) -> list[Any]:
    steps: list[Any] = []
    one = R.HashTable(key_dtype=tf.string, value_dtype=tf.int64, shared_name="one")
    keys, values = np.array(["a", "b", ""]), np.int64([1, 2, 3])
    find = R.LookupTableFind(table_handle=one, keys=[["b", "x"], ["", "a"]], default_value=np.int64(-1))
    steps += [
        find,
        R.InitializeTable(table_handle=one, keys=keys, values=values),
        R.LookupTableSize(table_handle=one),
        find,
        R.LookupTableFind(table_handle=one, keys=np.array([], object), default_value=np.int64(-1)),
        R.InitializeTable(table_handle=one, keys=keys, values=values),
        R.InitializeTable(table_handle=one, keys=keys[:2], values=values[:2]),
        R.LookupTableFind(table_handle=one, keys=np.int64([1]), default_value=np.int64(-1)),
    ]
    path = written("vocabulary.txt", b"b 5\na 6\n c 7\n")
    for index, delimiter, value in ((-2, "\t", -1), (0, " ", 1), (0, "\t", 1)):
        table = R.HashTable(key_dtype=tf.string, value_dtype=tf.int64, shared_name=f"file {index} {delimiter}")
        fill = R.InitializeTableFromTextFile(
            table_handle=table, filename=path, key_index=index, value_index=value, delimiter=delimiter
        )
        look = R.LookupTableFind(table_handle=table, keys=["a", "b", "b 5", "a 6", " c 7"], default_value=np.int64(-1))
        steps += [fill, look, R.LookupTableSize(table_handle=table)]
    exported = R.LookupTableExport(table_handle=one, Tkeys=tf.string, Tvalues=tf.int64)
    order = tf.argsort(exported.values)
    return [*steps, [tf.gather(exported.keys, order), tf.gather(exported.values, order)]]


def tables_that_change_by_reference(tf: Any) -> list[Any]:
    return _tables_that_change_by_reference(tf, tf.raw_ops)


def tables_that_change_by_resource(tf: Any) -> list[Any]:
    return _tables_that_change_by_reference(tf, WithResources(tf))


def _tables_that_change_by_reference(tf: Any, R: Any) -> list[Any]:
    steps: list[Any] = []
    deleted = {"deleted_key": np.int64(-2)} if isinstance(R, WithResources) else {}
    none = {"key_dtype": tf.int64, "value_dtype": tf.float32}
    tables = [
        R.MutableHashTable(shared_name="plain", **none),
        R.MutableHashTableOfTensors(shared_name="of tensors", value_shape=[2], **none),
        R.MutableDenseHashTable(
            empty_key=np.int64(-1),
            shared_name="dense",
            value_shape=[2],
            initial_num_buckets=4,
            value_dtype=tf.float32,
            **deleted,
        ),
    ]
    for i, table in enumerate(tables):
        values = np.float32([[1, np.nan], [3, 4], [5, np.inf]])
        default = np.float32([-1, -2])
        if not i:
            values, default = values[:, 0], default[0]
        keys = np.int64([7, 0, 7])
        exported = R.LookupTableExport(table_handle=table, Tkeys=tf.int64, Tvalues=tf.float32)
        known = tf.reshape(exported.keys, [-1])
        held = tf.boolean_mask(known, known >= 0), tf.boolean_mask(exported.values, known >= 0)
        order = tf.argsort(held[0])
        look = R.LookupTableFind(table_handle=table, keys=np.int64([[0, 7], [9, 0]]), default_value=default)
        size = R.LookupTableSize(table_handle=table)
        steps += [
            [size, look],
            R.LookupTableInsert(table_handle=table, keys=keys, values=values),
            [size, look, tf.gather(held[0], order), tf.gather(held[1], order)],
            R.LookupTableInsert(table_handle=table, keys=keys[:0], values=values[:0]),
            *(
                []
                if table is tables[2] and deleted
                else [R.LookupTableImport(table_handle=table, keys=np.int64([3, 9]), values=values[:2])]
            ),
            [size, look, tf.gather(held[0], order), tf.gather(held[1], order)],
            R.LookupTableInsert(table_handle=table, keys=keys, values=values[:2]),
        ]
    return [
        *steps,
        R.LookupTableInsert(table_handle=tables[2], keys=np.int64([-1]), values=np.ones((1, 2), np.float32)),
    ]
