"""Programs of operations that only older graphs have, built with whichever `tensorflow.compat.v1` is given.

The oracle `tests/oracles/make_older_fixture.py` runs them with TensorFlow and writes down their graphs and results; the
tests build them here, and import what TensorFlow built.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

SHAPE = (4, 3)
RANDOM_PROGRAMS = 40
STEPS = 2

_SCALARS = {
    "lr": 0.1,
    "alpha": 0.2,
    "l1": 0.05,
    "l2": 0.3,
    "l2_shrinkage": 0.15,
    "lr_power": -0.5,
    "rho": 0.9,
    "momentum": 0.8,
    "epsilon": 0.01,
    "beta": 0.7,
    "beta1": 0.9,
    "beta2": 0.99,
    "beta1_power": 0.81,
    "beta2_power": 0.97,
    "logbase": 1.1,
    "sign_decay": 0.6,
}

#: update -> the variables that it changes, and its other inputs
UPDATES: dict[str, tuple[str, str]] = {
    "ApplyGradientDescent": ("var", "alpha delta"),
    "ApplyProximalGradientDescent": ("var", "alpha l1 l2 delta"),
    "ApplyMomentum": ("var accum", "lr grad momentum"),
    "ApplyAdagrad": ("var accum", "lr grad"),
    "ApplyAdagradV2": ("var accum", "lr epsilon grad"),
    "ApplyProximalAdagrad": ("var accum", "lr l1 l2 grad"),
    "ApplyAdagradDA": ("var gradient_accumulator gradient_squared_accumulator", "grad lr l1 l2 global_step"),
    "ApplyAdadelta": ("var accum accum_update", "lr rho epsilon grad"),
    "ApplyRMSProp": ("var ms mom", "lr rho momentum epsilon grad"),
    "ApplyCenteredRMSProp": ("var mg ms mom", "lr rho momentum epsilon grad"),
    "ApplyAdam": ("var m v", "beta1_power beta2_power lr beta1 beta2 epsilon grad"),
    "ApplyAdaMax": ("var m v", "beta1_power lr beta1 beta2 epsilon grad"),
    "ApplyFtrl": ("var accum linear", "grad lr l1 l2 lr_power"),
    "ApplyFtrlV2": ("var accum linear", "grad lr l1 l2 l2_shrinkage lr_power"),
    "ApplyAddSign": ("var m", "lr alpha sign_decay beta grad"),
    "ApplyPowerSign": ("var m", "lr logbase sign_decay beta grad"),
}
UPDATES |= {
    f"Sparse{name}": (state, f"{others.replace('delta', 'grad')} indices")
    for name, (state, others) in UPDATES.items()
    if name.removeprefix("Apply") not in {"GradientDescent", "Adam", "AdaMax", "AddSign", "PowerSign"}
}

#: a program: what is run once, in this order, and what is then fetched in each step
Program = tuple[list[Any], list[Any]]


def programs() -> Iterator[tuple[str, Callable[[Any], Program]]]:
    for name in UPDATES:
        yield name, lambda tf, name=name: optimizer_update(tf, name)
    for seed in range(RANDOM_PROGRAMS):
        yield f"random_{seed}", lambda tf, seed=seed: random_program(tf, seed)
    yield from (
        *(("counting", counting), ("temporary", temporary), ("branches", branches), ("merged", merged)),
        *(("selected", selected), ("gradient", gradient), ("queues", queues), ("priorities", priorities)),
        *(("tables", tables), ("tables_of_rows", tables_of_rows)),
        *(("arrays", arrays), ("splitting", splitting), ("prepended", prepended)),
    )


def _variable(tf: Any, value: Any, name: str | None = None) -> tuple[Any, Any]:
    """A reference variable, and what initializes it."""
    value = np.asarray(value)
    ref = tf.raw_ops.VariableV2(shape=value.shape, dtype=value.dtype, name=name)
    return ref, tf.raw_ops.Assign(ref=ref, value=value)


def _copied(tf: Any, ref: Any) -> Any:
    """The value at this moment: TensorFlow's Identity of a reference is the buffer, which later updates change."""
    return tf.raw_ops.AddN(inputs=[ref, tf.zeros_like(ref)])


# ---------------------------------------------------------------------- variables
def optimizer_update(tf: Any, name: str) -> Program:
    random = np.random.default_rng(len(name))
    state, others = (names.split() for names in UPDATES[name])
    variables = {key: _variable(tf, random.uniform(0.5, 1.5, SHAPE).astype(np.float32)) for key in state}
    arguments: dict[str, Any] = {key: ref for key, (ref, _) in variables.items()}
    rows = (2,) if name.startswith("Sparse") else SHAPE[:1]
    for key in others:
        if key in {"grad", "delta"}:
            arguments[key] = random.normal(size=(*rows, *SHAPE[1:])).astype(np.float32)
        elif key == "indices":
            arguments[key] = np.array([2, 0])
        else:
            arguments[key] = np.int64(3) if key == "global_step" else np.float32(_SCALARS[key])
    updated = getattr(tf.raw_ops, name)(**arguments)
    with tf.control_dependencies([updated]):
        after = [_copied(tf, ref) for ref, _ in variables.values()]
    return [initial for _, initial in variables.values()], after


def random_program(tf: Any, seed: int) -> Program:
    """Updates of a few variables one after the other, each by the variable or by what an update gave."""
    random = np.random.default_rng(seed)
    dtype = random.choice(["float32", "float64", "int32", "complex64"])

    def drawn(shape: tuple[int, ...]) -> Any:
        return random.integers(1, 5, shape).astype(dtype)

    variables = [_variable(tf, drawn(SHAPE)) for _ in range(3)]
    references = [[ref] for ref, _ in variables]
    before: list[Any] = []
    fetches: list[Any] = []
    for _ in range(8):
        which = int(random.integers(3))
        ref = references[which][int(random.integers(len(references[which])))]
        with tf.control_dependencies(before):
            given = _random_update(tf, random, drawn, dtype, ref)
        references[which].append(given)
        with tf.control_dependencies([given]):
            reads = [_copied(tf, read) for read in (ref, given, references[0][0])]
        fetches += reads
        before = [read.op for read in reads]
    return [initial for _, initial in variables], fetches


def _random_update(tf: Any, random: Any, drawn: Any, dtype: str, ref: Any) -> Any:
    raw = tf.raw_ops
    kinds = ["Assign", "AssignAdd", "AssignSub", "Scatter", "Scatter", "ScatterNd", "ScatterNd", "Slice", "Identity"]
    kind = random.choice(kinds)
    if kind == "Identity":
        return raw.RefIdentity(input=ref)
    if kind == "Slice":
        begin, size = int(random.integers(2)), int(random.integers(1, 3))
        ends = {"begin": [begin, 0], "end": [begin + size, 3], "strides": [1, 2]}
        return raw.StridedSliceAssign(ref=ref, **ends, value=drawn((size, 2)))
    if kind == "Scatter":
        last = ["Min", "Max"] if dtype != "complex64" else []
        how = random.choice(["Update", "Add", "Sub", "Mul", "Div", *last])
        rows = (
            random.permutation(4)[: int(random.integers(4))] if how in {"Update", "Div"} else random.integers(4, size=3)
        )
        updates = drawn(()) if random.integers(3) == 0 else drawn((len(rows), 3))
        return getattr(raw, f"Scatter{how}")(ref=ref, indices=rows.astype(np.int32), updates=updates)
    if kind == "ScatterNd":
        how = random.choice(["Update", "Add", "Sub"])
        places = np.stack([random.permutation(4)[:2], random.integers(3, size=2)], 1)[:, : int(random.integers(1, 3))]
        updates = drawn((2, 3)[: 3 - places.shape[1]])
        return getattr(raw, f"ScatterNd{how}")(ref=ref, indices=places, updates=updates)
    return getattr(raw, str(kind))(ref=ref, value=drawn(SHAPE))


def counting(tf: Any) -> Program:
    ref, initial = _variable(tf, np.int64(3), "counter")
    return [initial], [tf.raw_ops.CountUpTo(ref=ref, limit=100), tf.raw_ops.IsVariableInitialized(ref=ref)]


def temporary(tf: Any) -> Program:
    ref = tf.raw_ops.TemporaryVariable(shape=[2], dtype=tf.float32, var_name="kept")
    ref = tf.raw_ops.Assign(ref=ref, value=[1.0, 2.0])
    ref = tf.raw_ops.AssignAdd(ref=ref, value=[10.0, 20.0])
    return [], [tf.raw_ops.DestroyTemporaryVariable(ref=ref, var_name="kept")]


def branches(tf: Any) -> Program:
    """A variable that only one branch changes."""
    ref, initial = _variable(tf, np.float32([1, 2]))
    count, start = _variable(tf, np.int32(0))
    number = tf.raw_ops.AssignAdd(ref=count, value=1)
    side = tf.raw_ops.RefSwitch(data=ref, pred=tf.raw_ops.Equal(x=number, y=1))
    added = tf.raw_ops.AddN(inputs=[tf.raw_ops.AssignAdd(ref=side[1], value=[10.0, 10.0]), [0.0, 0.0]])
    other = tf.raw_ops.AddN(inputs=[side[0], [0.5, 0.5]])
    return [initial, start], [tf.raw_ops.Merge(inputs=[other, added])[0]]


def merged(tf: Any) -> Program:
    """A reference that leaves a conditional is one still."""
    ref, initial = _variable(tf, np.float32([1, 2]))
    side = tf.raw_ops.RefSwitch(data=ref, pred=True)
    joined = tf.raw_ops.RefMerge(inputs=[side[0], side[1]])[0]
    return [initial], [_copied(tf, tf.raw_ops.AssignAdd(ref=joined, value=[3.0, 3.0]))]


def selected(tf: Any) -> Program:
    (first, one), (second, two) = _variable(tf, np.float32([1])), _variable(tf, np.float32([2]))
    changed = tf.raw_ops.AssignAdd(ref=tf.raw_ops.RefSelect(index=1, inputs=[first, second]), value=[5.0])
    count, start = _variable(tf, np.int32(-1))
    with tf.control_dependencies([changed]):
        index = tf.raw_ops.AssignAdd(ref=count, value=1)
        chosen = tf.raw_ops.RefSelect(index=index, inputs=[first, second])
        return [one, two, start], [_copied(tf, chosen)]


def gradient(tf: Any) -> Program:
    """Gradients with respect to references, which then change them."""
    w, one = _variable(tf, np.float32([[1, 2], [3, 4]]))
    b, two = _variable(tf, np.float32([0.5, -0.5]))
    x = tf.constant([[1.0, -1.0], [0.5, 2.0]])
    loss = tf.reduce_sum(tf.square(tf.tanh(tf.matmul(x, w) + b)))
    grads = tf.gradients(loss, [w, b])
    with tf.control_dependencies([*grads, loss]):
        updates = [
            tf.raw_ops.ApplyGradientDescent(var=ref, alpha=0.1, delta=grad)
            for ref, grad in zip([w, b], grads, strict=True)
        ]
    with tf.control_dependencies(updates):
        return [one, two], [loss, *grads, _copied(tf, w), _copied(tf, b)]


# ---------------------------------------------------------------------- queues and tables
def queues(tf: Any) -> Program:
    raw = tf.raw_ops
    types = [tf.int32, tf.string]
    fifo = raw.FIFOQueue(component_types=types, shapes=[[], [2]], capacity=20)
    padding = raw.PaddingFIFOQueue(component_types=[tf.float32], shapes=[tf.TensorShape([None])])
    numbers, words = np.arange(6, dtype=np.int32), np.array([[str(i), "x"] for i in range(6)], object)
    filled = raw.QueueEnqueueMany(handle=fifo, components=[numbers, words])
    one = raw.QueueEnqueue(handle=fifo, components=[np.int32(9), np.array(["a", "b"], object)])
    short, long = (raw.QueueEnqueue(handle=padding, components=[np.ones(n, np.float32)]) for n in (1, 3))
    first = raw.QueueDequeue(handle=fifo, component_types=types)
    with tf.control_dependencies([first[0]]):
        more = raw.QueueDequeueMany(handle=fifo, n=2, component_types=types)
    with tf.control_dependencies([more[0]]):
        size = raw.QueueSize(handle=fifo)
    state = raw.QueueIsClosed(handle=fifo)
    again = raw.QueueEnqueueMany(handle=padding, components=[np.ones((2, 2), np.float32)])
    with tf.control_dependencies([again]):
        padded = raw.QueueDequeueMany(handle=padding, n=2, component_types=[tf.float32])
    return [filled, one, short, long], [*first, *more, size, state, *padded]


def priorities(tf: Any) -> Program:
    raw = tf.raw_ops
    queue = raw.PriorityQueue(component_types=[tf.int32], shapes=[[]])
    components = [np.array([5, 1, 3, 2], np.int64), np.array([50, 10, 30, 20], np.int32)]
    filled = raw.QueueEnqueueMany(handle=queue, components=components)
    closed = raw.QueueClose(handle=queue)
    return [filled, closed], raw.QueueDequeue(handle=queue, component_types=[tf.int64, tf.int32])


def tables(tf: Any) -> Program:
    raw = tf.raw_ops
    table = raw.HashTable(key_dtype=tf.string, value_dtype=tf.int64)
    filled = raw.InitializeTable(
        table_handle=table, keys=np.array(["a", "b"], object), values=np.array([1, 2], np.int64)
    )
    keys = np.array(["b", "c", "a"], object)
    found = raw.LookupTableFind(table_handle=table, keys=keys, default_value=np.int64(-1))
    return [filled], [found, raw.LookupTableSize(table_handle=table)]


def tables_of_rows(tf: Any) -> Program:
    raw = tf.raw_ops
    single = raw.MutableHashTable(key_dtype=tf.int64, value_dtype=tf.float32)
    rows = raw.MutableHashTableOfTensors(key_dtype=tf.int64, value_dtype=tf.float32, value_shape=[2])
    keys = np.array([7, 3], np.int64)
    one = raw.LookupTableInsert(table_handle=single, keys=keys, values=np.float32([0.5, 1.5]))
    two = raw.LookupTableInsert(table_handle=rows, keys=keys, values=np.float32([[1, 2], [3, 4]]))
    found = raw.LookupTableFind(table_handle=rows, keys=np.array([3, 4], np.int64), default_value=np.float32([9, 9]))
    exported = raw.LookupTableExport(table_handle=single, Tkeys=tf.int64, Tvalues=tf.float32)
    total = [tf.reduce_sum(exported[0]), tf.reduce_sum(exported[1])]
    return [one, two], [found, *total, raw.LookupTableSize(table_handle=rows)]


# ---------------------------------------------------------------------- tensor arrays
def _array(tf: Any, version: str, size: int, **more: Any) -> tuple[Any, Any]:
    made = getattr(tf.raw_ops, f"TensorArray{version}")(size=size, dtype=tf.float32, **more)
    return (made[0], made[1]) if version == "V3" else (made, tf.constant(0.0))


def arrays(tf: Any, version: str = "V3") -> Program:
    def raw(what: str, **given: Any) -> Any:
        return getattr(tf.raw_ops, f"TensorArray{what}{version}")(handle=handle, **given)

    handle, flow = _array(tf, version, 3, clear_after_read=False)
    x = tf.constant([[1.0, 2.0], [3.0, 4.0]])
    flow = raw("Scatter", indices=[2, 0], value=x, flow_in=flow)
    flow = raw("Write", index=1, value=x[0] * x[1], flow_in=flow)
    read = raw("Read", index=0, flow_in=flow, dtype=tf.float32)
    rows = raw("Gather", indices=[1, 2, 1], flow_in=flow, dtype=tf.float32)
    loss = tf.reduce_sum(tf.square(rows)) + tf.reduce_sum(read * read * read)
    return [], [read, rows, raw("Size", flow_in=flow), *tf.gradients(loss, [x])]


def splitting(tf: Any, version: str = "V3") -> Program:
    def raw(what: str, **given: Any) -> Any:
        return getattr(tf.raw_ops, f"TensorArray{what}{version}")(handle=handle, **given)

    handle, flow = _array(tf, version, 2, clear_after_read=False)
    x = tf.constant([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    flow = raw("Split", value=x, lengths=np.array([1, 2], np.int64), flow_in=flow)
    joined = raw("Concat", flow_in=flow, dtype=tf.float32)
    last = raw("Read", index=1, flow_in=flow, dtype=tf.float32)
    loss = tf.reduce_sum(joined[0] * joined[0]) + tf.reduce_sum(last * last * last)
    grads = tf.gradients(loss, [x])
    with tf.control_dependencies([last.op, joined[0].op, *grads]):
        closed = raw("Close")
    with tf.control_dependencies([closed]):
        return [], [joined[0], joined[1], last, *grads, tf.constant(1)]


def prepended(tf: Any) -> Program:
    """An array of gradients whose elements have a dimension in front."""
    raw = tf.raw_ops
    handle, flow = _array(tf, "V3", 2, element_shape=[2], clear_after_read=False)
    flow = raw.TensorArrayWriteV3(handle=handle, index=0, value=[1.0, 2.0], flow_in=flow)
    flow = raw.TensorArrayWriteV3(handle=handle, index=1, value=[1.0, 2.0], flow_in=flow)
    grads = raw.TensorArrayGradWithShape(handle=handle, flow_in=flow, shape_to_prepend=[3], source="gradients")
    flow = raw.TensorArrayWriteV3(handle=grads[0], index=1, value=np.ones((3, 2), np.float32), flow_in=grads[1])
    flow = raw.TensorArrayWriteV3(handle=grads[0], index=1, value=np.ones((3, 2), np.float32), flow_in=flow)
    return [], [raw.TensorArrayReadV3(handle=grads[0], index=i, flow_in=flow, dtype=tf.float32) for i in (0, 1)]
