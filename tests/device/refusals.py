"""What every refusal must have: the right class, and a message that names things and says what to do."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest


@contextlib.contextmanager
def refused(error: type[BaseException], *parts: str, line: str | None = None) -> Iterator[None]:
    """Expects `error`, with all of `parts` in its message.

    Args:
        line: a comment that marks a line of the calling file: the message must name that file and line.
    """
    caller = sys._getframe(2).f_code.co_filename
    with pytest.raises(error) as caught:
        yield
    message = str(caught.value)
    expected = list(parts)
    if line is not None:
        expected.append(f"{os.path.basename(caller)}:{_line_of(caller, line)}")
    missing = [part for part in expected if part not in message]
    assert not missing, f"{missing} not in: {message}"


def _line_of(filename: str, comment: str) -> int:
    lines = Path(filename).read_text("utf-8").splitlines()
    found = [i for i, text in enumerate(lines, 1) if text.endswith(f"# {comment}")]
    assert len(found) == 1, f"{filename} has {len(found)} lines that end in '# {comment}'"
    return found[0]
