"""How large the results of a portable kernel on the host will be, before NumPy is asked for the memory."""

from __future__ import annotations

import math
from functools import partial
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

from anabranch.core.arrays import HostArray
from anabranch.core.kernel_context import KernelContext
from anabranch.core.op_def import Rule
from anabranch.core.sizes import check_storable
from anabranch.core.values import TensorValue
from anabranch.errors import InvalidArgumentError, OpError
from anabranch.graph.kernel_binding import VALUE_ERRORS, BoundKernel
from anabranch.graph.step_nodes import StepNode
from anabranch.xla.jax_settings import in_wide_types
from anabranch.xla.sizes import values_of

#: inputs and sizes whose product is smaller cannot ask for much
_SMALL: Final = float(1 << 24)


class _UncheckedContext(KernelContext):
    """The context of a kernel that is only asked for the sizes of what it computes."""

    __slots__ = ()

    def check(
        self, ok: TensorValue, message: str, *values: TensorValue, error: type[OpError] = InvalidArgumentError
    ) -> None:
        """Leaves the check to the run of the kernel."""


class HostSizes:
    """Checks the sizes of what a portable kernel computes in NumPy, which stores every value.

    Args:
        op: the operation, which has inputs whose values decide sizes (`OpDef.static_positions`).
        rule: its kernel.
    """

    def __init__(self, op: StepNode, rule: Rule) -> None:
        self._op = op
        self._kernel = BoundKernel(op, rule, jnp, _UncheckedContext(op))
        self._static = sorted(op.op_def.static_positions(op))
        kinds = [op.op_def.sized_by.get(arg.name) for arg in op.op_def.inputs] if self._kernel.is_flat else []
        #: static inputs that multiply what is there, and those that are the number of rows of what is given
        factors = [at for at in self._static if not kinds or kinds[at] not in ("rows", "sizes")]
        self._factors = [at for at in factors if not op.inputs[at].is_known]
        #: what those multiply by that are known
        self._factor = math.prod([_factor(op.inputs[at].known) for at in factors if op.inputs[at].is_known])
        self._rows = [at for at in self._static if kinds and kinds[at] == "rows"]
        #: where sizes alone tell, how many elements an input may have that is not looked at; else none
        self._few = _SMALL / self._factor if not (self._factors or self._rows) else 0.0

    def check(self, inputs: list[Any]) -> None:
        """Looks at the sizes where the values of the inputs are so large that it may matter.

        Raises:
            InvalidArgumentError: 64 bits cannot count the bytes of a value.
            ResourceExhaustedError: a value alone is larger than the memory that is available.
        """
        for value in inputs:
            if value.size >= self._few:
                break
        else:
            return
        # tracing takes far longer than most kernels, so that it is done only where there is a danger
        if self._bound(inputs) < _SMALL:
            return
        try:
            trace = jax.make_jaxpr(partial(self._traced, inputs))
            program = in_wide_types(trace, *self._stand_ins(inputs))
        except (OpError, *VALUE_ERRORS):
            return  # the kernel will say so itself
        for value in values_of(program):
            check_storable(value.shape, value.dtype, self._op, self._op.type)

    def _bound(self, inputs: list[Any]) -> float:
        """More elements than an operation gives that repeats, pads or fills by the values of its inputs."""
        bound = float(max([value.size for value in inputs], default=1))
        for at in self._rows:
            # rows like those of an input; what is stored beside them is no larger than the inputs
            row = max([math.prod(value.shape[1:]) for value in inputs])
            bound = max(bound, float(row) * (abs(int(inputs[at])) + 1))
        for at in self._factors:
            bound *= _factor(inputs[at])
        return bound * self._factor

    def _stand_ins(self, inputs: list[Any]) -> list[Any]:
        dtypes = [np.dtype(np.uint64) if v.dtype == np.object_ else v.dtype for v in inputs]  # a string is a pointer
        known = set(self._static)
        described = zip(inputs, dtypes, strict=True)
        struct: Any = jax.ShapeDtypeStruct
        return [struct(v.shape, d) for i, (v, d) in enumerate(described) if i not in known]

    def _traced(self, inputs: list[Any], *traced: TensorValue) -> Any:
        rest = iter(traced)
        known = set(self._static)
        values = [v if i in known else next(rest) for i, v in enumerate(inputs)]
        return self._kernel(values)


def _factor(sizes: HostArray) -> float:
    """By how much sizes may multiply what is there."""
    factor = 1.0
    if sizes.dtype.kind == "i":
        for size in sizes.ravel().tolist():
            factor *= abs(size) + 1
    return factor
