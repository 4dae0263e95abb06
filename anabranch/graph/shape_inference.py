"""Static shapes of a new operation's outputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from anabranch.core import dtypes
from anabranch.core.op_def import ArgDef, OpDef, Rule
from anabranch.core.shapes import TensorShape
from anabranch.graph.constants import constant_value, constant_value_as_shape
from anabranch.graph.creation_site import CreationSite
from anabranch.graph.operation import Operation, Tensor, group_by_argument

_UNKNOWN_SHAPE = TensorShape(None)
_NO_ARRAYS = (dtypes.resource, dtypes.variant)


class ShapeContext:
    """Passed to shape rules that ask for `ctx`: the inputs' constant values, dtypes, and the output count."""

    __slots__ = ("_attrs", "_grouped", "_op_def")

    def __init__(self, op_def: OpDef, attrs: dict[str, Any], inputs: list[Tensor]) -> None:
        self._op_def = op_def
        self._attrs = attrs
        self._grouped = group_by_argument(op_def.inputs, attrs, inputs)

    def tensor(self, name: str) -> Any:
        """The input (a tensor, or a list of them) of that name."""
        for arg, value in zip(self._op_def.inputs, self._grouped, strict=True):
            if arg.name == name:
                return value
        raise KeyError(f"operation {self._op_def.name} has no input {name!r}")

    def constant(self, name: str) -> np.ndarray[Any, Any] | None:
        """The value of an input where it is known while the graph is built."""
        return constant_value(self.tensor(name))

    def constant_as_shape(self, name: str) -> TensorShape:
        """The (partial) shape that an integer vector input describes."""
        return constant_value_as_shape(self.tensor(name))

    @property
    def output_count(self) -> int:
        """How many tensors the operation has as outputs, flat."""
        return sum(_count(arg, self._attrs) for arg in self._op_def.outputs)


def _count(arg: ArgDef, attrs: dict[str, Any]) -> int:
    if arg.number_attr is not None:
        count: int = attrs[arg.number_attr]
        return count
    return len(attrs[arg.type_list_attr]) if arg.type_list_attr is not None else 1


def infer_shapes(
    op_def: OpDef, attrs: dict[str, Any], inputs: list[Tensor], name: str, site: CreationSite
) -> list[TensorShape]:
    """The shapes of all outputs, flat. An operation without a shape rule has outputs of unknown shape.

    Raises:
        ValueError: the inputs' shapes do not go together.
    """
    rule = op_def.shape_rule
    count = 1 if len(op_def.outputs) == 1 and not op_def.outputs[0].is_list else _total(op_def, attrs)
    if rule is None:
        return [_UNKNOWN_SHAPE] * count
    try:
        result = _apply(rule, op_def, attrs, inputs, [t._shape for t in inputs])
    except ValueError as error:
        given = ", ".join(f"{t.name} {t._shape}" for t in inputs)
        raise ValueError(f"operation {name!r} ({op_def.name}), created at {site}: {error} (inputs: {given})") from error
    found = _flatten(result)
    if len(found) != count:
        raise ValueError(f"the shape rule of {op_def.name} gave {len(found)} shapes for {count} outputs")
    return found


def is_open(op: Operation) -> bool:
    """Whether the shapes of an operation's inputs, of which not all was known when it was made, may yet be refused."""
    return op.op_def.shape_rule is not None and not all(t.shape.is_fully_defined() for t in op.inputs)


def check_shapes(op: Operation, values: Sequence[Any]) -> None:
    """Applies an operation's shape rule to the shapes of the values that it meets.

    So kernels need not repeat what the rule says of ranks and sizes. A handle or a list of tensors has the shape that
    is known of its tensor.

    Raises:
        ValueError: the shapes do not go together.
    """
    rule = op.op_def.shape_rule
    assert rule is not None
    shapes = [
        tensor._shape if tensor.dtype in _NO_ARRAYS else TensorShape.from_tuple(np.shape(value))
        for tensor, value in zip(op.inputs, values, strict=True)
    ]
    _apply(rule, op.op_def, op.attrs, op.inputs, shapes)


class ShapeCheck:
    """`check_shapes` for one operation that is called again and again: only shapes unlike the last ones are looked at.

    It may be called from several threads.
    """

    __slots__ = ("_checked", "_op")

    def __init__(self, op: Operation) -> None:
        self._op = op
        #: the inputs' shapes that were found right before
        self._checked: list[Any] = []

    def __call__(self, values: Sequence[Any]) -> None:
        shapes = [getattr(value, "shape", None) for value in values]
        if shapes != self._checked:
            check_shapes(self._op, values)
            self._checked = shapes


def _apply(rule: Rule, op_def: OpDef, attrs: dict[str, Any], inputs: list[Tensor], shapes: list[TensorShape]) -> Any:
    """What a shape rule says of inputs of some shapes."""
    grouped = group_by_argument(op_def.inputs, attrs, shapes)
    if op_def.ranks:
        op_def.check_ranks([s.ndims for s in shape] if isinstance(shape, list) else shape.ndims for shape in grouped)
    known: dict[str, Any] = {}
    for keyword in rule.keywords:
        known[keyword] = ShapeContext(op_def, attrs, inputs) if keyword == "ctx" else attrs[keyword]
    return rule.function(*grouped, **known)


def _total(op_def: OpDef, attrs: dict[str, Any]) -> int:
    return sum(_count(arg, attrs) for arg in op_def.outputs)


def _flatten(result: Any) -> list[TensorShape]:
    if isinstance(result, TensorShape):
        return [result]
    if result is None:
        return []
    return [shape for item in result for shape in _flatten(item)]
