"""The `checkpoint` file of a directory."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from anabranch import errors
from anabranch.io.checkpoint_state import (
    generate_checkpoint_state_proto,
    read_checkpoint_state,
    write_checkpoint_state,
)


def test_round_trip(tmp_path: Path) -> None:
    paths = [str(tmp_path / f"ckpt-{i}") for i in (1, 2)]
    write_checkpoint_state(
        str(tmp_path), paths[1], paths, all_model_checkpoint_timestamps=[1.5, 2.5], last_preserved_timestamp=0.25
    )
    state = read_checkpoint_state(str(tmp_path))
    assert state is not None
    assert state.model_checkpoint_path == paths[1]
    assert list(state.all_model_checkpoint_paths) == paths
    assert list(state.all_model_checkpoint_timestamps) == [1.5, 2.5]
    assert state.last_preserved_timestamp == 0.25
    assert os.listdir(tmp_path) == ["checkpoint"]


def test_text_is_tensorflows(tmp_path: Path) -> None:
    write_checkpoint_state(str(tmp_path), "ckpt-2", ["ckpt-1"], latest_filename="latest")
    assert (tmp_path / "latest").read_text() == (
        'model_checkpoint_path: "ckpt-2"\nall_model_checkpoint_paths: "ckpt-1"\nall_model_checkpoint_paths: "ckpt-2"\n'
    )


def test_relative_paths_are_relative_to_the_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkdir("logs")
    write_checkpoint_state("logs", "logs/ckpt-1")
    assert 'path: "ckpt-1"' in (tmp_path / "logs" / "checkpoint").read_text()
    state = read_checkpoint_state("logs")
    assert state is not None
    assert state.model_checkpoint_path == "logs/ckpt-1"
    assert list(state.all_model_checkpoint_paths) == ["logs/ckpt-1"]


def test_save_relative_paths_lets_the_directory_move(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    write_checkpoint_state(str(tmp_path / "old"), str(tmp_path / "old" / "ckpt-1"), save_relative_paths=True)
    (tmp_path / "old").rename(tmp_path / "new")
    state = read_checkpoint_state(str(tmp_path / "new"))
    assert state is not None
    assert state.model_checkpoint_path == str(tmp_path / "new" / "ckpt-1")


def test_absent_or_unreadable_is_none(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert read_checkpoint_state(str(tmp_path)) is None
    for data in (b"model_checkpoint_path: 3", b"\xff\xff", b'model_checkpoint_path: "'):
        (tmp_path / "checkpoint").write_bytes(data)
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            assert read_checkpoint_state(str(tmp_path)) is None
        assert "Checkpoint state ignored" in caplog.text


def test_state_without_a_latest_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").write_bytes(b'all_model_checkpoint_paths: "a"')
    with pytest.raises(ValueError, match="model_checkpoint_path"):
        read_checkpoint_state(str(tmp_path))


def test_misuse(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="conflicts with path"):
        write_checkpoint_state(str(tmp_path), str(tmp_path / "checkpoint"))
    with pytest.raises(ValueError, match="1 entries but there are 2"):
        generate_checkpoint_state_proto("/d", "/d/b", ["/d/a"], [1.0])
    with pytest.raises(errors.NotFoundError):
        write_checkpoint_state(str(tmp_path / "missing"), "a")
