"""`anabranch doctor`, `version`, and the list of commands."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from anabranch.tools import command_line, doctor
from anabranch.xla.kernel_costs import CostMemory


def findings(capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, Any]]:
    return {entry["subject"]: entry for entry in json.loads(capsys.readouterr().out)}


def test_all_is_well(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ANABRANCH_CACHE_DIR", str(tmp_path))
    assert command_line.main(["doctor", "--json"]) == 0
    found = findings(capsys)
    assert {"Python", "anabranch", "jax", "processors", "JAX backend", "device", "a step", "compile cache"} <= set(
        found
    )
    assert found["a step"]["state"] == "ok"
    # where compiling takes long, the doctor's own step is kept
    told = rf"{re.escape(str(tmp_path))}/xla: \d+ programs, [\d.]+ \w+ of at most 2\.0 GiB"
    assert re.match(told, found["compile cache"]["value"])


def test_the_report_for_people(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANABRANCH_CACHE_DIR", "")
    assert command_line.main(["doctor"]) == 0
    text = capsys.readouterr().out
    assert "turned off" in text
    assert "→ unset ANABRANCH_CACHE_DIR" in text
    assert "warnings: " in text


def test_a_problem_comes_with_a_remedy_and_status_1(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("ANABRANCH_CACHE_DIR", str(tmp_path / "file"))
    assert command_line.main(["doctor", "--json"]) == 1
    cache = findings(capsys)["compile cache"]
    assert (cache["state"], cache["remedy"]) == (
        "problem",
        "set ANABRANCH_CACHE_DIR to a directory that you may write to",
    )
    monkeypatch.setenv("ANABRANCH_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("ANABRANCH_CACHE_BYTES", "much")
    assert command_line.main(["doctor", "--json"]) == 1
    assert findings(capsys)["compile cache"]["remedy"] == "unset ANABRANCH_CACHE_BYTES"


def test_the_cache_is_emptied(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ANABRANCH_CACHE_DIR", str(tmp_path))
    (tmp_path / "xla").mkdir()
    (tmp_path / "xla" / "program-cache").write_bytes(bytes(2048))
    assert command_line.main(["doctor", "--clear-cache"]) == 0
    assert capsys.readouterr().out == f"Removed 1 compiled programs (2.0 KiB) from {tmp_path}/xla.\n"
    assert list((tmp_path / "xla").iterdir()) == []
    CostMemory(tmp_path / "kernels").store("a", {"own": 1.0})
    assert command_line.main(["doctor", "--clear-cache"]) == 0
    assert "Removed what 1 choices of kernels were measured to cost.\n" in capsys.readouterr().out
    assert list((tmp_path / "kernels").iterdir()) == []


@pytest.mark.parametrize(
    ("name", "wanted", "state"),
    [
        ("numpy", ">=1.0", "ok"),
        ("numpy", ">=2.0,<99", "ok"),
        ("numpy", "<1.0", "problem"),
        ("numpy", ">=99", "problem"),
        ("no-such-package", ">=1", "problem"),
    ],
)
def test_versions_are_compared(name: str, wanted: str, state: str) -> None:
    finding = doctor._package(name, wanted)
    assert finding.state == state
    assert (finding.remedy != "") == (state == "problem")


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (3 << 30, "3.0 GiB"), (5 << 40, "5.0 TiB")]
)
def test_sizes_for_people(size: int, text: str) -> None:
    assert doctor.size_text(size) == text


def test_versions(capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.main(["version"]) == 0
    assert "TensorFlow 1.15.5 API; Python 3." in capsys.readouterr().out
    with pytest.raises(SystemExit) as caught:
        command_line.main(["--version"])
    assert caught.value.code == 0


def test_a_command_imports_no_other(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    find = command_line._command
    monkeypatch.setattr(command_line, "_command", lambda name: asked.append(name) or find(name))
    assert command_line.main(["version"]) == 0
    assert asked == ["version"]


def test_every_command_has_help_and_a_summary(capsys: pytest.CaptureFixture[str]) -> None:
    found = command_line.commands()
    assert {"run", "explain", "inspect", "doctor", "version"} <= set(found)
    assert command_line.main([]) == 2
    listed = capsys.readouterr().out
    for name, module in found.items():
        assert command_line.summary_of(module)
        assert command_line.summary_of(module) in listed
        with pytest.raises(SystemExit) as caught:
            command_line.main([name, "--help"])
        assert caught.value.code == 0
        assert f"anabranch {name}" in capsys.readouterr().out
