"""The operation types that a checkout of TensorFlow declares, and under which public names its interface has them.

A module `gen_math_ops` is written by TensorFlow's build from the declarations in `core/ops/math_ops.cc`, a function for
each type; `core/api_def` says which of these functions are public, and as what.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_REGISTERED: Final = re.compile(r'\bREGISTER_\w*OP\(\s*"(\w+)"')
_ENDPOINT: Final = re.compile(r'endpoint\s*\{\s*name:\s*"([\w.]+)"')
_VISIBILITY: Final = re.compile(r"^\s*visibility:\s*(\w+)", re.MULTILINE)
_HIDDEN: Final = ("HIDDEN", "SKIP")
_WORDS: Final = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=.)(?=[A-Z][a-z])")
#: what the build puts into a module beside the types of the file of its name, declared elsewhere
_BESIDE: Final = {"array_ops": ("Bitcast",), "control_flow_ops": ("NoOp",)}


@dataclass(frozen=True)
class OperationType:
    """A declared type.

    Attributes:
        name: `MatMul`.
        public: its names below `tf`, the first of which is the usual one; none where it is hidden.
    """

    name: str
    public: tuple[str, ...]

    @property
    def function(self) -> str:
        """What its function is called in generated modules."""
        return function_name(self.name)


def function_name(name: str) -> str:
    """`MatMul` is `mat_mul`, `Conv2D` is `conv2d`, `BlockLSTMV2` is `block_lstmv2`, as TensorFlow's build writes it."""
    return _WORDS.sub("_", name).lower()


def generated_modules(core: Path) -> dict[str, list[OperationType]]:
    """`gen_math_ops` -> the types that it has functions of, from the folder `tensorflow/core` of a checkout."""
    modules = {}
    for path in sorted((core / "ops").glob("*.cc")):
        names = _REGISTERED.findall(path.read_text(encoding="utf-8"))
        if names:
            names += _BESIDE.get(path.stem, ())
            modules[f"gen_{path.stem}"] = [OperationType(name, _public_names(name, core / "api_def")) for name in names]
    return modules


def _public_names(name: str, api_def: Path) -> tuple[str, ...]:
    """What Python's own description says, or else the one for all languages; by default the function's name."""
    endpoints: list[str] = []
    hidden = False
    for folder in ("base_api", "python_api"):
        path = api_def / folder / f"api_def_{name}.pbtxt"
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        endpoints = _ENDPOINT.findall(text) or endpoints
        if visibility := _VISIBILITY.search(text):
            hidden = visibility[1] in _HIDDEN
    return () if hidden else tuple(endpoints or [function_name(name)])
