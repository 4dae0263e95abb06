"""The demonstration as a user runs it: as a process, killed in the middle, resumed, and looked at."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from anabranch.train.checkpoint_management import latest_checkpoint

pytest.importorskip("sklearn", reason="the demonstration's data")


def start(directory: Path, steps: int) -> subprocess.Popen[str]:
    program = "import sys; from anabranch.tools.command_line import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", program, "demo", "--directory", str(directory), "--steps", str(steps)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def test_the_demo_survives_a_kill_and_reads_digits(tmp_path: Path) -> None:
    victim = start(tmp_path, 100_000)
    deadline = time.monotonic() + 120
    while latest_checkpoint(str(tmp_path / "checkpoints")) is None:
        assert victim.poll() is None, victim.stdout.read() if victim.stdout else ""
        assert time.monotonic() < deadline, "no checkpoint within two minutes"
        try:
            victim.wait(timeout=0.05)
        except subprocess.TimeoutExpired:
            continue
    victim.send_signal(signal.SIGKILL)
    victim.communicate()
    reached = int((latest_checkpoint(str(tmp_path / "checkpoints")) or "-0").rsplit("-", 1)[1])
    assert reached > 0
    resumed = start(tmp_path, max(300, reached + 100))
    output, _ = resumed.communicate(timeout=300)
    assert resumed.returncode == 0, output
    assert f"goes on from step {reached}" in output
    accuracy = float(output.split("best held-out accuracy")[1].split("%")[0])
    assert accuracy >= 98.5, output
    assert (tmp_path / "predictions.png").stat().st_size > 10_000
    for part in ("train", "test"):
        assert list((tmp_path / "events" / part).glob("events.out.tfevents.*"))
