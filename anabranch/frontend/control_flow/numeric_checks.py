"""Checks that numbers are numbers: neither NaN nor infinite."""

from __future__ import annotations

from anabranch.core import dtypes
from anabranch.core.values import TensorLike
from anabranch.frontend.control_flow.grouping import group, with_dependencies
from anabranch.frontend.framework import control_dependencies, name_scope
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.dispatch import dispatched
from anabranch.graph.graph import get_default_graph
from anabranch.graph.graph_copy import functions_of
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw

_CHECKED = (dtypes.float16, dtypes.float32, dtypes.float64)


@dispatched
def check_numerics(tensor: TensorLike, message: str, name: str | None = None) -> Tensor:
    """The value of `tensor`; the step fails with InvalidArgumentError where it has NaN or infinite elements."""
    result: Tensor = raw.CheckNumerics(tensor, message=message, name=name)
    return result


def verify_tensor_all_finite(
    t: TensorLike | None = None,
    msg: str | None = None,
    name: str | None = None,
    x: TensorLike | None = None,
    message: str | None = None,
) -> Tensor:
    """`check_numerics` under another name; `t` and `msg` are deprecated names of `x` and `message`."""
    tensor, text = (x if t is None else t), (message if msg is None else msg)
    if tensor is None or text is None:
        raise ValueError("verify_tensor_all_finite needs a tensor `x` and a `message`")
    with name_scope(name, "VerifyFinite", [tensor] if isinstance(tensor, Tensor) else None):
        value = convert_to_tensor(tensor, name="t")
        return with_dependencies([check_numerics(value, text)], value)


def add_check_numerics_ops() -> Operation:
    """An operation that checks all floating tensors of the default graph, each before what consumes it is checked.

    Raises:
        ValueError: there are floating tensors within conditionals or loops, which it cannot reach.
    """
    checks: list[Tensor] = []
    for op in get_default_graph().get_operations():
        if _has_numbers_inside(op):
            raise ValueError(
                "`tf.add_check_numerics_ops() is not compatible with TensorFlow control flow operations such as "
                f"`tf.cond()` or `tf.while_loop()`. Operation {op.name!r} (created at {op.site}) is one; put "
                "tf.check_numerics on the tensors that matter in it"
            )
        for output in op.outputs:
            if output.dtype in _CHECKED:
                with control_dependencies(checks[-1:]):
                    checks.append(check_numerics(output, f"{op.name}:{output.value_index}"))
    return group(*checks)


def _has_numbers_inside(op: Operation) -> bool:
    """Whether it is control flow over floating tensors: a primitive, or what has some in its branches or bodies."""
    if op.op_def.is_primitive:
        return any(t.dtype in _CHECKED for t in op.outputs)
    if not op.op_def.is_functional:
        return False
    bodies = functions_of(op.graph, [op]).values()
    return any(t.dtype in _CHECKED for body in bodies for inner in body.operations for t in inner.outputs)
