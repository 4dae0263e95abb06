"""The operations behind `tf.data`, each called as it stands in a graph file."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.core.attrs import FuncAttr
from anabranch.core.dtypes import DType
from anabranch.frontend.data.functions import ElementBody
from anabranch.frontend.data.structure import from_legacy
from anabranch.graph.building import apply_op
from anabranch.graph.graph import op_def_of
from anabranch.ops import raw

INT: dict[str, Any] = {"output_types": [tf.int64], "output_shapes": [[]]}
VECTOR: dict[str, Any] = {"output_types": [tf.int64], "output_shapes": [[None]]}
TEXT: dict[str, Any] = {"output_types": [tf.string], "output_shapes": [[]]}


def elements(variant: Any, typed: dict[str, Any], most: int = 20) -> list[Any]:
    """What an iterator yields."""
    iterator = raw.IteratorV2(shared_name="", container="", **typed)
    start = raw.MakeIterator(variant, iterator)
    following = raw.IteratorGetNext(iterator, **typed)
    following = following[0] if len(following) == 1 else following
    found: list[Any] = []
    with tf.Session() as session:
        session.run(start)
        for _ in range(most):
            try:
                value = session.run(following)
            except tf.errors.OutOfRangeError:
                break
            found.append([v.tolist() for v in value] if isinstance(value, list | tuple) else value)
    return [f.tolist() if hasattr(f, "tolist") else f for f in found]


def numbers(count: int = 6) -> Any:
    return raw.RangeDataset(np.int64(0), np.int64(count), np.int64(1), **INT)


def taken(iterator: Any, typed: dict[str, Any] = INT, kind: str = "IteratorGetNext") -> Any:
    """The next element of an iterator, of one component."""
    return getattr(raw, kind)(iterator, **typed)[0]


def function(body: Callable[..., Any], *structures: tuple[DType, Any]) -> ElementBody:
    return ElementBody(body, "test", *[from_legacy(dtype, tf.TensorShape(shape)) for dtype, shape in structures])


def with_function(op: str, body: ElementBody, attr: str = "f", typed: dict[str, Any] = INT, **bound: Any) -> Any:
    given = {"input_dataset": numbers(), "other_arguments": body.captured, attr: body.function, **bound, **typed}
    return apply_op(op_def_of(op), given).outputs[0]


SCALAR: tuple[DType, list[int]] = (tf.int64, [])


# ------------------------------------------------------------------------------------------------ sources
def test_tensors() -> None:
    whole = raw.TensorDataset([np.arange(3, dtype=np.int64)], output_shapes=[[3]])
    assert elements(whole, VECTOR) == [[0, 1, 2]]
    rows = raw.TensorSliceDataset([np.arange(3, dtype=np.int64)], output_shapes=[[]])
    assert elements(rows, INT) == [0, 1, 2]


def test_rows_of_a_sparse_tensor() -> None:
    rows = raw.SparseTensorSliceDataset(
        np.array([[0, 1], [2, 0], [2, 3]]), np.array([5, 6, 7], np.int64), np.array([3, 4])
    )
    typed: dict[str, Any] = {"output_types": [tf.int64] * 3, "output_shapes": [[None, 1], [None], [1]]}
    assert elements(rows, typed) == [[[[1]], [5], [4]], [[], [], [4]], [[[0], [3]], [6, 7], [4]]]


@pytest.mark.parametrize("op", ["RandomDataset", "ExperimentalRandomDataset"])
def test_random_numbers(op: str) -> None:
    kind = getattr(raw, op)
    first = elements(kind(np.int64(1), np.int64(2), **INT), INT)
    again = elements(kind(np.int64(1), np.int64(2), **INT), INT)
    other = elements(kind(np.int64(1), np.int64(3), **INT), INT)
    assert first == again != other
    assert len(set(first)) == 20
    assert all(0 <= n < 2**32 for n in first)


def test_a_generator_of_functions() -> None:
    counts: list[int] = []
    closed = threading.Event()

    def step(_: Any) -> Any:
        counts.append(len(counts))
        if len(counts) > 3:
            raise StopIteration
        return np.int64(counts[-1])

    init = function(lambda: tf.constant(0, tf.int64))
    following = function(lambda n: tf.reshape(tf.py_func(step, [n], tf.int64), []), SCALAR)

    def finish(number: Any) -> Any:
        closed.set()
        return number

    final = function(lambda n: tf.py_func(finish, [n], tf.int64), SCALAR)
    bound = {
        "init_func": init.function,
        "next_func": following.function,
        "finalize_func": final.function,
        **{f"{name}_func_other_args": [] for name in ("init", "next", "finalize")},
        **INT,
    }
    assert elements(apply_op(op_def_of("GeneratorDataset"), bound).outputs[0], INT) == [0, 1, 2]
    assert closed.is_set()


@pytest.fixture
def files(tmp_path: Any) -> list[str]:
    (tmp_path / "a").write_bytes(b"one\r\ntwo\n\nthree")
    with tf.python_io.TFRecordWriter(str(tmp_path / "b")) as writer:
        for record in (b"x", b"", b"yz" * 100):
            writer.write(record)
    (tmp_path / "c").write_bytes(b"HEAD" + b"abcdefghi" + b"FOOT")
    return [str(tmp_path / name) for name in "abc"]


def test_records_of_files(files: list[str]) -> None:
    buffer = np.int64(0)
    lines = raw.TextLineDataset([files[0], files[0]], "", buffer)
    assert elements(lines, TEXT) == [b"one", b"two", b"", b"three"] * 2
    rows = raw._CSVRowDataset(files[0], "", buffer, field_delim="n")
    assert elements(rows, TEXT) == [b"one", b"two", b"", b"three"]
    assert elements(raw.TFRecordDataset(files[1], "", buffer), TEXT) == [b"x", b"", b"yz" * 100]
    sizes = [np.int64(n) for n in (4, 3, 4)]
    assert elements(raw.FixedLengthRecordDataset(files[2], *sizes, buffer), TEXT) == [b"abc", b"def", b"ghi"]
    assert elements(raw.FixedLengthRecordDatasetV2(files[2], *sizes, buffer, ""), TEXT) == [b"abc", b"def", b"ghi"]


@pytest.mark.parametrize("op", ["MatchingFilesDataset", "ExperimentalMatchingFilesDataset"])
def test_names_of_files(op: str, files: list[str]) -> None:
    pattern = files[0][:-1] + "[ab]"
    assert elements(getattr(raw, op)(pattern), TEXT) == [files[0].encode(), files[1].encode()]


# ------------------------------------------------------------------------------------------------ transformations
@pytest.mark.parametrize(
    ("op", "inputs", "expected"),
    [
        ("TakeDataset", [2], [0, 1]),
        ("TakeDataset", [-1], [0, 1, 2, 3, 4, 5]),
        ("SkipDataset", [4], [4, 5]),
        ("SkipDataset", [-1], []),
        ("RepeatDataset", [2], [0, 1, 2, 3, 4, 5] * 2),
        ("RepeatDataset", [0], []),
        ("ShardDataset", [4, 1], [1, 5]),
        ("BatchDataset", [4], [[0, 1, 2, 3], [4, 5]]),
        ("UnbatchDataset", None, None),
        ("UniqueDataset", [], [0, 1, 2, 3, 4, 5]),
        ("ExperimentalUniqueDataset", [], [0, 1, 2, 3, 4, 5]),
        ("IgnoreErrorsDataset", [], [0, 1, 2, 3, 4, 5]),
        ("ExperimentalIgnoreErrorsDataset", [], [0, 1, 2, 3, 4, 5]),
        ("ModelDataset", [], [0, 1, 2, 3, 4, 5]),
        ("PrefetchDataset", [2], [0, 1, 2, 3, 4, 5]),
        ("PrefetchDataset", [0], [0, 1, 2, 3, 4, 5]),
    ],
)
def test_an_operation_on_one_dataset(op: str, inputs: list[int] | None, expected: Any) -> None:
    if inputs is None:
        inputs, expected, source = [], [0, 1, 2, 3, 4, 5], raw.BatchDataset(numbers(), np.int64(4), **VECTOR)
        for name in (op, "ExperimentalUnbatchDataset"):
            assert elements(getattr(raw, name)(source, **INT), INT) == expected
        return
    typed = VECTOR if op == "BatchDataset" else INT
    assert elements(getattr(raw, op)(numbers(), *map(np.int64, inputs), **typed), typed) == expected


def test_optimizations_change_nothing() -> None:
    assert elements(raw.OptimizeDataset(numbers(3), ["map_fusion"], **INT), INT) == [0, 1, 2]


@pytest.mark.parametrize("filename", [False, True])
def test_a_cache(filename: bool, tmp_path: Any) -> None:
    calls: list[int] = []

    def counted(value: Any) -> Any:
        calls.append(1)
        return value

    body = function(lambda x: tf.reshape(tf.py_func(counted, [x], tf.int64), []), SCALAR)
    cached = raw.CacheDataset(with_function("MapDataset", body), str(tmp_path / "c") if filename else "", **INT)
    assert elements(raw.RepeatDataset(cached, np.int64(3), **INT), INT) == [0, 1, 2, 3, 4, 5] * 3
    assert len(calls) == 6


def test_several_datasets() -> None:
    both = raw.ConcatenateDataset(numbers(2), numbers(3), **INT)
    assert elements(both, INT) == [0, 1, 0, 1, 2]
    typed: dict[str, Any] = {"output_types": [tf.int64] * 2, "output_shapes": [[], []]}
    assert elements(raw.ZipDataset([numbers(2), numbers(3)], **typed), typed) == [[0, 0], [1, 1]]
    for op in (raw.DirectedInterleaveDataset, raw.ExperimentalDirectedInterleaveDataset):
        choices = raw.TensorSliceDataset([np.array([1, 1, 0, 1, 1, 0])], output_shapes=[[]])
        assert elements(op(choices, [numbers(9), numbers(3)], **INT), INT) == [0, 1, 0, 2, 1]


def test_random_order() -> None:
    def shuffled(buffer: int, seed: int, repeat: int = 1, **attrs: Any) -> list[int]:
        made = raw.ShuffleDataset(numbers(), np.int64(buffer), np.int64(seed), np.int64(1), **attrs, **INT)
        return elements(raw.RepeatDataset(made, np.int64(repeat), **INT), INT)

    assert sorted(shuffled(4, 1)) == [0, 1, 2, 3, 4, 5]
    assert shuffled(4, 1) == shuffled(4, 1) != shuffled(4, 2)
    assert shuffled(1, 1) == [0, 1, 2, 3, 4, 5]
    passes = shuffled(6, 3, 2)
    assert passes[:6] != passes[6:]
    fixed = shuffled(6, 3, 2, reshuffle_each_iteration=False)
    assert fixed[:6] == fixed[6:]
    together = raw.ShuffleAndRepeatDataset(numbers(), np.int64(6), np.int64(3), np.int64(1), np.int64(2), **INT)
    assert elements(together, INT) == passes


def test_batches() -> None:
    batched = raw.BatchDatasetV2(numbers(), np.int64(4), True, **VECTOR)
    assert elements(batched, VECTOR) == [[0, 1, 2, 3]]
    body = function(tf.range, SCALAR)
    ragged = with_function("MapDataset", body, typed=VECTOR)
    typed: dict[str, Any] = {"output_types": [tf.int64], "output_shapes": [[None, None]]}
    bound = {
        "input_dataset": ragged,
        "batch_size": np.int64(4),
        "padded_shapes": [np.array([-1])],
        "padding_values": [np.int64(9)],
        "output_shapes": [[None, None]],
    }
    first, second = [[9, 9, 9], [0, 9, 9], [0, 1, 9], [0, 1, 2]], [[0, 1, 2, 3, 9], [0, 1, 2, 3, 4]]
    assert elements(apply_op(op_def_of("PaddedBatchDataset"), bound).outputs[0], typed) == [first, second]
    bound["drop_remainder"] = True
    assert elements(apply_op(op_def_of("PaddedBatchDatasetV2"), bound).outputs[0], typed) == [first]


@pytest.mark.parametrize("op", ["DenseToSparseBatchDataset", "ExperimentalDenseToSparseBatchDataset"])
def test_sparse_batches(op: str) -> None:
    body = function(tf.range, SCALAR)
    ragged = raw.TakeDataset(with_function("MapDataset", body, typed=VECTOR), np.int64(3), **VECTOR)
    typed: dict[str, Any] = {"output_types": [tf.variant], "output_shapes": [None]}
    variant = getattr(raw, op)(ragged, np.int64(3), np.array([4]), **typed)
    iterator = raw.IteratorV2(shared_name="", container="", **typed)
    parts = raw.DeserializeSparse(taken(iterator, typed), dtype=tf.int64)
    with tf.Session() as session:
        session.run(raw.MakeIterator(variant, iterator))
        indices, values, shape = session.run(list(parts))
    assert indices.tolist() == [[1, 0], [2, 0], [2, 1]]
    assert values.tolist() == [0, 0, 1]
    assert shape.tolist() == [3, 4]


def test_windows() -> None:
    windows = raw.WindowDataset(numbers(), np.int64(3), np.int64(2), np.int64(1), False, **INT)
    body = ElementBody(lambda w: tf.data.Dataset(w, from_legacy(tf.int64, [])).batch(5), "t", _variant())
    bound = {"input_dataset": windows, "other_arguments": [], "f": body.function, **VECTOR}
    flat = apply_op(op_def_of("FlatMapDataset"), bound).outputs[0]
    assert elements(flat, VECTOR) == [[0, 1, 2], [2, 3, 4], [4, 5]]


def _variant() -> Any:
    return from_legacy(tf.variant, tf.TensorShape([]))


def test_questions() -> None:
    with tf.Session() as session:
        for op in (raw.DatasetCardinality, raw.ExperimentalDatasetCardinality):
            assert session.run(op(numbers())) == 6
        single = raw.DatasetToSingleElement(raw.TakeDataset(numbers(), np.int64(1), **INT), **INT)[0]
        assert session.run(single) == 0
        with pytest.raises(tf.errors.InvalidArgumentError, match="more than one element"):
            session.run(raw.DatasetToSingleElement(numbers(), **INT))


# ------------------------------------------------------------------------------------------------ functions
def test_map() -> None:
    captured = tf.constant(np.full(2000, 10, np.int64))
    body = function(lambda x: x + captured[0], SCALAR)
    assert elements(with_function("MapDataset", body), INT) == [10, 11, 12, 13, 14, 15]
    parallel = with_function("ParallelMapDataset", body, num_parallel_calls=np.int32(3))
    assert elements(parallel, INT) == [10, 11, 12, 13, 14, 15]
    for op in ("MapAndBatchDataset", "ExperimentalMapAndBatchDataset"):
        rest: dict[str, Any] = {"batch_size": np.int64(4), "num_parallel_calls": np.int64(2), "drop_remainder": False}
        assert elements(with_function(op, body, typed=VECTOR, **rest), VECTOR) == [[10, 11, 12, 13], [14, 15]]


def test_filters() -> None:
    body = function(lambda x: tf.not_equal(x, 2), SCALAR)
    assert elements(with_function("FilterDataset", body, "predicate"), INT) == [0, 1, 3, 4, 5]
    for op in ("TakeWhileDataset", "ExperimentalTakeWhileDataset"):
        assert elements(with_function(op, body, "predicate"), INT) == [0, 1]


@pytest.mark.parametrize(
    ("op", "rest"),
    [
        ("InterleaveDataset", ""),
        ("ParallelInterleaveDatasetV2", "num_parallel_calls"),
        ("ParallelInterleaveDataset", "sloppy buffer_output_elements prefetch_input_elements"),
        ("ExperimentalParallelInterleaveDataset", "sloppy buffer_output_elements prefetch_input_elements"),
    ],
)
def test_datasets_take_turns(op: str, rest: str) -> None:
    def twice(x: Any) -> Any:
        return tf.data.Dataset.from_tensors(x).repeat(2)

    given: dict[str, Any] = {name: np.int64(2) for name in rest.split()}
    if "sloppy" in given:
        given["sloppy"] = False
    given |= {"cycle_length": np.int64(2), "block_length": np.int64(1)}
    found = elements(with_function(op, function(twice, SCALAR), **given), INT)
    assert found == [0, 1, 0, 1, 2, 3, 2, 3, 4, 5, 4, 5]


@pytest.mark.parametrize("op", ["GroupByWindowDataset", "ExperimentalGroupByWindowDataset"])
def test_groups(op: str) -> None:
    key = function(lambda x: x % 2, SCALAR)
    size = function(lambda k: k + 2, SCALAR)
    reduce = ElementBody(
        lambda k, w: tf.data.Dataset(w, from_legacy(tf.int64, [])).batch(9), "t", from_legacy(tf.int64, []), _variant()
    )
    bound: dict[str, Any] = {"input_dataset": numbers(), **VECTOR}
    for name, body in (("key", key), ("reduce", reduce), ("window_size", size)):
        bound[f"{name}_func"] = body.function
        bound[f"{name}_func_other_arguments"] = body.captured
    assert elements(apply_op(op_def_of(op), bound).outputs[0], VECTOR) == [[0, 2], [1, 3, 5], [4]]


def test_functions_with_a_state() -> None:
    body = function(lambda s, x: (s + x, s * x), SCALAR, SCALAR)
    start: dict[str, Any] = {"initial_state": [np.int64(1)]}
    for op in ("ScanDataset", "ExperimentalScanDataset"):
        assert elements(with_function(op, body, **start), INT) == [0, 1, 4, 12, 28, 55]
    total = with_function("ReduceDataset", function(lambda s, x: s + x, SCALAR, SCALAR), **start)
    with tf.Session() as session:
        assert session.run(total) == 16


# ------------------------------------------------------------------------------------------------ iterators
def test_iterators() -> None:
    with tf.Session() as session:
        for kind in (raw.Iterator, raw.IteratorV2):
            iterator = kind(shared_name="", container="", **INT)
            following = taken(iterator, INT, "IteratorGetNextSync")
            with pytest.raises(tf.errors.FailedPreconditionError, match="not been initialized"):
                session.run(following)
            session.run(raw.MakeIterator(numbers(), iterator))
            assert [session.run(following) for _ in range(3)] == [0, 1, 2]


def test_a_handle_as_text() -> None:
    first, second = (raw.IteratorV2(shared_name=f"shared_{i}", container="", **INT) for i in range(2))
    text = tf.placeholder(tf.string, [])
    for from_text in (raw.IteratorFromStringHandle, raw.IteratorFromStringHandleV2):
        following = taken(from_text(text, **INT))
        with tf.Session() as session:
            session.run([raw.MakeIterator(numbers(), first), raw.MakeIterator(numbers(9), second)])
            handles = session.run([raw.IteratorToStringHandle(first), raw.IteratorToStringHandle(second)])
            assert [session.run(following, {text: handles[i]}) for i in (0, 1, 0, 1)] == [0, 0, 1, 1]
            with pytest.raises(tf.errors.InvalidArgumentError, match="no string handle"):
                session.run(following, {text: "nothing"})
            gone = handles[0].replace(b"shared_0", b"gone")
            with pytest.raises(tf.errors.NotFoundError, match="gone"):
                session.run(following, {text: gone})


def test_an_iterator_that_needs_no_initializer() -> None:
    body = function(lambda: tf.data.Dataset.range(3))
    iterator = raw.OneShotIterator(dataset_factory=FuncAttr(body.function.name), **INT)
    following = taken(iterator)
    with tf.Session() as session:
        assert [session.run(following) for _ in range(3)] == [0, 1, 2]
        for _ in range(2):
            with pytest.raises(tf.errors.OutOfRangeError, match="End of sequence"):
                session.run(following)


def test_anonymous_iterators() -> None:
    iterator, deleter = raw.AnonymousIteratorV2(**INT)
    with tf.control_dependencies([raw.MakeIterator(numbers(), iterator)]):
        following = taken(iterator)
    with tf.control_dependencies([following]):
        delete = raw.DeleteIterator(iterator, deleter)
    other = raw.AnonymousIterator(**INT)
    with tf.control_dependencies([raw.MakeIterator(numbers(), other)]):
        also = taken(other)
    with tf.Session() as session:
        assert session.run([following, also, delete])[:2] == [0, 0]


def test_positions() -> None:
    iterator = raw.IteratorV2(shared_name="", container="", **INT)
    start, following = raw.MakeIterator(numbers(), iterator), taken(iterator)
    saved = raw.SerializeIterator(iterator)
    position = raw._IteratorPosition(iterator)
    text = tf.placeholder(tf.string, [])
    restore = apply_op(op_def_of("_RestoreIterator"), {"iterator": iterator, "dataset": [], "position": text})
    with tf.Session() as session:
        session.run(start)
        assert [session.run(following) for _ in range(2)] == [0, 1]
        kept = session.run(position)
        assert [session.run(following) for _ in range(2)] == [2, 3]
        session.run(restore, {text: kept})
        assert session.run(following) == 2
        with tf.control_dependencies([raw.DeserializeIterator(iterator, saved)]):
            after = taken(iterator)
        assert session.run(after) == 3
        with pytest.raises(tf.errors.DataLossError, match="damaged"):
            session.run(restore, {text: b"nonsense"})
        with pytest.raises(tf.errors.DataLossError, match="damaged"):
            session.run(restore, {text: kept[:-3]})


def test_optionals() -> None:
    full, none = raw.OptionalFromValue([np.int64(3)]), raw.OptionalNone()
    iterator = raw.IteratorV2(shared_name="", container="", **INT)
    following = raw.IteratorGetNextAsOptional(iterator, **INT)
    with tf.Session() as session:
        assert session.run([raw.OptionalHasValue(full), raw.OptionalHasValue(none)]) == [True, False]
        assert session.run(raw.OptionalGetValue(full, **INT)[0]) == 3
        with pytest.raises(tf.errors.InvalidArgumentError, match="does not have a value"):
            session.run(raw.OptionalGetValue(none, **INT)[0])
        session.run(raw.MakeIterator(numbers(1), iterator))
        has = raw.OptionalHasValue(following)
        assert [session.run(has) for _ in range(3)] == [True, False, False]


def test_types_are_checked_when_an_element_is_taken() -> None:
    iterator = raw.IteratorV2(shared_name="", container="", **INT)
    start = raw.MakeIterator(numbers(), iterator)
    wrong = raw.IteratorGetNext(iterator, output_types=[tf.float32], output_shapes=[[]])
    larger = raw.IteratorGetNext(iterator, output_types=[tf.int64], output_shapes=[[2]])
    more = raw.IteratorGetNext(iterator, output_types=[tf.int64] * 2, output_shapes=[[], []])
    with tf.Session() as session:
        session.run(start)
        for fetch, message in ((wrong, "float32 but got int64"), (larger, "Incompatible shapes"), (more, "Expected 2")):
            with pytest.raises(tf.errors.InvalidArgumentError, match=message):
                session.run(fetch)


# ------------------------------------------------------------------------------------------------ sparse tensors
@pytest.mark.parametrize("form", [tf.string, tf.variant])
def test_sparse_tensors_as_one_tensor(form: DType) -> None:
    indices, values, shape = np.array([[0, 1], [2, 0]]), np.array([5.0, 6.0], np.float32), np.array([3, 4])
    whole = raw.SerializeSparse(indices, values, shape, out_type=form)
    rows = raw.SerializeManySparse(indices, values, shape, out_type=form)
    with tf.Session() as session:
        parts = session.run(list(raw.DeserializeSparse(whole, dtype=tf.float32)))
        again = session.run(list(raw.DeserializeSparse(rows, dtype=tf.float32)))
        for found in (parts, again):
            assert [f.tolist() for f in found] == [indices.tolist(), values.tolist(), shape.tolist()]
        if form is tf.string:
            many = session.run(list(raw.DeserializeManySparse(rows, dtype=tf.float32)))
            assert [f.tolist() for f in many] == [indices.tolist(), values.tolist(), shape.tolist()]
        with pytest.raises(tf.errors.InvalidArgumentError, match="of type"):
            session.run(list(raw.DeserializeSparse(whole, dtype=tf.int32)))
