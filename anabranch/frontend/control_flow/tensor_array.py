"""TensorArray: a list of tensors that loops read and write  (§3.4, WP4.5).

A tensor array is a value, like a tensor: a method that changes it returns a new one, and the old one stays as it was.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from anabranch.core import dtypes
from anabranch.core.attrs import AttributeValue
from anabranch.core.dtypes import DType, DTypeLike
from anabranch.core.shapes import ShapeLike, TensorShape
from anabranch.core.values import TensorLike
from anabranch.graph.building import apply_op
from anabranch.graph.constants import constant_value
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.graph import get_default_graph, op_def_of
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw
from anabranch.ops.lists.rows import FIXED_SIZE


class TensorArray:
    """A list of tensors of one dtype, of a size known when the step runs, each written once.

    Elements that are read before they are written are zeros.

    Args:
        dtype: of the elements.
        size: int32 scalar: the number of elements.
        dynamic_size: whether writing beyond the end makes the array longer.
        clear_after_read: accepted; memory is reused where nothing reads an element again.
        tensor_array_name: overrides `name`.
        handle: not supported; arrays have no identity.
        flow: the list of an array that exists.
        infer_shape: whether all elements must have the shape of the first one that is written.
        element_shape: what is known of the elements' shapes.
        colocate_with_first_write_call: accepted.
        name: of the operation.

    Raises:
        ValueError: neither `size` nor `flow` is given.

    Example:
        >>> array = tf.TensorArray(tf.float32, size=2).write(0, 1.0).write(1, 2.0)
        >>> sess.run(array.stack())
        array([1., 2.], dtype=float32)
    """

    def __init__(
        self,
        dtype: DTypeLike,
        size: TensorLike | None = None,
        dynamic_size: bool | None = None,
        clear_after_read: bool | None = None,
        tensor_array_name: str | None = None,
        handle: Tensor | None = None,
        flow: Tensor | None = None,
        infer_shape: bool = True,
        element_shape: ShapeLike | None = None,
        colocate_with_first_write_call: bool = True,
        name: str | None = None,
    ) -> None:
        if handle is not None:
            raise ValueError("Cannot provide both a handle and size; tensor arrays are values, pass `flow`")
        if flow is not None and size is not None:
            raise ValueError("Cannot provide both a flow and size at the same time")
        if flow is None and size is None:
            raise ValueError("Size must be declared for TensorArray constructor if handle is not passed")
        self._dtype = dtypes.as_dtype(dtype).base_dtype
        self._dynamic_size = bool(dynamic_size)
        self._infer_shape = infer_shape
        self._element_shape = TensorShape(element_shape)
        self._size: int | None = None
        #: whether writing adds to what is there
        self._adds = False
        if flow is not None:
            self._flow = flow
            return
        with get_default_graph().name_scope(tensor_array_name or name or "TensorArray") as scope:
            count = convert_to_tensor(size, dtypes.int32, name="size")
            known = constant_value(count)
            self._size = None if known is None or dynamic_size else int(known)
            self._flow = self._op("TensorListReserve", _shape_vector(self._element_shape), count, name=scope)[0]

    # ------------------------------------------------------------------ what it is
    @property
    def dtype(self) -> DType:
        """The dtype of the elements."""
        return self._dtype

    @property
    def flow(self) -> Tensor:
        """The list as a tensor: what loops carry."""
        return self._flow

    @property
    def handle(self) -> Tensor:
        """The same as `flow`."""
        return self._flow

    @property
    def dynamic_size(self) -> bool:
        return self._dynamic_size

    @property
    def infer_shape(self) -> bool:
        return self._infer_shape

    @property
    def element_shape(self) -> TensorShape:
        """What is known of the shapes of all elements."""
        return self._element_shape

    def with_flow(self, flow: Tensor) -> TensorArray:
        """An array like this one with other elements."""
        made = TensorArray(
            self._dtype,
            flow=flow,
            dynamic_size=self._dynamic_size,
            infer_shape=self._infer_shape,
            element_shape=self._element_shape,
        )
        made._size, made._adds = self._size, self._adds
        return made

    def identity(self) -> TensorArray:
        """The same array, as a new value: control dependencies apply to it."""
        return self.with_flow(raw.Identity(self._flow))

    def grad(self, source: str, flow: Tensor | None = None, name: str | None = None) -> TensorArray:
        """An array of zeros as long as this one, in which what is written to a place, or scattered, is added up.

        It is what gradients of this array are summed in by programs that do so themselves; `tf.gradients` needs none.
        Each call gives a new array, for arrays are values: pass on what `write` returns.

        Args:
            source: accepted; it tells apart arrays that are shared.
            flow: of an array like this one; default: of this one.
            name: accepted.
        """
        made = self.with_flow(raw._TensorListZeros(self._flow if flow is None else flow))
        made._adds = True
        return made

    # ------------------------------------------------------------------ one element
    def read(self, index: TensorLike, name: str | None = None) -> Tensor:
        """The element at `index`.

        Args:
            index: an int32 scalar.
            name: of the operation.

        Returns:
            A tensor of the element's shape.

        Raises (in the step):
            InvalidArgumentError: there is no such element.

        Example:
            >>> array = tf.TensorArray(tf.float32, size=2).unstack([1.0, 2.0])
            >>> sess.run(array.read(1))
            np.float32(2.0)
        """
        (item,) = self._op(
            "TensorListGetItem",
            self._flow,
            convert_to_tensor(index, dtypes.int32),
            _shape_vector(self._element_shape),
            name=name or "TensorArrayReadV3",
        )
        return item

    def write(self, index: TensorLike, value: TensorLike, name: str | None = None) -> TensorArray:
        """An array with `value` at `index`.

        Args:
            index: an int32 scalar.
            value: of the array's dtype, and of the shape of its elements.
            name: of the operation.

        Returns:
            The `TensorArray` to go on with.

        Raises:
            ValueError: `value` has another dtype or shape.

        Example:
            >>> array = tf.TensorArray(tf.float32, size=2).write(0, 1.0).write(1, 2.0)
            >>> sess.run(array.stack())
            array([1., 2.], dtype=float32)
        """
        item = _ensured(self._converted(value), self._element_shape)
        if self._adds:
            return self._with_sums(raw.Reshape(index, [1]), raw.ExpandDims(item, 0), name or "TensorArrayWriteV3")
        (flow,) = self._op(
            "TensorListSetItem",
            self._flow,
            convert_to_tensor(index, dtypes.int32),
            item,
            name=name or "TensorArrayWriteV3",
            resize_if_index_out_of_bounds=self._dynamic_size,
        )
        return self._changed(flow, item.shape)

    # ------------------------------------------------------------------ all elements
    def stack(self, name: str | None = None) -> Tensor:
        """All elements as one tensor, along a new first axis.

        Args:
            name: of the operation.

        Returns:
            A tensor of shape [size, ...].

        Raises (in the step):
            InvalidArgumentError: the elements differ in shape.

        Example:
            >>> array = tf.TensorArray(tf.float32, size=2).write(0, [1.0, 2.0]).write(1, [3.0, 4.0])
            >>> sess.run(array.stack())
            array([[1., 2.],
                   [3., 4.]], dtype=float32)
        """
        (tensor,) = self._op(
            "TensorListStack",
            self._flow,
            _shape_vector(self._element_shape),
            name=name or "TensorArrayStack",
            num_elements=-1 if self._size is None else self._size,
        )
        return tensor

    def gather(self, indices: TensorLike, name: str | None = None) -> Tensor:
        """The elements at `indices` as one tensor, along a new first axis."""
        (tensor,) = self._op(
            "TensorListGather",
            self._flow,
            convert_to_tensor(indices, dtypes.int32),
            _shape_vector(self._element_shape),
            name=name or "TensorArrayGatherV3",
        )
        return tensor

    def concat(self, name: str | None = None) -> Tensor:
        """All elements joined along their first axis, in which they may differ."""
        joined, _ = self._op(
            "TensorListConcatV2",
            self._flow,
            _shape_vector(self._element_shape),
            np.zeros(0, np.int64),
            name=name or "TensorArrayConcatV3",
        )
        if self._element_shape.ndims is not None:
            joined.set_shape([None, *self._element_shape.as_list()[1:]])
        return joined

    def unstack(self, value: TensorLike, name: str | None = None) -> TensorArray:
        """An array of the rows of `value`."""
        tensor = _ensured(self._converted(value), TensorShape([None]).concatenate(self._element_shape))
        (flow,) = self._op(
            "TensorListFromTensor", tensor, _shape_vector(tensor.shape[1:]), name=name or "TensorArrayUnstack"
        )
        made = self._changed(flow, tensor.shape[1:])
        return made._of_size(tensor.shape.dims_tuple[0] if tensor.shape.dims_tuple else None)

    def scatter(self, indices: TensorLike, value: TensorLike, name: str | None = None) -> TensorArray:
        """An array with the rows of `value` at `indices`."""
        tensor = _ensured(self._converted(value), TensorShape([None]).concatenate(self._element_shape))
        positions = convert_to_tensor(indices, dtypes.int32)
        if self._adds:
            return self._with_sums(positions, tensor, name or "TensorArrayScatterV3")
        flow = self._flow
        if self._dynamic_size:
            longest = raw.AddV2(raw.Max(raw.ConcatV2([positions, [-1]], 0), 0), 1)
            flow = raw.TensorListResize(flow, raw.Maximum(longest, raw.TensorListLength(flow)))
        (flow,) = self._op(
            "TensorListScatterIntoExistingList", flow, tensor, positions, name=name or "TensorArrayScatterV3"
        )
        flow.op._set_attr(FIXED_SIZE, True)  # it is as long as it has to be
        return self._changed(flow, tensor.shape[1:])

    def split(self, value: TensorLike, lengths: TensorLike, name: str | None = None) -> TensorArray:
        """An array of consecutive pieces of `value`; `lengths` tells the rows of each.

        Raises:
            ValueError: `value` is a number, which has no rows.
        """
        rows_of = self._converted(value)
        if rows_of.shape.ndims == 0:
            raise ValueError(
                f"Shape must be at least rank 1 but is rank 0 for {rows_of.name}, which is split into rows"
            )
        tensor = _ensured(rows_of, TensorShape([None]).concatenate(self._element_shape[1:]))
        rows = convert_to_tensor(lengths)
        rows = rows if rows.dtype is dtypes.int64 else raw.Cast(rows, DstT=dtypes.int64)
        known = constant_value(rows)
        same = known is not None and known.size > 0 and bool((known == known.flat[0]).all())
        element = TensorShape([int(known.flat[0]) if same and known is not None else None]).concatenate(
            tensor.shape[1:]
        )
        (flow,) = self._op("TensorListSplit", tensor, _shape_vector(element), rows, name=name or "TensorArraySplitV3")
        made = self._changed(flow, element if same or known is None else TensorShape(None))
        return made._of_size(None if known is None else known.size)

    def size(self, name: str | None = None) -> Tensor:
        """The number of elements, an int32 scalar."""
        if self._size is not None and not self._dynamic_size:
            return convert_to_tensor(self._size, dtypes.int32, name=name or "size")
        return raw.TensorListLength(self._flow, name=name)  # type: ignore[no-any-return]

    def close(self, name: str | None = None) -> Operation:
        """Does nothing: memory is freed when nothing needs it."""
        return raw.NoOp(name=name)  # type: ignore[no-any-return]

    # ------------------------------------------------------------------ inside
    def _op(self, kind: str, *inputs: TensorLike, name: str | None, **attrs: AttributeValue) -> list[Tensor]:
        op_def = op_def_of(kind)
        bound = dict(zip((arg.name for arg in op_def.inputs), inputs, strict=True)) | attrs
        if "element_dtype" in op_def.attrs:
            bound["element_dtype"] = self._dtype
        return apply_op(op_def, bound, name).outputs

    def _with_sums(self, positions: Tensor, items: Tensor, name: str) -> TensorArray:
        (flow,) = self._op("_TensorListAddItems", self._flow, positions, items, name=name)
        return self._changed(flow, items.shape[1:])

    def _changed(self, flow: Tensor, written: TensorShape) -> TensorArray:
        made = self.with_flow(flow)
        if not self._element_shape.is_compatible_with(written):
            raise ValueError(
                f"Inconsistent shapes: saw {written} but expected {self._element_shape} (and infer_shape="
                f"{self._infer_shape})"
            )
        if self._infer_shape:
            made._element_shape = self._element_shape.merge_with(written)
        return made

    def _of_size(self, size: int | None) -> TensorArray:
        self._size = None if self._dynamic_size else size
        return self

    def _converted(self, value: TensorLike) -> Tensor:
        """A value to be stored; arrays and numbers take over the dtype of the elements."""
        tensor = convert_to_tensor(value, name="value", preferred_dtype=self._dtype)
        if tensor.dtype.base_dtype is not self._dtype:
            raise TypeError(
                f"TensorArray dtype is {self._dtype.name} but Op is trying to write dtype {tensor.dtype.name} "
                f"({tensor.name}); use tf.cast"
            )
        return tensor


def _ensured(tensor: Tensor, shape: TensorShape) -> Tensor:
    """The tensor; with a check of its shape in the step where the graph leaves open whether it is the declared one."""
    if shape.dims_tuple is None or not tensor.shape.is_compatible_with(shape):
        return tensor  # whoever stores it refuses what cannot fit
    known = tensor.shape.dims_tuple
    if known is not None and all(b is None or a == b for a, b in zip(known, shape.dims_tuple, strict=True)):
        return tensor
    return raw.EnsureShape(tensor, shape=shape)  # type: ignore[no-any-return]


def _shape_vector(shape: TensorShape) -> Any:
    if shape.ndims is None:
        return convert_to_tensor(-1, dtypes.int32)
    return convert_to_tensor([-1 if d is None else d for d in shape.as_list()], dtypes.int32)
