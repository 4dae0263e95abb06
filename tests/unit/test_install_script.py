"""The script that installs the requirements says what it does, in a terminal and in a log."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "requirements" / "install.py"
#: a module `pip` that says what pip says
PIP = """
import sys
for i in range(25):
    print(f"Collecting package{i}==1.{i} (from -r requirements.txt (line {i}))")
    print(f"  Downloading package{i}.whl (1.2 MB)")
if "--fail" in sys.argv:
    sys.exit("ERROR: no space left")
print("Installing collected packages: " + ", ".join(f"package{i}" for i in range(25)))
print("Successfully installed package0-1.0")
"""


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    (tmp_path / "pip.py").write_text(PIP)
    (tmp_path / "requirements.txt").write_text(
        "# a comment\n" + "".join(f"package{i}==1.{i} \\\n    --hash=sha256:0\n" for i in range(25))
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return [sys.executable, str(SCRIPT), "-r", str(tmp_path / "requirements.txt")]


def test_a_log_gets_a_few_lines(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "fetching 1 of 25: package0 1.0",
        "fetching 11 of 25: package10 1.10",
        "fetching 21 of 25: package20 1.20",
        "unpacking 25 packages, which takes the longest",
    ]


def test_a_terminal_gets_one_line_that_is_redrawn(command: list[str]) -> None:
    ours, theirs = pty.openpty()
    subprocess.run(command, stdout=theirs, check=True)
    os.close(theirs)
    shown = b""
    try:
        while piece := os.read(ours, 1 << 16):
            shown += piece
    except OSError:
        pass  # how a terminal ends on Linux
    os.close(ours)
    assert b"\n" not in shown
    texts = [text.decode() for text in shown.split(b"\r\x1b[K")]
    assert len(texts) == 28
    assert texts[1] == "fetching 1 of 25: package0 1.0"
    assert texts[-1] == ""


def test_a_failure_shows_what_pip_said(command: list[str]) -> None:
    done = subprocess.run([*command, "--fail"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "Collecting package24==1.24" in done.stderr
    assert "ERROR: no space left" in done.stderr
