"""Measured costs on disk: whole or absent, whatever happened to the files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from anabranch.xla import kernel_costs
from anabranch.xla.kernel_costs import CostMemory


@pytest.fixture
def memory(tmp_path: Path) -> CostMemory:
    return CostMemory(tmp_path / "kernels")


def test_what_was_stored_is_found_and_added_to(memory: CostMemory, tmp_path: Path) -> None:
    assert memory.load("a") == {}
    memory.store("a", {"own": 1.5})
    memory.store("a", {"winograd": 0.5})
    memory.store("b", {"own": 2.0})
    assert CostMemory(tmp_path / "kernels").load("a") == {"own": 1.5, "winograd": 0.5}
    assert memory.load("b") == {"own": 2.0}
    assert all(path.suffix == ".json" for path in (tmp_path / "kernels").iterdir())  # nothing is left written aside
    assert memory.clear() == 2
    assert memory.load("a") == {}


TIMED = '{"format": "anabranch kernel costs 1", "key": "a", "seconds": {"own": %s}}'
DAMAGED = {
    "nothing": b"",
    "half": b'{"format": "anabranch kernel costs 1", "key": "a", "sec',
    "no text": b"\xff\xfe\x00",
    "a list": b"[]",
    "deep": b"[" * 60_000,
    "huge": (TIMED % "1.0").encode() + b" " * (1 << 16),
    "another format": json.dumps({"format": "anabranch kernel costs 0", "key": "a", "seconds": {"own": 1.0}}).encode(),
    "another key": json.dumps({"format": "anabranch kernel costs 1", "key": "b", "seconds": {"own": 1.0}}).encode(),
    "no costs": json.dumps({"format": "anabranch kernel costs 1", "key": "a"}).encode(),
    "a list of costs": json.dumps({"format": "anabranch kernel costs 1", "key": "a", "seconds": [1.0]}).encode(),
    **{
        f"the time {value}": (TIMED % value).encode()
        for value in ("NaN", "Infinity", "-1.0", "0.0", '"1"', "null", "true", "[1.0]")
    },
}


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_file_counts_as_absent_and_is_replaced(memory: CostMemory, content: bytes) -> None:
    memory.store("a", {"own": 1.0})
    memory.path("a").write_bytes(content)
    assert memory.load("a") == {}
    memory.store("a", {"winograd": 2.0})
    assert memory.load("a") == {"winograd": 2.0}


def test_a_disk_that_refuses_keeps_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way", "utf-8")
    memory = CostMemory(tmp_path / "file" / "kernels")
    memory.store("a", {"own": 1.0})
    assert memory.load("a") == {}
    assert memory.clear() == 0
    in_the_way = CostMemory(tmp_path)
    in_the_way.path("a").mkdir()
    in_the_way.store("a", {"own": 1.0})
    assert in_the_way.load("a") == {}


def test_the_oldest_go(memory: CostMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_costs, "MAX_FILES", 8)
    for number in range(8):
        memory.store(str(number), {"own": 1.0})
        os.utime(memory.path(str(number)), ns=(number, number))
    memory.store("last", {"own": 1.0})
    left = [key for key in (*map(str, range(8)), "last") if memory.load(key)]
    assert left == ["3", "4", "5", "6", "7", "last"]


def test_processes_write_at_the_same_time(tmp_path: Path) -> None:
    """Nobody's keys are lost, nothing is torn; of one key's costs some writer's may be missing: nobody waits."""
    program = """
        import sys
        from pathlib import Path
        from anabranch.xla.kernel_costs import CostMemory
        memory = CostMemory(Path(sys.argv[1]))
        for number in range(20):
            memory.store(f"{sys.argv[2]}{number}", {"own": 1.0})
            memory.store("common", {sys.argv[2]: 1.0})
            assert memory.load("common")
    """
    command = [sys.executable, "-c", textwrap.dedent(program), str(tmp_path)]
    running = [subprocess.Popen([*command, name], stderr=subprocess.PIPE, text=True) for name in "abc"]
    for process in running:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
    memory = CostMemory(tmp_path)
    assert all(memory.load(f"{name}{number}") == {"own": 1.0} for name in "abc" for number in range(20))
    assert memory.load("common").items() <= {"a": 1.0, "b": 1.0, "c": 1.0}.items()
    assert memory.load("common")
    assert not [path for path in tmp_path.iterdir() if path.suffix != ".json"]
