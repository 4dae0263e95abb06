"""What stands for a private name: it can be imported, decorated with and subclassed; a test that uses it is skipped."""

from __future__ import annotations

import unittest
from typing import NoReturn


class Private(type):
    """The class of placeholders, which are classes themselves so that a test file may derive its own from them."""

    #: what the placeholder stands for; "" in classes that are derived from one
    stands_for: str

    def __getattr__(cls, name: str) -> Private:
        if name.startswith("__"):
            raise AttributeError(name)
        return placeholder(f"{cls.stands_for}.{name}")

    def __call__(cls, *args: object, **kwargs: object) -> object:
        """A call skips the test, except that a test case of the file is made as usual."""
        if "stands_for" not in vars(cls) and issubclass(cls, unittest.TestCase):
            return super().__call__(*args, **kwargs)
        return skip(cls.stands_for)


def placeholder(name: str) -> Private:
    """A placeholder for the private name `python.ops.math_ops._shape`."""
    return Private(name.rpartition(".")[2], (), {"stands_for": name})


def skip(name: str) -> NoReturn:
    raise unittest.SkipTest(f"{name} is private")
