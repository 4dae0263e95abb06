"""`anabranch convert`: the same tensors in each format, and what is refused."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from anabranch import errors
from anabranch.io import checkpoint_store, sstable
from anabranch.io.checkpoint_writer import write_checkpoint
from anabranch.io.tensor_bundle import TensorBundleReader
from anabranch.tools import command_line, convert

FIXTURES = Path(__file__).parents[2] / "fixtures"


def test_there_and_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """From a SavedModel of TensorFlow's to each format in turn, and to TensorFlow's again."""
    steps = [
        ([str(FIXTURES / "saved_model" / "builder"), str(tmp_path / "one.safetensors")], "one.safetensors"),
        ([str(tmp_path / "one.safetensors"), str(tmp_path / "own"), "--to", "anabranch"], "own"),
        ([str(tmp_path / "own.index.json"), str(tmp_path / "theirs"), "--to", "tensorflow"], "theirs"),
    ]
    original = FIXTURES / "saved_model" / "builder" / "variables" / "variables"
    for arguments, target in steps:
        assert command_line.main(["convert", *arguments]) == 0, capsys.readouterr().err
        assert capsys.readouterr().out == f"{tmp_path / target}: 2 tensors\n"
        with TensorBundleReader(original) as expected, checkpoint_store.open_checkpoint(tmp_path / target) as reader:
            assert reader.names() == expected.names() == ["rows", "scale"]
            reader.verify()
            for name in reader.names():
                np.testing.assert_array_equal(reader.read_tensor(name), expected.get_tensor(name))
    theirs = (tmp_path / "theirs.index").read_bytes()
    assert sstable.read_table(theirs) == sstable.read_table(original.with_suffix(".index").read_bytes())
    data = ".data-00000-of-00001"
    assert (tmp_path / f"theirs{data}").read_bytes() == original.with_suffix(data).read_bytes()


def test_all_dtypes_and_partitioned_variables(tmp_path: Path) -> None:
    source = FIXTURES / "tensor_bundle" / "variables"
    convert.convert(str(source), str(tmp_path / "own"), "anabranch")
    convert.convert(str(tmp_path / "own"), str(tmp_path / "theirs"), "tensorflow")
    with TensorBundleReader(source) as expected, TensorBundleReader(tmp_path / "theirs") as reader:
        assert reader.get_variable_to_dtype_map() == expected.get_variable_to_dtype_map()
        for name in expected.names():
            np.testing.assert_array_equal(reader.read_tensor(name), expected.get_tensor(name))
        assert reader.step == 1234
    with pytest.raises(errors.InvalidArgumentError, match=r"no such dtypes as those of 'dtypes/complex128'"):
        convert.convert(str(source), str(tmp_path / "one.safetensors"), "safetensors")
    assert not list(tmp_path.glob("*one*"))


def test_refusals(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_checkpoint(str(tmp_path / "own"), {"v": np.ones(3, np.float32)})
    before = sorted(tmp_path.iterdir())
    for arguments, told in (
        (["own", "own", "--to", "tensorflow"], "exists"),
        (["absent", "new", "--to", "tensorflow"], "There is no checkpoint"),
        (["own", "gs://bucket/new", "--to", "tensorflow"], "gs://"),
        (["own", "absent/new.safetensors"], "absent"),
    ):
        paths = [word if word.startswith(("-", "gs:", "tens")) else str(tmp_path / word) for word in arguments]
        assert command_line.main(["convert", *paths]) == 1
        assert told in capsys.readouterr().err
    for wrong in (["own", "new"], ["own", "new", "--to", "safetensors"], ["own", "n.safetensors", "--to", "anabranch"]):
        with pytest.raises(SystemExit):
            convert.main(wrong)
    assert sorted(tmp_path.iterdir()) == before


def test_a_damaged_source_leaves_no_target(tmp_path: Path) -> None:
    for suffix in (".index", ".data-00000-of-00002", ".data-00001-of-00002"):
        shutil.copy(FIXTURES / "tensor_bundle" / f"sharded{suffix}", tmp_path)
    data = tmp_path / "sharded.data-00001-of-00002"
    data.write_bytes(bytes([data.read_bytes()[0] ^ 1]) + data.read_bytes()[1:])
    before = sorted(tmp_path.iterdir())
    for target, wanted in (("n", "tensorflow"), ("n", "anabranch"), ("n.safetensors", "safetensors")):
        with pytest.raises(errors.DataLossError, match="checksum"):
            convert.convert(str(tmp_path / "sharded"), str(tmp_path / target), wanted)
    assert sorted(tmp_path.iterdir()) == before
