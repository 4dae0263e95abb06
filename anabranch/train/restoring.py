"""Does a checkpoint fit a graph? The report, the error that tells it, and restoring only what fits  (§4.3)."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from anabranch import errors
from anabranch.core.compat import as_text
from anabranch.core.dtypes import DType
from anabranch.core.shapes import TensorShape
from anabranch.graph.constants import constant_value
from anabranch.graph.graph import Graph
from anabranch.graph.operation import Operation, StepRunner, Tensor
from anabranch.io import checkpoint_store
from anabranch.io.slices import SliceInfo
from anabranch.io.tensor_reader import TensorReader
from anabranch.train.saveables import (
    SaveableObject,
    VariableSaveable,
    VariablesToSave,
    named_saveables,
    saveable_objects,
)
from anabranch.train.stored_objects import read_stored_objects

_MAX_SHOWN = 25


@dataclass(frozen=True, slots=True)
class Wanted:
    """A tensor that a graph wants from a checkpoint.

    Attributes:
        name: in the checkpoint.
        dtype: that it must have.
        shape: of the stored tensor, as far as it matters.
        spec: which part of it, as `SaveSliceInfo.spec`; "" for the whole.
    """

    name: str
    dtype: DType
    shape: TensorShape
    spec: str = ""


@dataclass(frozen=True)
class RestoreReport:
    """How a checkpoint and the variables of a graph fit together; prints as a list.

    Attributes:
        checkpoint: the prefix.
        restored: names that fit (and, from `restore_partial`, were restored), sorted.
        missing: names that the checkpoint does not have -> the closest names that it has and nobody asks for.
        mismatched: names of which the checkpoint has another shape or dtype -> (wanted, stored), as text.
        extra: names that the checkpoint has and nobody asks for, sorted.
    """

    checkpoint: str
    restored: list[str] = field(default_factory=list)
    missing: dict[str, list[str]] = field(default_factory=dict)
    mismatched: dict[str, tuple[str, str]] = field(default_factory=dict)
    extra: list[str] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        """Whether everything that was asked for fits."""
        return not self.missing and not self.mismatched

    def __str__(self) -> str:
        total = len(self.restored) + len(self.missing) + len(self.mismatched)
        lines = [f"checkpoint {self.checkpoint!r}: {len(self.restored)} of {total} tensors fit"]
        missing = [f"{n}{' (the closest: ' + ', '.join(c) + ')' if c else ''}" for n, c in sorted(self.missing.items())]
        other = [f"{n}: wanted {wanted}, stored {stored}" for n, (wanted, stored) in sorted(self.mismatched.items())]
        for title, items in (
            ("missing from the checkpoint", missing),
            ("of another shape or dtype", other),
            ("only in the checkpoint", self.extra),
        ):
            if items:
                lines.append(f"  {title} ({len(items)}):")
                lines += [f"    {item}" for item in items[:_MAX_SHOWN]]
                lines += [f"    ... and {len(items) - _MAX_SHOWN} more"] * (len(items) > _MAX_SHOWN)
        return "\n".join(lines)


# ---------------------------------------------------------------------- comparing
def compare(reader: TensorReader, wanted: Iterable[Wanted]) -> RestoreReport:
    """The report of what of `wanted` a checkpoint holds."""
    shapes, dtypes = reader.get_variable_to_shape_map(), reader.get_variable_to_dtype_map()
    report = RestoreReport(reader.prefix)
    asked: set[str] = set()
    fits: dict[str, None] = {}
    for item in wanted:
        asked.add(item.name)
        if item.name not in shapes:
            report.missing[item.name] = []
            continue
        shape, dtype = shapes[item.name], dtypes[item.name]
        if dtype is not item.dtype or not item.shape.is_compatible_with(shape):
            report.mismatched[item.name] = (_described(item.dtype, item.shape), _described(dtype, TensorShape(shape)))
        else:
            fits[item.name] = None
    report.extra.extend(name for name in sorted(shapes) if name not in asked)
    report.restored.extend(sorted(name for name in fits if name not in report.mismatched))
    for name in report.missing:
        report.missing[name] = _closest(name, report.extra)
    return report


def _described(dtype: DType, shape: TensorShape) -> str:
    return f"{dtype.name} {'of any shape' if shape.dims_tuple is None else [d.value for d in shape]}"


def _closest(name: str, candidates: Sequence[str]) -> list[str]:
    """Names that differ little, or end alike: the usual cause is a scope that was renamed."""
    leaf = name.rsplit("/", 1)[-1]
    alike = difflib.get_close_matches(name, candidates, n=3, cutoff=0.6)
    same_leaf = [c for c in candidates if c.rsplit("/", 1)[-1] == leaf]
    return list(dict.fromkeys([*alike, *same_leaf]))[:3]


def wanted_by_saveables(saveables: Iterable[SaveableObject]) -> list[Wanted]:
    """What saveables want, with the shapes that variables have."""
    wanted = []
    for saveable in saveables:
        for spec in saveable.specs:
            shape = saveable.shape if isinstance(saveable, VariableSaveable) else TensorShape(None)
            wanted.append(_wanted(spec.name, spec.dtype, shape, spec.slice_spec))
    return wanted


def _wanted(name: str, dtype: DType, shape: TensorShape, spec: str) -> Wanted:
    if spec:
        shape = TensorShape(SliceInfo.from_spec(name, spec).full_shape)
    return Wanted(name, dtype, shape, spec)


def wanted_by_operation(
    graph: Graph, restore_op_name: str, fed: Mapping[Tensor, Sequence[str]] | None = None
) -> list[Wanted]:
    """What an operation that restores reads, as far as its graph tells: from the RestoreV2 operations before it.

    Args:
        fed: names that are fed instead of those in the graph.
    """
    wanted: list[Wanted] = []
    for op in _restores_before(graph.get_operation_by_name(restore_op_name)):
        names, specs = constant_value(op.inputs[1]), constant_value(op.inputs[2])
        if names is None or specs is None:
            continue
        texts = [[as_text(item) for item in values.reshape(-1)] for values in (names, specs)]
        texts[0] = list((fed or {}).get(op.inputs[1], texts[0]))
        for name, spec, tensor in zip(*texts, op.outputs, strict=False):
            wanted.append(_wanted(name, tensor.dtype, _shape_of_target(tensor), spec))
    return wanted


def _restores_before(op: Operation) -> list[Operation]:
    stack, seen, restores = [op], {op}, []
    while stack:
        current = stack.pop()
        if current.type == "RestoreV2":
            restores.append(current)
            continue
        for source in [*current.control_inputs, *(t.op for t in current.inputs)]:
            if source not in seen:
                seen.add(source)
                stack.append(source)
    return restores


def _shape_of_target(tensor: Tensor) -> TensorShape:
    """The shape of the variable that a restored tensor is assigned to, where it has to be of that shape."""
    for consumer in tensor.consumers():
        if consumer.type == "Identity":
            return _shape_of_target(consumer.outputs[0])
        if consumer.type == "AssignVariableOp":
            shape: TensorShape = consumer.inputs[0].op.attrs.get("shape", TensorShape(None))
            return shape
    return TensorShape(None)


# ---------------------------------------------------------------------- checkpoints of objects, by names
def keys_by_names(reader: TensorReader) -> dict[str, str]:
    """Where a checkpoint of objects has the values of variables, by the variables' names; {} for any other one."""
    stored = read_stored_objects(reader)
    if stored is None:
        return {}
    return {name: key for name, key in stored.keys_by_full_name().items() if reader.has_tensor(key)}


def feeds_for_objects(graph: Graph, restore_op_name: str, reader: TensorReader) -> dict[Tensor, list[str]]:
    """What to feed so that an operation which restores by names reads a checkpoint of objects.

    Returns:
        Names of tensors by the input of the operation that gives them; {} where the checkpoint has all as they are, or
        knows none of them.
    """
    restores = _restores_before(graph.get_operation_by_name(restore_op_name))
    given = {op.inputs[1]: constant_value(op.inputs[1]) for op in restores}
    names = {tensor: [as_text(n) for n in value.reshape(-1)] for tensor, value in given.items() if value is not None}
    if all(reader.has_tensor(name) for some in names.values() for name in some):
        return {}
    keys = keys_by_names(reader)
    feeds = {tensor: [keys.get(name, name) for name in some] for tensor, some in names.items()}
    return {tensor: mapped for tensor, mapped in feeds.items() if mapped != names[tensor]}


# ---------------------------------------------------------------------- errors
def check_fits(
    graph: Graph, restore_op_name: str, reader: TensorReader, fed: Mapping[Tensor, Sequence[str]] | None = None
) -> None:
    """Raises NotFoundError or InvalidArgumentError with the whole report if a checkpoint lacks what a restore reads.

    Args:
        fed: as `feeds_for_objects` gives it.
    """
    report = compare(reader, wanted_by_operation(graph, restore_op_name, fed))
    if report.complete:
        return
    kind: type[errors.OpError] = errors.NotFoundError if report.missing else errors.InvalidArgumentError
    first = next(iter(report.missing), None)
    problem = f"Key {first} not found in checkpoint" if first is not None else _what_differs(report)
    raise kind(None, graph.get_operation_by_name(restore_op_name), f"{problem}\n{report}")


def _what_differs(report: RestoreReport) -> str:
    """How the first tensor of another shape or dtype differs from the variable."""
    name, (wanted, stored) = next(iter(report.mismatched.items()))
    dtype, original = wanted.partition(" ")[0], stored.partition(" ")[0]
    if dtype != original:
        return f"the variable of {name} has dtype {dtype}, which does not equal the original dtype {original}"
    return f"Assign requires shapes of both tensors to match. {name}: wanted {wanted}, stored {stored}"


def explained(error: errors.OpError, cause: str) -> errors.OpError:
    """A restore's error with what usually causes it."""
    return type(error)(
        error.node_def,
        error.op,
        f"Restoring from checkpoint failed. This is most likely due to {cause} from the checkpoint. Please ensure that "
        f"you have not altered the graph expected based on the checkpoint, or restore what fits with "
        f"tf.train.restore_partial. Original error:\n\n{error.message}",
    )


# ---------------------------------------------------------------------- for users
def restore_report(
    sess_or_graph: StepRunner | Graph, prefix: str, var_list: VariablesToSave | None = None
) -> RestoreReport:
    """Compares a checkpoint with variables; restores nothing.

    Args:
        sess_or_graph: a session or a graph.
        prefix: of the checkpoint.
        var_list: as `Saver`'s; default: the graph's global variables.

    Raises:
        NotFoundError: there is no such checkpoint.
        DataLossError: its list of contents is damaged.
    """
    graph = _graph_of(sess_or_graph)
    saveables = saveable_objects(named_saveables(_variables(graph, var_list)))
    with checkpoint_store.open_checkpoint(prefix) as reader:
        return compare(reader, wanted_by_saveables(saveables))


def restore_partial(sess: StepRunner, prefix: str, var_list: VariablesToSave | None = None) -> RestoreReport:
    """Restores the variables that a checkpoint fits, all in one step; the others keep their values.

    Adds nothing to the graph, so that it works with one that is finalized.

    Args:
        sess: the session whose variables are set.
        prefix: of the checkpoint.
        var_list: as `Saver`'s; default: the global variables of the session's graph.

    Returns:
        The report: what was restored, and what is missing, of another shape, or extra.

    Raises:
        NotFoundError: there is no such checkpoint.
        DataLossError: it is damaged; no variable was changed.
    """
    saveables = saveable_objects(named_saveables(_variables(_graph_of(sess), var_list)))
    variables = [s for s in saveables if isinstance(s, VariableSaveable)]
    with checkpoint_store.open_checkpoint(prefix) as reader:
        report = compare(reader, wanted_by_saveables(variables))
        fitting = [s for s in variables if s.name in report.restored]
        values = {s.variable: _stored_value(reader, s) for s in fitting}
    load(sess, values)
    return report


def load(sess: StepRunner, values: Mapping[Any, Any]) -> None:
    """Sets variables in one step, by feeding their initializers."""
    if not values:
        return
    feeds = {variable.initializer.inputs[1]: value for variable, value in values.items()}
    sess.run([variable.initializer for variable in values], feeds)


def _stored_value(reader: TensorReader, saveable: VariableSaveable) -> np.ndarray[Any, Any]:
    spec = saveable.specs[0]
    return reader.get_slice(spec.name, spec.slice_spec) if spec.slice_spec else reader.read_tensor(spec.name)


def _graph_of(sess_or_graph: StepRunner | Graph) -> Graph:
    graph = getattr(sess_or_graph, "graph", sess_or_graph)
    if not isinstance(graph, Graph):
        raise TypeError(f"expected a session or a graph, got {sess_or_graph!r}")
    return graph


def _variables(graph: Graph, var_list: VariablesToSave | None) -> Any:
    return graph.get_collection("variables") if var_list is None else var_list
