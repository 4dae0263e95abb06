"""Docstrings taken apart: the summary, the description, and the sections with their entries."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass, field
from typing import Final

#: The headings under which a docstring describes one thing each.
SECTIONS: Final = ("Args", "Attributes", "Returns", "Yields", "Raises", "Raises (in the step)", "Example")

_HEADING: Final = re.compile(rf"({'|'.join(re.escape(name) for name in SECTIONS)}):")
_ENTRY: Final = re.compile(r"(\S[^:]*?):\s(.*)", re.DOTALL)


@dataclass(frozen=True)
class Docstring:
    """What a docstring says.

    Attributes:
        summary: the first paragraph.
        description: what follows it, up to the first section.
        sections: the text of each section, by its heading, without the indentation.
    """

    summary: str
    description: str = ""
    sections: dict[str, str] = field(default_factory=dict)

    def entries(self, section: str) -> dict[str, str]:
        """The entries ``name: text`` of a section; the name may be several, separated by commas."""
        entries = {}
        for text in _items(self.sections.get(section, "")):
            match = _ENTRY.fullmatch(text)
            if match:
                entries[match[1]] = " ".join(match[2].split())
        return entries

    def arguments(self) -> dict[str, str]:
        """The text of each argument by its name; arguments that share an entry share its text."""
        named = self.entries("Args").items()
        return {name.strip().lstrip("*"): text for names, text in named for name in names.split(",")}


def parse(value: object) -> Docstring:
    """The docstring of a function, class or module."""
    lines = (inspect.getdoc(value) or "").splitlines()
    free: list[str] = []
    sections: dict[str, list[str]] = {}
    current = free
    for line in lines:
        heading = _HEADING.fullmatch(line)
        if heading:
            current = sections.setdefault(heading[1], [])
        elif line and not line.startswith(" ") and current is not free:
            current = free
            current.append(line)
        else:
            current.append(line)
    summary, _, description = "\n".join(free).strip().partition("\n\n")
    texts = {name: inspect.cleandoc("\n" + "\n".join(body)) for name, body in sections.items()}
    return Docstring(" ".join(summary.split()), description.strip(), texts)


def _items(text: str) -> list[str]:
    """The entries of a section: each begins at the margin and goes on with indented lines."""
    items: list[str] = []
    for line in text.splitlines():
        if line.startswith(" ") and items:
            items[-1] += "\n" + line.strip()
        elif line:
            items.append(line)
    return items
