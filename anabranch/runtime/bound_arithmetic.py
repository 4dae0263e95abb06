"""Operations that only compute on the host, bound to the slots of a step: each is one call of a function.

Of a small step's time the kernels are a part; what is around them (which inputs are there, whether their shapes go
together, what comes of an error) is as much where it is found out in functions of its own for each call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

import numpy as np

from anabranch.core.arrays import HostArray
from anabranch.core.values import TensorValue
from anabranch.errors import OpError
from anabranch.graph.constants import ShapeCheck
from anabranch.graph.kernel_binding import (
    VALUE_ERRORS,
    BoundKernel,
    flatten_outputs,
    host_array,
    out_of_memory,
    refusal,
)
from anabranch.graph.step_nodes import StepNode
from anabranch.runtime.host_sizes import HostSizes
from anabranch.runtime.item_call import Arithmetic

#: types of numbers that kernels of scalars give
SCALARS: Final = frozenset({np.bool_, np.int32, np.int64, np.float32, np.float64})
#: types of results that are one tensor of numbers, or of objects, for sure
ARRAYS: Final = SCALARS | {np.ndarray}

#: gives a value as kernels of the host take it
ToHost = Callable[[TensorValue], TensorValue]
#: what an operation computes of its first input
OfFirst = Callable[[HostArray], HostArray]
#: an input's slot, or None and its known value
Source = tuple[int | None, TensorValue]


def bound_arithmetic(
    op: StepNode,
    kernel: BoundKernel,
    sources: Sequence[Source],
    outputs: Sequence[int],
    to_host: ToHost,
    check_shapes: ShapeCheck | None,
    sizes: HostSizes | None,
    of_first: OfFirst | None = None,
) -> Arithmetic:
    """A function that computes an operation's outputs from its inputs, among the values of a step.

    It is to be called where NumPy's warnings are off. What it raises names the operation (OpError).

    Args:
        outputs: the slots.
        check_shapes, sizes: what the inputs have to be asked for.
        of_first: what computes the only output of the first input, where all others are known (`OpDef.when_known`).
    """
    known = [value for _, value in sources]
    taken = [(position, slot) for position, (slot, _) in enumerate(sources) if slot is not None]
    dtypes = [np.dtype(out.dtype.as_numpy_dtype) for out in op.outputs]
    is_flat, on_arguments, grouped = kernel.is_flat, kernel.on_arguments, kernel.grouped
    stores = list(zip(outputs, dtypes, strict=True))
    single = stores[0] if len(stores) == 1 and not op.op_def.outputs[0].is_list else None
    (slot_of_single, dtype_of_single) = single or (-1, None)
    array = np.ndarray

    def compute(values: list[Any]) -> None:
        inputs = known.copy()
        for position, slot in taken:
            value = values[slot]
            inputs[position] = value if type(value) is array else to_host(value)
        try:
            if check_shapes is not None:
                check_shapes(inputs)
            if sizes is not None:
                sizes.check(inputs)
            result = on_arguments(*(inputs if is_flat else grouped(inputs)))
        except OpError as error:
            error.attribute_to(op)
            raise
        except VALUE_ERRORS as error:
            raise refusal(op, inputs, error) from error
        except MemoryError as error:
            raise out_of_memory(op, error) from error
        # by far the most: one array or number, of the dtype that it should have
        if type(result) in ARRAYS and result.dtype is dtype_of_single:
            values[slot_of_single] = result
        else:
            store(op, stores, values, flatten_outputs(result))

    if of_first is None:
        return compute
    slot_of_first = taken[0][1]

    def compute_of_first(values: list[Any]) -> None:
        value = values[slot_of_first]
        if type(value) is array:
            with suppress(IndexError):  # for which there are words where all is checked
                values[slot_of_single] = of_first(value)
                return
        compute(values)

    return compute_of_first


def store(
    op: StepNode, stores: Sequence[tuple[int, np.dtype[Any]]], values: list[Any], results: Sequence[TensorValue]
) -> None:
    """Puts results, which are arrays or numbers, into their slots, as arrays of the dtypes that they should have."""
    if len(results) != len(stores):
        raise ValueError(f"{op.type} gave {len(results)} results for {len(stores)} outputs")
    for (slot, dtype), value in zip(stores, results, strict=True):
        values[slot] = value if type(value) in ARRAYS and value.dtype is dtype else host_array(value, dtype)
