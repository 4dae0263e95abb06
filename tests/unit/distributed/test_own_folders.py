"""Folders that end with their process, and with the next of their kind where it was killed."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from anabranch.distributed import own_folders
from anabranch.distributed.own_folders import OwnFolder, sweep

KIND = "anabranch-kind-"


@pytest.fixture(autouse=True)
def folder_of_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", os.fspath(tmp_path))
    return tmp_path


def killed(folder: OwnFolder) -> None:
    """As if its process had been: the system lets go of its lock."""
    assert folder._lock is not None
    os.close(folder._lock)
    folder._lock = None


def test_a_folder_ends_with_its_process(folder_of_folders: Path) -> None:
    folder = OwnFolder(KIND)
    assert folder.path.stat().st_mode & 0o777 == 0o700
    (folder.path / "within").mkdir()
    (folder.path / "within" / "file").write_text("content")
    folder.close()
    folder.close()
    assert list(folder_of_folders.iterdir()) == []


def test_what_was_left_behind_is_removed_and_what_is_held_or_of_others_is_not(folder_of_folders: Path) -> None:
    left, held = OwnFolder(KIND), OwnFolder(KIND)
    (left.path / "file").write_text("content")
    killed(left)
    others = [folder_of_folders / "other", folder_of_folders / f"{KIND}file"]
    others[0].mkdir()
    others[1].write_text("a file")
    link = folder_of_folders / f"{KIND}link"
    link.symlink_to(others[0])
    made = OwnFolder(KIND)
    assert set(folder_of_folders.iterdir()) == {held.path, made.path, link, *others}
    killed(made)
    held.close()
    assert set(folder_of_folders.iterdir()) == {link, *others}


@pytest.mark.parametrize("when", ["opened", "locked"])
def test_a_folder_that_is_swept_before_it_is_locked_is_made_again(monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    module, name = (os, "open") if when == "opened" else (own_folders.fcntl, "flock")
    real, swept = getattr(module, name), threading.Event()

    def late(*arguments: object, **keywords: object) -> object:
        if not swept.is_set():
            swept.set()
            sweep(KIND)
        return real(*arguments, **keywords)

    monkeypatch.setattr(module, name, late)
    folder = OwnFolder(KIND)
    assert swept.is_set()
    assert folder.path.is_dir()
    sweep(KIND)
    assert folder.path.is_dir()
    folder.close()
