"""Updates of few rows that change variables where they lie: what they do is what compiled ones do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.core.dtypes import as_dtype
from anabranch.core.host_memory import aligned_empty
from anabranch.errors import FailedPreconditionError, InvalidArgumentError
from anabranch.runtime.host_context import HostContext
from anabranch.runtime.worker_threads import worker_threads
from anabranch.xla import row_updates
from tests.device.ops.test_training import Array, Update, fixture, sparse_cases
from tests.device.shared_task import SharedTask


class OpenUpdate(Update):
    """The same as `Update`, but how many rows change is not known when the graph is built."""

    @staticmethod
    def fed_shape(name: str, value: Array) -> list[int | None]:
        return [None, *value.shape[1:]] if name in ("grad", "indices") else list(value.shape)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Of each update in place, how many elements it took."""
    counted: list[int] = []
    run = row_updates.RowUpdates.__call__

    def count(self: Any, inputs: Any, values: Any) -> None:
        counted.append(sum(map(np.size, inputs)))
        run(self, inputs, values)

    monkeypatch.setattr(row_updates.RowUpdates, "__call__", count)
    return counted


@pytest.mark.parametrize("case", sparse_cases())
def test_they_do_what_tensorflow_does(case: str, calls: list[int]) -> None:
    data = fixture()[case]
    update = OpenUpdate(case, data["before"], data["input"])
    # steps of our own threads are those of parameter servers
    after = worker_threads.call(lambda: update.run(data["input"]))
    assert len(calls) == 1
    for name, expected in data["after"].items():
        np.testing.assert_allclose(after[name], expected, rtol=2e-5, atol=2e-6, err_msg=name)
    others = np.setdiff1d(np.arange(5), data["input"]["indices"])
    for name, before in data["before"].items():
        assert after[name][others].tobytes() == before[others].tobytes(), name


@pytest.mark.parametrize("case", sparse_cases())
def test_repeated_rows_are_summed_as_in_compiled_updates(case: str, calls: list[int]) -> None:
    data = fixture()[case]
    inputs = dict(data["input"])
    grad, indices = inputs["grad"], inputs["indices"]
    parts = np.stack([grad[0] * 0.25, grad[1], grad[0] * 0.5, grad[2], grad[0] * 0.25])
    inputs.update(grad=parts, indices=indices[[0, 1, 0, 2, 0]])
    compiled = Update(case, data["before"], inputs)
    for _ in range(3):
        expected = compiled.run(inputs)
    update = OpenUpdate(case, data["before"], inputs)
    for _ in range(3):
        after = worker_threads.call(lambda: update.run(inputs))
    assert len(calls) == 3
    for name, value in expected.items():
        np.testing.assert_allclose(after[name], value, rtol=2e-6, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("indices", [[3, 0, 5], [3, -1, 4]])
@pytest.mark.parametrize("case", sparse_cases())
def test_an_index_out_of_range_changes_nothing(case: str, indices: list[int], calls: list[int]) -> None:
    data = fixture()[case]
    update = OpenUpdate(case, data["before"], data["input"])
    bad = next(i for i in indices if not 0 <= i < 5)
    with pytest.raises(InvalidArgumentError, match=rf"indices\[\d\] = {bad} is not in \[0, 5\)"):
        worker_threads.call(lambda: update.run({**data["input"], "indices": np.array(indices, np.int32)}))
    assert len(calls) == 1
    for name, value in update.state().items():
        assert value.tobytes() == data["before"][name].tobytes(), name


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
def test_other_types(dtype: str, calls: list[int]) -> None:
    kind, data = np.dtype(as_dtype(dtype).as_numpy_dtype), fixture()["ResourceSparseApplyFtrl[lr_power=-0.7]"]
    cast = {p: {n: v.astype(kind) if v.dtype == np.float32 else v for n, v in data[p].items()} for p in data}
    cast["input"]["indices"] = cast["input"]["indices"].astype(np.int64)
    update = OpenUpdate("ResourceSparseApplyFtrl", cast["before"], cast["input"])
    after = worker_threads.call(lambda: update.run(cast["input"]))
    assert len(calls) == 1
    tolerance = {"float64": 1e-4, "float16": 2e-2, "bfloat16": 0.15}[dtype]
    for name, expected in data["after"].items():
        assert after[name].dtype == kind
        np.testing.assert_allclose(after[name].astype(np.float64), expected, rtol=tolerance, atol=tolerance)


def test_no_rows_and_many(calls: list[int]) -> None:
    data = fixture()["ResourceSparseApplyAdagrad[update_slots=True]"]
    update = OpenUpdate("ResourceSparseApplyAdagrad", data["before"], data["input"])
    none = {**data["input"], "grad": np.zeros((0, 3), np.float32), "indices": np.zeros(0, np.int32)}
    for name, value in worker_threads.call(lambda: update.run(none)).items():
        np.testing.assert_array_equal(value, data["before"][name])
    count = row_updates.MAX_ELEMENTS
    many = {
        **none,
        "grad": np.full((count, 3), 2.0**-12, np.float32),
        "indices": np.arange(count, dtype=np.int32) % 5,
    }
    worker_threads.call(lambda: update.run(many))
    assert len(calls) == 1, "so many rows are left to XLA"


# ---------------------------------------------------------------------- other changes of rows
_HOWS = ["Add", "Sub", "Mul", "Div", "Min", "Max", "Update"]


@pytest.mark.parametrize("dtype", [np.float32, np.int64])
@pytest.mark.parametrize("how", _HOWS)
def test_scatters(how: str, dtype: Any, calls: list[int]) -> None:
    before = np.arange(12, dtype=dtype).reshape(6, 2) + 3
    rows = np.array([[2, 1], [4, 2], [2, 2], [9, 1]], dtype)
    at = np.array([1, 4, 1, 0] if how != "Update" else [1, 4, 2, 0], np.int64)
    with tf.Graph().as_default(), tf.Session() as session:
        table = tf.get_variable("table", initializer=before, use_resource=True)
        indices = tf.placeholder(tf.int64, [None])
        updates = tf.placeholder(dtype, [None, 2])
        scatter = getattr(tf.raw_ops, f"ResourceScatter{how}")(resource=table.handle, indices=indices, updates=updates)
        session.run(table.initializer)
        session.run(scatter, {indices: at, updates: rows})  # on this thread: not in place
        expected = session.run(table)
        session.run(table.initializer)
        assert not calls
        worker_threads.call(lambda: session.run(scatter, {indices: at, updates: rows}))
        assert len(calls) == 1
        np.testing.assert_array_equal(session.run(table), expected)
        assert not np.array_equal(expected, before)


@pytest.mark.parametrize("is_repeated", [False, True])
@pytest.mark.parametrize("count", [1, 3, 64, 65, 100])
@pytest.mark.parametrize("how", [how for how in _HOWS if how not in ("Div", "Update")])
def test_scatters_of_few_and_many_rows(how: str, count: int, is_repeated: bool, calls: list[int]) -> None:
    random = np.random.default_rng(count)
    before = random.integers(1, 9, (200, 3))
    at = random.permutation(200)[:count]
    at[-1] = at[0] if is_repeated else at[-1]
    rows = random.integers(1, 4, (count, 3))
    functions = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Min": np.minimum, "Max": np.maximum}
    expected = before.copy()
    functions[how].at(expected, at, rows)
    with tf.Graph().as_default(), tf.Session() as session:
        table = tf.get_variable("table", initializer=before, use_resource=True)
        indices, updates = tf.placeholder(tf.int64, [None]), tf.placeholder(tf.int64, [None, 3])
        scatter = getattr(tf.raw_ops, f"ResourceScatter{how}")(resource=table.handle, indices=indices, updates=updates)
        session.run(table.initializer)
        worker_threads.call(lambda: session.run(scatter, {indices: at, updates: rows}))
        np.testing.assert_array_equal(session.run(table), expected)
        for bad in (-1, 200):
            wrong = at.copy()
            wrong[-1] = bad
            with pytest.raises(InvalidArgumentError, match=rf"indices\[{count - 1}\] = {bad} is not in \[0, 200\)"):
                worker_threads.call(lambda wrong=wrong: session.run(scatter, {indices: wrong, updates: rows}))
        np.testing.assert_array_equal(session.run(table), expected)
    assert len(calls) == 3


@pytest.mark.parametrize("dtype", [tf.float32, tf.int64, tf.bool])
def test_rows_take_the_place_of_others_without_a_copy_of_the_table(dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """How many there are is known only when they have been compared; only strings have a kernel of the host for it."""
    monkeypatch.setattr(HostContext, "write", lambda *_: pytest.fail("the table is copied"))
    with tf.Graph().as_default(), tf.Session() as session:
        table = tf.get_variable("table", initializer=np.zeros([100, 2], dtype.as_numpy_dtype), use_resource=True)
        ids, rows = tf.placeholder(tf.int64, [None]), tf.placeholder(dtype, [None, 2])
        at = tf.unique(ids).y
        update = tf.raw_ops.ResourceScatterUpdate(
            resource=table.handle, indices=at, updates=tf.gather(rows, tf.range(tf.size(at)))
        )
        session.run(table.initializer)
        expected = np.zeros([100, 2], dtype.as_numpy_dtype)
        # more numbers of rows than programs are made for
        for count in range(1, 7):
            numbers = np.repeat(np.arange(count) * 3, 2)
            new = (np.arange(count * 2).reshape(count, 2) % 5 + count).astype(dtype.as_numpy_dtype)
            session.run(update, {ids: numbers, rows: new})
            expected[numbers[::2]] = new
            np.testing.assert_array_equal(session.run(table), expected)
        with pytest.raises(InvalidArgumentError, match=r"indices\[0\] = 100 is not in \[0, 100\)"):
            session.run(update, {ids: [100], rows: new})
        np.testing.assert_array_equal(session.run(table), expected)


def test_elements_by_full_index(calls: list[int]) -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        table = tf.get_variable("table", initializer=np.zeros((3, 2), np.float32), use_resource=True)
        indices = tf.placeholder(tf.int32, [None, 2])
        updates = tf.placeholder(tf.float32, [None])
        add = tf.raw_ops.ResourceScatterNdAdd(ref=table.handle, indices=indices, updates=updates)
        session.run(table.initializer)
        feeds = {indices: [[0, 1], [2, 0], [0, 1]], updates: [1.0, 2.0, 4.0]}
        worker_threads.call(lambda: session.run(add, feeds))
        assert len(calls) == 1
        np.testing.assert_array_equal(session.run(table), [[0, 5], [0, 0], [2, 0]])


# ---------------------------------------------------------------------- variables
class _TwoTables:
    """Two tables, of which one step changes rows; a dense variable beside them."""

    def __init__(self) -> None:
        self.task = SharedTask()
        self.session = self.task.session()
        self.first = tf.get_variable("first", initializer=np.zeros((20000, 4), np.float32), use_resource=True)
        self.second = tf.get_variable("second", initializer=np.zeros((4, 4), np.float32), use_resource=True)
        self.dense = tf.get_variable("dense", initializer=np.zeros(3, np.float32), use_resource=True)
        self.at, self.rows = tf.placeholder(tf.int64, [None]), tf.placeholder(tf.float32, [None, 4])
        changes = [
            tf.raw_ops.ResourceScatterAdd(resource=table.handle, indices=self.at, updates=self.rows)
            for table in (self.first, self.second)
        ]
        changes.append(tf.raw_ops.AssignAddVariableOp(resource=self.dense.handle, value=[1.0, 2.0, 3.0]))
        self.step = tf.group(*changes)
        self.session.run(tf.global_variables_initializer())

    def run(self, at: list[int]) -> None:
        rows = np.ones((len(at), 4), np.float32)
        worker_threads.call(lambda: self.session.run(self.step, {self.at: at, self.rows: rows}))


def test_all_variables_of_an_island_change_or_none(calls: list[int]) -> None:
    with tf.Graph().as_default():
        tables = _TwoTables()
        tables.run([1, 3])
        before = tables.session.run([tables.first, tables.second, tables.dense])
        np.testing.assert_array_equal(before[1], [[0] * 4, [1] * 4, [0] * 4, [1] * 4])
        np.testing.assert_array_equal(before[2], [1, 2, 3])
        with pytest.raises(InvalidArgumentError, match="is not in"):
            tables.run([2, 7])  # the first table has such a row, the second has not
        assert len(calls) == 2
        for value, was in zip(tables.session.run([tables.first, tables.second, tables.dense]), before, strict=True):
            np.testing.assert_array_equal(value, was)


def test_they_are_changed_where_they_lie_unless_somebody_reads_them(calls: list[int]) -> None:
    with tf.Graph().as_default():
        tables = _TwoTables()
        state = tables.task.variables(tables.session, tables.first)[0]
        tables.run([0])
        value = state.value
        tables.run([0, 1])
        assert state.value is value
        state.pins.append(None)
        tables.run([0, 2])
        state.pins.clear()
        assert state.value is not value
        np.testing.assert_array_equal(np.array(value)[:3, 0], [2, 1, 0])
        np.testing.assert_array_equal(tables.session.run(tables.first)[:3, 0], [3, 1, 1])
        assert len(calls) == 3


def test_what_was_fetched_stays_what_it_was(calls: list[int]) -> None:
    with tf.Graph().as_default():
        tables = _TwoTables()
        tables.run([0])
        fetched = tables.session.run(tables.first)
        read = tables.session.run(tables.first.read_value())
        tables.run([0])
        assert (fetched[0, 0], read[0, 0]) == (1, 1)
        tables.session.run(tables.first.assign(np.full((20000, 4), 5, np.float32)))
        tables.run([1])
        np.testing.assert_array_equal(tables.session.run(tables.first)[:2, 0], [5, 6])
        assert len(calls) == 3


def test_no_memory_is_shared_with_what_a_value_came_from(calls: list[int]) -> None:
    first = np.random.default_rng(0).normal(size=(2000, 32)).astype(np.float32)
    before = first.copy()
    with tf.Graph().as_default():
        session = SharedTask().session()
        constant = tf.constant(first)
        table, other, fed = (tf.get_variable(n, initializer=constant, use_resource=True) for n in "abc")
        placeholder = tf.placeholder(tf.float32, first.shape)
        assign = tf.raw_ops.AssignVariableOp(resource=fed.handle, value=placeholder)
        copy = tf.raw_ops.AssignVariableOp(resource=other.handle, value=fed.read_value())
        at, rows = tf.placeholder(tf.int64, [None]), tf.placeholder(tf.float32, [None, 32])
        changes = [tf.raw_ops.ResourceScatterAdd(resource=v.handle, indices=at, updates=rows) for v in (table, fed)]
        # more often than kernels run directly before the assignments are compiled
        for count in range(1, 41):
            session.run([table.initializer, other.initializer])
            given = aligned_empty(first.shape, np.float32)
            given[...] = count
            session.run(assign, {placeholder: given})
            session.run(copy)
            worker_threads.call(lambda: session.run(changes, {at: [3], rows: np.ones((1, 32), np.float32)}))
            assert len(calls) == count
            np.testing.assert_array_equal(given, count)
            np.testing.assert_array_equal(session.run(other), count)
            np.testing.assert_array_equal(session.run(constant), before)
            np.testing.assert_array_equal(session.run(table)[3], before[3] + 1)
            np.testing.assert_array_equal(session.run(fed)[2:4, 0], [count, count + 1])


# ---------------------------------------------------------------------- reading rows on the host
@pytest.mark.parametrize("dtype", [tf.float32, tf.float16, tf.bfloat16, tf.string])
def test_rows_are_taken_without_a_copy_of_the_table(dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HostContext, "read", lambda *_: pytest.fail("the table is copied"))
    with tf.Graph().as_default(), tf.Session() as session:
        table = tf.get_variable("table", [100, 2], dtype, use_resource=True, initializer=None)
        numbers = np.arange(200).reshape(100, 2)
        values = numbers.astype(str).astype(object) if dtype is tf.string else numbers.astype(dtype.as_numpy_dtype)
        ids = tf.placeholder(tf.int64, [None])
        # how many there are is known only when they have been compared
        rows = tf.gather(table, tf.unique(ids).y)
        elements = tf.gather_nd(table, tf.unique(ids).y[:, None])
        with pytest.raises(FailedPreconditionError, match="table"):
            session.run(rows, {ids: [1]})
        table.load(values, session)
        for taken in (rows, elements):
            found = session.run(taken, {ids: [7, 3, 7, 99]})
            expected = values[[7, 3, 99]]
            assert [*map(str, found.ravel())] == [*map(str, _as_fetched(expected).ravel())]
            assert session.run(taken, {ids: []}).shape == (0, 2)
            with pytest.raises(InvalidArgumentError, match=r"indices\[1"):
                session.run(taken, {ids: [7, 100]})


def _as_fetched(values: Array) -> Array:
    return np.array([v.encode() for v in values.ravel()], object) if values.dtype == object else values


# ---------------------------------------------------------------------- several updates in one
_RULES: dict[str, tuple[list[str], list[str]]] = {
    "Adagrad": (["var", "accum"], ["lr"]),
    "Ftrl": (["var", "accum", "linear"], ["lr", "l1", "l2", "lr_power"]),
    "Momentum": (["var", "accum"], ["lr", "momentum"]),
}


class _ManyTables:
    """One rule for tables with rows of two sizes; the last one has a rate of its own."""

    def __init__(self, rule: str) -> None:
        names, scalars = _RULES[rule]
        random = np.random.default_rng(1)
        self.feeds: dict[Any, Any] = {}
        self.variables, updates = [], []
        numbers = {name: tf.constant(np.float32({"lr_power": -0.5}.get(name, 0.25))) for name in scalars}
        for table, (rows, width) in enumerate([(30, 2), (7, 2), (90, 2), (30, 3), (30, 2)]):
            rates = numbers | {"lr": tf.constant(np.float32(0.125))} if table == 4 else numbers
            state = {}
            for name in names:
                start = random.uniform(0.5, 2, (rows, width)).astype(np.float32)
                state[name] = tf.get_variable(f"{name}{table}", initializer=start, use_resource=True)
            self.variables += state.values()
            indices, grad = tf.placeholder(tf.int64, [None]), tf.placeholder(tf.float32, [None, width])
            self.feeds[indices] = random.integers(0, rows, 10 + table)
            self.feeds[grad] = random.normal(size=(10 + table, width)).astype(np.float32)
            apply = getattr(tf.raw_ops, f"ResourceSparseApply{rule}")
            handles = {name: variable.handle for name, variable in state.items()}
            updates.append(apply(**handles, grad=grad, indices=indices, **rates))
        self.step = tf.group(*updates)

    def run(self, session: tf.Session, feeds: dict[Any, Any]) -> list[bytes]:
        session.run(tf.global_variables_initializer())
        worker_threads.call(lambda: session.run(self.step, feeds))
        return [value.tobytes() for value in session.run(self.variables)]


@pytest.mark.parametrize("rule", _RULES)
def test_alike_updates_are_computed_together_and_are_what_each_is_alone(
    rule: str, calls: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    joined: list[int] = []
    compute = row_updates._compute_joined
    monkeypatch.setattr(row_updates, "_compute_joined", lambda updates: (joined.append(len(updates)), compute(updates)))
    with tf.Graph().as_default(), tf.Session() as session:
        tables = _ManyTables(rule)
        together = tables.run(session, tables.feeds)
        assert sorted(joined) == [1, 1, 3], "three have rows of one size and one rate"
        joined.clear()
        monkeypatch.setattr(row_updates, "JOINED_ELEMENTS", 0)
        assert tables.run(session, tables.feeds) == together
        assert joined == [1] * 5
        nothing = {key: value[:0] for key, value in tables.feeds.items()}
        monkeypatch.undo()
        before = tables.run(session, nothing)
        assert before != together
        assert tables.run(session, nothing) == before


def test_one_that_fails_leaves_all_as_they_were() -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        tables = _ManyTables("Ftrl")
        before = tables.run(session, {key: value[:0] for key, value in tables.feeds.items()})
        wrong = dict(tables.feeds)
        third = list(wrong)[4]
        wrong[third] = np.where(np.arange(len(wrong[third])) == 1, 90, wrong[third])
        with pytest.raises(InvalidArgumentError, match=r"indices\[1\] = 90 is not in \[0, 90\)"):
            worker_threads.call(lambda: session.run(tables.step, wrong))
        assert [value.tobytes() for value in session.run(tables.variables)] == before
