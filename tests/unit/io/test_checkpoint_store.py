"""Checkpoints: what is saved comes back, and what cannot be right is refused."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import safetensors
import safetensors.numpy
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp

from anabranch import errors
from anabranch.core import dtypes
from anabranch.io import checkpoint_writer, slices
from anabranch.io.checkpoint_reader import CheckpointReader
from anabranch.io.checkpoint_store import checkpoint_exists, list_files
from anabranch.io.checkpoint_writer import merge_checkpoints, remove_checkpoint, write_checkpoint
from anabranch.io.slices import SliceInfo
from tests.unit.io.checkpoint_samples import WHOLE, Array, assert_same, write_partitioned

SAVED_DTYPES = [dtype for dtype in dtypes.ALL if dtype.is_numpy_compatible]


# ------------------------------------------------------------------------------------------------ round trips
@st.composite
def arrays(draw: st.DrawFn) -> Array:
    dtype = draw(st.sampled_from(SAVED_DTYPES))
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5))
    count = int(np.prod(shape))
    if dtype == dtypes.string:
        strings = np.empty(count, object)
        strings[:] = draw(st.lists(st.binary(max_size=20), min_size=count, max_size=count))
        return strings.reshape(shape)
    if dtype == dtypes.bool:
        return draw(hnp.arrays(np.bool_, shape))
    data = draw(st.binary(min_size=count * dtype.size, max_size=count * dtype.size))
    return np.frombuffer(data, dtype.as_numpy_dtype, count).reshape(shape)


@given(tensors=st.dictionaries(st.text(st.characters(codec="utf-8"), min_size=1), arrays(), max_size=5))
def test_round_trip_of_any_dtype_and_shape(tmp_path_factory: pytest.TempPathFactory, tensors: dict[str, Array]) -> None:
    prefix = str(tmp_path_factory.mktemp("any") / "ckpt")
    write_checkpoint(prefix, tensors, shard_bytes=200)
    with CheckpointReader(prefix) as reader:
        reader.verify()
        assert reader.names() == sorted(tensors)
        for name, array in tensors.items():
            assert_same(reader.read_tensor(name), array)
            assert_same(reader.read_tensor(name, copy=False), array)
            assert reader.get_variable_to_shape_map()[name] == list(array.shape)
            assert reader.get_variable_to_dtype_map()[name] == dtypes.as_dtype(array.dtype)


@pytest.mark.parametrize("dtype", SAVED_DTYPES, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (2, 3)])
def test_round_trip_of_every_dtype(prefix: str, dtype: dtypes.DType, shape: tuple[int, ...]) -> None:
    count = int(np.prod(shape))
    if dtype == dtypes.string:
        array = np.array([b"text\0%d" % i for i in range(count)], object).reshape(shape)
    elif dtype.is_quantized:
        array = np.arange(count).astype(np.dtype(dtype.as_numpy_dtype)[0]).view(dtype.as_numpy_dtype).reshape(shape)
    else:
        array = np.arange(count).astype(dtype.as_numpy_dtype).reshape(shape)
    write_checkpoint(prefix, {"t": array})
    assert_same(CheckpointReader(prefix).read_tensor("t"), array)


def test_layouts_and_kinds_of_strings(prefix: str) -> None:
    base = np.arange(24, dtype=np.float32).reshape(4, 6)
    tensors = {
        "transposed": base.T,
        "strided": base[::2, ::-3],
        "big_endian": base.astype(">f4"),
        "sized_bytes": np.array([b"ab", b"c"]),
        "sized_text": np.array(["ä", "b"]),
        "text_objects": np.array(["ä", b"b"], object),
    }
    write_checkpoint(prefix, tensors)
    reader = CheckpointReader(prefix)
    for name in ("transposed", "strided", "big_endian"):
        np.testing.assert_array_equal(reader.read_tensor(name), tensors[name])
    assert reader.get_tensor("big_endian").dtype == np.dtype("<f4")
    assert reader.get_tensor("sized_bytes").tolist() == [b"ab", b"c"]
    assert reader.get_tensor("sized_text").tolist() == ["ä".encode(), b"b"]
    assert reader.get_tensor("text_objects").tolist() == ["ä".encode(), b"b"]


def test_shards_are_safetensors_files_to_others(prefix: str) -> None:
    tensors = {
        "w": np.arange(6, dtype=np.float32).reshape(2, 3),
        "step": np.array(7, np.int64),
        "flag": np.array([True, False]),
        "none": np.zeros((0, 4), np.float16),
        "c": np.array([1 + 2j], np.complex64),
        "half": np.array([1.5], ml_dtypes.bfloat16),
    }
    write_checkpoint(prefix, tensors)
    (shard,) = list_files(prefix)[1:]
    with safetensors.safe_open(shard, "np") as file:
        assert sorted(file.keys()) == sorted(tensors)
        for name in ("w", "step", "flag", "none"):
            assert_same(file.get_tensor(name), tensors[name])
        assert file.get_tensor("c").tolist() == [[1, 2]]
        assert file.get_slice("half").get_dtype() == "BF16"


def test_elements_are_aligned(prefix: str) -> None:
    write_checkpoint(prefix, {"a": np.zeros(3, np.uint8), "b": np.zeros(3), "c": np.zeros(3, np.int16)})
    reader = CheckpointReader(prefix)
    assert all(reader.read_tensor(name, copy=False).flags.aligned for name in "abc")


def test_copies_can_be_written_to_and_views_cannot(prefix: str) -> None:
    write_checkpoint(prefix, {"w": np.zeros(3), "s": np.array([b"x"], object)})
    reader = CheckpointReader(prefix)
    for name, value in (("w", 1.0), ("s", b"y")):
        reader.read_tensor(name)[0] = value
        assert reader.read_tensor(name)[0] != value
        with pytest.raises(ValueError, match="read-only"):
            reader.read_tensor(name, copy=False)[0] = value


def test_scalars_are_given_as_a_session_gives_them(prefix: str) -> None:
    write_checkpoint(prefix, {"text": np.array(b"x", object), "number": np.array(3, np.int64), "w": np.zeros(1)})
    reader = CheckpointReader(prefix)
    assert reader.get_tensor("text") == b"x"
    assert isinstance(reader.get_tensor("text"), bytes)
    assert isinstance(reader.get_tensor("number"), np.int64)
    assert isinstance(reader.get_tensor("w"), np.ndarray)
    assert isinstance(reader.read_tensor("number"), np.ndarray)


# ----------------------------------------------------------------------------------------------------- files
def test_files_of_a_checkpoint(prefix: str, tmp_path: Path) -> None:
    assert not checkpoint_exists(prefix)
    write_checkpoint(prefix, {f"v{i}": np.full(100, i, np.float32) for i in range(5)}, shard_bytes=800)
    assert checkpoint_exists(prefix)
    files = list_files(prefix)
    assert files[0] == prefix + ".index.json"
    assert [os.path.basename(path).rpartition("-")[0] for path in files[1:]] == [
        f"model.ckpt-100.data-0000{i}-of-00003" for i in range(3)
    ]
    assert sorted(map(str, tmp_path.iterdir())) == sorted(files)
    reader = CheckpointReader(prefix)
    assert reader.step == 100
    assert reader.writer.startswith("anabranch ")
    assert abs(reader.wall_time - os.stat(files[0]).st_mtime) < 5
    assert b"v3 (float32) [100]" in reader.debug_string()
    json.loads(Path(files[0]).read_bytes())


def test_overwriting_removes_old_shards(prefix: str, tmp_path: Path) -> None:
    write_checkpoint(prefix, {"a": np.zeros(10), "b": np.zeros(10)}, shard_bytes=1)
    old = CheckpointReader(prefix)
    write_checkpoint(prefix, {"a": np.ones(10)}, step=3)
    assert sorted(map(str, tmp_path.iterdir())) == sorted(list_files(prefix))
    assert old.get_tensor("a")[0] == 0, "a reader keeps what it opened"
    assert CheckpointReader(prefix).get_tensor("a")[0] == 1
    assert CheckpointReader(prefix).step == 3


def test_remove(prefix: str, tmp_path: Path) -> None:
    write_checkpoint(prefix, {"a": np.zeros(10)})
    write_checkpoint(prefix + "0", {"a": np.zeros(10)})
    remove_checkpoint(prefix)
    assert sorted(map(str, tmp_path.iterdir())) == sorted(list_files(prefix + "0"))
    assert not checkpoint_exists(prefix)
    remove_checkpoint(prefix)


def test_files_may_be_renamed_together(prefix: str, tmp_path: Path) -> None:
    write_checkpoint(prefix, {"a": np.arange(10)})
    for path in list_files(prefix):
        os.rename(path, tmp_path / os.path.basename(path).replace("model.ckpt-100", "best"))
    assert CheckpointReader(tmp_path / "best").get_tensor("a")[9] == 9


def test_a_missing_directory_is_made_a_missing_path_is_not(tmp_path: Path) -> None:
    write_checkpoint(str(tmp_path / "new" / "ckpt"), {"a": np.zeros(1)})
    with pytest.raises(errors.NotFoundError, match="x/y"):
        write_checkpoint(str(tmp_path / "x" / "y" / "ckpt"), {"a": np.zeros(1)})


def test_prefix_in_current_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for value in (1, 2):
        write_checkpoint("ckpt", {"a": np.array(value)})
    assert CheckpointReader("ckpt").get_tensor("a") == 2
    assert len(os.listdir()) == 2
    remove_checkpoint("ckpt")
    assert os.listdir() == []


# ---------------------------------------------------------------------------------------------------- slices
def test_partitioned_variable_is_one_tensor(prefix: str) -> None:
    write_partitioned(prefix, [0, 3, 7, 10])
    reader = CheckpointReader(prefix)
    assert reader.names() == ["w"]
    assert reader.get_variable_to_shape_map() == {"w": [10, 4]}
    assert_same(reader.get_tensor("w"), WHOLE)


@given(st.data())
def test_any_slice_of_a_partitioned_variable(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    prefix = str(tmp_path_factory.mktemp("sliced") / "ckpt")
    cuts = data.draw(st.sets(st.integers(1, 9)))
    write_partitioned(prefix, [0, *sorted(cuts), 10])
    rows = sorted(data.draw(st.tuples(st.integers(0, 10), st.integers(0, 10))))
    columns = sorted(data.draw(st.tuples(st.integers(0, 4), st.integers(0, 4))))
    expected = WHOLE[slice(*rows), slice(*columns)]
    reader = CheckpointReader(prefix)
    box = SliceInfo("w", (10, 4), (rows[0], columns[0]), expected.shape)
    for part in (box, box.spec, (slice(*rows), slice(*columns))):
        assert_same(reader.get_slice("w", part), expected)


def test_slices_of_other_kinds_of_tensors(prefix: str) -> None:
    strings = np.array([b"a", b"b", b"c"], object)
    write_checkpoint(prefix, {"scalar": np.array(3), "s": strings})
    reader = CheckpointReader(prefix)
    assert reader.get_slice("scalar", "") == 3
    assert reader.get_slice("s", "3 1,2").tolist() == [b"b", b"c"]
    assert reader.get_slice("s", [slice(-1, None)]).tolist() == [b"c"]


@pytest.mark.parametrize("part", ["10 4 0,5", "10 4 0,11:-", "10 x -:-", "8 4 -:-", "10", [slice(0, 10, 2)]])
def test_slices_that_are_none(prefix: str, part: Any) -> None:
    write_partitioned(prefix, [0, 10])
    with pytest.raises(errors.InvalidArgumentError, match="'w'"):
        CheckpointReader(prefix).get_slice("w", part)


@given(st.data())
def test_boxes_overlap_where_an_element_is_in_two(data: st.DataObject) -> None:
    rank = data.draw(st.integers(0, 3))
    covered = np.zeros((4,) * rank, np.int64)
    boxes = []
    for _ in range(data.draw(st.integers(0, 5))):
        starts = [data.draw(st.integers(0, 3)) for _ in range(rank)]
        lengths = [data.draw(st.integers(0, 4 - start)) for start in starts]
        boxes.append(SliceInfo("w", covered.shape, tuple(starts), tuple(lengths)))
        covered[tuple(slice(start, start + length) for start, length in zip(starts, lengths, strict=True))] += 1
    found = slices.find_overlap(boxes)
    assert (found is not None) == bool((covered > 1).any())
    if found is not None and rank:
        assert found[0].intersection(found[1]) is not None


def test_missing_pieces(prefix: str) -> None:
    write_partitioned(prefix, [2, 5, 10])
    reader = CheckpointReader(prefix)
    assert_same(reader.get_slice("w", [slice(2, None)]), WHOLE[2:])
    with pytest.raises(errors.InvalidArgumentError, match="only 32 of the 40 elements"):
        reader.get_tensor("w")


def test_merge(tmp_path: Path) -> None:
    boxes = {name: SliceInfo("w", (10, 4), (begin, 0), (5, 4)) for name, begin in (("w/0", 0), ("w/1", 5))}
    parts = [str(tmp_path / f"part-{i}") for i in range(2)]
    write_checkpoint(parts[0], {"w/0": WHOLE[:5], "a": np.ones(3)}, slices={"w/0": boxes["w/0"]}, step=9)
    write_checkpoint(parts[1], {"w/1": WHOLE[5:], "b": np.ones(4)}, slices={"w/1": boxes["w/1"]})
    whole = str(tmp_path / "whole")
    write_checkpoint(whole, {"old": np.zeros(1)})
    merge_checkpoints(parts, whole)
    reader = CheckpointReader(whole)
    reader.verify()
    assert reader.names() == ["a", "b", "w"]
    assert reader.step == 9
    assert_same(reader.get_tensor("w"), WHOLE)
    assert sorted(map(str, tmp_path.iterdir())) == sorted(list_files(whole))


def test_merge_of_the_same_tensor_changes_nothing(tmp_path: Path) -> None:
    parts = [str(tmp_path / f"part-{i}") for i in range(2)]
    for part in parts:
        write_checkpoint(part, {"a": np.ones(3)})
    before = sorted(tmp_path.iterdir())
    with pytest.raises(errors.InvalidArgumentError, match="'a' is saved twice"):
        merge_checkpoints(parts, str(tmp_path / "whole"))
    assert sorted(tmp_path.iterdir()) == before


# -------------------------------------------------------------------------------------------- bad arguments
@pytest.mark.parametrize(
    ("tensors", "boxes", "message"),
    [
        ({"": np.zeros(1)}, {}, "'' cannot be the name"),
        ({"__metadata__": np.zeros(1)}, {}, "cannot be the name"),
        ({"\ud800": np.zeros(1)}, {}, "cannot be the name"),
        ({"a": np.array([{}], object)}, {}, "'a' of dtype object cannot be saved: .* dict"),
        ({"a": np.zeros(1, "M8[s]")}, {}, "'a' of dtype datetime64"),
        ({"a": np.zeros(2)}, {"b": SliceInfo("w", (2,), (0,), (2,))}, "none of the tensors"),
        ({"a": np.zeros(2)}, {"a": SliceInfo("w", (4,), (0,), (3,))}, "its slice has shape"),
        (
            {"a": np.zeros(2), "b": np.zeros(2)},
            {"a": SliceInfo("w", (4,), (0,), (2,)), "b": SliceInfo("w", (4,), (1,), (2,))},
            "'w' is saved twice",
        ),
        (
            {"a": np.zeros(2), "b": np.zeros(2, np.int32)},
            {"a": SliceInfo("w", (4,), (0,), (2,)), "b": SliceInfo("w", (4,), (2,), (2,))},
            "disagree: float64 .* int32",
        ),
    ],
)
def test_what_cannot_be_saved(
    prefix: str, tmp_path: Path, tensors: dict[str, Array], boxes: dict[str, SliceInfo], message: str
) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=message):
        write_checkpoint(prefix, tensors, slices=boxes)
    assert list(tmp_path.iterdir()) == []


def test_a_directory_is_a_prefix(tmp_path: Path) -> None:
    write_checkpoint(f"{tmp_path}/other", {"a": np.zeros(1)})
    for value in (1.0, 2.0):
        write_checkpoint(f"{tmp_path}/", {"a": np.full(1, value)})
    checkpoint_writer.sweep_uncommitted(f"{tmp_path}/")
    with CheckpointReader(f"{tmp_path}/") as reader:
        assert reader.get_tensor("a") == [2.0]
    checkpoint_writer.remove_checkpoint(f"{tmp_path}/")
    with CheckpointReader(f"{tmp_path}/other") as reader:
        assert reader.get_tensor("a") == [0.0]
    assert all(path.name.startswith("other") for path in tmp_path.iterdir())


def test_an_empty_prefix_is_refused() -> None:
    with pytest.raises(errors.InvalidArgumentError, match="is empty"):
        write_checkpoint("", {"a": np.zeros(1)})


def test_slice_outside_its_whole() -> None:
    with pytest.raises(errors.InvalidArgumentError, match="'w'"):
        SliceInfo("w", (4,), (2,), (3,))


def test_unknown_tensor_and_closed_reader(prefix: str) -> None:
    write_checkpoint(prefix, {"a": np.zeros(1)})
    reader = CheckpointReader(prefix)
    assert reader.has_tensor("a")
    assert not reader.has_tensor("b")
    with pytest.raises(errors.NotFoundError, match="'b' not found in checkpoint"):
        reader.get_tensor("b")
    reader.close()
    with pytest.raises(errors.FailedPreconditionError, match="closed"):
        reader.get_tensor("a")


# ---------------------------------------------------------------------------- refusals of the operating system
def test_full_disk_leaves_the_old_checkpoint(prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = {"a": np.zeros(1000), "b": np.zeros(1000)}
    write_checkpoint(prefix, old, shard_bytes=1)
    before = sorted(tmp_path.iterdir())
    really_write = os.write
    for room in range(0, 17_000, 1000):
        left = room

        def write(descriptor: int, data: memoryview) -> int:
            nonlocal left
            if left == 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            written = really_write(descriptor, data[:left])
            left -= written
            return written

        monkeypatch.setattr(os, "write", write)
        with pytest.raises(errors.ResourceExhaustedError, match=prefix):
            write_checkpoint(prefix, {"a": np.ones(1000), "b": np.ones(1000)}, shard_bytes=1)
        monkeypatch.undo()
        assert sorted(tmp_path.iterdir()) == before
        CheckpointReader(prefix).verify()
        assert CheckpointReader(prefix).get_tensor("a")[0] == 0


@pytest.mark.parametrize("name", ["open", "fsync", "replace"])
def test_any_refused_call_leaves_the_old_checkpoint(
    prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    write_checkpoint(prefix, {"a": np.zeros(10)})
    before = sorted(tmp_path.iterdir())

    def refuse(*args: Any, **kwargs: Any) -> None:
        raise OSError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(os, name, refuse)
    with pytest.raises(errors.PermissionDeniedError, match=prefix):
        write_checkpoint(prefix, {"a": np.ones(10)})
    monkeypatch.undo()
    assert sorted(tmp_path.iterdir()) == before
    assert CheckpointReader(prefix).get_tensor("a")[0] == 0


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_unwritable_directory(prefix: str, tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(errors.PermissionDeniedError, match=prefix):
        write_checkpoint(prefix, {"a": np.ones(10)})


def test_failure_after_the_commit_keeps_it(prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rename happened, but the directory could not be fsynced: the new checkpoint stands, whole."""
    write_checkpoint(prefix, {"a": np.zeros(10)})
    really_fsync = os.fsync
    calls = []

    def fsync(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) == 4:  # shard, directory, manifest, directory
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        really_fsync(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(errors.DataLossError):
        write_checkpoint(prefix, {"a": np.ones(10)})
    assert CheckpointReader(prefix).get_tensor("a")[0] == 1
    assert sorted(map(str, tmp_path.iterdir())) == sorted(list_files(prefix))


def test_merge_copies_where_there_are_no_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **kwargs: Any) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    write_checkpoint(str(tmp_path / "part"), {"a": np.arange(10)})
    monkeypatch.setattr(os, "link", refuse)
    merge_checkpoints([str(tmp_path / "part")], str(tmp_path / "whole"))
    CheckpointReader(tmp_path / "whole").verify()
    assert len(list(tmp_path.iterdir())) == 2


def test_shards_stay_within_what_safetensors_allows(prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_writer, "_TENSORS_PER_SHARD", 3)
    write_checkpoint(prefix, {f"v{i}": np.zeros(1) for i in range(7)})
    assert len(list_files(prefix)) == 1 + 3
    CheckpointReader(prefix).verify()
