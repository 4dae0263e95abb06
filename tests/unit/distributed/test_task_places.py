"""Where tasks are that an engine moves, and the file that says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.distributed.addresses import AddressMap, parse_address
from anabranch.distributed.task_places import MapEdition, MapFile, TaskPlaces


def real(edition: MapEdition, written: str) -> str:
    return str(AddressMap.from_text(edition.text, "the map").real(parse_address(written)))


def test_a_map_leads_from_where_a_task_was_first_to_where_it_is() -> None:
    places = TaskPlaces({"ps/0": "a:1", "worker/0": "b:1"})
    assert places.edition == MapEdition(0, "")
    assert not places.move("ps/0", "a:1")
    assert places.move("ps/0", "a:2")
    assert places.move("worker/0", "c:1")
    # programs go on to say the first address, however often the task moves
    assert places.move("ps/0", "a:3")
    assert places.edition.number == 3
    assert real(places.edition, "a:1") == "a:3"
    assert real(places.edition, "b:1") == "c:1"
    assert places.moved("ps/0") == places.address("ps/0") == "a:3"
    assert places.move("ps/0", "a:1")
    assert places.moved("ps/0") is None
    assert real(places.edition, "a:1") == "a:1"
    assert places.edition.number == 4


def test_a_task_may_come_to_where_another_was() -> None:
    places = TaskPlaces({"ps/0": "a:1", "ps/1": "a:2"})
    places.move("ps/0", "a:2")
    places.move("ps/1", "a:1")
    assert real(places.edition, "a:1") == "a:2"
    assert real(places.edition, "a:2") == "a:1"


def test_editions_that_come_late_are_dropped_and_the_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "addresses"
    file = MapFile(path)
    file.write(MapEdition(0, ""))
    assert path.read_text() == ""
    with path.open() as before:
        file.write(MapEdition(2, "a:1 = a:3\n"))
        # who has it open reads the one before, whole
        assert before.read() == ""
    for late in (MapEdition(1, "a:1 = a:2\n"), MapEdition(2, "")):
        file.write(late)
        assert path.read_text() == "a:1 = a:3\n"
    assert [entry.name for entry in tmp_path.iterdir()] == ["addresses"]


def test_a_file_that_cannot_be_written_stays_as_it_was_and_takes_the_edition_later(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    file = MapFile(folder / "addresses")
    edition = MapEdition(1, "a:1 = a:2\n")
    with pytest.raises(OSError, match="addresses"):
        file.write(edition)
    folder.mkdir()
    file.write(edition)
    assert file.path.read_text() == edition.text
