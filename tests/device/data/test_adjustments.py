"""The operations on datasets that sample, cut, group or pause, and those that leave the elements as they are."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.frontend.data.functions import ElementBody
from anabranch.frontend.data.structure import from_legacy
from anabranch.graph.building import apply_op
from anabranch.graph.graph import op_def_of
from anabranch.ops import raw
from anabranch.state import dataset_sampling
from tests.device.data.test_dataset_ops import INT, SCALAR, VECTOR, elements, function, numbers

BOTH = pytest.mark.parametrize("prefix", ["", "Experimental"])
N = np.int64


def op(prefix: str, name: str) -> Any:
    return getattr(raw, prefix + name)


#: what TensorFlow 2.21 gives of 0..9 for (size, shift, stride), and beyond it with `drop_remainder=False`
WINDOWS = [
    ((3, 1, 1), [[i, i + 1, i + 2] for i in range(8)], [[8, 9], [9]]),
    ((2, 3, 1), [[0, 1], [3, 4], [6, 7]], [[9]]),
    ((2, 2, 3), [[0, 3], [2, 5], [4, 7], [6, 9]], [[8]]),
    ((3, 2, 2), [[0, 2, 4], [2, 4, 6], [4, 6, 8]], [[6, 8], [8]]),
]


@pytest.mark.parametrize(("sizes", "whole", "rest"), WINDOWS)
def test_windows_that_slide(sizes: tuple[int, int, int], whole: list[Any], rest: list[Any]) -> None:
    """SlidingWindowDataset, ExperimentalSlidingWindowDataset."""
    given = [N(size) for size in sizes]
    assert elements(raw.SlidingWindowDataset(numbers(10), *given, **VECTOR), VECTOR) == whole
    assert elements(raw.ExperimentalSlidingWindowDataset(numbers(10), *given, **VECTOR), VECTOR) == whole
    assert (
        elements(raw.SlidingWindowDataset(numbers(10), *given, drop_remainder=False, **VECTOR), VECTOR) == whole + rest
    )


@BOTH
@pytest.mark.parametrize(
    ("count", "batch", "replicas", "expected"),
    [
        (10, 5, 2, [[0, 1, 2], [3, 4], [5, 6, 7], [8, 9]]),
        (20, 8, 3, [[0, 1, 2], [3, 4, 5], [6, 7], [8, 9, 10], [11, 12, 13], [14, 15], [16, 17], [18, 19], []]),
        (9, 4, 2, [[0, 1], [2, 3], [4, 5], [6, 7], [8], []]),
    ],
)
def test_batches_for_replicas(prefix: str, count: int, batch: int, replicas: int, expected: list[Any]) -> None:
    """RebatchDataset, ExperimentalRebatchDataset; what TensorFlow 2.21 gives."""
    batches = raw.BatchDataset(numbers(count), N(batch), **VECTOR)
    assert elements(op(prefix, "RebatchDataset")(batches, N(replicas), **VECTOR), VECTOR) == expected


def test_scalars_cannot_be_rebatched() -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match="first dimensions"):
        elements(raw.RebatchDataset(numbers(), N(2), **INT), INT)
    with pytest.raises(tf.errors.InvalidArgumentError, match="num_replicas"):
        elements(raw.RebatchDataset(numbers(), N(0), **INT), INT)


@BOTH
def test_shards(prefix: str) -> None:
    """AutoShardDataset, ExperimentalAutoShardDataset."""
    assert elements(op(prefix, "AutoShardDataset")(numbers(10), N(3), N(1), **INT), INT) == [1, 4, 7]
    whole = op(prefix, "AutoShardDataset")(numbers(4), N(3), N(1), auto_shard_policy=-1, **INT)
    assert elements(whole, INT) == [0, 1, 2, 3]
    with pytest.raises(tf.errors.InvalidArgumentError, match="Index must be"):
        elements(op(prefix, "AutoShardDataset")(numbers(10), N(3), N(3), **INT), INT)


@pytest.mark.parametrize(("rate", "low", "high"), [(0.0, 0, 0), (1.0, 2000, 2000), (0.25, 400, 600)])
def test_samples(rate: float, low: int, high: int) -> None:
    """SamplingDataset."""

    def sample(seed: int) -> list[Any]:
        return elements(raw.SamplingDataset(numbers(2000), rate, N(seed), N(2), **INT), INT, 3000)

    found = sample(1)
    assert low <= len(found) <= high
    assert found == sorted(set(found)) == sample(1)
    assert low == high or found != sample(3)


@BOTH
def test_pauses(prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """SleepDataset, ExperimentalSleepDataset: they end when the iterator is closed."""
    pauses = threading.Event()
    pause = dataset_sampling._SleepIterator.next

    def noted(iterator: Any) -> Any:
        pauses.set()
        return pause(iterator)

    assert elements(op(prefix, "SleepDataset")(numbers(3), N(1), **INT), INT) == [0, 1, 2]
    iterator = raw.IteratorV2(shared_name="", container="", **INT)
    long = op(prefix, "SleepDataset")(numbers(3), N(10**12), **INT)
    start, following = raw.MakeIterator(long, iterator), raw.IteratorGetNext(iterator, **INT)
    session, failures = tf.Session(), []

    def wait() -> None:
        try:
            session.run(following)
        except tf.errors.CancelledError as error:
            failures.append(error)

    monkeypatch.setattr(dataset_sampling._SleepIterator, "next", noted)
    session.run(start)
    thread = threading.Thread(target=wait)
    thread.start()
    # a session that is closed before the step asks for an element has no iterator any more
    assert pauses.wait(30)
    session.close()
    thread.join(30)
    assert len(failures) == 1


@BOTH
def test_the_same_elements(prefix: str) -> None:
    """NonSerializableDataset, PrivateThreadPoolDataset, MaxIntraOpParallelismDataset, ThreadPoolDataset,
    ThreadPoolHandle, ChooseFastestDataset, and their `Experimental` aliases.
    """
    pool = op(prefix, "ThreadPoolHandle")(num_threads=2, display_name="pool")
    for made in (
        op(prefix, "NonSerializableDataset")(numbers(), **INT),
        op(prefix, "PrivateThreadPoolDataset")(numbers(), N(3), **INT),
        op(prefix, "MaxIntraOpParallelismDataset")(numbers(), N(3), **INT),
        op(prefix, "ThreadPoolDataset")(numbers(), pool, **INT),
        op(prefix, "ChooseFastestDataset")([numbers(), numbers()], num_experiments=2, **INT),
    ):
        assert elements(made, INT) == list(range(6))
    for refused, match in (
        (op(prefix, "PrivateThreadPoolDataset")(numbers(), N(-1), **INT), "num_threads"),
        (op(prefix, "MaxIntraOpParallelismDataset")(numbers(), N(-1), **INT), "max_intra_op"),
        (op(prefix, "ChooseFastestDataset")([numbers(), numbers(5)], num_experiments=2, **INT), "cardinalities"),
    ):
        with pytest.raises(tf.errors.InvalidArgumentError, match=match):
            elements(refused, INT)


def test_datasets_in_variants() -> None:
    """WrapDatasetVariant, UnwrapDatasetVariant."""
    assert elements(raw.UnwrapDatasetVariant(raw.WrapDatasetVariant(numbers())), INT) == list(range(6))


def test_seeds_are_drawn_for_each_pass() -> None:
    """AnonymousRandomSeedGenerator, ShuffleDatasetV2, DeleteRandomSeedGenerator."""

    def passes(seed: int) -> list[list[int]]:
        handle, deleter = raw.AnonymousRandomSeedGenerator(N(seed), N(3))
        shuffled = raw.ShuffleDatasetV2(numbers(20), N(20), handle, **INT)
        found = elements(raw.RepeatDataset(shuffled, N(2), **INT), INT, 40)
        with tf.Session() as session:
            kept, key = session.run([handle, deleter])
            del kept, key
            session.run(raw.DeleteRandomSeedGenerator(handle, deleter))
        return [found[:20], found[20:]]

    first, second = passes(1)
    assert first != second
    assert sorted(first) == sorted(second) == list(range(20))
    assert passes(1) == [first, second] != passes(2)


def test_a_cache_outlives_a_dataset() -> None:
    """AnonymousMemoryCache, CacheDatasetV2, DeleteMemoryCache: two datasets with one cache have the same elements."""
    handle, deleter = raw.AnonymousMemoryCache()
    first = raw.CacheDatasetV2(numbers(4), "", handle, **INT)
    second = raw.CacheDatasetV2(numbers(9), "", handle, **INT)
    both = raw.ConcatenateDataset(first, second, **INT)
    assert elements(both, INT) == [0, 1, 2, 3] * 2
    with tf.Session() as session:
        session.run(raw.DeleteMemoryCache(handle, deleter))


@BOTH
def test_groups_are_reduced(prefix: str) -> None:
    """GroupByReducerDataset, ExperimentalGroupByReducerDataset: in the order of keys."""
    key = function(lambda x: 2 - x % 3, SCALAR)
    init = function(lambda k: 100 * k, SCALAR)
    reduce = function(lambda state, x: state + x, SCALAR, SCALAR)
    finalize = function(lambda state: -state, SCALAR)
    parts = {"key_func": key, "init_func": init, "reduce_func": reduce, "finalize_func": finalize}
    bound: dict[str, Any] = {"input_dataset": numbers(10), **INT}
    for name, body in parts.items():
        bound |= {name: body.function, f"{name}_other_arguments": body.captured}
    made = apply_op(op_def_of(f"{prefix}GroupByReducerDataset"), bound).outputs[0]
    assert elements(made, INT) == [-(2 + 5 + 8), -(100 + 1 + 4 + 7), -(200 + 0 + 3 + 6 + 9)]


# ---------------------------------------------------------------------- functions of rows
def test_a_function_of_each_row() -> None:
    """MapDefun: with what it captured; of no rows as well."""
    body = function(lambda x, y, z: (x + z, x * y), SCALAR, (tf.int64, [None]), SCALAR)
    rows, vectors = tf.placeholder(tf.int64, [None]), tf.placeholder(tf.int64, [None, 3])
    bound = {
        "arguments": [rows, vectors],
        "captured_inputs": [tf.constant(10, tf.int64)],
        "f": body.function,
        "output_types": [tf.int64, tf.int64],
        "output_shapes": [tf.TensorShape([]), tf.TensorShape([3])],
    }
    outputs = apply_op(op_def_of("MapDefun"), bound).outputs
    assert [t.shape.as_list() for t in outputs] == [[None], [None, 3]]
    with tf.Session() as session:
        found = session.run(list(outputs), {rows: [1, 2], vectors: [[1, 2, 3], [4, 5, 6]]})
        assert [f.tolist() for f in found] == [[11, 12], [[1, 2, 3], [8, 10, 12]]]
        empty = session.run(list(outputs), {rows: [], vectors: np.zeros((0, 3))})
        assert [f.shape for f in empty] == [(0,), (0, 3)]
        with pytest.raises(tf.errors.InvalidArgumentError, match="are not compatible"):
            session.run(list(outputs), {rows: [1], vectors: [[1, 2, 3], [4, 5, 6]]})
    with pytest.raises(ValueError, match="rank of 0"):
        apply_op(op_def_of("MapDefun"), bound | {"arguments": [tf.constant(1, tf.int64), vectors]})


def test_an_older_name_of_map() -> None:
    """ExperimentalMapDataset."""
    body = function(lambda x: x * x, SCALAR)
    bound = {"input_dataset": numbers(4), "other_arguments": body.captured, "f": body.function, **INT}
    assert elements(apply_op(op_def_of("ExperimentalMapDataset"), bound).outputs[0], INT) == [0, 1, 4, 9]


def test_elements_that_say_themselves_whether_they_stay() -> None:
    """FilterByLastComponentDataset."""
    pairs = raw.TensorSliceDataset(
        [np.arange(4, dtype=np.int64), np.array([True, False, False, True])], output_shapes=[[], []]
    )
    assert elements(raw.FilterByLastComponentDataset(pairs, **INT), INT) == [0, 3]


@BOTH
def test_iterators_are_on_the_host(prefix: str) -> None:
    """IteratorGetDevice, ExperimentalIteratorGetDevice."""
    iterator = raw.IteratorV2(shared_name="", container="", **INT)
    with tf.Session() as session:
        session.run(raw.MakeIterator(numbers(), iterator))
        assert session.run(op(prefix, "IteratorGetDevice")(iterator)).endswith(b"/device:CPU:0")


def branches_of(lengths: Any = (1, 1), ratio: tuple[int, int] = (2, 1)) -> Any:
    """Two branches that add what they captured, and make batches of two."""
    shift = tf.placeholder_with_default(N(10), [])

    def batched(dataset: Any) -> Any:
        return tf.data.Dataset(dataset, from_legacy(tf.int64, [])).map(lambda x: x + shift).batch(2)

    bodies = [ElementBody(batched, f"branch_{i}", from_legacy(tf.variant, tf.TensorShape([]))) for i in range(2)]
    given = {
        "input_dataset": numbers(5),
        "ratio_numerator": N(ratio[0]),
        "ratio_denominator": N(ratio[1]),
        "other_arguments": [tensor for body in bodies for tensor in body.captured],
        "num_elements_per_branch": 2,
        "branches": [body.function for body in bodies],
        "other_arguments_lengths": list(lengths),
        **VECTOR,
    }
    return apply_op(op_def_of("ChooseFastestBranchDataset"), given).outputs[0]


def test_the_branches_of_a_dataset_make_the_same() -> None:
    """ChooseFastestBranchDataset."""
    assert elements(branches_of(), VECTOR) == [[10, 11], [12, 13], [14]]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"lengths": (2, 1)}, "must say for each of 2 branches"),
        ({"lengths": (2,)}, "must say for each of 2 branches"),
        ({"ratio": (0, 1)}, "`ratio_numerator` must be greater than 0"),
        ({"ratio": (1, -1)}, "`ratio_denominator` must be greater than 0"),
    ],
)
def test_branches_that_do_not_fit_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        elements(branches_of(**wrong), VECTOR)
