"""Static shapes of a new operation's outputs."""

from __future__ import annotations

from typing import Any

from anabranch.core.op_def import OpDef
from anabranch.core.shapes import LateShapeError, TensorShape
from anabranch.graph.constants import apply_shape_rule, count_of, flat_shapes
from anabranch.graph.creation_site import CreationSite
from anabranch.graph.operation import Tensor

_UNKNOWN_SHAPE = TensorShape(None)


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
        result = apply_shape_rule(rule, op_def, attrs, inputs, [t._shape for t in inputs])
    except LateShapeError:
        return [_UNKNOWN_SHAPE] * count
    except ValueError as error:
        given = ", ".join(f"{t.name} {t._shape}" for t in inputs)
        raise ValueError(f"operation {name!r} ({op_def.name}), created at {site}: {error} (inputs: {given})") from error
    shapes = flat_shapes(result)
    if len(shapes) != count:
        raise ValueError(f"the shape rule of {op_def.name} gave {len(shapes)} shapes for {count} outputs")
    return shapes


def _total(op_def: OpDef, attrs: dict[str, Any]) -> int:
    return sum(count_of(arg, attrs) for arg in op_def.outputs)
