"""Worker: what the kernels of convolutions cost, each compiled alone (processor time).

The "system" is the name of a kernel; rows are convolutions that have it. A convolution is written as batch, size,
channels → depth, filter, stride; F: forward, I: the gradient to the input, W: to the filter.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from jax import numpy as jnp

import anabranch as tf
from anabranch.core.kernel_context import KernelContext
from anabranch.core.kernels import KernelCase, KernelInput, candidates
from anabranch.graph.kernel_binding import BoundKernel
from anabranch.ops import raw
from anabranch.xla.jax_settings import in_wide_types
from anabranch.xla.kernel_choice import target_of
from anabranch.xla.kernel_timing import seconds_in_turns, timed_run

#: shape of the data, shape of the filter, stride, padding
CONVOLUTIONS = (
    ((32, 28, 28, 1), (5, 5, 1, 32), 1, "SAME"),
    ((32, 14, 14, 32), (5, 5, 32, 64), 1, "SAME"),
    ((64, 8, 8, 32), (3, 3, 32, 64), 1, "SAME"),
    ((4, 28, 28, 128), (3, 3, 128, 128), 1, "SAME"),
    ((32, 7, 7, 16), (3, 3, 16, 32), 1, "SAME"),
    ((64, 5, 5, 64), (3, 3, 64, 64), 1, "VALID"),
    ((8, 28, 28, 64), (1, 1, 64, 128), 1, "SAME"),
    ((32, 12, 12, 20), (5, 5, 20, 50), 1, "VALID"),
    ((8, 16, 16, 64), (5, 5, 64, 128), 2, "SAME"),
    ((16, 28, 28, 32), (3, 3, 32, 1), 1, "SAME"),
)


def operations(
    shape: Any, filter_shape: Any, stride: int, padding: str, dtype: Any = "float32"
) -> Iterator[tuple[str, Any]]:
    """A convolution and its gradients; per channel where the filter has one output for each."""
    kind = "DepthwiseConv2dNative" if filter_shape[-1] == 1 else "Conv2D"
    x, w = (tf.placeholder(dtype, dims) for dims in (shape, filter_shape))
    attrs = {"strides": [1, stride, stride, 1], "padding": padding}
    y = getattr(raw, kind)(x, w, **attrs)
    sizes = [np.array(dims, np.int32) for dims in (shape, filter_shape)]
    yield "F", y.op
    yield "I", getattr(raw, f"{kind}BackpropInput")(sizes[0], w, y, **attrs).op
    yield "W", getattr(raw, f"{kind}BackpropFilter")(x, sizes[1], y, **attrs).op


def case_of(op: Any) -> KernelCase:
    """What a kernel is chosen for: an operation whose inputs have known shapes."""
    static = op.op_def.static_positions(op)
    values = [tf.get_static_value(t) if i in static else None for i, t in enumerate(op.inputs)]
    inputs = [
        KernelInput(tuple(t.shape.as_list()), np.dtype(t.dtype.as_numpy_dtype), value)
        for t, value in zip(op.inputs, values, strict=True)
    ]
    return KernelCase(op.type, op.attrs, tuple(inputs), target_of(None).device_types)


def program_of(op: Any, case: KernelCase, name: str) -> Callable[..., Any] | None:
    """A kernel of an operation, as a function of the arrays that are not static; None where it does not apply."""
    for candidate in candidates(case):
        if candidate.name == name:
            rule = op.op_def.compiled_rule if candidate.kernel is None else candidate.kernel.rule

            def program(*arrays: Any) -> Any:
                left = iter(arrays)
                given = [next(left) if one.value is None else one.value for one in case.inputs]
                return BoundKernel(op, rule, jnp, KernelContext(op))(given)  # noqa: B023 - the loop ends here

            return program
    return None


def seconds(op: Any, name: str) -> float | None:
    """What a kernel of an operation takes; None where it does not apply."""
    case = case_of(op)
    program = program_of(op, case, name)
    if program is None:
        return None
    dynamic = [(given.shape, given.dtype) for given in case.inputs if given.value is None]

    def least() -> float:
        return min(seconds_in_turns({name: timed_run(program, dynamic, None, time.process_time)})[name])

    return in_wide_types(least)


def main(name: str) -> None:
    row: dict[str, float] = {}
    for shape, filter_shape, stride, padding in CONVOLUTIONS:
        size, window = ("x".join(map(str, dims)) for dims in (shape[1:3], filter_shape[:2]))
        what = f"{shape[0]}, {size}, {shape[3]} → {filter_shape[3]}, {window}, {stride} {padding}"
        with tf.Graph().as_default():
            for direction, op in operations(shape, filter_shape, stride, padding):
                taken = seconds(op, name)
                if taken is not None:
                    row[f"{what}, {direction}"] = taken
    print(json.dumps(row))


if __name__ == "__main__":
    main(sys.argv[1])
