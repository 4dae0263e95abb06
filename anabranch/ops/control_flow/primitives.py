"""Switch, Merge, Enter, NextIteration, Exit: the dataflow under conditionals and loops (§3.4, WP4.4).

The executor runs these itself (`runtime.executor` says what each does with a dead value); functional conditionals and
loops that cannot be compiled are lowered to them (`passes.lower_control_flow`), and graphs that other programs wrote
may contain them.

**Gradients.** A Switch is differentiated by a Merge and the other way round, so that gradients flow through a
conditional as values do. Loops made of primitives are not differentiated: a `While` is, before it is lowered.
"""

from __future__ import annotations

from typing import Any, NoReturn

from anabranch.core.kernel_context import OperationContext
from anabranch.core.roles import Role
from anabranch.core.shapes import TensorShape
from anabranch.core.values import TensorValue
from anabranch.errors import AbortedError, InternalError, UnimplementedError
from anabranch.graph.building import define_op
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw, shape_rules

_SCALAR = TensorShape([])
_ENTER_ATTRS = "T: any, frame_name: string, is_constant: bool = False, parallel_iterations: int = 10"

_SWITCH = ("data: T, pred: bool -> output_false: T, output_true: T", "T: any")
Switch = define_op("Switch", *_SWITCH, ranks={"pred": 0}, role=Role.SWITCH)
RefSwitch = define_op("RefSwitch", *_SWITCH, ranks={"pred": 0}, role=Role.SWITCH)
Merge = define_op("Merge", "inputs: N * T -> output: T, value_index: int32", "T: any, N: int >= 1", role=Role.MERGE)
RefMerge = define_op(
    "RefMerge", "inputs: N * T -> output: T, value_index: int32", "T: any, N: int >= 1", role=Role.MERGE
)
Enter = define_op("Enter", "data: T -> output: T", _ENTER_ATTRS, role=Role.ENTER)
RefEnter = define_op("RefEnter", "data: T -> output: T", _ENTER_ATTRS, role=Role.ENTER)
Exit = define_op("Exit", "data: T -> output: T", "T: any", role=Role.EXIT)
RefExit = define_op("RefExit", "data: T -> output: T", "T: any", role=Role.EXIT)
NextIteration = define_op("NextIteration", "data: T -> output: T", "T: any", role=Role.NEXT_ITERATION)
RefNextIteration = define_op("RefNextIteration", "data: T -> output: T", "T: any", role=Role.NEXT_ITERATION)
LoopCond = define_op(
    "LoopCond", "input: bool -> output: bool", ranks={"input": 0}, role=Role.LOOP_CONDITION, passes_on=True
)
ControlTrigger = define_op("ControlTrigger", "->", role=Role.TRIGGER)
#: lets others wait for tensors, and be dead if one of them is: where a lowered conditional or loop begins
Gate = define_op("_Gate", "input: T ->", "T: list(type) >= 0", role=Role.GATE)
Abort = define_op("Abort", "->", "error_msg: string = '', exit_without_error: bool = False")


def _by_executor(*_: TensorValue, ctx: OperationContext) -> NoReturn:
    raise InternalError(None, ctx.op, f"{ctx.op.type} is run by the executor of a step, not by itself")


_PRIMITIVES = (
    *(Switch, RefSwitch, Merge, RefMerge, Enter, RefEnter, Exit, RefExit, NextIteration, RefNextIteration),
    *(LoopCond, ControlTrigger, Gate),
)
for _op in _PRIMITIVES:
    _op.host_kernel(_by_executor)


@Abort.host_kernel
def _(*, error_msg: bytes, exit_without_error: bool, ctx: OperationContext) -> None:
    text = error_msg.decode(errors="replace") or "no message was given"
    raise AbortedError(None, ctx.op, f"operation {ctx.op.name!r} ended the step: {text}")


# ---------------------------------------------------------------------- shapes
def _switch_shape(data: TensorShape, pred: TensorShape) -> tuple[TensorShape, TensorShape]:
    return data, data


def _merge_shape(inputs: list[TensorShape]) -> tuple[TensorShape, TensorShape]:
    merged = inputs[0]
    for shape in inputs[1:]:
        merged = merged.most_specific_compatible_shape(shape)
    return merged, _SCALAR


def _same_shape(data: TensorShape) -> TensorShape:
    return data


def _enter_shape(data: TensorShape, *, is_constant: bool) -> TensorShape:
    """A loop variable may have another shape in later iterations."""
    return data if is_constant else TensorShape(None)


for _op in (Enter, RefEnter):
    _op.shape(_enter_shape)
for _op in (Switch, RefSwitch):
    _op.shape(_switch_shape)
for _op in (Merge, RefMerge):
    _op.shape(_merge_shape)
LoopCond.shape(shape_rules.scalar)
for _op in (Exit, RefExit, NextIteration, RefNextIteration):
    _op.shape(_same_shape)
for _op in (ControlTrigger, Abort, Gate):
    _op.shape(shape_rules.no_outputs)
    _op.not_differentiable()
LoopCond.not_differentiable()


# ---------------------------------------------------------------------- gradients
def _switch_gradient(op: Operation, false: Tensor | None, true: Tensor | None) -> list[Any]:
    """The gradient of the side that is taken; the zeros for a side without one are as dead as that side."""
    if false is None or true is None:
        return [None, None]
    return [raw.Merge([false, true]).output, None]


def _merge_gradient(op: Operation, grad: Tensor | None, _: Tensor | None) -> list[Any]:
    """Sends the gradient to the input that was taken, and a dead value to the others."""
    if any(t.op.op_def.role is Role.NEXT_ITERATION for t in op.inputs):
        _refuse_loop(op)
    taken = [raw.Equal(op.outputs[1], i) for i in range(len(op.inputs))]
    return [raw.Switch(grad, t).output_true for t in taken]


def _refuse_loop(op: Operation, *_: Tensor | None) -> NoReturn:
    raise UnimplementedError(
        None,
        op,
        f"no gradient can be built through {op.name!r} ({op.type}): its loop is made of Switch and Merge, as an older "
        "program wrote it. Let that program write the gradient too, or build the loop with tf.while_loop",
    )


for _op in (Switch, RefSwitch):
    _op.gradient(_switch_gradient)
for _op in (Merge, RefMerge):
    _op.gradient(_merge_gradient)
for _op in (Enter, RefEnter, Exit, RefExit, NextIteration, RefNextIteration):
    _op.gradient(_refuse_loop)
