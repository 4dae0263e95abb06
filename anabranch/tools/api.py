"""Writes the API's pages, one for each public module, from the docstrings.

The pages are Markdown. They are made when they are wanted and not kept, so that they never differ from the code.
"""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from anabranch.tools.api_links import Links
from anabranch.tools.docstrings import Docstring, parse
from anabranch.tools.public_names import PublicName, members, public_modules, public_names, signature_of

INDEX = "README.md"
_PROMPT = """Examples are written for Python's prompt, after

```python
import numpy as np
import anabranch as tf
sess = tf.InteractiveSession()
```
"""
_LISTED = ("Args", "Attributes", "Raises", "Raises (in the step)")


def main(arguments: Sequence[str]) -> None:
    """Writes the pages to a directory."""
    parser = argparse.ArgumentParser(prog="anabranch api", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("directory", nargs="?", type=Path, default=Path("docs/api"), help="default: %(default)s")
    directory: Path = parser.parse_args(arguments).directory
    directory.mkdir(parents=True, exist_ok=True)
    written = pages()
    for name, text in written.items():
        (directory / name).write_text(text, "utf-8")
    print(f"{len(written)} pages in {directory}; begin with {directory / INDEX}")


def pages() -> dict[str, str]:
    """The text of each page by its file name."""
    names = list(public_names())
    links = Links(names)
    made = {f"{module}.md": _page(module, names, links) for module in public_modules()}
    return {INDEX: _index(), **made}


def _index() -> str:
    rows = [f"| [`{name}`]({name}.md) | {_holdings(name, module)} |" for name, module in public_modules().items()]
    return "\n".join(["# The API", "", _PROMPT, "| module | holds |", "|---|---|", *rows, ""])


def _holdings(name: str, module: ModuleType) -> str:
    """What its docstring says of a module, or else the first names in it."""
    said = parse(module).summary.removeprefix(f"`{name}`").lstrip(":. ")
    first = sorted(module.__all__)
    return said or ", ".join(f"`{inner}`" for inner in first[:5]) + (", ..." if len(first) > 5 else "")


def _page(module: str, names: list[PublicName], links: Links) -> str:
    listed = [public for public in names if public.name.rpartition(".")[0] == module]
    own = [public for public in listed if links.home_of(public) == public.name]
    docstring = parse(public_modules()[module])
    lines = [f"# `{module}`", "", f"[All modules]({INDEX})", "", links.linked(docstring.summary, module), ""]
    lines += [f"- {links.to(public.name)}: {links.linked(_summary(public), module)}" for public in own]
    lines += [
        f"- `{public.name}`: the same as {links.to(links.home_of(public))}" for public in listed if public not in own
    ]
    others = _other_names(module, listed)
    if others:
        lines += ["", "Values, messages and modules: " + ", ".join(f"`{name}`" for name in others) + "."]
    for public in own:
        lines += ["", *_entry(public, module, links)]
    return "\n".join([*lines, ""])


def _other_names(module: str, listed: list[PublicName]) -> list[str]:
    """What stands in a module and has no docstring of ours."""
    known = {public.name for public in listed}
    return [full for name in public_modules()[module].__all__ if (full := f"{module}.{name}") not in known]


def _summary(public: PublicName) -> str:
    return parse(public.value).summary if _has_help(public) else f"`{public.value!r}`"


def _has_help(public: PublicName) -> bool:
    return inspect.isclass(public.value) or inspect.isroutine(public.value)


def _entry(public: PublicName, module: str, links: Links) -> list[str]:
    lines = [links.anchor(public.name), f"## `{public.name}`", ""]
    if not _has_help(public):
        return [*lines, f"A {type(public.value).__name__}: `{public.value!r}`"]
    lines += [*_signature(public), *_help(parse(public.value), module, links)]
    if inspect.isclass(public.value):
        for name, function in members(public.value):
            member = PublicName(f"{public.name}.{name}", function)
            lines += ["", links.anchor(member.name), f"### `{member.name}`", "", *_signature(member)]
            lines += _help(parse(function), module, links)
    return lines


def _signature(public: PublicName) -> list[str]:
    """The call as code: arguments with their types, where they are annotated, and defaults."""
    signature = signature_of(public.value)
    arguments = [_argument(parameter) for parameter in signature.parameters.values() if parameter.name != "self"]
    result = signature.return_annotation
    arrow = "" if result is inspect.Signature.empty else f" -> {result}"
    whole = f"{public.name}({', '.join(arguments)}){arrow}"
    if len(whole) > 100:
        whole = "\n".join([f"{public.name}(", *(f"    {argument}," for argument in arguments), f"){arrow}"])
    return ["```python", whole, "```", ""]


def _argument(parameter: inspect.Parameter) -> str:
    stars = {"VAR_POSITIONAL": "*", "VAR_KEYWORD": "**"}.get(parameter.kind.name, "")
    typed = parameter.annotation not in (parameter.empty, "Any")
    text = f"{stars}{parameter.name}" + (f": {parameter.annotation}" if typed else "")
    if parameter.default is parameter.empty:
        return text
    default = repr(parameter.default)
    if " at 0x" in default:
        default = f"{type(parameter.default).__name__}(...)"
    return f"{text} = {default}" if typed else f"{text}={default}"


def _help(docstring: Docstring, module: str, links: Links) -> list[str]:
    lines = [links.linked(docstring.summary, module)]
    if docstring.description:
        lines += ["", links.linked(docstring.description, module)]
    for heading, text in docstring.sections.items():
        lines += ["", f"**{heading}**", ""]
        if heading == "Example":
            lines += ["```python", text, "```"]
        elif heading in _LISTED and docstring.entries(heading):
            lines += [f"- `{name}`: {links.linked(said, module)}" for name, said in docstring.entries(heading).items()]
        else:
            lines.append(links.linked(text, module))
    return lines
