"""What can be done to a variable besides reading it whole: assignments, scatters, sparse reads, operators."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, NoReturn, overload

from anabranch.core import dtypes
from anabranch.core.dtypes import DType
from anabranch.core.shapes import ShapeLike, TensorShape
from anabranch.core.values import PassedOn, TensorLike, TensorValue
from anabranch.frontend.arrays.slicing import slice_helper
from anabranch.graph.composite import IndexedSlices
from anabranch.graph.conversion import convert_to_tensor, register_tensor_conversion_function
from anabranch.graph.graph import Graph, get_default_graph
from anabranch.graph.operation import BINARY_OPERATORS, FeedDict, Operation, StepRunner, Tensor, TensorIndex
from anabranch.ops import raw


class VariableUpdates:
    """The updating half of `Variable`.

    Every update returns an `UnreadVariable`, which stands for the variable after the update: fetching it, or using it
    as a tensor, runs the update and gives the new value, and its ``op`` is the update. With ``read_value=False`` the
    updating operation itself is returned. `use_locking` is accepted for programs that pass it: updates of one variable
    are always in sequence.
    """

    __array_priority__ = 100

    if TYPE_CHECKING:

        @property
        def handle(self) -> Tensor: ...
        @property
        def name(self) -> str: ...
        @property
        def dtype(self) -> DType: ...
        @property
        def shape(self) -> TensorShape: ...
        @property
        def graph(self) -> Graph: ...
        @property
        def device(self) -> str: ...
        def value(self) -> Tensor: ...
        def _read(self) -> Tensor: ...

    # ------------------------------------------------------------------ whole values
    @overload
    def assign(
        self, value: TensorLike, use_locking: bool | None = ..., name: str | None = ..., read_value: Literal[True] = ...
    ) -> UnreadVariable: ...
    @overload
    def assign(
        self, value: TensorLike, use_locking: bool | None = ..., name: str | None = ..., *, read_value: bool
    ) -> UnreadVariable | Operation: ...
    def assign(
        self, value: TensorLike, use_locking: bool | None = None, name: str | None = None, read_value: bool = True
    ) -> UnreadVariable | Operation:
        """Replaces the value.

        Args:
            value: of this variable's dtype, and of a shape that its static shape allows.
            use_locking: accepted; updates are in sequence.
            name: of the operation.
            read_value: whether the value is read afterwards.

        Returns:
            The value afterwards, of the variable's shape; the operation with `read_value` False.

        Raises:
            ValueError: the shape or dtype of `value` does not fit.

        Example:
            >>> v = tf.get_variable("v", initializer=[1.0, 2.0])
            >>> sess.run(v.initializer)
            >>> sess.run(v.assign([3.0, 4.0]))
            array([3., 4.], dtype=float32)
        """
        return self._assigned(raw.AssignVariableOp(self.handle, self._fitting(value), name=name), read_value)

    @overload
    def assign_add(
        self, delta: TensorLike, use_locking: bool | None = ..., name: str | None = ..., read_value: Literal[True] = ...
    ) -> UnreadVariable: ...
    @overload
    def assign_add(
        self, delta: TensorLike, use_locking: bool | None = ..., name: str | None = ..., *, read_value: bool
    ) -> UnreadVariable | Operation: ...
    def assign_add(
        self, delta: TensorLike, use_locking: bool | None = None, name: str | None = None, read_value: bool = True
    ) -> UnreadVariable | Operation:
        """Adds to the value.

        Args:
            delta: of this variable's dtype and shape.
            use_locking: accepted; updates are in sequence.
            name: of the operation.
            read_value: whether the value is read afterwards.

        Returns:
            The value afterwards, of the variable's shape; the operation with `read_value` False.

        Raises:
            ValueError: the shape or dtype of `delta` does not fit.

        Example:
            >>> v = tf.get_variable("v", initializer=[1.0, 2.0])
            >>> sess.run(v.initializer)
            >>> sess.run(v.assign_add([10.0, 10.0]))
            array([11., 12.], dtype=float32)
        """
        return self._assigned(raw.AssignAddVariableOp(self.handle, self._fitting(delta), name=name), read_value)

    @overload
    def assign_sub(
        self, delta: TensorLike, use_locking: bool | None = ..., name: str | None = ..., read_value: Literal[True] = ...
    ) -> UnreadVariable: ...
    @overload
    def assign_sub(
        self, delta: TensorLike, use_locking: bool | None = ..., name: str | None = ..., *, read_value: bool
    ) -> UnreadVariable | Operation: ...
    def assign_sub(
        self, delta: TensorLike, use_locking: bool | None = None, name: str | None = None, read_value: bool = True
    ) -> UnreadVariable | Operation:
        """Subtracts from the value.

        Args:
            delta: of this variable's dtype and shape.
            use_locking: accepted; updates are in sequence.
            name: of the operation.
            read_value: whether the value is read afterwards.

        Returns:
            The value afterwards, of the variable's shape; the operation with `read_value` False.

        Raises:
            ValueError: the shape or dtype of `delta` does not fit.

        Example:
            >>> v = tf.get_variable("v", initializer=[1.0, 2.0])
            >>> sess.run(v.initializer)
            >>> sess.run(v.assign_sub([1.0, 1.0]))
            array([0., 1.], dtype=float32)
        """
        return self._assigned(raw.AssignSubVariableOp(self.handle, self._fitting(delta), name=name), read_value)

    def count_up_to(self, limit: int) -> Tensor:
        """Adds one until `limit` is reached; int32 or int64 variables of shape [].

        Returns:
            The value before; the step fails with `OutOfRangeError` when the limit was reached already.
        """
        counted: Tensor = raw.ResourceCountUpTo(self.handle, limit=limit, T=self.dtype, name="CountUpTo")
        return counted

    def _fitting(self, value: TensorLike) -> Tensor:
        graph = get_default_graph()
        # a number belongs where the variable is, whatever graph is open
        with contextlib.nullcontext() if graph.building_function else self.graph.as_default():
            tensor = convert_to_tensor(value, self.dtype)
        if not self.shape.is_compatible_with(tensor.shape):
            raise ValueError(
                f"Shapes must be equal: variable {self.name} of shape {self.shape} cannot be assigned a value of shape "
                f"{tensor.shape} ({tensor.name}); create it with validate_shape=False or shape=tf.TensorShape(None) to "
                "let it change"
            )
        return tensor

    def _assigned(self, update: Operation, read_value: bool) -> UnreadVariable | Operation:
        return self._after(update) if read_value else update

    def _after(self, update: Operation) -> UnreadVariable:
        return UnreadVariable(self, update)

    # ------------------------------------------------------------------ rows
    def scatter_add(
        self, sparse_delta: IndexedSlices, use_locking: bool = False, name: str | None = None
    ) -> UnreadVariable:
        """Adds rows: ``v[indices[i]] += values[i]``; rows that stand twice are added twice.

        Raises:
            TypeError: `sparse_delta` is not an `IndexedSlices` (holds for all scatters).
        """
        return self._scatter("ResourceScatterAdd", sparse_delta, name)

    def scatter_sub(
        self, sparse_delta: IndexedSlices, use_locking: bool = False, name: str | None = None
    ) -> UnreadVariable:
        """Subtracts rows."""
        return self._scatter("ResourceScatterSub", sparse_delta, name)

    def scatter_mul(
        self, sparse_delta: IndexedSlices, use_locking: bool = False, name: str | None = None
    ) -> UnreadVariable:
        """Multiplies rows."""
        return self._scatter("ResourceScatterMul", sparse_delta, name)

    def scatter_div(
        self, sparse_delta: IndexedSlices, use_locking: bool = False, name: str | None = None
    ) -> UnreadVariable:
        """Divides rows."""
        return self._scatter("ResourceScatterDiv", sparse_delta, name)

    def scatter_min(
        self, sparse_delta: IndexedSlices, use_locking: bool = False, name: str | None = None
    ) -> UnreadVariable:
        """Takes the elementwise minimum with rows."""
        return self._scatter("ResourceScatterMin", sparse_delta, name)

    def scatter_max(
        self, sparse_delta: IndexedSlices, use_locking: bool = False, name: str | None = None
    ) -> UnreadVariable:
        """Takes the elementwise maximum with rows."""
        return self._scatter("ResourceScatterMax", sparse_delta, name)

    def scatter_update(
        self, sparse_delta: IndexedSlices, use_locking: bool = False, name: str | None = None
    ) -> UnreadVariable:
        """Replaces rows."""
        return self._scatter("ResourceScatterUpdate", sparse_delta, name)

    def batch_scatter_update(
        self, sparse_delta: IndexedSlices, use_locking: bool = False, name: str | None = None
    ) -> UnreadVariable:
        """Replaces rows along the last dimension of `indices`; those before it run along those of the variable.

        ``v[b.., indices[b.., i]] = values[b.., i]``.
        """
        slices = _checked_slices(sparse_delta)
        with self.graph.name_scope(name or "batch_scatter_update"):
            indices = _batch_positions(slices.indices)
            return self._scatter_nd("ResourceScatterNdUpdate", indices, slices.values, None)

    def _scatter(self, op_type: str, sparse_delta: IndexedSlices, name: str | None) -> UnreadVariable:
        slices = _checked_slices(sparse_delta)
        values = convert_to_tensor(slices.values, self.dtype)
        op_function: Callable[..., Any] = getattr(raw, op_type)
        return self._after(op_function(self.handle, slices.indices, values, name=name))

    # ------------------------------------------------------------------ single positions
    def scatter_nd_add(self, indices: TensorLike, updates: TensorLike, name: str | None = None) -> UnreadVariable:
        """Adds at positions: ``v[tuple(indices[i])] += updates[i]``.

        Args:
            indices: integers, shape [..., k] with k up to the rank of the variable.
            updates: of this variable's dtype, shape ``indices.shape[:-1] + v.shape[k:]``.
        """
        return self._scatter_nd("ResourceScatterNdAdd", indices, updates, name)

    def scatter_nd_sub(self, indices: TensorLike, updates: TensorLike, name: str | None = None) -> UnreadVariable:
        """Subtracts at positions; see `scatter_nd_add`."""
        return self._scatter_nd("ResourceScatterNdSub", indices, updates, name)

    def scatter_nd_update(self, indices: TensorLike, updates: TensorLike, name: str | None = None) -> UnreadVariable:
        """Replaces at positions; see `scatter_nd_add`."""
        return self._scatter_nd("ResourceScatterNdUpdate", indices, updates, name)

    def scatter_nd_min(self, indices: TensorLike, updates: TensorLike, name: str | None = None) -> UnreadVariable:
        """Takes the minimum at positions; see `scatter_nd_add`."""
        return self._scatter_nd("ResourceScatterNdMin", indices, updates, name)

    def scatter_nd_max(self, indices: TensorLike, updates: TensorLike, name: str | None = None) -> UnreadVariable:
        """Takes the maximum at positions; see `scatter_nd_add`."""
        return self._scatter_nd("ResourceScatterNdMax", indices, updates, name)

    def _scatter_nd(self, op_type: str, indices: TensorLike, updates: TensorLike, name: str | None) -> UnreadVariable:
        values = convert_to_tensor(updates, self.dtype)
        op_function: Callable[..., Any] = getattr(raw, op_type)
        return self._after(op_function(self.handle, indices, values, name=name))

    # ------------------------------------------------------------------ reading a part
    def sparse_read(self, indices: TensorLike, name: str | None = None) -> Tensor:
        """The rows `indices` (integers of any shape), without reading the rest."""
        with self.graph.name_scope(name or "Gather") as scope:
            rows = raw.ResourceGather(self.handle, indices, dtype=self.dtype, name=scope)
            tensor: Tensor = raw.Identity(rows)
            return tensor

    def gather_nd(self, indices: TensorLike, name: str | None = None) -> Tensor:
        """The slices at positions `indices` (integers, shape [..., k]), without reading the rest."""
        with self.graph.name_scope(name or "GatherNd") as scope:
            slices = raw.ResourceGatherNd(self.handle, indices, dtype=self.dtype, name=scope)
            tensor: Tensor = raw.Identity(slices)
            return tensor

    # ------------------------------------------------------------------ operators
    def __iter__(self) -> NoReturn:
        raise TypeError(f"'Variable' object is not iterable: {self.name}; iterate over tf.unstack(v)")

    def __getitem__(self, item: TensorIndex) -> Tensor:
        return slice_helper(self.value(), item, self)

    def __neg__(self) -> Tensor:
        result: Tensor = Tensor.OPERATORS["neg"](self.value())
        return result

    def __abs__(self) -> Tensor:
        result: Tensor = Tensor.OPERATORS["abs"](self.value())
        return result

    def __invert__(self) -> Tensor:
        result: Tensor = Tensor.OPERATORS["invert"](self.value())
        return result

    if TYPE_CHECKING:
        # attached in a loop below, one pair for each of BINARY_OPERATORS
        def __add__(self, other: TensorLike) -> Tensor: ...
        def __radd__(self, other: TensorLike) -> Tensor: ...
        def __sub__(self, other: TensorLike) -> Tensor: ...
        def __rsub__(self, other: TensorLike) -> Tensor: ...
        def __mul__(self, other: TensorLike) -> Tensor: ...
        def __rmul__(self, other: TensorLike) -> Tensor: ...
        def __truediv__(self, other: TensorLike) -> Tensor: ...
        def __rtruediv__(self, other: TensorLike) -> Tensor: ...
        def __floordiv__(self, other: TensorLike) -> Tensor: ...
        def __mod__(self, other: TensorLike) -> Tensor: ...
        def __pow__(self, other: TensorLike) -> Tensor: ...
        def __matmul__(self, other: TensorLike) -> Tensor: ...
        def __and__(self, other: TensorLike) -> Tensor: ...
        def __or__(self, other: TensorLike) -> Tensor: ...
        def __lt__(self, other: TensorLike) -> Tensor: ...
        def __le__(self, other: TensorLike) -> Tensor: ...
        def __gt__(self, other: TensorLike) -> Tensor: ...
        def __ge__(self, other: TensorLike) -> Tensor: ...


def _attach_operators(cls: type[VariableUpdates]) -> None:
    def forward(name: str) -> Callable[[Any, Any], Any]:
        def operator(self: VariableUpdates, other: TensorLike) -> Any:
            return Tensor.OPERATORS[name](self.value(), other)

        return operator

    def backward(name: str) -> Callable[[Any, Any], Any]:
        def operator(self: VariableUpdates, other: TensorLike) -> Any:
            return Tensor.OPERATORS[name](other, self.value())

        return operator

    for name in BINARY_OPERATORS:
        operators = {f"__{name}__": forward(name)}
        if name not in {"lt", "le", "gt", "ge"}:
            operators[f"__r{name}__"] = backward(name)
        for attribute, operator in operators.items():  # they are shown as those of tensors
            setattr(cls, attribute, functools.update_wrapper(operator, getattr(Tensor, attribute)))


_attach_operators(VariableUpdates)


class UnreadVariable(VariableUpdates):
    """A variable after an update of it: what `Variable.assign` and its like return.

    It is what its update is: `op` is the updating operation, whose inputs are the handle and what was assigned, and
    who waits for it waits for the update alone. Where a tensor is expected the variable is read, after the update and
    after the control dependencies that are open there. Further updates that it is asked for come after its own.

    Args:
        variable: what was updated.
        update: the updating operation.
    """

    def __init__(self, variable: VariableUpdates, update: Operation) -> None:
        self._variable = variable
        self._update = update
        # made at once: who fetches it may do so when nothing can be added to the graph any more
        self._graph_element = self._fresh()

    # ------------------------------------------------------------------ what it is
    @property
    def op(self) -> Operation:
        """The update."""
        return self._update

    @property
    def name(self) -> str:
        """The name of the update."""
        return self._update.name

    @property
    def handle(self) -> Tensor:
        return self._variable.handle

    @property
    def dtype(self) -> DType:
        return self._variable.dtype

    @property
    def shape(self) -> TensorShape:
        return self._graph_element.shape

    def get_shape(self) -> TensorShape:
        """The same as `shape`."""
        return self.shape

    def set_shape(self, shape: ShapeLike) -> None:
        """Adds what the caller knows of the shape; raises ValueError where that contradicts what is known."""
        self._graph_element.set_shape(shape)

    @property
    def graph(self) -> Graph:
        return self._update.graph

    @property
    def device(self) -> str:
        """The variable's."""
        return self.handle.device

    # ------------------------------------------------------------------ reading
    def value(self) -> Tensor:
        """The value after the update, and after the open control dependencies."""
        is_here = get_default_graph() is self.graph
        is_later = is_here and self.graph._current_control_inputs([self._graph_element])
        return self._fresh() if is_later else self._graph_element

    def read_value(self) -> Tensor:
        """The same as `value`."""
        return self.value()

    def _fresh(self) -> Tensor:
        with self._update.graph.control_dependencies([self._update]):
            value = self._variable._read()
        # to wait for it is to wait for the update, and not for the reading
        value.set_attribute("updated_by", self._update)
        return value

    _read = value

    def _as_graph_element(self) -> Tensor:
        """What fetching or feeding it means: the read that was made with it."""
        return self._graph_element

    def eval(self, feed_dict: FeedDict | None = None, session: StepRunner | None = None) -> TensorValue:
        """Runs the update in `session` (default: the default session) and gives the value, as a NumPy array."""
        return self._graph_element.eval(feed_dict, session)

    def __repr__(self) -> str:
        return f"<tf.Variable after '{self.name}' shape={self.shape} dtype={self.dtype.name}>"

    def _afterwards(self) -> contextlib.AbstractContextManager[None]:
        """Operations that are made inside come after the update."""
        default = get_default_graph()
        return (default if default.building_function else self.graph).control_dependencies([self._update])


def _attach_later_updates(cls: type[UnreadVariable]) -> None:
    def later(name: str) -> Callable[..., Any]:
        def update(self: UnreadVariable, *args: PassedOn, **kwargs: PassedOn) -> Any:
            with self._afterwards():
                return getattr(self._variable, name)(*args, **kwargs)

        return functools.update_wrapper(update, getattr(VariableUpdates, name))

    partial = {"count_up_to", "sparse_read", "gather_nd"}
    for name in vars(VariableUpdates):
        if name.startswith(("assign", "scatter_", "batch_scatter_")) or name in partial:
            setattr(cls, name, later(name))


_attach_later_updates(UnreadVariable)


def _to_tensor(
    unread: UnreadVariable, dtype: DType | None = None, name: str | None = None, as_ref: bool = False
) -> Any:
    if dtype is not None and not dtype.is_compatible_with(unread.dtype):
        raise ValueError(
            f"the variable after {unread.name} has dtype {unread.dtype.name}, but {dtype.name} is needed here; "
            "use tf.cast"
        )
    return unread.value()


register_tensor_conversion_function(UnreadVariable, _to_tensor)


def _checked_slices(sparse_delta: IndexedSlices) -> IndexedSlices:
    if not isinstance(sparse_delta, IndexedSlices):
        raise TypeError(f"sparse_delta must be a tf.IndexedSlices, got {sparse_delta!r}")
    return sparse_delta


def _batch_positions(indices: TensorLike) -> Tensor:
    """Full positions [b.., i, k] for row numbers [b.., i] that count within their batch entry."""
    rows = convert_to_tensor(indices, name="indices")
    if rows.dtype is not dtypes.int64:
        rows = raw.Cast(rows, DstT=dtypes.int64)
    rank = rows.shape.ndims
    if rank is None:
        raise ValueError("batch_scatter_update needs indices of known rank")
    lengths = raw.Shape(rows, out_type=dtypes.int64)
    coordinates = []
    for axis in range(rank - 1):
        count = raw.StridedSlice(lengths, [axis], [axis + 1], [1], shrink_axis_mask=1)
        line = raw.Range(convert_to_tensor(0, dtypes.int64), count, convert_to_tensor(1, dtypes.int64))
        bent = raw.Reshape(line, [-1 if i == axis else 1 for i in range(rank)])
        coordinates.append(raw.BroadcastTo(bent, lengths))
    positions: Tensor = raw.Pack([*coordinates, rows], axis=-1)
    return positions
