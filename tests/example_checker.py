"""Compares what an example prints with what it should: numbers may differ in their last digits."""

from __future__ import annotations

import doctest
import re

import numpy as np

_NUMBER = re.compile(r"[-+]?(?:\d+\.\d*|\.\d+|\d+)(?:e[-+]?\d+)?")
_TOLERANCE = 1e-4


class ExampleChecker(doctest.OutputChecker):
    """Takes outputs for the same whose words are, and whose numbers are nearly: processors round differently."""

    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        if super().check_output(want, got, optionflags):
            return True
        if _words(want) != _words(got):
            return False
        numbers = [np.array(_NUMBER.findall(text), float) for text in (want, got)]
        return numbers[0].shape == numbers[1].shape and np.allclose(*numbers, rtol=_TOLERANCE, atol=1e-6)


def _words(text: str) -> str:
    return "".join(_NUMBER.sub("#", text).split())


def run_example(name: str, text: str, names: dict[str, object]) -> tuple[int, str]:
    """How many lines of an example at Python's prompt print something else, and what the reader is told of them."""
    said: list[str] = []
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    example = doctest.DocTestParser().get_doctest(text + "\n", names, name, None, 0)
    assert example.examples, f"{name} has no example"
    failed = doctest.DocTestRunner(ExampleChecker(), optionflags=flags).run(example, out=said.append).failed
    return failed, "".join(said)
