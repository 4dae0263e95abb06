"""What a kernel may know and do besides computing on its arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from anabranch.core.shapes import TensorShape
from anabranch.errors import InternalError, InvalidArgumentError, OpError


class KernelContext:
    """Passed to kernels that ask for `ctx`.

    This base class serves host kernels and constant folding, where values are NumPy arrays; the compiler's subclass
    gives the same methods their meaning while a step is traced.

    Attributes:
        op: the operation being run (its `name`, `attrs` and output dtypes are the contract of the call).
    """

    __slots__ = ("op",)

    def __init__(self, op: Any) -> None:
        self.op = op

    def output_dtype(self, index: int = 0) -> Any:
        """The NumPy dtype that output `index` must have."""
        return self.op.outputs[index].dtype.as_numpy_dtype

    def output_shape(self, index: int = 0) -> TensorShape:
        """What is known statically of the shape of output `index`."""
        shape: TensorShape = self.op.outputs[index].shape
        return shape

    def check(self, ok: Any, message: str, *values: Any, error: type[OpError] = InvalidArgumentError) -> None:
        """Makes the step fail with `error` unless every element of `ok` is true.

        In a compiled island the check runs on the device: no variable is changed by a step whose check fails.

        Args:
            ok: boolean array.
            message: what was expected; ``{0}``, ``{1}``, ... stand for `values` in it.
            values: arrays shown in the message (keep them small: offending index, bound).
        """
        if not (ok if isinstance(ok, bool | np.bool_) else np.all(np.asarray(ok))):
            raise error(None, self.op, message.format(*(_shown(v) for v in values)))

    @property
    def task(self) -> str:
        """The task that has what the operation names, as `ResourceHandle.task` says it."""
        return ""

    def read(self, handle: Any) -> Any:
        """The current value of a variable."""
        raise InternalError(None, self.op, "this kernel cannot read variables here")

    def write(self, handle: Any, value: Any) -> None:
        """Replaces the value of a variable."""
        raise InternalError(None, self.op, "this kernel cannot write variables here")


def _shown(value: Any) -> str:
    array = np.asarray(value)
    return str(array[()]) if array.size <= 8 else f"{np.array2string(array.reshape(-1)[:8])[:-1]} ...]"
