"""The texts that show code are programs: their blocks run in order, and must print what the texts say they print.

In a document, a fenced block

* ``python`` runs in the namespace of the blocks before it; where a block ``text`` follows, it must print that;
* ``python name.py`` is written to a file of that name instead;
* ``console`` holds commands after ``$``, each with what it prints on either stream.

`...` in an expected output stands for anything; runs of white space count as one space. Blocks of other kinds are for
the reader only.
"""

from __future__ import annotations

import code
import contextlib
import doctest
import io
import itertools
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import pytest

from anabranch.core.devices import device_types, unregister_device
from anabranch.core.kernels import alternates, unregister_kernel
from anabranch.runtime.devices import session_devices

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = ("README.md", "docs/tutorial.md", "docs/devices.md")

_FENCE = re.compile(r"^```(?P<kind>\w*) *(?P<file>\S*)$")
_MATCHING = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@dataclass(frozen=True)
class Block:
    """One fenced block: its kind, the file it is to be written to, and its text from line `line` of the document on."""

    kind: str
    file: str
    line: int
    text: str


def blocks(text: str) -> Iterator[Block]:
    """The fenced blocks of a document in Markdown."""
    opened: tuple[str, str, int] | None = None
    lines: list[str] = []
    for number, line in enumerate(text.splitlines(), start=1):
        fence = _FENCE.match(line)
        if opened is None and fence:
            opened, lines = (fence["kind"], fence["file"], number + 1), []
        elif opened is not None and line == "```":
            yield Block(*opened, "".join(f"{line}\n" for line in lines))
            opened = None
        else:
            lines.append(line)
    assert opened is None, f"the block that starts at line {opened} is not closed"


class Interpreter(code.InteractiveInterpreter):
    """Runs blocks in one namespace; an exception ends the test."""

    def showtraceback(self) -> NoReturn:
        error = sys.exc_info()[1]
        assert error is not None
        raise error

    def print_of(self, block: Block, document: str) -> str:
        """What a block prints."""
        # the line numbers of the document, for tracebacks and for the places that error messages name
        compiled = compile("\n" * (block.line - 1) + block.text, document, "exec", dont_inherit=True)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            self.runcode(compiled)
        return printed.getvalue()


def run_commands(text: str) -> Iterator[tuple[str, str, str]]:
    """Runs the commands of a block `console`; yields each with what it should print, and what it printed."""
    environment = {**os.environ, "COLUMNS": "110", "TERM": "dumb"}
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, expected = part.partition("\n")
        words = shlex.split(command)
        assert words[0] == "anabranch", f"{command}: only the project's own command is run"
        own = [sys.executable, "-m", "anabranch", *words[1:]]
        done = subprocess.run(
            own, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=120, env=environment
        )
        yield command, expected, done.stdout


def check(place: str, expected: str, printed: str) -> None:
    """Fails where what was printed is not what was expected."""
    checker = doctest.OutputChecker()
    if not checker.check_output(expected, printed, _MATCHING):
        difference = checker.output_difference(doctest.Example("", expected), printed, _MATCHING)
        pytest.fail(f"{place}:\n{difference}", pytrace=False)


@pytest.fixture
def _no_device_stays() -> Iterator[None]:
    session_devices()  # registers JAX's
    before = {kind.name for kind in device_types()}
    yield
    for name in {kind.name for kind in device_types()} - before:
        unregister_device(name)
    for kernel in alternates("Softplus"):  # of which the package has none of its own
        unregister_kernel(kernel.op_type, kernel.name, kernel.device_type)


@pytest.mark.usefixtures("_no_device_stays")
@pytest.mark.parametrize("document", DOCUMENTS)
def test_a_document_does_what_it_says(document: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    interpreter = Interpreter({"__name__": "__main__"})
    found = list(blocks((ROOT / document).read_text("utf-8")))
    ran = 0
    for block, following in itertools.pairwise([*found, None]):
        assert block is not None
        if block.kind == "console":
            for command, expected, printed in run_commands(block.text):
                check(f"{document}:{block.line}: {command}", expected, printed)
        elif block.kind == "python" and block.file:
            (tmp_path / block.file).write_text(block.text, "utf-8")
        elif block.kind == "python":
            ran += 1
            expected = following.text if following is not None and following.kind == "text" else ""
            printed = interpreter.print_of(block, document)
            check(f"{document}:{block.line}", expected, printed)
    assert ran, f"{document} shows no code"


def test_a_wrong_claim_is_found() -> None:
    check("here", "a ...\nc\n", "a b\nc\n")
    with pytest.raises(pytest.fail.Exception, match=r"here:\nExpected:\n    a\nGot:\n    b"):
        check("here", "a\n", "b\n")
