"""Forked processes of tests have what they are given, end as others do, and do not share what they change."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.forks import Forked
from tests.slowest_files import processor_seconds

#: seconds, for whatever a test waits for
DEADLINE = 60.0
SCRIPT = """
import os, sys, threading
import anabranch

print(__name__, sys.argv[1:], os.environ["GIVEN"], os.environ.get("CHANGED"), hasattr(anabranch, "changed"), flush=True)
os.environ["CHANGED"] = anabranch.changed = "yes"
for line in sys.stdin:
    match line.strip():
        case "leave":
            sys.exit(3)
        case "leave a thread":
            threading.Thread(target=lambda: print(sys.stdin.readline().strip(), flush=True)).start()
            break
        case "fail":
            raise ValueError(line)
        case "compute":
            sum(range(10_000_000))
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT, "utf-8")
    return path


@contextlib.contextmanager
def begun(script: Path, *arguments: str, given: str = "") -> Iterator[Forked]:
    process = Forked(script, *arguments, environment=os.environ | {"GIVEN": given})
    try:
        yield process
    finally:
        process.kill()
        process.wait(DEADLINE)
        process.close()


def ended(process: Forked, *lines: str) -> int:
    """Tells it these lines, and waits until it has ended; how it did."""
    process.stdin.writelines(f"{line}\n" for line in lines)
    process.stdin.close()
    return process.wait(DEADLINE)


def test_each_has_its_own_arguments_and_environment(script: Path) -> None:
    """And none sees what another has changed."""
    for given in ("one", "two"):
        with begun(script, given, "b", given=given) as process:
            assert process.stdout.readline() == f"__main__ ['{given}', 'b'] {given} None False\n"
            assert process.poll() is None
            assert ended(process) == 0
            assert process.poll() == process.returncode == 0


def test_statuses_are_those_of_an_interpreter(script: Path) -> None:
    for told, status in (("leave", 3), ("fail", 1)):
        with begun(script) as process:
            assert ended(process, told) == status
    with begun(script) as process:
        assert ended(process, "leave a thread", "the thread was waited for") == 0
        assert process.stdout.read().splitlines()[1:] == ["the thread was waited for"]


def test_signals_reach_it(script: Path) -> None:
    with begun(script) as process:
        process.stdout.readline()
        process.send_signal(signal.SIGSTOP)
        state = Path(f"/proc/{process.pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0]
        assert state == "T"
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0)
        process.kill()
        assert process.wait(DEADLINE) == -signal.SIGKILL
        assert not Path(f"/proc/{process.pid}").exists()
        # as for a process that has ended
        process.send_signal(signal.SIGTERM)


def test_its_processor_time_counts(script: Path) -> None:
    before = processor_seconds()
    with begun(script) as process:
        assert ended(process, *["compute"] * 3) == 0
    assert processor_seconds() > before
