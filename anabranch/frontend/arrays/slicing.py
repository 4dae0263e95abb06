"""Slices of tensors: `x[...]`, `tf.slice`, `tf.strided_slice`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from anabranch.core import dtypes
from anabranch.core.dimensions import Dimension
from anabranch.core.dtypes import DType
from anabranch.core.values import TensorLike
from anabranch.frontend.arrays.gathering import boolean_mask
from anabranch.frontend.framework import name_scope
from anabranch.graph.conversion import constant_of, convert_to_tensor
from anabranch.graph.operation import Operation, Tensor, TensorIndex
from anabranch.ops import raw

if TYPE_CHECKING:
    from anabranch.frontend.variables.updates import VariableUpdates

newaxis = None
_python_slice = slice
_MASKS = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")


def slice(input_: TensorLike, begin: TensorLike, size: TensorLike, name: str | None = None) -> Tensor:
    """The part of a tensor that starts at `begin` and has `size`.

    Args:
        input_: a tensor of any dtype and shape.
        begin: where the part starts, one number per dimension; may be computed while a step runs.
        size: how much of each dimension to take; -1 takes all from `begin` on.
        name: of the operation.

    Returns:
        A tensor of the dtype of `input_` and of shape `size`.

    Raises:
        ValueError: the part is known to reach beyond the tensor, or the lengths differ from the rank.

    Raises (in the step):
        InvalidArgumentError: the part reaches beyond the tensor.

    Example:
        >>> sess.run(tf.slice([[1, 2, 3], [4, 5, 6]], [0, 1], [2, -1]))
        array([[2, 3],
               [5, 6]], dtype=int32)
    """
    tensor: Tensor = raw.Slice(input_, *_same_type(begin, size), name=name)
    return tensor


def _same_type(begin: TensorLike, size: TensorLike) -> tuple[Any, Any]:
    """A list with a tensor in it decides the index type as much as a tensor does."""
    begin, size = (convert_to_tensor(v, name=n) if _has_tensor(v) else v for v, n in ((begin, "begin"), (size, "size")))
    return begin, size


def _has_tensor(value: TensorLike) -> bool:
    return isinstance(value, list | tuple) and any(isinstance(v, Tensor) for v in value)


def strided_slice(
    input_: TensorLike,
    begin: TensorLike,
    end: TensorLike,
    strides: TensorLike | None = None,
    begin_mask: int = 0,
    end_mask: int = 0,
    ellipsis_mask: int = 0,
    new_axis_mask: int = 0,
    shrink_axis_mask: int = 0,
    var: VariableUpdates | None = None,
    name: str | None = None,
) -> Tensor:
    """The elements of `input_` from `begin` up to `end`, every `strides`-th, per dimension.

    Args:
        begin, end, strides: vectors of one length; `strides` defaults to ones.
        begin_mask, end_mask: bit i set: the range of entry i starts (ends) where the dimension does.
        ellipsis_mask: the entry that stands for all dimensions not mentioned.
        new_axis_mask: entries that add a dimension of size 1.
        shrink_axis_mask: entries that take one index and drop the dimension.
        var: the variable whose value `input_` is; then the result has `assign(value)`.
    """
    if strides is None:
        strides = _ones_like(begin)
    result: Tensor = raw.StridedSlice(
        input_,
        begin,
        end,
        strides,
        begin_mask=begin_mask,
        end_mask=end_mask,
        ellipsis_mask=ellipsis_mask,
        new_axis_mask=new_axis_mask,
        shrink_axis_mask=shrink_axis_mask,
        name=name,
    )
    if var is not None:
        result.__class__ = VariableSlice
        result.set_attribute("variable", var)
    return result


class VariableSlice(Tensor):
    """The value of a slice of a variable, which can be assigned to."""

    __slots__ = ()

    def assign(self, value: TensorLike, name: str | None = None) -> Any:
        """Replaces this part of the variable by `value` (which may broadcast to it). The variable's value after it."""
        _, begin, end, strides = self.op.inputs
        masks = {key: self.op.attrs[key] for key in _MASKS}
        variable = self.get_attribute("variable")
        with name_scope(name, "strided_slice_assign", [self]) as scope:
            tensor = convert_to_tensor(value, self.dtype, name="value")
            update = raw.ResourceStridedSliceAssign(variable.handle, begin, end, strides, tensor, name=scope, **masks)
            with update.graph.control_dependencies([update]):
                return variable.read_value()


def _ones_like(begin: TensorLike) -> Any:
    if not isinstance(begin, Tensor):
        return np.ones(len(begin), np.int32 if not isinstance(begin, np.ndarray) else begin.dtype)
    if begin.shape.is_fully_defined():
        return np.ones(begin.shape.as_list(), begin.dtype.as_numpy_dtype)
    return raw.OnesLike(begin)


# ---------------------------------------------------------------------- x[...]
class SliceSpec:
    """An indexing expression in the form that `StridedSlice` takes.

    Attributes:
        begin, end, strides: per entry an int or a scalar integer tensor.
        masks: the five masks, as keyword arguments.
    """

    def __init__(self, item: TensorIndex) -> None:
        self.begin: list[Any] = []
        self.end: list[Any] = []
        self.strides: list[Any] = []
        self.masks = dict.fromkeys(_MASKS, 0)
        for entry in item if isinstance(item, tuple | list) else (item,):
            self._add(entry)
        if self.masks["ellipsis_mask"].bit_count() > 1:
            raise ValueError("Multiple ellipses not allowed")

    def _add(self, entry: TensorIndex) -> None:
        bit = 1 << len(self.begin)
        if isinstance(entry, _python_slice):
            begin, end = _bound(entry.start), _bound(entry.stop)
            if begin is None:
                self.masks["begin_mask"] |= bit
            if end is None:
                self.masks["end_mask"] |= bit
            stride = 1 if entry.step is None else _checked(entry.step)
            self._append(0 if begin is None else begin, 0 if end is None else end, stride)
        elif entry is Ellipsis:
            self.masks["ellipsis_mask"] |= bit
            self._append(0, 0, 1)
        elif entry is None:
            self.masks["new_axis_mask"] |= bit
            self._append(0, 0, 1)
        else:
            index = _checked(entry)
            self.masks["shrink_axis_mask"] |= bit
            self._append(index, index + 1 if isinstance(index, int) else raw.AddV2(index, 1, name="add"), 1)

    def _append(self, begin: TensorLike, end: TensorLike, stride: TensorLike) -> None:
        self.begin.append(begin)
        self.end.append(end)
        self.strides.append(stride)

    def packed(self) -> tuple[Any, Any, Any]:
        """Begin, end and strides as three vectors of one integer type."""
        entries = [*self.begin, *self.end, *self.strides]
        if not entries:
            return tuple(constant_of(np.zeros(0, np.int32), name="Const") for _ in range(3))  # type: ignore[return-value]
        wide = any(getattr(e, "dtype", None) in (dtypes.int64, np.dtype(np.int64)) for e in entries)
        wanted = dtypes.int64 if wide else dtypes.int32
        return tuple(_vector(part, wanted) for part in (self.begin, self.end, self.strides))  # type: ignore[return-value]


def _bound(value: TensorLike) -> Any:
    """A bound of a slice; None where the slice reaches to the edge."""
    return None if value is None or (isinstance(value, int) and value == sys.maxsize) else _checked(value)


def _checked(index: TensorIndex) -> Any:
    """An index: a Python int, or a scalar tensor of integers; raises TypeError for anything else."""
    if isinstance(index, Dimension):
        index = index.value
    if isinstance(index, bool | np.bool_) or index is None:
        raise _not_an_index(index)
    if isinstance(index, int | np.integer):
        return int(index)
    if isinstance(index, np.ndarray) and index.ndim == 0 and index.dtype.kind in "iu":
        return int(index)
    if not isinstance(index, Tensor):
        if not hasattr(index, "dtype") or isinstance(index, np.ndarray | np.generic | Operation):
            raise _not_an_index(index)
        index = convert_to_tensor(index)
    if not index.dtype.is_integer or (index.shape.ndims or 0) > 0:
        raise _not_an_index(index)
    if index.dtype not in (dtypes.int32, dtypes.int64):
        index = raw.Cast(index, DstT="int32")
    return index


def _not_an_index(index: TensorIndex) -> TypeError:
    return TypeError(
        "Only integers, slices (`:`), ellipsis (`...`), tf.newaxis (`None`) and scalar tf.int32/tf.int64 tensors are "
        f"valid indices, got {index!r}"
    )


def _vector(entries: list[Any], dtype: DType) -> Tensor:
    if not any(isinstance(e, Tensor) for e in entries):
        return constant_of(np.array(entries, dtype.as_numpy_dtype), name="stack")
    parts = [
        raw.Cast(e, DstT=dtype) if isinstance(e, Tensor) and e.dtype is not dtype else convert_to_tensor(e, dtype)
        for e in entries
    ]
    packed: Tensor = raw.Pack(parts, name="stack")
    return packed


def _is_mask(item: TensorIndex) -> bool:
    if isinstance(item, np.ndarray):
        return item.dtype.kind == "b" and item.ndim > 0
    return isinstance(item, Tensor) and item.dtype is dtypes.bool and item.shape.ndims != 0


def slice_helper(tensor: TensorLike, slice_spec: TensorIndex, var: VariableUpdates | None = None) -> Tensor:
    """What `tensor[slice_spec]` is: ints, slices, `None`, `...`, and scalar integer tensors in any combination.

    A boolean tensor or array takes the elements where it is true, as `boolean_mask` does.

    Args:
        tensor: the tensor that is indexed.
        slice_spec: what stands between the brackets.
        var: the variable whose value `tensor` is, if any.

    Raises:
        TypeError: an index is of another kind.
        ValueError: two ellipses, or an index out of range.
    """
    if _is_mask(slice_spec):
        return boolean_mask(tensor, slice_spec)
    if isinstance(slice_spec, list) and not slice_spec:
        raise _not_an_index(slice_spec)
    spec = SliceSpec(slice_spec)
    with name_scope(None, "strided_slice", [tensor]) as scope:
        return strided_slice(tensor, *spec.packed(), var=var, name=scope, **spec.masks)
