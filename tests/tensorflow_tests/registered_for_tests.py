"""The operation types that TensorFlow registers for its tests alone, defined here from the checkout's own declarations.

Genuine TensorFlow's package has them too. They have no kernels: the tests build graphs of them and run none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from anabranch.core.registry import all_op_defs
from anabranch.core.shapes import TensorShape
from anabranch.graph.building import OpFunction, define_op

#: where they are declared, below the checkout's `tensorflow`
DECLARATIONS: Final = "python/framework/test_ops.cc"
_DECLARATION: Final = re.compile(r'REGISTER_OP\("(\w+)"\)(.*?);', re.DOTALL)
_PART: Final = re.compile(r'\.(Input|Output|Attr)\(\s*"([^"]*)"\s*\)')


def declarations(source: str) -> Iterator[tuple[str, str, str, bool]]:
    """Name, signature, attributes in the language of `core.op_def`, and whether it is stateful, of each declaration."""
    for name, body in _DECLARATION.findall(source):
        parts: dict[str, list[str]] = {"Input": [], "Output": [], "Attr": []}
        for kind, text in _PART.findall(body):
            parts[kind].append(_translated(text))
        signature = f"{', '.join(parts['Input'])} -> {', '.join(parts['Output'])}"
        yield name, signature, ", ".join(parts["Attr"]), ".SetIsStateful()" in body


def _translated(text: str) -> str:
    """A part of a declaration in our language: references are what they refer to, and dtypes have their full names."""
    text = re.sub(r"Ref\((\w+)\)", r"\1", text)
    text = re.sub(r"DT_(\w+)", lambda match: match[1].lower(), text)
    head, equals, default = text.partition("=")
    if equals and head.split(":")[1].strip() == "bool":
        default = default.replace("true", "True").replace("false", "False")
    return head.replace(": numbertype", ": numbers") + equals + default


def register(tensorflow: Path) -> list[str]:
    """Defines the types that this package does not have; returns the names of those whose declaration is not read."""
    source = (tensorflow / DECLARATIONS).read_text(encoding="utf-8")
    unread = []
    for name, signature, attrs, stateful in declarations(source):
        if name in all_op_defs():
            continue
        try:
            definition = define_op(name, signature, attrs, stateful=stateful)
        except (ValueError, SyntaxError):
            unread.append(name)
            continue
        definition.shape(_unknown(definition))
    return unread


def _unknown(definition: OpFunction) -> Callable[..., Any]:
    """A shape rule that knows nothing: a list of shapes for an output that is a list."""
    counts = [arg.type_list_attr or arg.number_attr for arg in definition.outputs]
    if counts == ["T"]:
        return lambda *_, T: [TensorShape(None)] * len(T)
    return lambda *_: (TensorShape(None),) * len(counts)
