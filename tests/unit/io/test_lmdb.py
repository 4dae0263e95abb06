"""Databases that the library LMDB wrote, and damaged ones."""

from __future__ import annotations

import contextlib
import gzip
import json
import random
import struct
from pathlib import Path

import pytest

from anabranch.errors import DataLossError, InvalidArgumentError, NotFoundError, OpError, UnimplementedError
from anabranch.io.lmdb import LmdbFile

FIXTURES = Path(__file__).parents[2] / "fixtures" / "lmdb"
RECORDS: dict[str, list[list[str]]] = json.loads(gzip.decompress((FIXTURES / "records.json.gz").read_bytes()))


def database(folder: Path, name: str) -> Path:
    path = folder / "data.mdb"
    path.write_bytes(gzip.decompress((FIXTURES / f"{name}.mdb.gz").read_bytes()))
    return path


def records(path: Path) -> list[tuple[bytes, bytes]]:
    with LmdbFile(str(path)) as file:
        return list(file)


@pytest.mark.parametrize("name", sorted(RECORDS))
def test_records_are_those_that_the_library_reads(tmp_path: Path, name: str) -> None:
    expected = [(key.encode("latin-1"), value.encode("latin-1")) for key, value in RECORDS[name]]
    path = database(tmp_path, name)
    assert records(path) == expected
    assert records(tmp_path) == expected, "a folder stands for the file in it"


def test_what_is_no_database(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for content in (b"", b"text", bytes(8192)):
        path.write_bytes(content)
        with pytest.raises(InvalidArgumentError, match="no database of LMDB"):
            records(path)
    with pytest.raises(NotFoundError):
        records(tmp_path / "nosuch")


def test_damage_is_told(tmp_path: Path) -> None:
    path = database(tmp_path, "long_values")
    whole = bytearray(path.read_bytes())
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataLossError, match="damaged"):
        records(path)
    other = bytearray(whole)
    struct.pack_into("<I", other, 16 + 4, 2)
    path.write_bytes(other)
    with pytest.raises(UnimplementedError, match="version 2"):
        records(path)
    size = bytearray(whole)
    for page in (0, 4096):
        struct.pack_into("<I", size, page + 16 + 24, 12345)
    path.write_bytes(size)
    with pytest.raises(DataLossError, match="12345 bytes"):
        records(path)


def test_random_damage_ends_in_records_or_an_error(tmp_path: Path) -> None:
    path = database(tmp_path, "deep")
    whole = path.read_bytes()
    chosen = random.Random(5)
    for _ in range(150):
        changed = bytearray(whole)
        for _ in range(3):
            changed[chosen.randrange(len(changed))] ^= 1 << chosen.randrange(8)
        path.write_bytes(changed)
        # the errors of this package only; and not more records than there is room for
        with contextlib.suppress(OpError), LmdbFile(str(path)) as file:
            for number, _ in enumerate(file):
                assert number < len(whole)
