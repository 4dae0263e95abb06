"""Operations that look at values while a step runs: assertions, checks for NaN, printing, the clock."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from anabranch.core import dtypes
from anabranch.core.arrays import Array, ArrayLibrary
from anabranch.core.kernel_context import OperationContext
from anabranch.core.resources import ResourceHandle
from anabranch.core.shapes import TensorShape
from anabranch.core.shown_values import element, escaped, summary
from anabranch.graph.building import define_op
from anabranch.graph.kernel_contexts import StepHostContext
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import shape_rules

# ---------------------------------------------------------------------- checks
CheckNumerics = define_op(
    "CheckNumerics", "tensor: T -> output: T", "T: {bfloat16, half, float, double}, message: string"
)
CheckNumerics.shape(shape_rules.same_as_first)


@CheckNumerics.kernel
def _(tensor: Array, *, message: bytes, ctx: OperationContext, xp: ArrayLibrary) -> Any:
    text = escaped(message.decode("utf-8", "replace"))
    checked = ctx.op.inputs[0]
    place = escaped(checked.op.creation_site)
    which = f"it is {checked.name}, created at {place}; tf.add_check_numerics_ops() finds where they come from"
    ctx.check(~xp.any(xp.isnan(tensor)), f"{text} : Tensor had NaN values; {which}")
    ctx.check(~xp.any(xp.isinf(tensor)), f"{text} : Tensor had Inf values; {which}")
    return tensor


@CheckNumerics.gradient
def _(op: Operation, grad: Tensor) -> Any:
    message = op.attrs["message"].decode("utf-8", "replace")
    return CheckNumerics(grad, f"Not a number (NaN) or infinity (Inf) values detected in gradient. {message}")


Assert = define_op("Assert", "condition: bool, data: T ->", "T: list(any) >= 1, summarize: int = 3", stateful=True)
Assert.not_differentiable()


@Assert.static_when
def _(op: Operation) -> frozenset[int]:
    # Messages are constants as a rule; known while a step is compiled, they need no work on the host.
    return frozenset(i for i, t in enumerate(op.inputs) if t.dtype is dtypes.string)


@Assert.shape
def _(condition: TensorShape, data: list[TensorShape]) -> tuple[()]:
    shape_rules.with_rank(condition, 0, "the condition of an assertion")
    return ()


@Assert.kernel
def _(condition: Array, data: list[Any], *, summarize: int, ctx: OperationContext, xp: ArrayLibrary) -> None:
    if isinstance(condition, np.ndarray | np.bool_) and condition:
        return  # what would be said need not be put together
    parts: list[str] = []
    values: list[Any] = []
    for item in data:
        if isinstance(item, np.ndarray):
            parts.append(escaped(summary(item, summarize)))
            continue
        # only what is shown leaves the device
        shown = jnp.reshape(item, (-1,))[: item.size if summarize < 0 else summarize]
        parts.append(f"{{{len(values)}:{'+' if shown.size < item.size else '*'}}}")
        values.append(shown)
    ctx.check(condition, f"assertion failed: {' '.join(parts)}", *values)


# ---------------------------------------------------------------------- values as strings
def _nested(array: Array, count: int) -> str:
    """All dimensions in brackets of their own, each with its first and last `count` elements."""
    if np.ndim(array) == 0:
        item = np.asarray(array)[()]
        return f'"{element(item)}"' if isinstance(item, bytes) else element(item)
    count = 0 if not np.size(array) else count  # as TensorFlow: of rows without elements none is shown
    short = 0 <= 2 * count < len(array)
    rows = [_nested(row, count) for row in ([*array[:count], *array[len(array) - count :]] if short else array)]
    if short:
        rows.insert(count, "...")
    if not count and short:
        rows.insert(0, "")
    between = "\n" * (np.ndim(array) - 1) + " "
    return "[" + between.join(re.sub(r"\n(?!\n)", "\n ", row) for row in rows) + "]"


StringFormat = define_op(
    "StringFormat",
    "inputs: T -> output: string",
    "T: list(any) >= 0, template: string = '%s', placeholder: string = '%s', summarize: int = 3",
)
StringFormat.shape(shape_rules.scalar)
StringFormat.not_differentiable()


@StringFormat.host_kernel
def _(inputs: list[Any], *, template: bytes, placeholder: bytes, summarize: int) -> Any:
    pieces = template.decode().split(placeholder.decode())
    if len(pieces) != len(inputs) + 1:
        raise ValueError(f"the template has {len(pieces) - 1} placeholders for {len(inputs)} tensors")
    shown = [_nested(value, summarize) for value in inputs]
    text = pieces[0] + "".join(a + b for a, b in zip(shown, pieces[1:], strict=True))
    return np.array(text.encode(), np.object_)


# ---------------------------------------------------------------------- printing
class _Printed:
    """How often an operation has printed."""

    def __init__(self) -> None:
        self.times = 0

    def close(self) -> None:
        """For the container that goes away."""


Print = define_op(
    "Print",
    "input: T, data: U -> output: T",
    "T: any, U: list(any) >= 0, message: string = '', first_n: int = -1, summarize: int = 3",
    stateful=True,
)


@Print.shape
def _(input: TensorShape, data: list[TensorShape]) -> TensorShape:
    return input


@Print.host_kernel
def _(input: Array, data: list[Any], *, message: bytes, first_n: int, summarize: int, ctx: StepHostContext) -> Any:
    printed = ctx.containers.object(ResourceHandle("", ctx.private_name, "print"), _Printed)
    if first_n < 0 or printed.times < first_n:
        printed.times += 1
        sys.stderr.write(message.decode("utf-8", "replace") + "".join(summary(d, summarize) for d in data) + "\n")
        sys.stderr.flush()
    return input


@Print.gradient
def _(op: Operation, grad: Tensor) -> Any:
    return [grad, *[None] * (len(op.inputs) - 1)]


PrintV2 = define_op(
    "PrintV2", "input: string ->", "output_stream: string = 'stderr', end: string = '\\n'", stateful=True
)
PrintV2.not_differentiable()


@PrintV2.shape
def _(input: TensorShape) -> tuple[()]:
    shape_rules.with_rank(input, 0, "what is printed")
    return ()


@PrintV2.host_kernel
def _(input: Array, *, output_stream: bytes, end: bytes) -> None:
    text = element(np.asarray(input)[()]) + end.decode()
    stream = output_stream.decode()
    if stream.startswith("file://"):
        with Path(stream.removeprefix("file://")).open("a", encoding="utf-8") as file:
            file.write(text)
        return
    target = sys.stdout if stream == "stdout" else sys.stderr
    target.write(text)
    target.flush()


Timestamp = define_op("Timestamp", "-> ts: double", stateful=True)
Timestamp.shape(shape_rules.scalar)
Timestamp.not_differentiable()


@Timestamp.host_kernel
def _() -> Any:
    return np.array(time.time(), np.float64)


MonotonicSeconds = define_op("_MonotonicSeconds", "-> seconds: double", stateful=True)
MonotonicSeconds.shape(shape_rules.scalar)
MonotonicSeconds.not_differentiable()


@MonotonicSeconds.host_kernel
def _() -> Any:
    """For what lasted how long: `Timestamp` jumps when somebody sets the machine's clock."""
    return np.array(time.monotonic(), np.float64)
