"""Hostile sizes for the operations of the op table: nothing that a graph or a feed says may end the process.

Each case takes a row of the op table, replaces a size in it (a shape or another integer input, fed or constant, or an
attribute, set when the operation is built or in the exported GraphDef) by one that is negative, huge or overflows, runs
the operation, and some of them its gradient. What must come of it is a result or an error of `anabranch.errors` (while
the graph is built also a ValueError or TypeError); a signal, another exception or a case without end is a finding.

    python -m tests.fuzz.sizes --seconds 3600 --seed 1

Cases run in child processes with little address space and without core dumps, so that this process survives them all.
A finding is told with the number of its case, which `--only` runs again in this process.
"""

from __future__ import annotations

import argparse
import functools
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

import anabranch as tf
from anabranch.core.op_def import OpDef
from anabranch.core.values import to_array
from anabranch.testing.op_cases import OpCase, op_function
from tests.device.ops.table import table_rows
from tests.fuzz import children

HOSTILE = (-1, 0, 1, -(2**31), 2**31 - 1, 2**31, 2**31 + 1, 2**40, 2**62, 2**63 - 1, -(2**63), -2, 3, 2**20)
#: seconds of processor time after which a case counts as one without end: the largest tensors that fit take a while
PATIENCE = 180
#: what a refusal may be; while a graph is built, also Python's own errors for wrong arguments
REFUSALS = (tf.errors.OpError, NotImplementedError)
BUILD_REFUSALS = (*REFUSALS, ValueError, TypeError)
#: kinds of attributes that are sizes
_SIZE_KINDS = frozenset({"int", "list(int)", "shape", "list(shape)"})


def rows() -> list[OpCase]:
    """The rows of the op table that can be built and have sizes, in a fixed order."""
    return [row for row in table_rows() if _has_sizes(row)]


def _has_sizes(row: OpCase) -> bool:
    op = op_function(row.op)
    integers = any(_is_size(v) for v in _flat_arrays(op, row.inputs))
    return row.error is None and not op.blocking and (integers or any(a.kind in _SIZE_KINDS for a in op.attrs.values()))


def _flat_arrays(op: OpDef, inputs: tuple[Any, ...]) -> list[Any]:
    return [v for arg, value in zip(op.inputs, inputs, strict=True) for v in (value if arg.is_list else [value])]


def _is_size(value: Any) -> bool:
    array = np.asarray(value)
    return array.dtype.kind in "iu" and array.dtype.itemsize >= 4 and 0 < array.size <= 16


# ---------------------------------------------------------------------- one case
@dataclass
class _Case:
    """A row with hostile sizes in it."""

    op: OpDef
    arguments: dict[str, Any]
    attrs: dict[str, Any]
    fed: bool
    gradient: bool
    through_graphdef: bool
    random: np.random.Generator

    def __str__(self) -> str:
        how = [name for name in ("fed", "gradient", "through_graphdef") if getattr(self, name)]
        return f"{self.op.name}({self.arguments}, {self.attrs}) {' '.join(how)}"


def make_case(table: list[OpCase], seed: int, number: int) -> _Case:
    """Case `number` of a seed."""
    random = np.random.default_rng((seed, number))
    row = table[random.integers(len(table))]
    op = op_function(row.op)
    arguments = {
        arg.name: [_array(arg, v) for v in value] if arg.is_list else _array(arg, value)
        for arg, value in zip(op.inputs, row.inputs, strict=True)
    }
    places = [name for name, value in arguments.items() if any(map(_is_size, _as_list(value)))]
    attrs = dict(row.attrs)
    settable = [a.name for a in op.attrs.values() if a.kind in _SIZE_KINDS and a.name not in op.inferred]
    flags = [bool(b) for b in random.integers(2, size=3)]
    case = _Case(op, arguments, attrs, flags[0], flags[1], flags[2] and not flags[1], random)
    for _ in range(int(random.integers(1, 4))):
        if places and (not settable or random.integers(3)):
            name = places[random.integers(len(places))]
            arguments[name] = _spoiled(arguments[name], random)
        elif settable and not case.through_graphdef:
            name = settable[random.integers(len(settable))]
            attrs[name] = _hostile_attribute(op.attrs[name].kind, attrs.get(name), random)
    return case


def _array(arg: Any, value: Any) -> Any:
    own = isinstance(value, np.ndarray | np.generic) or arg.dtype is tf.variant
    return to_array(value, None if own else arg.dtype)


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _hostile(random: np.random.Generator) -> int:
    return HOSTILE[random.integers(len(HOSTILE))]


def _spoiled(value: Any, random: np.random.Generator) -> Any:
    """The value with one or all of its elements replaced, within the range of its type."""
    if isinstance(value, list):
        at = int(random.integers(len(value)))
        return [_spoiled(v, random) if i == at and _is_size(v) else v for i, v in enumerate(value)]
    spoiled = np.array(value)
    limits = np.iinfo(spoiled.dtype)
    places = range(spoiled.size) if random.integers(2) else [int(random.integers(spoiled.size))]
    for place in places:
        spoiled.reshape(-1)[place] = min(max(_hostile(random), int(limits.min)), int(limits.max))
    return spoiled


def _hostile_attribute(kind: str, old: Any, random: np.random.Generator) -> Any:
    if kind == "int":
        return _hostile(random)
    if kind == "list(int)":
        return [_hostile(random) if random.integers(2) else v for v in (old or [1, 1, 1, 1])]
    shape = [max(-1, _hostile(random)) for _ in range(random.integers(4))]
    return [shape] * len(old or [0]) if kind == "list(shape)" else shape


def run_case(case: _Case) -> str:
    """Builds and runs a case; says how it ended.

    Raises:
        Exception: something other than a refusal.
    """
    with tf.Graph().as_default() as graph:
        feeds: dict[str, Any] = {}
        try:
            outputs, sources = _build(case, feeds)
            fetches = [t for t in outputs if t.dtype not in (tf.variant, tf.resource)]
            if case.gradient:
                fetches = [_dense(g) for g in tf.gradients(fetches, sources) if g is not None]
            if case.through_graphdef:
                names = [t.name for t in fetches]
                graph, fetches = _again(graph, names, case.random)
        except BUILD_REFUSALS:
            return "refused while building"
        if not fetches:
            return "nothing to run"
        return _run(graph, fetches, feeds)


def _run(graph: Any, fetches: list[Any], feeds: dict[str, Any]) -> str:
    config = tf.ConfigProto(operation_timeout_in_ms=10_000) if _waits(graph) else None
    with tf.Session(graph=graph, config=config) as session:
        try:
            session.run(fetches, feeds)
        except tf.errors.InternalError:
            raise
        except REFUSALS as error:
            return type(error).__name__
        except ValueError as error:
            if "Cannot feed value" not in str(error):
                raise
            return "feed refused"
    return "result"


def _waits(graph: Any) -> bool:
    return any(op.op_def.asynchronous for op in graph.get_operations())


def _build(case: _Case, feeds: dict[str, Any]) -> tuple[list[Any], list[Any]]:
    sources: list[Any] = []

    def tensor(value: Any) -> Any:
        if not case.fed or value.dtype == np.object_:
            return tf.constant(value)
        placeholder = tf.placeholder(value.dtype, None if case.random.integers(2) else value.shape)
        feeds[placeholder.name] = value
        if placeholder.dtype.is_floating:
            sources.append(placeholder)
        return placeholder

    arguments = []
    for arg in case.op.inputs:
        value = case.arguments[arg.name]
        made = [tensor(v) for v in value] if isinstance(value, list) else tensor(value)
        arguments.append(
            tf.raw_ops.TensorListFromTensor(tensor=made, element_shape=-1) if arg.dtype is tf.variant else made
        )
    case.op(*arguments, **case.attrs)  # type: ignore[operator]
    made_by = next(o for o in reversed(tf.get_default_graph().get_operations()) if o.op_def is case.op)
    return list(made_by.outputs), sources


def _dense(gradient: Any) -> Any:
    return gradient.values if isinstance(gradient, tf.IndexedSlices) else gradient


def _again(graph: Any, names: list[str], random: np.random.Generator) -> tuple[Any, list[Any]]:
    """The graph after a way through a GraphDef in which one size was replaced."""
    graph_def = graph.as_graph_def()
    places = [place for node in graph_def.node for attr in node.attr.values() for place in _sizes_in(attr)]
    if places:
        place, name = places[random.integers(len(places))]
        setattr(place, name, _hostile(random))
    with tf.Graph().as_default() as again:
        return again, tf.import_graph_def(graph_def, return_elements=names, name="")


def _sizes_in(attr: Any) -> list[tuple[Any, str]]:
    """The fields of an attribute's message that are sizes."""
    kind = attr.WhichOneof("value")
    if kind == "i":
        return [(attr, "i")]
    shapes = {"shape": [attr.shape], "tensor": [attr.tensor.tensor_shape], "list": list(attr.list.shape)}.get(kind, [])
    return [(dim, "size") for shape in shapes for dim in shape.dim]


# ---------------------------------------------------------------------- children
def run_batch(seed: int, first: int, count: int, seconds: float) -> None:
    """Runs cases in this process; see `children.run_cases`."""
    table = rows()
    cases = (
        ("sizes", number, functools.partial(_outcome, table, seed, number)) for number in range(first, first + count)
    )
    children.run_cases(cases, PATIENCE, seconds)


def _outcome(table: list[OpCase], seed: int, number: int) -> str:
    case = make_case(table, seed, number)
    try:
        return run_case(case)
    except Exception as error:  # any exception that is no refusal is what this looks for
        return f"finding {type(error).__name__}: {str(error)[:400]!r} in {str(case)[:600]!r}"


def fuzz(seed: int, seconds: float, first: int = 0) -> children.Counts:
    """Runs batches of cases in child processes for so many seconds, and at least one case."""
    return children.fuzz("tests.fuzz.sizes", (), seed, seconds, first, PATIENCE)


def main() -> int:
    """The command line; the exit status says whether there was a finding."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="the number of the first case")
    parser.add_argument("--count", type=int, default=children.BATCH, help=argparse.SUPPRESS)
    parser.add_argument("--only", type=int, help="run this case alone, in this process")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        children.limit()
        run_batch(options.seed, options.first, options.count, options.seconds)
        return 0
    if options.only is not None:
        children.limit()
        case = make_case(rows(), options.seed, options.only)
        print(case, run_case(case), sep="\n")
        return 0
    return fuzz(options.seed, options.seconds, options.first).told(options.seed)


if __name__ == "__main__":
    sys.exit(main())
