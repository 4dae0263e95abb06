"""Links between the pages of the API: where each public name is described, and which words are such names."""

from __future__ import annotations

import inspect
import re
from collections import defaultdict
from collections.abc import Iterable

from anabranch.tools.public_names import PublicName, members

#: code, which stays as it is, and what Markdown would take for emphasis or HTML
_CODE_OR_MARKUP = re.compile(r"``.+?``|`[^`]+`|[*<_]", re.DOTALL)
_NAME = re.compile(r"`([A-Za-z_][\w.]*)`")


class Links:
    """The pages on which public names are described.

    A thing that has several names is described under the first of them.

    Args:
        names: the public names, those that are to be the first ones before others.
    """

    def __init__(self, names: Iterable[PublicName]) -> None:
        self._first: dict[int, str] = {}
        self._homes: dict[str, str] = {}
        by_end: defaultdict[str, set[str]] = defaultdict(set)
        for public in names:
            home = self._first.setdefault(id(public.value), public.name)
            inner = [name for name, _ in members(public.value)] if inspect.isclass(public.value) else []
            for end in ("", *(f".{name}" for name in inner)):
                self._homes[public.name + end] = home + end
                by_end[public.name.rpartition(".")[2] + end].add(home + end)
        #: names that say which thing is meant without their module
        self._by_end = {end: next(iter(homes)) for end, homes in by_end.items() if len(homes) == 1}

    def home_of(self, public: PublicName) -> str:
        """The name under which a thing is described."""
        return self._first[id(public.value)]

    def anchor(self, name: str) -> str:
        """What links to a name lead to."""
        return f'<a id="{name}"></a>\n'

    def to(self, name: str) -> str:
        """A link to where a name is described."""
        home = self._homes[name]
        return f"[`{name}`]({self._page_of(home)}#{home})"

    def linked(self, text: str, module: str) -> str:
        """A string as Markdown, in which the public names between backticks are links, as seen from a module."""

        def shown(match: re.Match[str]) -> str:
            name = _NAME.fullmatch(match[0])
            home = self._meant(name[1], module) if name else None
            if home:
                return f"[{match[0]}]({self._page_of(home)}#{home})"
            return match[0] if match[0].startswith("`") else f"\\{match[0]}"

        return _CODE_OR_MARKUP.sub(shown, text)

    def _meant(self, word: str, module: str) -> str | None:
        for name in (f"{module}.{word}", word, f"tf.{word}"):
            if name in self._homes:
                return self._homes[name]
        return self._by_end.get(word)

    def _page_of(self, home: str) -> str:
        name = home
        while name not in self._first.values():
            name = name.rpartition(".")[0]
        return f"{name.rpartition('.')[0]}.md"
