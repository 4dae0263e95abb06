from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tests.listed_programs.__main__ import kept_at, main, table

GENUINE: dict[str, Any] = {
    "V01": {"ok": True, "status": "completed", "runs": 3, "wall": 5.0, "series": {"a": {"first": 2.0, "last": 0.5}}},
    "V38": {"ok": True, "status": "worker 0 rc 0", "wall": 60.0},
}
HERE: dict[str, Any] = {
    "V01": {"ok": True, "status": "cutoff", "runs": 7, "wall": 4.0, "series": {}},
    "V02": {"ok": False, "status": "CRASH no module", "wall": 1.0},
}


def text(genuine: dict[str, Any], here: dict[str, Any]) -> str:
    console = Console(width=200)
    with console.capture() as capture:
        console.print(table(genuine, here)[0])
    return capture.get()


def test_both_sides_stand_beside_each_other() -> None:
    lines = {line.split()[1]: line for line in text(GENUINE, HERE).splitlines() if "│ V" in line}
    assert "3 / 7 (budget)" in lines["V01"]
    assert "2 → 0.5" in lines["V01"]
    assert "5.0 / 4.0" in lines["V01"]
    assert "all tasks end / -" in lines["V38"]
    assert "- / failed: CRASH no module" in lines["V02"]


@pytest.mark.parametrize(("here", "status"), [(GENUINE, 0), (HERE, 1)])
def test_a_program_that_fails_here_is_a_failure(tmp_path: Path, here: dict[str, Any], status: int) -> None:
    kept_at(tmp_path, "anabranch").write_text(json.dumps(here))
    assert main(["--programs", str(tmp_path), "--home", str(tmp_path), "--kept"]) == status
