"""What stands for a name that cannot be used: it can be imported, decorated with and subclassed.

A test that uses a private name is skipped; one that uses a public name which is not there fails.
"""

from __future__ import annotations

import unittest


class Placeholder(type):
    """The class of placeholders, which are classes themselves so that a test file may derive its own from them."""

    #: what the placeholder stands for
    stands_for: str
    #: of a public name, the message that it is not there
    absence: str

    def __getattr__(cls, name: str) -> Placeholder:
        if name.startswith("__"):
            raise AttributeError(name)
        return placeholder(f"{cls.stands_for}.{name}", cls.absence)

    def __call__(cls, *args: object, **kwargs: object) -> object:
        """A call ends the test, except that a test case of the file is made as usual.

        Raises:
            SkipTest: the name is private.
            AttributeError: it is public, and not there.
        """
        if "stands_for" not in vars(cls) and issubclass(cls, unittest.TestCase):
            return super().__call__(*args, **kwargs)
        if cls.absence:
            raise AttributeError(cls.absence)
        raise unittest.SkipTest(f"{cls.stands_for} is private")


def placeholder(name: str, absence: str = "") -> Placeholder:
    """A placeholder for the private name `python.ops.math_ops._shape`, or for a public one that is not there."""
    return Placeholder(name.rpartition(".")[2], (), {"stands_for": name, "absence": absence})
