"""The two sides that are compared: each a long-lived worker process, started anew when it dies or does not answer."""

from __future__ import annotations

import os
import selectors
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.fuzz.wire import receive, send

ROOT = Path(__file__).resolve().parents[2]
#: seconds after which a worker that does not answer is taken for stuck
PATIENCE = 120.0
#: the same while parts of a program that was stuck are asked for again
IMPATIENCE = 20.0
#: programs after which a worker is started anew, so that what it keeps does not add up
_PROGRAMS = 500


class SideDiedError(Exception):
    """A worker ended or did not answer; the message has the end of what it printed."""


class Side:
    """A worker of one front end, "anabranch" or "tensorflow": a module that is told which one."""

    def __init__(self, name: str, module: str = "tests.fuzz.worker") -> None:
        self.name = name
        self._module = module
        self.patience = PATIENCE
        self._process: subprocess.Popen[bytes] | None = None
        self._log = Path(tempfile.gettempdir()) / f"fuzz-{name}-{os.getpid()}.log"
        self._programs = 0

    def ask(self, request: str, **arguments: Any) -> dict[str, Any]:
        """Sends a request and waits for the answer."""
        self.tell(request, **arguments)
        return self.hear()

    def tell(self, request: str, **arguments: Any) -> None:
        """Sends a request; `hear` gives the answer."""
        if self._process is None:
            self._start()
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            send(self._process.stdin, {"request": request, **arguments})
        except OSError as error:
            raise self._died(f"could not be asked: {error}") from error

    def hear(self) -> dict[str, Any]:
        """The answer to the request sent last; raises SideDiedError."""
        assert self._process is not None
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            if not selector.select(self.patience):
                died = self._died(f"gave no answer for {self.patience:.0f} s")
                self.patience = IMPATIENCE
                raise died
        try:
            return receive(self._process.stdout)
        except EOFError as error:
            raise self._died("died") from error

    def forget(self) -> None:
        """Lets the worker drop its graphs."""
        self.ask("close")
        self.count_program()

    def count_program(self) -> None:
        """A program is done with; the worker is started anew after many."""
        self._programs += 1
        if self._programs > _PROGRAMS:
            self.stop()

    def be_patient(self) -> None:
        """Waits the whole time again: the next program is another one."""
        self.patience = PATIENCE

    def stop(self) -> None:
        """Ends the worker."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None
            self._log.unlink(missing_ok=True)

    def _start(self) -> None:
        python = ROOT / (".venv-peers" if self.name == "tensorflow" else ".venv") / "bin" / "python"
        command = [str(python) if python.exists() else sys.executable, "-m", self._module, self.name]
        with self._log.open("wb") as printed:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=printed,
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
            )
        self._programs = 0

    def _died(self, what: str) -> SideDiedError:
        assert self._process is not None
        self._process.kill()
        status = self._process.wait()
        tail = self._log.read_bytes()[-2000:].decode(errors="replace")
        self.stop()
        return SideDiedError(f"{self.name} {what} (status {status}); it printed: {tail}")
