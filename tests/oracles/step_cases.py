"""Cases of operation types that keep something from one step to the next, and what records or runs them.

A case is a function of the front end. It builds a graph and gives steps, which run in one session, one after another: a
structure of tensors and operations is fetched at once, `Drained` ones again and again until there is no more. A
function is called with the session. What a step refuses is a result too: the class of its error.
"""

from __future__ import annotations

import importlib
import inspect
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

#: elements after which a sequence is taken for one without an end
_MOST: Final = 40

#: the modules of this folder that hold cases
MODULES: Final = tuple(
    f"{name}_step_cases" for name in ("chance", "dataset", "file", "list", "plain", "queue", "state", "update")
)

Case = Callable[[Any], list[Any]]

#: those of the cases that run
_folders: list[str] = []


@dataclass(frozen=True)
class Drained:
    """Tensors that are fetched until a step says `OutOfRangeError`."""

    tensors: Any


def cases() -> dict[str, Case]:
    """The cases of all modules: their public functions that take the front end alone."""
    found: dict[str, Case] = {}
    for name in MODULES:
        for case in vars(importlib.import_module(f"tests.oracles.{name}")).values():
            own = inspect.isfunction(case) and case.__module__.endswith(name) and not case.__name__.startswith("_")
            if own and list(inspect.signature(case).parameters) == ["tf"]:
                found[case.__name__] = case
    return found


def types_of(graph: Any) -> set[str]:
    """The operation types of a GraphDef and of its functions."""
    return {node.op for nodes in (graph.node, *(f.node_def for f in graph.library.function)) for node in nodes}


def results(tf: Any, case: Case) -> Iterator[list[Any]]:
    """For each step of a case its values, or the name of the error's class."""
    with tempfile.TemporaryDirectory(prefix="step-case-") as folder:
        _folders.append(folder)
        try:
            steps = case(tf)
            with tf.Session() as session:
                for step in steps:
                    take = _drained if isinstance(step, Drained) else _fetched
                    yield take(tf, session, step)
        finally:
            _folders.remove(folder)


def _fetched(tf: Any, session: Any, step: Any) -> list[Any]:
    try:
        values = step(session) if callable(step) else session.run(tf.nest.flatten(step, expand_composites=True))
    except tf.errors.OpError as error:
        return [f"error: {type(error).__name__}"]
    return [value for value in values if value is not None]


def _drained(tf: Any, session: Any, step: Drained) -> list[Any]:
    found: list[Any] = []
    for _ in range(_MOST):
        values = _fetched(tf, session, step.tensors)
        refused = values and isinstance(values[0], str)
        if refused and values[0] == "error: OutOfRangeError":
            return found
        found += values
        if refused:
            return found
    return [*found, "and so on"]


class WithResources:
    """The operation types of a front end, of two versions the second, whose handles are resources."""

    def __init__(self, tf: Any) -> None:
        self._raw = tf.raw_ops

    def __getattr__(self, name: str) -> Any:
        return getattr(self._raw, f"{name}V2" if hasattr(self._raw, f"{name}V2") else name)


def in_order(tf: Any, makers: list[Callable[[], Any]]) -> list[Any]:
    """What the functions make, each after those before it, in one step."""
    made: list[Any] = []
    for maker in makers:
        with tf.control_dependencies(tf.nest.flatten(made)):
            made.append(maker())
    return made


def function_of(tf: Any, *dtypes: Any) -> Any:
    """The decorator that makes a function of a graph, `Defun`, of this front end."""
    ours = tf.__name__ == "anabranch"
    module = "anabranch.frontend.control_flow.defined_functions" if ours else "tensorflow.python.framework.function"
    return importlib.import_module(module).Defun(*dtypes)


def written(name: str, contents: bytes) -> str:
    """The path of a new file in a folder of its own, which is there while the case runs."""
    path = Path(tempfile.mkdtemp(dir=_folders[-1])) / name
    path.write_bytes(contents)
    return str(path)


def sample(*shape: int, seed: int = 0, dtype: Any = np.float32) -> Any:
    """Numbers that are the same each time."""
    return np.random.RandomState(seed).randn(*shape).astype(dtype)
