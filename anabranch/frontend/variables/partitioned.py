"""Variables that are cut into parts along one dimension, so that several devices share their memory  (§4.2)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from anabranch.core.dtypes import DType, string
from anabranch.core.shapes import ShapeLike, TensorShape
from anabranch.core.trackables import VARIABLE_VALUE_KEY, Trackable
from anabranch.core.values import PassedOn, TensorLike
from anabranch.frontend.arrays.slicing import slice_helper
from anabranch.frontend.variables.variables import Variable
from anabranch.graph.conversion import convert_to_tensor, register_tensor_conversion_function
from anabranch.graph.graph import get_default_graph
from anabranch.graph.operation import BINARY_OPERATORS, Tensor, TensorIndex
from anabranch.ops import raw

Partitioner = Callable[..., list[int]]


class PartitionInfo:
    """The place of a part in the whole variable, passed to initializers that ask for `partition_info`.

    Attributes:
        full_shape: the shape of the whole, a list.
        var_offset: where the part begins, per dimension.
    """

    def __init__(self, full_shape: list[Any], var_offset: list[int]) -> None:
        if len(full_shape) != len(var_offset):
            raise ValueError(f"full_shape {full_shape} and var_offset {var_offset} must have the same length")
        self.full_shape = list(full_shape)
        self.var_offset = list(var_offset)

    def single_offset(self, shape: list[int]) -> int:
        """The offset along the dimension that is cut; `shape` is that of the part."""
        return self.var_offset[self.single_slice_dim(shape) or 0]

    def single_slice_dim(self, shape: list[int]) -> int | None:
        """The dimension along which a part of this shape was cut; None for the whole.

        Raises:
            ValueError: the shape is no part of the whole, or cut along several dimensions.
        """
        if len(shape) != len(self.full_shape):
            raise ValueError(f"a part of shape {shape} must have the rank of the whole, {self.full_shape}")
        cut = [i for i, (part, full) in enumerate(zip(shape, self.full_shape, strict=True)) if part != full]
        for i in cut:
            if self.var_offset[i] + shape[i] > self.full_shape[i]:
                raise ValueError(f"a part of shape {shape} at {self.var_offset} exceeds the whole, {self.full_shape}")
        if len(cut) > 1:
            raise ValueError(f"a part of shape {shape} is cut along several dimensions of {self.full_shape}")
        return cut[0] if cut else None


class PartitionedVariable(Trackable):
    """Several variables that together stand for one large one.

    Converts to a tensor by concatenation; `tf.nn.embedding_lookup` reads only the parts it needs.

    Args:
        name: of the whole.
        shape, dtype: of the whole.
        variable_list: the parts, in order.
        partitions: number of parts along each dimension; at most one is larger than 1.

    Raises:
        TypeError: `variable_list` or `partitions` is not a list.
        ValueError: the parts are no variables, carry no slice information, or are cut along several dimensions.
    """

    def __init__(
        self, name: str, shape: ShapeLike, dtype: DType, variable_list: list[Variable], partitions: list[int]
    ) -> None:
        if not isinstance(variable_list, list | tuple):
            raise TypeError(f"variable_list must be a list or tuple, got {variable_list!r}")
        if not isinstance(partitions, list | tuple):
            raise TypeError(f"partitions must be a list or tuple, got {partitions!r}")
        if any(p < 1 for p in partitions):
            raise ValueError(f"partition values must be positive: {partitions}")
        if not variable_list:
            raise ValueError("variable_list must not be empty")
        for part in variable_list:
            if part._get_save_slice_info() is None:
                raise ValueError(f"the part {part.name} of {name!r} has no slice information")
        self._name = name
        self._shape = TensorShape(shape)
        self._dtype = dtype
        self._variable_list = list(variable_list)
        self._partitions = list(partitions)

    def _gather_saveables_for_checkpoint(self) -> dict[str, Any]:
        """The value of the whole."""
        return {VARIABLE_VALUE_KEY: self}

    def __iter__(self) -> Iterator[Variable]:
        return iter(self._variable_list)

    def __len__(self) -> int:
        axes = self._partition_axes()
        if len(axes) > 1:
            raise ValueError(f"variable {self._name!r} is cut along {len(axes)} dimensions and has no single length")
        return len(self._variable_list)

    def _partition_axes(self) -> list[int]:
        """The dimensions that are cut; [0] where none is."""
        if all(p == 1 for p in self._partitions):
            return [0]
        return [i for i, p in enumerate(self._partitions) if p > 1]

    def as_tensor(self) -> Tensor:
        """All parts concatenated.

        The control dependencies that are open here do not count, as in TensorFlow. What is to be read after an update
        is read from the parts (`list(v)`).
        """
        with get_default_graph().control_dependencies(None):
            return self._concat()

    def _concat(self) -> Tensor:
        """The same, after the control dependencies that are open."""
        axes = self._partition_axes()
        if len(axes) > 1:
            raise NotImplementedError(f"cannot concatenate along several dimensions: {axes}")
        with get_default_graph().name_scope(self._name + "/ConcatPartitions/"):
            parts = [part.value() for part in self._variable_list]
            whole = raw.ConcatV2(parts, axis=axes[0]) if len(parts) > 1 else parts[0]
        with get_default_graph().name_scope(None):
            tensor: Tensor = raw.Identity(whole, name=self._name)
            return tensor

    @property
    def name(self) -> str:
        return self._name

    @property
    def dtype(self) -> DType:
        return self._dtype

    @property
    def shape(self) -> TensorShape:
        return self._shape

    def get_shape(self) -> TensorShape:
        return self._shape

    @property
    def graph(self) -> Any:
        return self._variable_list[0].graph

    def _get_variable_list(self) -> list[Variable]:
        return self._variable_list

    def _get_partitions(self) -> list[int]:
        return self._partitions

    # ------------------------------------------------------------------ updates
    def assign(
        self, value: TensorLike, use_locking: bool = False, name: str | None = None, read_value: bool = True
    ) -> list[Any]:
        """Replaces the whole value; one result per part, see `Variable.assign`."""
        return self._each("assign", value, name, read_value)

    def assign_add(
        self, value: TensorLike, use_locking: bool = False, name: str | None = None, read_value: bool = True
    ) -> list[Any]:
        """Adds to the whole value; one result per part."""
        return self._each("assign_add", value, name, read_value)

    def assign_sub(
        self, value: TensorLike, use_locking: bool = False, name: str | None = None, read_value: bool = True
    ) -> list[Any]:
        """Subtracts from the whole value; one result per part."""
        return self._each("assign_sub", value, name, read_value)

    def _each(self, method: str, value: TensorLike, name: str | None, read_value: bool) -> list[Any]:
        if isinstance(value, list | tuple | PartitionedVariable) and len(value) == len(self._variable_list):
            pieces: list[Any] = list(value)
        else:
            axis = self._partition_axes()[0]
            sizes = [part.shape.as_list()[axis] for part in self._variable_list]
            whole = convert_to_tensor(value, self._dtype)
            pieces = raw.SplitV(whole, sizes, axis, num_split=len(sizes)) if len(sizes) > 1 else [whole]
        return [
            getattr(part, method)(piece, name=f"{name}_part{i}" if name else None, read_value=read_value)
            for i, (part, piece) in enumerate(zip(self._variable_list, pieces, strict=True))
        ]

    def __getitem__(self, item: TensorIndex) -> Any:
        return slice_helper(self.as_tensor(), item)

    def __bool__(self) -> NoReturn:
        raise TypeError(f"the partitioned variable {self._name!r} has no truth value; use `is not None`")

    def __repr__(self) -> str:
        return (
            f"<tf.Variable '{self._name}' shape={self._shape} dtype={self._dtype.name}, "
            f"{len(self._variable_list)} partitions>"
        )


def _attach_operators() -> None:
    def forward(name: str) -> Callable[[Any, Any], Any]:
        return lambda self, other: Tensor.OPERATORS[name](self.as_tensor(), other)

    def backward(name: str) -> Callable[[Any, Any], Any]:
        return lambda self, other: Tensor.OPERATORS[name](other, self.as_tensor())

    for name in BINARY_OPERATORS:
        setattr(PartitionedVariable, f"__{name}__", forward(name))
        if name not in {"lt", "le", "gt", "ge"}:
            setattr(PartitionedVariable, f"__r{name}__", backward(name))


_attach_operators()


def _to_tensor(
    variable: PartitionedVariable, dtype: DType | None = None, name: str | None = None, as_ref: bool = False
) -> Any:
    if dtype is not None and not dtype.is_compatible_with(variable.dtype):
        raise ValueError(
            f"partitioned variable {variable.name} has dtype {variable.dtype.name}, but {dtype.name} is needed here; "
            "use tf.cast"
        )
    return variable.as_tensor()


register_tensor_conversion_function(PartitionedVariable, _to_tensor)


def partition_slices(full_shape: list[Any], partitions: list[int]) -> list[tuple[list[int], list[int]]]:
    """Offset and shape of each part; the first parts are longer by one where the length does not divide.

    Raises:
        ValueError: more parts than elements, or parts along several dimensions.
    """
    axes = [i for i, p in enumerate(partitions) if p > 1]
    if len(axes) > 1:
        raise ValueError(
            f"Can only slice a variable along one dimension: shape: {full_shape}, partitioning: {partitions}"
        )
    axis = axes[0] if axes else 0
    count, length = partitions[axis], full_shape[axis]
    if count > length:
        raise ValueError(f"a dimension of length {length} cannot be cut into {count} parts (shape {full_shape})")
    size, longer = divmod(length, count)
    slices = []
    begin = 0
    for i in range(count):
        part_length = size + (i < longer)
        offset = [begin if d == axis else 0 for d in range(len(full_shape))]
        shape = [part_length if d == axis else n for d, n in enumerate(full_shape)]
        slices.append((offset, shape))
        begin += part_length
    return slices


# ---------------------------------------------------------------------- partitioners
def fixed_size_partitioner(num_shards: int, axis: int = 0) -> Partitioner:
    """Cuts every variable into `num_shards` parts along `axis` (fewer where the dimension is shorter)."""

    def partitioner(shape: ShapeLike, **_: PassedOn) -> list[int]:
        dims = _dims(shape, axis)
        return [min(num_shards, n) if d == axis else 1 for d, n in enumerate(dims)]

    return partitioner


def variable_axis_size_partitioner(
    max_shard_bytes: int, axis: int = 0, bytes_per_string_element: int = 16, max_shards: int | None = None
) -> Partitioner:
    """Cuts variables along `axis` so that no part is larger than `max_shard_bytes`.

    Args:
        max_shard_bytes: in bytes; a part has at least one row, however large.
        bytes_per_string_element: estimate for variables of dtype string.
        max_shards: at most so many parts.

    Raises:
        ValueError: a size is not positive.
    """
    if max_shard_bytes < 1 or bytes_per_string_element < 1:
        raise ValueError("max_shard_bytes and bytes_per_string_element must be at least 1")
    if max_shards is not None and max_shards < 1:
        raise ValueError(f"max_shards must be at least 1, got {max_shards}")

    def partitioner(shape: ShapeLike, dtype: DType) -> list[int]:
        dims = _dims(shape, axis)
        row_bytes = _element_bytes(dtype, bytes_per_string_element) * math.prod(
            n for d, n in enumerate(dims) if d != axis
        )
        rows_per_shard = max(1, max_shard_bytes // max(1, row_bytes))
        shards = max(1, -(-dims[axis] // rows_per_shard))
        if max_shards is not None:
            shards = min(max_shards, shards)
        return [shards if d == axis else 1 for d in range(len(dims))]

    return partitioner


def min_max_variable_partitioner(
    max_partitions: int = 1, axis: int = 0, min_slice_size: int = 256 << 10, bytes_per_string_element: int = 16
) -> Partitioner:
    """Cuts variables along `axis` into at most `max_partitions` parts of at least `min_slice_size` bytes."""

    def partitioner(shape: ShapeLike, dtype: DType) -> list[int]:
        dims = _dims(shape, axis)
        size = _element_bytes(dtype, bytes_per_string_element) * math.prod(dims)
        shards = max(1, min(dims[axis], max_partitions, math.ceil(size / min_slice_size)))
        return [shards if d == axis else 1 for d in range(len(dims))]

    return partitioner


def _dims(shape: ShapeLike, axis: int) -> list[int]:
    full = TensorShape(shape)
    if not full.is_fully_defined():
        raise ValueError(f"a partitioned variable needs a fully defined shape, got {full}")
    dims = [int(n or 0) for n in full.as_list()]
    if axis >= len(dims):
        raise ValueError(f"Cannot partition variable along axis {axis} when shape is only {full}")
    return dims


def _element_bytes(dtype: DType, bytes_per_string_element: int) -> int:
    return bytes_per_string_element if dtype is string else int(dtype.size)
