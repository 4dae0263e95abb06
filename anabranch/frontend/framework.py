"""Scopes, collections, seeds, and conversions of values: functions on the default graph  (§3.1)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any

import numpy as np

from anabranch.core.dtypes import DType, DTypeLike, as_dtype
from anabranch.core.values import PassedOn, TensorLike
from anabranch.frontend.arguments import CollectionNames, DeviceLike
from anabranch.graph.composite import IndexedSlices, SparseTensor, SparseTensorValue
from anabranch.graph.constants import constant_value
from anabranch.graph.conversion import convert_to_tensor, is_tensor_like, register_tensor_conversion_function
from anabranch.graph.dispatch import has_versions
from anabranch.graph.graph import Graph, get_default_graph
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw

DEFAULT_GRAPH_SEED = 87654321
_MAX_SEED = 2**31 - 1


# ---------------------------------------------------------------------- scopes
def graph_of_values(values: Iterable[Any]) -> Graph:
    """The graph that new operations on `values` belong to: theirs, or the default graph.

    Raises:
        ValueError: the values belong to different graphs.
    """
    default = get_default_graph()
    if default.building_function:
        return default
    common: Graph | None = None
    for value in values:
        graph = (
            getattr(value, "graph", None) if isinstance(value, Tensor | Operation) or is_tensor_like(value) else None
        )
        if not isinstance(graph, Graph):
            continue
        if common is not None and graph is not common:
            op = getattr(value, "op", value)
            raise ValueError(
                f"{value!r} (created at {op.site}) must be from the same graph as the other inputs; build all of "
                "them in one `with graph.as_default()` block"
            )
        common = graph
    return common or default


class name_scope:
    """A context manager that prefixes the names of the operations created inside.

    Args:
        name: the scope's name; one that ends in a slash re-enters that scope; None stands for `default_name`.
        default_name: used when `name` is None.
        values: tensors that the operations will have as inputs; their graph becomes the default graph.

    Raises:
        TypeError: `name` is not a string.
        ValueError: neither name is given although `values` is, or the values belong to different graphs.

    Example:
        >>> with tf.name_scope("model"):
        ...     x = tf.constant(1.0, name="x")
        >>> x.name
        'model/x:0'
    """

    def __init__(self, name: str | None, default_name: str | None = None, values: Iterable[Any] | None = None) -> None:
        for given in (name, default_name):
            if given is not None and not isinstance(given, str):
                raise TypeError(f"name for name_scope must be a string, got {given!r} of type {type(given).__name__}")
        self._name: str | None = default_name if name is None else name
        if self._name is None and values is not None:
            raise ValueError("at least one of name (None) and default_name (None) must be provided with values")
        self._values = values
        self._entered = contextlib.ExitStack()

    @property
    def name(self) -> str | None:
        return self._name

    def __enter__(self) -> str:
        with contextlib.ExitStack() as stack:
            graph = get_default_graph()
            if self._values is not None:
                graph_of_these = graph_of_values(self._values)
                if graph_of_these is not graph:
                    stack.enter_context(graph_of_these.as_default())
                graph = graph_of_these
            scope = stack.enter_context(graph.name_scope(self._name))
            self._entered = stack.pop_all()
        return scope

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._entered.__exit__(kind, error, trace)


@contextlib.contextmanager
def op_scope(values: Iterable[Any], name: str | None, default_name: str | None = None) -> Iterator[str]:
    """The deprecated spelling of `name_scope(name, default_name, values)`."""
    with name_scope(name, default_name, values) as scope:
        yield scope


@contextlib.contextmanager
def init_scope() -> Iterator[None]:
    """Leaves the bodies of functions and control flow, and control dependencies; keeps the name and device scopes.

    What is created inside belongs to the outermost graph, and may serve for initialising variables.
    """
    graph = get_default_graph()
    scope = graph.get_name_scope()
    outermost, left = graph, []
    while outermost.building_function and outermost.outer_graph is not None:
        left.append(outermost)
        outermost = outermost.outer_graph
    with contextlib.ExitStack() as stack:
        if outermost is not graph:
            stack.enter_context(outermost.as_default())
            stack.enter_context(outermost._devices_of(reversed(left)))
        stack.enter_context(outermost.name_scope(f"{scope}/" if scope else None))
        stack.enter_context(outermost.control_dependencies(None))
        yield


def device(device_name_or_function: DeviceLike | None) -> contextlib.AbstractContextManager[None]:
    """A context manager: operations created inside are placed on a device (§3.3).

    Args:
        device_name_or_function: a device name such as "/device:CPU:0", which may be partial; a function from an
            operation to such a name; or None, which forgets the devices of the blocks around.

    Returns:
        A context manager.

    Raises:
        ValueError: the name is malformed.

    Example:
        >>> with tf.device("/cpu:0"):
        ...     x = tf.constant(1.0)
        >>> x.device
        '/device:CPU:0'
    """
    return get_default_graph().device(device_name_or_function)


def control_dependencies(control_inputs: Iterable[Any] | None) -> contextlib.AbstractContextManager[None]:
    """A context manager: operations created inside run after the given ones.

    Args:
        control_inputs: a list of operations, tensors and variables; None forgets those of the blocks around.

    Returns:
        A context manager.

    Raises:
        TypeError: something else is in the list.

    Example:
        >>> v = tf.get_variable("v", initializer=1)
        >>> with tf.control_dependencies([tf.assign(v, 5)]):
        ...     after = v.read_value()
        >>> sess.run(v.initializer)
        >>> sess.run(after)
        np.int32(5)
    """
    return get_default_graph().control_dependencies(control_inputs)


def colocate_with(op: TensorLike | Operation, ignore_existing: bool = False) -> contextlib.AbstractContextManager[None]:
    """`Graph.colocate_with` of the default graph."""
    return get_default_graph().colocate_with(op, ignore_existing)


def container(container_name: str) -> contextlib.AbstractContextManager[str]:
    """`Graph.container` of the default graph (WP4.7)."""
    return get_default_graph().container(container_name)


# ---------------------------------------------------------------------- collections
def add_to_collection(name: str, value: object) -> None:
    """Adds an item to a collection of the default graph.

    Args:
        name: of the collection.
        value: anything.

    Raises:
        RuntimeError: the graph is finalized.

    Example:
        >>> tf.add_to_collection("losses", tf.constant(1.0))
        >>> len(tf.get_collection("losses"))
        1
    """
    get_default_graph().add_to_collection(name, value)


def add_to_collections(names: CollectionNames, value: object) -> None:
    """`Graph.add_to_collections` of the default graph."""
    get_default_graph().add_to_collections(names, value)


def get_collection(key: str, scope: str | None = None) -> list[Any]:
    """The items of a collection of the default graph.

    Args:
        key: its name, such as one of `GraphKeys`.
        scope: a regular expression; only items whose names begin with it are taken.

    Returns:
        A new list, empty where there is no such collection.

    Raises:
        nothing

    Example:
        >>> v = tf.get_variable("v", [2])
        >>> tf.get_collection(tf.GraphKeys.TRAINABLE_VARIABLES) == [v]
        True
    """
    return get_default_graph().get_collection(key, scope)


def get_collection_ref(key: str) -> list[Any]:
    """`Graph.get_collection_ref` of the default graph."""
    return get_default_graph().get_collection_ref(key)


# ---------------------------------------------------------------------- seeds
def set_random_seed(seed: int | None) -> None:
    """Sets the seed of the default graph; every random operation created later derives its own from it.

    Args:
        seed: an integer; None: the operations draw other numbers in each session.

    Raises:
        nothing

    Example:
        >>> tf.set_random_seed(1)
        >>> x = tf.random_uniform([])
        >>> other = tf.Session()
        >>> bool(sess.run(x) == other.run(x))
        True
    """
    get_default_graph().seed = seed


def get_seed(op_seed: int | None) -> tuple[int | None, int | None]:
    """The two seeds of a new random operation, from the graph's seed and that given for the operation.

    Without any seed both are None (the operation draws a fresh one). An operation without a seed of its own takes
    the number of operations in the graph, so that it differs from its neighbours and is the same in every run; inside
    a branch, a loop or a function those around it count, too, so that it differs from those in other bodies.
    """
    graph_seed = get_default_graph().seed
    if graph_seed is None and op_seed is None:
        return None, None
    if graph_seed is None:
        graph_seed = DEFAULT_GRAPH_SEED
    if op_seed is None:
        op_seed = sum(graph.version for graph in _with_outer_graphs(get_default_graph()))
    seeds = graph_seed % _MAX_SEED, op_seed % _MAX_SEED
    # two zeros mean "no seed" to the operations
    return (0, _MAX_SEED) if seeds == (0, 0) else seeds


def _with_outer_graphs(graph: Graph) -> Iterator[Graph]:
    inside: Graph | None = graph
    while inside is not None:
        yield inside
        inside = inside.outer_graph


# ---------------------------------------------------------------------- values
def is_tensor(x: object) -> bool:
    """Whether `x` is a tensor, a variable, or another value that stands for tensors of the graph."""
    return isinstance(x, Tensor | SparseTensor | IndexedSlices) or is_tensor_like(x) or has_versions(x)


def get_static_value(tensor: TensorLike, partial: bool = False) -> PassedOn:
    """The value of `tensor` where it is known while the graph is built, an array that is the caller's; else None.

    Args:
        tensor: a tensor; what is none, a number or an array, is its own value.
        partial: of tensors that are stacked along the first axis, the known ones are returned in an array of objects
            that has None for the others.
    """
    if not is_tensor(tensor):
        return tensor
    value = constant_value(tensor)
    if value is not None:
        return np.array(value)
    if not partial or tensor.op.type != "Pack" or tensor.op.get_attr("axis") != 0:
        return None
    rows = [constant_value(row) for row in tensor.op.inputs]
    if all(row is None for row in rows):
        return None
    array = np.empty(len(rows), np.object_)
    array[:] = rows
    return array


def convert_to_tensor_or_indexed_slices(
    value: TensorLike, dtype: DTypeLike | None = None, name: str | None = None
) -> Tensor | IndexedSlices | SparseTensor:
    """`value` itself if it is an `IndexedSlices`, else the tensor that it stands for.

    Raises:
        ValueError: it is a tensor or slices of another dtype.
    """
    if isinstance(value, IndexedSlices | SparseTensor):
        _check_dtype(value, dtype)
        return value
    return convert_to_tensor(value, dtype, name)


def convert_to_tensor_or_sparse_tensor(
    value: TensorLike, dtype: DTypeLike | None = None, name: str | None = None
) -> Tensor | IndexedSlices | SparseTensor:
    """A `SparseTensor` for a sparse value, else the tensor that `value` stands for.

    Raises:
        ValueError: it is a tensor of another dtype.
    """
    if isinstance(value, SparseTensor | SparseTensorValue):
        sparse = SparseTensor.from_value(value)
        _check_dtype(sparse, dtype)
        return sparse
    return convert_to_tensor(value, dtype, name)


def _check_dtype(value: Tensor | IndexedSlices | SparseTensor, dtype: DTypeLike | None) -> None:
    if dtype is not None and not as_dtype(dtype).is_compatible_with(value.dtype):
        raise ValueError(f"conversion requested dtype {as_dtype(dtype).name} for {value!r} of dtype {value.dtype.name}")


def _indexed_slices_to_tensor(value: IndexedSlices, dtype: DType | None, name: str | None, as_ref: bool) -> Any:
    """The dense tensor: rows that occur twice are summed, as everywhere with `IndexedSlices`."""
    _check_dtype(value, dtype)
    if value.dense_shape is None:
        raise ValueError(f"cannot convert IndexedSlices without dense_shape to a tensor: {value}")
    rows = raw.StridedSlice(value.dense_shape, [0], [1], [1], shrink_axis_mask=1)
    return raw.UnsortedSegmentSum(value.values, value.indices, rows, name=name)


register_tensor_conversion_function(IndexedSlices, _indexed_slices_to_tensor)
