"""Lists in code that was converted with the feature LISTS: what Python writes as a list may be a tensor array.

A list that Python makes stays one. `append`, `x[i]`, `x[i] = y` and stacking work on a `tf.TensorArray` as they work
on a list; what grows in a loop over tensors is such an array from the beginning.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from anabranch.core import dtypes
from anabranch.core.values import PassedOn, TensorLike
from anabranch.frontend.control_flow.tensor_array import TensorArray
from anabranch.graph.operation import Tensor
from anabranch.ops import raw


class ListPopOpts(NamedTuple):
    """What `pop` is told: of what the elements are."""

    element_dtype: dtypes.DType | None = None
    element_shape: PassedOn = None


class ListStackOpts(NamedTuple):
    """What stacking is told: of what the elements are, and which function the user called."""

    element_dtype: dtypes.DType | None = None
    original_call: Callable[..., Any] | None = None


class GetItemOpts(NamedTuple):
    """What `x[i]` is told: of what the elements are."""

    element_dtype: dtypes.DType | None = None


_UPDATES: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mult": operator.mul,
    "div": operator.truediv,
    "pow": operator.pow,
}


def new_list(iterable: Iterable[Any] = ()) -> list[Any]:
    """A list."""
    return list(iterable)


def list_append(list_: PassedOn, x: TensorLike) -> Any:
    """The list with one more element."""
    if isinstance(list_, TensorArray):
        return list_.write(list_.size(), x)
    list_.append(x)
    return list_


def list_pop(list_: PassedOn, i: int | None, opts: ListPopOpts) -> tuple[Any, Any]:
    """The list without its last element, or that at `i`; and the element.

    Raises:
        ValueError: it is a tensor array.
    """
    if isinstance(list_, TensorArray):
        raise ValueError(f"a TensorArray has no pop ({opts}); read the element at the index that you count yourself")
    element = list_.pop() if i is None else list_.pop(i)
    return list_, element


def list_stack(list_: PassedOn, opts: ListStackOpts) -> Any:
    """The elements as one tensor."""
    if isinstance(list_, TensorArray):
        return list_.stack()
    if isinstance(list_, Tensor) or opts.original_call is None:
        return list_
    return opts.original_call(list_)


def get_item(target: PassedOn, i: PassedOn, opts: GetItemOpts) -> Any:
    """`target[i]`."""
    if isinstance(target, TensorArray):
        return target.read(i)
    if isinstance(target, Tensor) and target.dtype.base_dtype is dtypes.string and target.shape.ndims == 0:
        return raw.Substr(target, i, 1)
    del opts
    return target[i]


def set_item(target: PassedOn, i: PassedOn, x: PassedOn) -> Any:
    """`target` after `target[i] = x`.

    Raises:
        TypeError: `target` is a tensor.
    """
    if isinstance(target, TensorArray):
        return target.write(i, x)
    if isinstance(target, Tensor):
        raise TypeError(f"{target.name} is a tensor, whose elements stay; use tf.tensor_scatter_update")
    target[i] = x
    return target


def update_item_with_op(target: PassedOn, index: PassedOn, x: PassedOn, op: str) -> Any:
    """`target` after `target[index] += x` and the like."""
    return set_item(target, index, _UPDATES[op](get_item(target, index, GetItemOpts()), x))
