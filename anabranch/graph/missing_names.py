"""The error of a name that is not in a graph, which is cheap to raise where nobody reads it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class MissingNameError(KeyError):
    """A name is not in a graph.

    Programs ask for names that may be missing and catch what they get, and a trace asks for each kernel's; a graph has
    many names, and similar ones are looked for when the message is read.

    Args:
        message: what is missing, in a sentence.
        name: what was asked for.
        names: among which similar ones are looked for; none: there is no hint.
    """

    def __init__(self, message: str, name: str = "", names: Iterable[str] | None = None) -> None:
        super().__init__(message)
        self._name = name
        self._names = names

    def __str__(self) -> str:
        return str(self.args[0]) if self._names is None else f"{self.args[0]}{self._hint(list(self._names))}"

    def _hint(self, names: list[str]) -> str:
        """Names that end like the one asked for (the usual cause is a missing scope), or look like it."""
        leaf = self._name.rsplit("/", 1)[-1].lower()
        close = [n for n in names if n.rsplit("/", 1)[-1].lower() == leaf][:3]
        close = close or difflib.get_close_matches(self._name, names, 3)
        if close:
            return f" Did you mean {' or '.join(map(repr, close))}?"
        return " Its names are those of graph.get_operations()."
