"""Processes of tests that need not import the package: they are forked from one that has, which takes 0.6 s of each.

    python -m tests.cluster.forks NUMBER     where NUMBER is a descriptor: its end of a socket

A forked process is one like any other: it has an environment, arguments and streams of its own, and is killed for real.
But it is the child of the one that forked it, which is asked how it ended. That one has run no program: neither JAX nor
the package has threads in it. It ends when the one that asks does.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import traceback
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, NoReturn

from tests.slowest_files import count_other

ROOT = Path(__file__).resolve().parents[2]
#: seconds; how long the process that forks may take to import the package, on a machine that others use
DEADLINE = 120.0
#: beginnings of the variables that are read when something is imported: processes that differ in one are of two origins
READ_AT_IMPORT = ("JAX", "XLA", "TF_", "PYTHON", "OMP_", "OPENBLAS", "MKL", "LD_", "TPU", "CUDA")
_LARGEST = 1 << 20


class Origin:
    """The process that forks, seen from the one that asks."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        #: one question at a time, each with one answer
        self._lock = threading.Lock()
        own, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = [sys.executable, "-m", __name__, str(theirs.fileno())]
            self._process = subprocess.Popen(command, cwd=ROOT, env=dict(environment), pass_fds=[theirs.fileno()])
        self._socket = own
        self._socket.settimeout(DEADLINE)
        assert self._answer() == "ready"

    def fork(self, script: Path, arguments: list[str], environment: Mapping[str, str], files: list[int]) -> int:
        """Runs a script of Python in a new process; its number.

        Args:
            files: its standard input, output and error stream.
        """
        asked = {"script": str(script), "arguments": arguments, "environment": dict(environment), "cwd": os.getcwd()}
        return int(self._ask(asked, files))

    def is_stopped(self, process: int) -> bool:
        """Waits until all threads of a process that was sent SIGSTOP have stopped."""
        return bool(self._ask({"stopped": process}))

    def status(self, process: int) -> int:
        """How a process ended that has ended: its exit status, or the signal's number, negative."""
        status, seconds = self._ask({"status": process})
        count_other(seconds)
        return int(status)

    def close(self) -> None:
        self._socket.close()
        self._process.wait()

    def _ask(self, question: Mapping[str, Any], files: list[int] | None = None) -> Any:
        with self._lock:
            socket.send_fds(self._socket, [json.dumps(question).encode()], files or [])
            return self._answer()

    def _answer(self) -> Any:
        answer = self._socket.recv(_LARGEST)
        assert answer, "the process that forks has ended"
        return json.loads(answer)


@functools.cache
def _origin(environment: tuple[tuple[str, str], ...]) -> Origin:
    made = Origin(dict(environment))
    atexit.register(made.close)
    return made


_making = threading.Lock()


def origin_of(environment: Mapping[str, str]) -> Origin:
    """The process from which one with this environment is forked."""
    # without the rest it would not find its home or its temporary folder
    kept = {name: value for name, value in environment.items() if name.startswith((*READ_AT_IMPORT, "PATH", "HOME"))}
    with _making:
        return _origin(tuple(sorted(kept.items())))


class Forked:
    """A forked process, with as much of the interface of `subprocess.Popen` as tests use."""

    def __init__(self, script: Path, *arguments: str, environment: Mapping[str, str]) -> None:
        self._origin = origin_of(environment)
        self._over: int | None = None
        self.returncode: int | None = None
        read, stdin = os.pipe()
        stdout, write = os.pipe()
        self.stdin: IO[str] = open(stdin, "w", encoding="utf-8")  # noqa: SIM115 (see `close`)
        self.stdout: IO[str] = open(stdout, encoding="utf-8")  # noqa: SIM115
        try:
            self.pid = self._origin.fork(script, [*arguments], environment, [read, write, 2])
        finally:
            os.close(read)
            os.close(write)
        # there until its status is asked for
        self._over = os.pidfd_open(self.pid)

    def poll(self) -> int | None:
        return self._ended(0)

    def wait(self, timeout: float) -> int:
        """Its exit status.

        Raises:
            subprocess.TimeoutExpired: it goes on.
        """
        if self._ended(timeout) is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: signal.Signals) -> None:
        if self._over is not None:
            signal.pidfd_send_signal(self._over, number)
            if number == signal.SIGSTOP:
                # only now have all threads of the process stopped: until then one that runs can still answer a message
                assert self._origin.is_stopped(self.pid)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def close(self) -> None:
        """Closes its streams."""
        for pipe in (self.stdin, self.stdout):
            # what it was not told any more is lost if it has ended
            with contextlib.suppress(BrokenPipeError):
                pipe.close()

    def _ended(self, timeout: float) -> int | None:
        if self._over is not None and select.select([self._over], [], [], timeout)[0]:
            self.returncode = self._origin.status(self.pid)
            os.close(self._over)
            self._over = None
        return self.returncode


# ---------------------------------------------------------------------- the process that forks
def serve(descriptor: int) -> None:
    asking = socket.socket(fileno=descriptor)
    # what all scripts import; this module's own caller does without
    importlib.import_module("anabranch")
    importlib.import_module("tests.cluster.processes")
    gc.collect()
    gc.freeze()
    asking.send(b'"ready"')
    while True:
        message, files, _, _ = socket.recv_fds(asking, _LARGEST, 3)
        if not message:
            return
        asking.send(json.dumps(_answer(json.loads(message), files, asking)).encode())


def _answer(question: Mapping[str, Any], files: list[int], asking: socket.socket) -> Any:
    match question:
        case {"status": process}:
            _, status, used = os.wait4(process, 0)
            return os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime
        case {"stopped": process}:
            told = os.waitid(os.P_PID, process, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
            return told is not None and told.si_code == os.CLD_STOPPED
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # JAX warns of forks; it has no threads before it runs something
        process = os.fork()
    if process == 0:
        asking.close()
        _run(question, files)
    for file in files:
        os.close(file)
    return process


def _run(question: Mapping[str, Any], files: list[int]) -> NoReturn:
    """The forked process: it never returns to the loop that forked it."""
    status = 1
    try:
        for target, file in enumerate(files):
            os.dup2(file, target)
            os.close(file)
        os.chdir(question["cwd"])
        os.environ.clear()
        os.environ.update(question["environment"])
        sys.argv = [question["script"], *question["arguments"]]
        sys.stdin, sys.stdout = open(0, encoding="utf-8"), open(1, "w", encoding="utf-8")  # noqa: SIM115
        runpy.run_path(question["script"], run_name="__main__")
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        _leave(status)


def _leave(status: int) -> NoReturn:
    """Ends as an interpreter does: what is to be called at its end is, and threads are waited for."""
    try:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    serve(int(sys.argv[1]))
