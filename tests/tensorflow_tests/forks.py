"""A process that has imported the package, and forks for each test file: a file costs what its tests cost.

    python forks.py TENSORFLOW TABLE

TENSORFLOW is the checkout's folder of that name, TABLE the file in which the table of its exports is kept. Each line of
the standard input is a request of JSON (`Request`); it is answered, when the forked process is over, by a line with its
exit status, or null where it was stopped at its limit of time.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import signal
import subprocess
import sys
import traceback
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NoReturn

from tests.tensorflow_tests import one_file


@dataclass(frozen=True)
class Request:
    """One process that is asked for.

    Attributes:
        file: the test file.
        work: its working folder, which gets the file `output.txt`.
        outcomes: the file to which its lines are appended.
        chosen: the file of the names of the tests to run; "" for all of them.
        seconds: the limit.
    """

    file: str
    work: str
    outcomes: str
    chosen: str
    seconds: float


class Forks:
    """The process that forks, seen from the one that asks. It ends with `close`, or when the asking process ends."""

    def __init__(self, tensorflow: Path, table: Path, environment: Mapping[str, str]) -> None:
        command: Sequence[str] = [sys.executable, "-m", __name__, str(tensorflow), str(table)]
        self._process = subprocess.Popen(
            command, env=dict(environment), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self, request: Request) -> int | None:
        """The exit status of a process that runs a file; None where it did not end in time.

        Raises:
            RuntimeError: the process that forks has ended.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            print(json.dumps(asdict(request)), file=self._process.stdin, flush=True)
            answer = self._process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            raise RuntimeError(f"no test file can be run: the process that forks ended with {self._process.wait()}")
        status: int | None = json.loads(answer)
        return status

    def close(self) -> None:
        # which closes its pipes and waits for it; what it was not told any more is lost if it has ended
        with contextlib.suppress(BrokenPipeError), self._process:
            pass
        self._process.wait()


def serve(tensorflow: str, table: str) -> None:
    one_file.prepare(Path(tensorflow), Path(table))
    gc.freeze()
    for line in sys.stdin:
        print(json.dumps(_answer(Request(**json.loads(line)))), flush=True)


def _answer(request: Request) -> int | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # JAX warns of forks; it has no threads before it runs something
        pid = os.fork()
    if pid == 0:
        _child(request)
    over = os.pidfd_open(pid)
    try:
        in_time = bool(select.select([over], [], [], request.seconds)[0])
        _end_session(pid)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    finally:
        os.close(over)
    return status if in_time else None


def _end_session(pid: int) -> None:
    """Ends a forked process and those that it started."""
    for end in (os.killpg, os.kill):  # it may not lead its group yet
        try:
            end(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
        return


def _child(request: Request) -> NoReturn:
    """The forked process: it never returns to the loop that forked it."""
    status = 1
    try:
        os.setsid()
        os.chdir(request.work)
        os.environ["TEST_TMPDIR"] = request.work
        _redirect(Path("output.txt"))
        one_file.run(Path(request.file), Path(request.outcomes), Path(request.chosen) if request.chosen else None)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)  # threads that tests leave behind are not waited for


def _redirect(output: Path) -> None:
    """Nothing to read, and all that is written goes to a file."""
    sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115 (open as long as the process)
    nothing = os.open(os.devnull, os.O_RDONLY)
    file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for source, target in ((nothing, 0), (file, 1), (file, 2)):
        os.dup2(source, target)
    os.close(nothing)
    os.close(file)


if __name__ == "__main__":
    serve(*sys.argv[1:])
