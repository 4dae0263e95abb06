"""Damaged and forged checkpoints: each is found out, and none leads elsewhere or takes memory."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anabranch import errors
from anabranch.io import checkpoint_manifest, crc32c
from anabranch.io.checkpoint_reader import CheckpointReader
from anabranch.io.checkpoint_store import list_files
from anabranch.io.checkpoint_writer import merge_checkpoints, write_checkpoint
from tests.unit.io.checkpoint_samples import assert_same, write_partitioned


def pieces_of(manifest: dict[str, Any], name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = manifest["tensors"][name]["pieces"]
    return found


@pytest.mark.parametrize(
    "change",
    [
        lambda m: pieces_of(m, "w")[1].update(offsets=[2, 0]),
        lambda m: pieces_of(m, "w")[1].update(offsets=[0, 0]),
        lambda m: pieces_of(m, "w").append({**pieces_of(m, "w")[0], "offsets": [7, 0]}),
        lambda m: m["tensors"].update(v=m["tensors"]["w"]),
        lambda m: m["tensors"]["w"].update(shape=[1 << 62, 4]),
    ],
)
def test_pieces_that_overlap_or_are_used_twice(prefix: str, change: Callable[[dict[str, Any]], None]) -> None:
    write_partitioned(prefix, [0, 3, 7])
    forge(prefix, change)
    with pytest.raises(errors.DataLossError, match=r"overlap|used already|has shape"):
        CheckpointReader(prefix, verify_checksums=False)


def test_no_memory_is_taken_for_pieces_that_are_not_there(prefix: str) -> None:
    write_partitioned(prefix, [0, 3, 7])
    forge(prefix, lambda m: m["tensors"]["w"].update(shape=[1 << 55, 4]))
    with pytest.raises(errors.InvalidArgumentError, match="holds only 28 of"):
        CheckpointReader(prefix, verify_checksums=False).get_tensor("w")


def test_missing_checkpoint_and_missing_shard(prefix: str) -> None:
    with pytest.raises(errors.NotFoundError, match="no checkpoint with prefix"):
        CheckpointReader(prefix)
    write_checkpoint(prefix, {"a": np.zeros(1)})
    (shard,) = list_files(prefix)[1:]
    os.unlink(shard)
    with pytest.raises(errors.DataLossError, match=f"{shard}' is missing"):
        CheckpointReader(prefix)


def test_truncated_shard(prefix: str) -> None:
    write_checkpoint(prefix, {"a": np.zeros(100)})
    (shard,) = list_files(prefix)[1:]
    os.truncate(shard, os.path.getsize(shard) - 1)
    with pytest.raises(errors.DataLossError, match=f"{shard}' has .* bytes, its manifest says"):
        CheckpointReader(prefix)


def test_every_flipped_bit_of_a_shard_is_found_or_harmless(prefix: str) -> None:
    tensors = {"a": np.arange(3.0), "s": np.array([b"xy", b""], object), "c": np.array(1j, np.complex64)}
    write_checkpoint(prefix, tensors)
    (shard,) = list_files(prefix)[1:]
    data = Path(shard).read_bytes()

    def damage_found(reader: CheckpointReader) -> bool:
        """Whether reading says so; otherwise everything is right."""
        try:
            for name, array in tensors.items():
                assert_same(reader.read_tensor(name), array)
        except errors.DataLossError:
            return True
        return False

    found = 0
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 1 << position % 8
        Path(shard).write_bytes(damaged)
        reader = CheckpointReader(prefix)
        if damage_found(reader):
            found += 1
            with pytest.raises(errors.DataLossError, match=f"Tensor '.' in checkpoint shard '{shard}'"):
                reader.verify()
    assert found > 150  # All but the padding and the remarks in the header.


def test_every_flipped_bit_of_a_manifest_is_found(prefix: str) -> None:
    write_checkpoint(prefix, {"a": np.arange(3.0)})
    manifest = Path(list_files(prefix)[0])
    data = manifest.read_bytes()
    for position in range(len(data) - len(b"\n}\n")):
        damaged = bytearray(data)
        damaged[position] ^= 1 << position % 8
        manifest.write_bytes(damaged)
        with pytest.raises(errors.DataLossError, match=str(manifest)):
            CheckpointReader(prefix)


@pytest.mark.parametrize("data", [b"", b"{", b"[" * 100_000, b"\xff", b"{}", b'{,\n"manifest_crc32c": "00000000"\n}\n'])
def test_manifest_that_is_none(prefix: str, data: bytes) -> None:
    Path(prefix + ".index.json").write_bytes(data)
    with pytest.raises(errors.DataLossError, match="manifest"):
        CheckpointReader(prefix)


def test_manifest_truncated_anywhere(prefix: str) -> None:
    write_checkpoint(prefix, {"a": np.arange(3.0)})
    manifest = Path(list_files(prefix)[0])
    data = manifest.read_bytes()
    for length in range(len(data) - 2):
        manifest.write_bytes(data[:length])
        with pytest.raises(errors.DataLossError):
            CheckpointReader(prefix)


def forge(prefix: str, change: Callable[[dict[str, Any]], None]) -> None:
    """Changes a manifest and seals it again, as an attacker would."""
    path = Path(prefix + ".index.json")
    content = json.loads(path.read_bytes())
    del content["manifest_crc32c"]
    change(content)
    body = json.dumps(content)[:-1].encode()
    path.write_bytes(body + checkpoint_manifest._SEAL + b'%08x"\n}\n' % crc32c.crc32c(body))


def reshape(entry: dict[str, Any], shape: list[int]) -> None:
    entry["shape"] = shape
    entry["pieces"][0].update(shape=shape, offsets=[0] * len(shape))


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m["tensors"]["a"].update(shape=[2, 2]),
        lambda m: m["tensors"]["a"].update(shape=[1 << 62, 1 << 62]),
        lambda m: m["tensors"]["a"].update(shape=[-3]),
        lambda m: m["tensors"]["a"].update(shape="3"),
        lambda m: m["tensors"]["a"].update(dtype="int32"),
        lambda m: m["tensors"]["a"].update(dtype="string"),
        lambda m: m["tensors"]["a"].update(dtype="variant"),
        lambda m: m["tensors"]["a"].update(dtype="nonsense"),
        lambda m: m["tensors"]["a"].update(pieces=[]),
        lambda m: m["tensors"].update(a=3),
        lambda m: m["tensors"]["a"]["pieces"][0].update(shard=1),
        lambda m: m["tensors"]["a"]["pieces"][0].update(shard=True),
        lambda m: m["tensors"]["a"]["pieces"][0].update(key="b"),
        lambda m: m["tensors"]["a"]["pieces"][0].update(offsets=[1]),
        lambda m: m["tensors"]["a"]["pieces"][0].update(offsets=[0, 0]),
        lambda m: m["tensors"]["a"]["pieces"][0].update(crc32c="xyz"),
        lambda m: reshape(m["tensors"]["s"], [5]),
        lambda m: reshape(m["tensors"]["s"], [0]),
        lambda m: reshape(m["tensors"]["s"], [1 << 62]),
        lambda m: reshape(m["tensors"]["a"], [1 << 62, 1 << 62]),
        lambda m: m["shards"][0].update(bytes=10),
        lambda m: m["shards"][0].update(bytes=1e3),
        lambda m: m.update(shards={}),
        lambda m: m.update(format="other"),
        lambda m: m.update(format_version="1"),
        lambda m: m.update(step="x"),
        lambda m: m.pop("writer"),
        lambda m: m.pop("wall_time"),
    ],
)
def test_lying_manifest(prefix: str, change: Callable[[dict[str, Any]], None]) -> None:
    write_checkpoint(prefix, {"a": np.arange(3.0), "s": np.array([b"xy"], object)})
    forge(prefix, change)
    with pytest.raises(errors.DataLossError):
        CheckpointReader(prefix, verify_checksums=False).verify()


def test_newer_format(prefix: str) -> None:
    write_checkpoint(prefix, {"a": np.arange(3.0)})
    forge(prefix, lambda manifest: manifest.update(format_version=2))
    with pytest.raises(errors.InvalidArgumentError, match="newer version"):
        CheckpointReader(prefix)


@pytest.mark.parametrize(
    "suffix",
    [
        "/../../etc/passwd",
        "/etc/passwd",
        "../x.data-00000-of-00001-000000000000.safetensors",
        "/../x.data-00000-of-00001-000000000000.safetensors",
        ".data-00000-of-00001-000000000000.safetensors/../x",
        ".data-00000-of-00001-000000000000.safetensors\n",
        "",
    ],
)
def test_manifest_that_leads_elsewhere(prefix: str, suffix: str) -> None:
    write_checkpoint(prefix, {"a": np.arange(3.0)})
    forge(prefix, lambda manifest: manifest["shards"][0].update(suffix=suffix))
    with pytest.raises(errors.InvalidArgumentError, match="may not lead to other files"):
        CheckpointReader(prefix)


def test_link_that_leads_elsewhere(prefix: str, tmp_path: Path) -> None:
    write_checkpoint(prefix, {"a": np.arange(3.0)})
    (shard,) = map(Path, list_files(prefix)[1:])
    (tmp_path / "other").mkdir()
    shard.rename(tmp_path / "other" / "file")
    shard.symlink_to(tmp_path / "other" / "file")
    with pytest.raises(errors.InvalidArgumentError, match="leads out of its directory"):
        CheckpointReader(prefix)
    with pytest.raises(errors.InvalidArgumentError, match="leads out of its directory"):
        merge_checkpoints([prefix], str(tmp_path / "merged"))
    shard.unlink()
    (tmp_path / "other" / "file").rename(tmp_path / "file")
    shard.symlink_to("file")
    assert CheckpointReader(prefix).get_tensor("a")[2] == 2, "links within the directory are fine"


def test_pipe_in_place_of_a_file(prefix: str) -> None:
    write_checkpoint(prefix, {"a": np.arange(3.0)})
    for path in reversed(list_files(prefix)):
        os.unlink(path)
        os.mkfifo(path)
        with pytest.raises(errors.InvalidArgumentError, match="not a regular file"):
            CheckpointReader(prefix)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        struct.pack("<Q", 1 << 60),
        struct.pack("<Q", 2) + b"[]",
        struct.pack("<Q", 2) + b"{}" + b"x",
        struct.pack("<Q", 60000) + b'{"a":' * 10000 + b"  " * 5000,
        struct.pack("<Q", 58) + b'{"a":{"dtype":"F64","shape":[3],"data_offsets":[0,9223372]}}'[:58],
        struct.pack("<Q", 51) + b'{"a":{"dtype":"U8","shape":[3],"data_offsets":"03"}}'[:51],
    ],
)
def test_shard_that_is_none(prefix: str, data: bytes) -> None:
    write_checkpoint(prefix, {"a": np.arange(3.0)})
    (shard,) = list_files(prefix)[1:]
    Path(shard).write_bytes(data)
    forge(prefix, lambda manifest: manifest["shards"][0].update(bytes=len(data)))
    with pytest.raises(errors.DataLossError, match=os.path.basename(shard)):
        CheckpointReader(prefix).get_tensor("a")
