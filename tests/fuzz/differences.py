"""The known differences: the table in docs/differences.md, as the fuzzer reads it."""

from __future__ import annotations

import fnmatch
import re
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz.sides import ROOT

DOCUMENT = ROOT / "docs" / "differences.md"
_COLUMNS = ("kind", "operation", "dtype", "message", "why")


@dataclass(frozen=True)
class Disagreement:
    """One thing about which the two sides say different things.

    Attributes:
        kind: what is different, one of `KINDS`.
        node: the program's node.
        operation: its operation type, or its kind in capitals (`COND`, `WHILE`, ...).
        dtype: of the first output or, where there is none, of the first input.
        message: what the comparison or the refusing side says.
        where: which graph was run: "program", or "our graph there", "their graph here".
    """

    kind: str
    node: str
    operation: str
    dtype: str
    message: str
    where: str

    @property
    def signature(self) -> tuple[str, str, str, str]:
        """What disagreements of one cause have in common."""
        return (self.kind, self.operation, self.dtype, re.sub(r"[\d.\-+e]+", "#", self.message)[:60])


@dataclass(frozen=True)
class KnownDifference:
    """A row of the table: patterns of a shell for kind, operation and dtype, a regular expression for the message."""

    kind: str
    operation: str
    dtype: str
    message: str
    why: str

    def covers(self, found: Disagreement) -> bool:
        """Whether the disagreement is the one that the row is about."""
        return (
            fnmatch.fnmatchcase(found.kind, self.kind)
            and any(fnmatch.fnmatchcase(found.operation, pattern) for pattern in self.operation.split())
            and any(fnmatch.fnmatchcase(found.dtype, pattern) for pattern in self.dtype.split())
            and re.search(self.message, found.message, re.DOTALL) is not None
        )


def known_differences(document: Path = DOCUMENT) -> list[KnownDifference]:
    """The rows of the table headed by the columns kind, operation, dtype, message, why."""
    rows: list[KnownDifference] = []
    inside = False
    for line in document.read_text().splitlines():
        cells = [cell.strip().replace(r"\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if tuple(cells) == _COLUMNS:
            inside = True
        elif inside and len(cells) == len(_COLUMNS) and not set(cells[0]) <= {"-"}:
            rows.append(KnownDifference(*(cell.strip("`") for cell in cells[:-1]), why=cells[-1]))
        elif not cells:
            inside = False
    return rows
