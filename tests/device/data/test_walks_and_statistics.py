"""Datasets that record statistics, are kept in files, or say what follows; iterators whose elements are dealt out."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.ops import raw
from anabranch.proto.summary_pb2 import Summary
from tests.device.data.test_dataset_ops import INT, TEXT, elements, numbers

BOTH = pytest.mark.parametrize("prefix", ["", "Experimental"])
N = np.int64


def op(prefix: str, name: str) -> Any:
    return getattr(raw, prefix + name)


# ---------------------------------------------------------------------- statistics
@BOTH
def test_times_and_sizes_are_gathered(prefix: str) -> None:
    """(Experimental)BytesProducedStatsDataset, LatencyStatsDataset, SetStatsAggregatorDataset, StatsAggregatorHandle,
    StatsAggregatorSummary; what TensorFlow 2.21 gives.
    """
    handle = op(prefix, "StatsAggregatorHandle")(shared_name="gathered")
    sized = op(prefix, "BytesProducedStatsDataset")(numbers(5), "bytes", **INT)
    timed = op(prefix, "LatencyStatsDataset")(sized, "time", **INT)
    recorded = op(prefix, "SetStatsAggregatorDataset")(timed, handle, "tag", "", **INT)
    iterator = raw.IteratorV2(shared_name="", container="", **INT)
    with tf.Session() as session:
        session.run(raw.MakeIterator(recorded, iterator))
        following = raw.IteratorGetNext(iterator, **INT)
        assert [session.run(following[0]) for _ in range(5)] == [0, 1, 2, 3, 4]
        found = Summary.FromString(session.run(op(prefix, "StatsAggregatorSummary")(handle)))
    sizes, times = sorted(found.value, key=lambda value: value.tag)
    assert (sizes.tag, times.tag, times.histo.num) == ("tag::bytes", "tag::time", 5)
    assert (sizes.histo.min, sizes.histo.max, sizes.histo.sum, sizes.histo.sum_squares) == (8, 8, 40, 320)
    np.testing.assert_allclose(sizes.histo.bucket_limit, [7.4666377932988732, 8.2133015726287617, np.finfo("d").max])
    assert list(sizes.histo.bucket) == [0, 5, 0]
    assert times.histo.min >= 0


def test_strings_take_their_length_and_24_bytes() -> None:
    words = raw.TensorSliceDataset([np.array([b"a", b"bcd", b"", b"x" * 40], object)], output_shapes=[[]])
    handle = raw.StatsAggregatorHandle()
    recorded = raw.SetStatsAggregatorDataset(raw.BytesProducedStatsDataset(words, "s", **TEXT), handle, "", "", **TEXT)
    iterator = raw.IteratorV2(shared_name="", container="", **TEXT)
    with tf.Session() as session:
        session.run(raw.MakeIterator(recorded, iterator))
        following = raw.IteratorGetNext(iterator, **TEXT)
        for _ in range(4):
            session.run(following)
        (found,) = Summary.FromString(session.run(raw.StatsAggregatorSummary(handle))).value
    assert (found.tag, found.histo.min, found.histo.max, found.histo.sum) == ("s", 24, 64, 140)


def test_statistics_are_pushed_to_a_writer(tmp_path: Path) -> None:
    """StatsAggregatorHandleV2, StatsAggregatorSetSummaryWriter."""
    handle, writer = raw.StatsAggregatorHandleV2(), raw.SummaryWriter(shared_name="w")
    recorded = raw.SetStatsAggregatorDataset(
        raw.BytesProducedStatsDataset(numbers(3), "bytes", **INT), handle, "", "", **INT
    )
    iterator = raw.IteratorV2(shared_name="", container="", **INT)
    with tf.Session() as session:
        session.run(raw.CreateSummaryFileWriter(writer, str(tmp_path), 10, 100_000, ".v2"))
        session.run(raw.StatsAggregatorSetSummaryWriter(handle, writer))
        session.run(raw.MakeIterator(recorded, iterator))
        following = raw.IteratorGetNext(iterator, **INT)
        for _ in range(3):
            session.run(following)
        session.run(raw.CloseSummaryWriter(writer))
        assert session.run(raw.StatsAggregatorSummary(handle)) == b""
    (file,) = tmp_path.iterdir()
    events = list(tf.train.summary_iterator(str(file)))[1:]
    assert [(e.step, e.summary.value[0].tag, e.summary.value[0].histo.num) for e in events] == [
        (1, "bytes", 1), (2, "bytes", 2), (3, "bytes", 3)
    ]  # fmt: skip


def test_the_option_of_a_dataset_says_who_gathers() -> None:
    aggregator = tf.data.experimental.StatsAggregator()
    options = tf.data.Options()
    options.experimental_stats.aggregator = aggregator
    options.experimental_stats.prefix = "mine"
    dataset = tf.data.Dataset.range(4).apply(tf.data.experimental.latency_stats("time")).prefetch(2)
    iterator = tf.data.make_initializable_iterator(dataset.with_options(options))
    number = iterator.get_next()
    with tf.Session() as session:
        session.run(iterator.initializer)
        assert [session.run(number) for _ in range(4)] == [0, 1, 2, 3]
        (found,) = Summary.FromString(session.run(aggregator.get_summary())).value
    assert (found.tag, found.histo.num) == ("mine::time", 4)


# ---------------------------------------------------------------------- what follows
#: what TensorFlow 2.21 accepts of a Prefetch and a Shard behind it
FOLLOWING = [
    (["Prefetch"], ""),
    (["Prefetch", "Shard"], ""),
    ([], ""),
    (["Shard"], "Asserted Shard transformation at offset 0 but encountered Prefetch"),
    (["Prefetch", "Shard", "Range"], "encountered only 2"),
]


@BOTH
@pytest.mark.parametrize(("kinds", "message"), FOLLOWING)
def test_what_must_follow(prefix: str, kinds: list[str], message: str) -> None:
    """AssertNextDataset, ExperimentalAssertNextDataset."""
    asserted = op(prefix, "AssertNextDataset")(numbers(5), np.array(kinds, object), **INT)
    last = raw.ShardDataset(raw.PrefetchDataset(asserted, N(4), **INT), N(2), N(1), **INT)
    if not message:
        assert elements(last, INT) == [1, 3]
        return
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        elements(last, INT)


# ---------------------------------------------------------------------- several takers
def dealt(handle: Any, shard: int, incarnation: int) -> Any:
    return raw.MultiDeviceIteratorGetNextFromShard(handle, shard, N(incarnation), **INT)[0]


def test_elements_are_dealt_out_in_turn() -> None:
    """MultiDeviceIterator and its Init, GetNextFromShard, ToStringHandle, FromStringHandle; as in TensorFlow 2.21."""
    handle = raw.MultiDeviceIterator(devices=["/cpu:0", "/cpu:1"], shared_name="", container="", **INT)
    with tf.Session() as session:
        with pytest.raises(tf.errors.FailedPreconditionError, match="MultiDeviceIteratorInit"):
            session.run(dealt(handle, 0, 1))
        first = session.run(raw.MultiDeviceIteratorInit(numbers(5), handle, N(1)))
        assert first == 1
        assert [session.run(dealt(handle, shard, first)) for shard in (0, 1, 1, 0, 0)] == [0, 1, 3, 2, 4]
        for shard in (0, 1):
            with pytest.raises(tf.errors.OutOfRangeError):
                session.run(dealt(handle, shard, first))
        with pytest.raises(tf.errors.InvalidArgumentError, match="Invalid incarnation id: 7"):
            session.run(dealt(handle, 0, 7))
        with pytest.raises(tf.errors.InvalidArgumentError, match="shard_num"):
            session.run(dealt(handle, 2, first))
        text = session.run(raw.MultiDeviceIteratorToStringHandle(handle))
        again = raw.MultiDeviceIteratorFromStringHandle(text)
        second = session.run(raw.MultiDeviceIteratorInit(numbers(3), again, N(1)))
        assert second == 2
        assert [session.run(dealt(again, shard, second)) for shard in (0, 1, 0)] == [0, 1, 2]
        with pytest.raises(tf.errors.InvalidArgumentError, match="no string handle"):
            session.run(raw.MultiDeviceIteratorFromStringHandle("text"))


def test_one_without_a_name() -> None:
    """AnonymousMultiDeviceIterator, DeleteMultiDeviceIterator."""
    made = raw.AnonymousMultiDeviceIterator(devices=["/cpu:0"] * 3, **INT)
    begun = raw.MultiDeviceIteratorInit(numbers(4), made.handle, N(1))
    element = raw.MultiDeviceIteratorGetNextFromShard(made.handle, 1, begun, **INT)[0]
    with tf.control_dependencies([element]):
        deleted = raw.DeleteMultiDeviceIterator(made.handle, [], made.deleter)
    with tf.control_dependencies([deleted]):
        late = raw.MultiDeviceIteratorGetNextFromShard(made.handle, 1, begun, **INT)[0]
    with tf.Session() as session:
        assert session.run([element, deleted])[0] == 1
        with pytest.raises(tf.errors.NotFoundError, match="does not exist"):
            session.run(late)


# ---------------------------------------------------------------------- snapshots
def snapshot(source: Any, folder: Path, **more: Any) -> Any:
    return raw.SnapshotDataset(source, str(folder), **more, **INT)


def kept(folder: Path) -> list[str]:
    return sorted(name for _, _, names in os.walk(folder) for name in names)


@pytest.mark.parametrize("compression", ["", "GZIP"])
def test_a_snapshot_is_written_once_and_read_again(tmp_path: Path, compression: str) -> None:
    """SnapshotDataset: the second walk does not ask the source, which would give other numbers."""
    source = raw.TakeDataset(raw.RandomDataset(N(0), N(0), **INT), N(6), **INT)
    first = elements(snapshot(source, tmp_path, compression=compression, shard_size_bytes=1), INT)
    assert kept(tmp_path) == [*(f"{n:08d}.snapshot" for n in range(6)), "snapshot.metadata"]
    assert elements(snapshot(source, tmp_path, compression=compression, shard_size_bytes=1), INT) == first
    assert elements(snapshot(source, tmp_path, mode="passthrough"), INT) != first
    shuffled = elements(snapshot(source, tmp_path, shuffle_on_read=True, seed=1, seed2=2), INT)
    assert sorted(shuffled) == sorted(first)
    assert elements(snapshot(numbers(3), tmp_path), INT) == [0, 1, 2], "another pipeline has another snapshot"


def test_pipelines_are_told_apart_by_their_functions(tmp_path: Path) -> None:
    def walked(function: Any) -> list[Any]:
        with tf.Graph().as_default():
            dataset = tf.data.Dataset.zip((tf.data.Dataset.range(3), tf.data.Dataset.range(5, 8))).map(function)
            return elements(snapshot(dataset._variant_tensor, tmp_path), INT)

    assert walked(lambda x, y: x * 2) == [0, 2, 4]
    assert walked(lambda x, y: x * 3) == [0, 3, 6]
    assert walked(lambda x, y: x - y) == [-5, -5, -5]
    assert walked(lambda x, y: y - x) == [5, 5, 5]
    assert kept(tmp_path).count("snapshot.metadata") == 4
    assert walked(lambda a, b: a * 2) == [0, 2, 4]
    assert kept(tmp_path).count("snapshot.metadata") == 4, "the same pipeline, made again, has the same snapshot"


def test_a_walk_that_ends_early_leaves_no_snapshot(tmp_path: Path) -> None:
    assert elements(snapshot(numbers(6), tmp_path, snapshot_name="named"), INT, most=3) == [0, 1, 2]
    assert "snapshot.metadata" not in kept(tmp_path)
    with pytest.raises(tf.errors.NotFoundError, match="no complete snapshot"):
        elements(snapshot(numbers(6), tmp_path, snapshot_name="named", mode="read"), INT)
    assert elements(snapshot(numbers(6), tmp_path, snapshot_name="named"), INT) == [0, 1, 2, 3, 4, 5]
    assert elements(snapshot(numbers(6), tmp_path, snapshot_name="named", mode="read"), INT) == [0, 1, 2, 3, 4, 5]


def test_a_damaged_snapshot_is_told(tmp_path: Path) -> None:
    elements(snapshot(numbers(4), tmp_path), INT)
    (metadata,) = tmp_path.rglob("snapshot.metadata")
    (file,) = tmp_path.rglob("00000000.snapshot")
    metadata.write_text(json.dumps({"elements": [5], "compression": ""}))
    with pytest.raises(tf.errors.DataLossError, match="delete the snapshot"):
        elements(snapshot(numbers(4), tmp_path), INT)
    metadata.write_text("{")
    with pytest.raises(tf.errors.DataLossError, match="delete the snapshot"):
        elements(snapshot(numbers(4), tmp_path), INT)
    metadata.write_text(json.dumps({"elements": [4], "compression": ""}))
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    with pytest.raises(tf.errors.DataLossError):
        elements(snapshot(numbers(4), tmp_path), INT)


@pytest.mark.parametrize("more", [{"compression": "SNAPPY"}, {"mode": "sometimes"}])
def test_what_a_snapshot_refuses(tmp_path: Path, more: dict[str, str]) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match=next(iter(more.values()))):
        elements(snapshot(numbers(4), tmp_path, **more), INT)


def test_a_position_in_a_snapshot_is_found_again(tmp_path: Path) -> None:
    for _ in range(2):  # while it is written, and while it is read
        iterator = raw.IteratorV2(shared_name="", container="", **INT)
        start = raw.MakeIterator(snapshot(numbers(5), tmp_path), iterator)
        following = raw.IteratorGetNext(iterator, **INT)[0]
        position = raw._IteratorPosition(iterator)
        with tf.Session() as session:
            session.run(start)
            assert [session.run(following) for _ in range(2)] == [0, 1]
            saved = session.run(position)
            assert [session.run(following) for _ in range(3)] == [2, 3, 4]
            session.run(raw._RestoreIterator(iterator, [snapshot(numbers(5), tmp_path)], saved))
            assert session.run(following) == 2
        elements(snapshot(numbers(5), tmp_path), INT)
