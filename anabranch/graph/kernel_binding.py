"""The one way to call a kernel: bound to an operation, an array library, a context and random numbers, then to values.

Kernels are called while a graph is built (for values that are known), while an island is traced, between islands, for
the elements of datasets, and to find out sizes. All of them give the same keywords their meaning here, and take the
same exceptions for "cannot take these values".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from types import ModuleType
from typing import Any, Final, ParamSpec, TypeAlias, TypeVar

import numpy as np

from anabranch.core.arrays import boxed
from anabranch.core.kernel_context import OperationContext
from anabranch.core.op_def import Rule
from anabranch.core.resources import ResourceHandle
from anabranch.core.values import TensorValue
from anabranch.errors import InvalidArgumentError, OpError, ResourceExhaustedError
from anabranch.graph.operation import group_by_argument
from anabranch.graph.step_nodes import AnyOperation

Arguments = ParamSpec("Arguments")
Computed = TypeVar("Computed")  #: what is computed of an operation's inputs

#: what kernels raise where they cannot take the values that they meet
VALUE_ERRORS: Final = (TypeError, ValueError, IndexError, KeyError, ArithmeticError)

#: NumPy, or a library of arrays with its functions (`jax.numpy`): which of these a kernel calls decides it
ArrayLibrary: TypeAlias = ModuleType
#: what a kernel gives: a value, or nested lists and tuples of them
KernelResult: TypeAlias = TensorValue
#: an array library, a context, or what random numbers are drawn from
KernelKeyword: TypeAlias = ArrayLibrary | OperationContext | TensorValue


class BoundKernel:
    """A kernel with everything but the values of its inputs.

    Attributes:
        is_flat: whether each input is an argument, so that `on_arguments` takes the inputs as they are.

    Args:
        op: the operation, whose attributes the kernel may ask for.
        rule: the kernel.
        xp: the array library for a kernel that asks for one.
        ctx: what it may know and do besides; see `core.kernel_context`.
        rng: what it draws random numbers from.
    """

    __slots__ = ("_asked", "_parts", "is_flat", "on_arguments")

    def __init__(
        self,
        op: AnyOperation,
        rule: Rule,
        xp: ArrayLibrary = np,
        ctx: OperationContext | None = None,
        rng: TensorValue = None,
    ) -> None:
        self._asked = frozenset(rule.keywords)
        self.is_flat = not any(arg.is_list for arg in op.op_def.inputs)
        #: for each argument the place of its input, or of those of a list
        self._parts: list[int | slice] = [] if self.is_flat else _parts(op)
        keywords: dict[str, Any] = {name: op.attrs[name] for name in rule.attr_names()}
        special = {"xp": xp, "ctx": ctx, "rng": rng}
        keywords.update((name, value) for name, value in special.items() if name in self._asked)
        #: calls the kernel with values that are grouped by argument already
        self.on_arguments = partial(rule.function, **keywords)

    def __call__(self, inputs: Sequence[Any], **instead: KernelKeyword) -> Any:
        """What the kernel gives for the values of the inputs, flat: a value, or nested lists and tuples of them.

        Args:
            instead: keywords with another meaning this time; those that the kernel does not ask for are left out.
        """
        if instead:
            instead = {name: value for name, value in instead.items() if name in self._asked}
        return self.on_arguments(*self.grouped(inputs), **instead)

    def grouped(self, inputs: Sequence[Any]) -> Sequence[Any]:
        """Something of each input, flat, by the arguments of the kernel."""
        return inputs if self.is_flat else [inputs[part] for part in self._parts]


def _parts(op: AnyOperation) -> list[int | slice]:
    args = op.op_def.inputs
    grouped = group_by_argument(args, op.attrs, range(len(op.inputs)))
    return [slice(p.start, p.stop) if arg.is_list else p for arg, p in zip(args, grouped, strict=True)]


def flatten_outputs(result: KernelResult) -> list[Any]:
    """A kernel's result (an array, or nested tuples and lists of them per output argument) as a flat list."""
    if isinstance(result, tuple | list):
        return [leaf for item in result for leaf in flatten_outputs(item)]
    return [] if result is None else [result]


def host_array(value: TensorValue, dtype: np.dtype[Any]) -> Any:
    """A kernel's result as an array of the dtype of the signature; an object that is no array is put into one."""
    if isinstance(value, np.ndarray):
        return value if value.dtype == dtype or dtype == np.object_ else value.astype(dtype)
    if dtype == np.object_:
        return value if isinstance(value, ResourceHandle) else boxed(value)
    return value if getattr(value, "dtype", None) == dtype and hasattr(value, "shape") else np.asarray(value, dtype)


def reported(
    op: AnyOperation,
    inputs: Sequence[Any],
    compute: Callable[Arguments, Computed],
    *args: Arguments.args,
    **keywords: Arguments.kwargs,
) -> Computed:
    """What something computes of an operation's inputs; errors name the operation.

    Raises:
        OpError: the kernel cannot take the values or shapes it meets, or the host has too little memory.
    """
    try:
        return compute(*args, **keywords)
    except OpError as error:
        error.attribute_to(op)
        raise
    except VALUE_ERRORS as error:
        raise refusal(op, inputs, error) from error
    except MemoryError as error:
        raise out_of_memory(op, error) from error


def refusal(op: AnyOperation, inputs: Sequence[Any], error: Exception) -> InvalidArgumentError:
    """The error of an operation whose kernel raised one of `VALUE_ERRORS`."""
    named = zip((t.name for t in op.inputs), inputs, strict=True)
    given = ", ".join(f"{name} {np.shape(v)} {getattr(v, 'dtype', type(v).__name__)}" for name, v in named)
    return InvalidArgumentError(
        None, op, f"{op.type} cannot take these inputs: {given}: {str(error).rstrip('.')}; look at what was fed"
    )


def out_of_memory(op: AnyOperation, error: MemoryError) -> ResourceExhaustedError:
    """The error of an operation whose kernel found too little memory on the host."""
    return ResourceExhaustedError(
        None, op, f"{op.type}: the host is out of memory: {error}; look at the sizes asked for"
    )
