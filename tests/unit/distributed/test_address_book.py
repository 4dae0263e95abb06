"""Addresses that are read again when the files change that say them."""

from __future__ import annotations

import os
import queue
from pathlib import Path

import pytest

from anabranch.distributed import address_book
from anabranch.distributed.address_book import AddressBook, Move
from anabranch.distributed.addresses import AddressMap, parse_address

TASKS = {"ps": "ps0:1", "worker": "worker0:1"}


class File:
    """A map of addresses, and a book of it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.write("ps0:1 = h:10, worker0:1 = h:11")
        self.book = AddressBook(self.read, [str(path)], own="worker")

    def write(self, text: str) -> None:
        # replaced, as who writes it for processes that read it should
        written = self.path.with_suffix(".new")
        written.write_text(text)
        os.replace(written, self.path)

    def read(self) -> dict[str, str]:
        real = AddressMap.from_text(self.path.read_text(), "the map")
        return {task: str(real.real(parse_address(at))) for task, at in TASKS.items()}


@pytest.fixture
def file(tmp_path: Path) -> File:
    return File(tmp_path / "map")


def test_who_has_another_address_has_moved(file: File) -> None:
    assert dict(file.book) == {"ps": "h:10", "worker": "h:11"}
    assert file.book.look() == []
    file.write("ps0:1 = h:20, worker0:1 = h:11")
    assert file.book.look() == [Move("ps", "h:10", "h:20")]
    assert file.book.look() == []
    assert file.book["ps"] == "h:20"
    file.write("ps0:1 = h:10, worker0:1 = h:11")
    assert file.book.look() == [Move("ps", "h:20", "h:10")]


def test_this_process_stays_where_it_is(file: File) -> None:
    file.write("ps0:1 = h:10, worker0:1 = h:21")
    assert file.book.look() == []
    assert file.book["worker"] == "h:11"


def test_what_cannot_be_read_changes_nothing(file: File, caplog: pytest.LogCaptureFixture) -> None:
    file.path.unlink()
    assert file.book.look() == []
    file.write("nonsense")
    assert file.book.look() == []
    assert "not of the form" in caplog.text
    caplog.clear()
    assert file.book.look() == []
    assert not caplog.text
    assert dict(file.book) == {"ps": "h:10", "worker": "h:11"}
    file.write("ps0:1 = h:20")
    assert file.book.look() == [Move("ps", "h:10", "h:20")]


def test_the_files_are_watched(file: File, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(address_book, "LOOK_EVERY", 0.01)
    moves: queue.SimpleQueue[Move] = queue.SimpleQueue()
    file.book.watch(moves.put)
    file.write("ps0:1 = h:20")
    assert moves.get(timeout=20) == Move("ps", "h:10", "h:20")
    file.book.close()
