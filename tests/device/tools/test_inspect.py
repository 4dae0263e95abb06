"""`anabranch inspect` on files that TensorFlow wrote, and on ours."""

from __future__ import annotations

import io
import shutil
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from rich.console import Console

from anabranch.errors import DataLossError
from anabranch.frontend.storage.summary_writer import FileWriter
from anabranch.graph.graph import Graph
from anabranch.io.checkpoint_state import write_checkpoint_state
from anabranch.io.checkpoint_store import list_files
from anabranch.io.checkpoint_writer import write_checkpoint
from anabranch.ops import raw
from anabranch.proto.summary_pb2 import Summary
from anabranch.tools import command_line
from anabranch.tools.inspect import Inspector, NotInspectableError, Report

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
THEIRS = FIXTURES / "tensorflow"


def inspect(path: object, *, verify: bool = False, limit: int | None = 40) -> tuple[int, str]:
    output = io.StringIO()
    status = Inspector(Report(Console(file=output, width=200), limit), verify=verify).inspect(str(path))
    return status, output.getvalue()


def cells(text: str) -> list[list[str]]:
    """The rows of all tables."""
    return [[cell.strip() for cell in line.strip("│").split("│")] for line in text.splitlines() if line.startswith("│")]


@pytest.mark.parametrize("name", ["conv_while.pb", "conv_while.pbtxt", "conv_while.meta"])
def test_graphs(name: str) -> None:
    status, text = inspect(THEIRS / name, limit=None)
    assert status == 0
    assert "262 operations of 60 types" in text
    rows = cells(text)
    assert ["Conv2D", "1"] in rows
    assert ["x", "float32", "(?, 8, 8, 1)"] in rows
    assert ("Collections" in text) == name.endswith(".meta")


def test_a_saved_model_and_its_directory(tmp_path: Path) -> None:
    shutil.copy(THEIRS / "saved_model.pb", tmp_path)
    for path in (THEIRS / "saved_model.pb", tmp_path):
        _, text = inspect(path)
        assert "tags: serve" in text
        assert ["factor", "float32", "()", "4 B"] in cells(text)
        assert "tensorflow/serving/predict" in text


def test_long_tables_are_cut(capsys: pytest.CaptureFixture[str]) -> None:
    _, text = inspect(THEIRS / "conv_while.pb", limit=5)
    assert "... and 55 more; --all lists them" in text
    assert command_line.main(["inspect", "--all", str(THEIRS / "conv_while.pb")]) == 0
    assert "more; --all" not in capsys.readouterr().out


def save(directory: Path) -> str:
    prefix = str(directory / "model.ckpt-7")
    write_checkpoint(prefix, {"w": np.ones((2, 3), np.float32), "n": np.int64(7)})
    return prefix


def test_a_checkpoint(tmp_path: Path) -> None:
    prefix = save(tmp_path)
    status, text = inspect(prefix, verify=True)
    assert status == 0
    assert cells(text) == [["n", "int64", "()", "8 B"], ["w", "float32", "(2, 3)", "24 B"]]
    assert "2 tensors, 32 B" in text
    assert "all checksums match" in text
    assert inspect(list_files(prefix)[0])[1].startswith("Checkpoint")


def test_a_directory_with_a_checkpoint_state(tmp_path: Path) -> None:
    prefix = save(tmp_path)
    write_checkpoint_state(str(tmp_path), prefix, [str(tmp_path / "model.ckpt-1"), prefix])
    _, text = inspect(tmp_path)
    rows = cells(text)
    assert [row[1] for row in rows[:2]] == ["no", "yes"]
    assert ["w", "float32", "(2, 3)", "24 B"] in rows


def test_a_relative_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its state holds paths that are relative to it, or absolute ones."""
    (tmp_path / "run").mkdir()
    prefix = save(tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    for directory, listed in (("run", "run/model.ckpt-7"), (str(tmp_path / "run"), prefix)):
        write_checkpoint_state(directory, listed)
        for path in ("run", "run/", "./run", tmp_path / "run"):
            status, text = inspect(path)
            assert status == 0
            assert "yes" in [row[1] for row in cells(text)], path
            assert ["w", "float32", "(2, 3)", "24 B"] in cells(text)


def test_a_directory_without_a_state(tmp_path: Path) -> None:
    save(tmp_path)
    safetensors.numpy.save_file({"x": np.zeros(3, np.int8)}, tmp_path / "other.safetensors")
    _, text = inspect(tmp_path)
    assert ["w", "float32", "(2, 3)", "24 B"] in cells(text)
    assert ["x", "int8", "(3)", "3 B"] in cells(text)


def test_a_plain_safetensors_file(tmp_path: Path) -> None:
    path = tmp_path / "theirs.safetensors"
    safetensors.numpy.save_file({"layer.weight": np.ones((2, 3), np.float16), "n": np.array(True)}, path)
    status, text = inspect(path, verify=True)
    assert status == 0
    assert cells(text) == [["layer.weight", "float16", "(2, 3)", "12 B"], ["n", "bool", "()", "1 B"]]
    assert "the file has no checksums" in text
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DataLossError, match="no safetensors file, or damaged"):
        inspect(path)


def test_tensorflows_checkpoints() -> None:
    prefix = FIXTURES / "tensor_bundle" / "variables"
    with np.load(f"{prefix}.npz", allow_pickle=False) as arrays:
        names = set(arrays)
    status, text = inspect(prefix, verify=True)
    assert status == 0
    assert "global step 1234" in text
    assert f"{len(cells(text))} tensors" in text
    assert names & {row[0] for row in cells(text)}
    assert inspect(f"{prefix}.index")[1].startswith("Checkpoint")


def test_damage_is_found_and_named(tmp_path: Path) -> None:
    prefix = save(tmp_path)
    shard = Path(list_files(prefix)[1])
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)
    assert inspect(prefix)[0] == 0  # nothing was read but the index
    status, text = inspect(prefix, verify=True)
    assert status == 1
    assert "1 of 2 tensors are damaged" in text


def test_events(tmp_path: Path) -> None:
    graph = Graph()
    with graph.as_default():
        raw.NoOp(name="n")
    with FileWriter(tmp_path, graph) as writer:
        for step in (3, 4):
            writer.add_summary(Summary(value=[Summary.Value(tag="loss", simple_value=0.5 * step)]), step)
    (file,) = tmp_path.iterdir()
    for path in (tmp_path, file):
        status, text = inspect(path, verify=True)
        assert status == 0
        assert cells(text) == [["loss", "simple_value", "2", "3", "4", "2"]]
        assert "1 graph_def, 1 meta_graph_def" in text
        assert "all checksums match" in text
    file.write_bytes(file.read_bytes()[:-3])
    status, text = inspect(file)
    assert status == 1
    assert "damaged after 4 events" in text
    assert cells(text) == [["loss", "simple_value", "1", "3", "3", "1.5"]]


def test_what_is_nothing_of_that_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notes.txt").write_text("just text")
    for path, told in [
        (tmp_path, "holds no saved model, no checkpoint and no event files"),
        (tmp_path / "notes.txt", "holds no SavedModel"),
        (tmp_path / "nosuch", "is neither a file"),
    ]:
        with pytest.raises(NotInspectableError, match=told):
            inspect(path)
        assert command_line.main(["inspect", str(path)]) == 1
        assert told in capsys.readouterr().err
