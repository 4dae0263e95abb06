"""What `Session.run` is asked for, taken apart into tensors and operations, and put together again from values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from anabranch.core.bounded import Table
from anabranch.core.dtypes import DType
from anabranch.core.nest import Structure
from anabranch.core.quantised_arrays import as_integers
from anabranch.core.values import TensorLike
from anabranch.frontend.resources.session_tensors import HANDLE_TYPES, TensorHandle
from anabranch.graph.composite import IndexedSlices, IndexedSlicesValue, SparseTensor, SparseTensorValue
from anabranch.graph.graph import Graph
from anabranch.graph.loop_structure import lifted
from anabranch.graph.operation import Operation, StepRunner, Tensor

#: type -> function from a value to (list of fetches, function from their values to the result)
FetchFunction = Callable[[Any], tuple[list[Any], Callable[[list[Any]], Any]]]
#: type -> function from (key, value) to a list of (tensor, value)
FeedFunction = Callable[[Any, Any], Sequence[tuple[Any, Any]]]

_fetch_functions: list[tuple[type, FetchFunction]] = []
_feed_functions: list[tuple[type, FeedFunction]] = []


def register_session_run_conversion_functions(
    tensor_type: type,
    fetch_function: FetchFunction,
    feed_function: FeedFunction | None = None,
    feed_function_for_partial_run: Callable[[Any], list[Any]] | None = None,
) -> None:
    """Lets `Session.run` fetch, and feed, values of a type made of several tensors.

    Args:
        feed_function_for_partial_run: gives the tensors that a value of the type stands for; not called, since
            `Session.partial_run_setup` is given tensors.

    Raises:
        ValueError: the type is registered already.
    """
    if any(t is tensor_type for t, _ in _fetch_functions):
        raise ValueError(f"{tensor_type} has already been registered")
    _fetch_functions.insert(0, (tensor_type, fetch_function))
    if feed_function is not None:
        _feed_functions.insert(0, (tensor_type, feed_function))


def _fetch_sparse(value: SparseTensor) -> tuple[list[Any], Callable[[list[Any]], Any]]:
    return [value.indices, value.values, value.dense_shape], lambda parts: SparseTensorValue(*parts)


def _fetch_slices(value: IndexedSlices) -> tuple[list[Any], Callable[[list[Any]], Any]]:
    parts: list[Any] = [value.values, value.indices]
    if value.dense_shape is None:
        return parts, lambda got: IndexedSlicesValue(got[0], got[1], None)
    return [*parts, value.dense_shape], lambda got: IndexedSlicesValue(*got)


def _feed_sparse(key: SparseTensor, value: SparseTensorValue | Sequence[TensorLike]) -> list[tuple[Any, Any]]:
    return list(zip((key.indices, key.values, key.dense_shape), value, strict=len(value) != 2))  # a shape may be known


def _feed_slices(key: IndexedSlices, value: Sequence[TensorLike]) -> list[tuple[Any, Any]]:
    parts = [key.values, key.indices] if key.dense_shape is None else [key.values, key.indices, key.dense_shape]
    return list(zip(parts, value, strict=False))


register_session_run_conversion_functions(SparseTensor, _fetch_sparse, _feed_sparse)
register_session_run_conversion_functions(IndexedSlices, _fetch_slices, _feed_slices)


def feed_function_for(key: Structure) -> FeedFunction | None:
    """How a feed key made of several tensors is taken apart; None for other keys."""
    for tensor_type, function in _feed_functions:
        if isinstance(key, tensor_type):
            return function
    return None


class FetchMapping:
    """One structure of fetches: its distinct tensors, its operations, and how results are arranged.

    Args:
        session: gives the session that the results come from, or None once it is gone.

    Raises:
        TypeError: something in the structure can be neither a tensor nor an operation.
        ValueError: something is not in the graph, or may not be fetched.
    """

    def __init__(self, graph: Graph, fetches: Structure, session: Callable[[], StepRunner | None]) -> None:
        self._graph = graph
        self._session = session
        self._index: dict[Tensor, int] = {}
        self._targets: dict[Operation, None] = {}
        self._build = self._map(fetches)
        self.tensors = list(self._index)
        self.targets = list(self._targets)
        #: the session's prepared steps for this mapping, by feeds
        self.steps = Table()

    def arrange(self, values: list[Any]) -> Any:
        """The result in the shape of the fetches; operations give None."""
        return self._build(values)

    def _map(self, fetch: Structure) -> Callable[[list[Any]], Any]:
        if fetch is None:
            raise TypeError("Fetch argument None has invalid type <class 'NoneType'>")
        if isinstance(fetch, list | tuple):
            return self._map_sequence(fetch)
        if isinstance(fetch, Mapping):
            return self._map_mapping(fetch)
        for tensor_type, function in _fetch_functions:
            if isinstance(fetch, tensor_type):
                parts, combine = function(fetch)
                inner = self._map_sequence(list(parts))
                return lambda values: combine(inner(values))
        return self._map_element(fetch)

    def _map_sequence(self, fetches: Structure) -> Callable[[list[Any]], Any]:
        builders = [self._map(f) for f in fetches]
        if type(fetches) is list:
            return lambda values: [b(values) for b in builders]
        if hasattr(fetches, "_fields"):
            return lambda values: type(fetches)(*(b(values) for b in builders))
        return lambda values: type(fetches)(b(values) for b in builders)

    def _map_mapping(self, fetches: Mapping[Any, Any]) -> Callable[[list[Any]], Any]:
        builders = {key: self._map(value) for key, value in fetches.items()}
        make = type(fetches) if isinstance(fetches, dict) else dict
        if hasattr(make, "default_factory"):
            make = dict
        return lambda values: make((key, b(values)) for key, b in builders.items())

    def _map_element(self, fetch: Structure) -> Callable[[list[Any]], Any]:
        try:
            element = self._graph.as_graph_element(fetch, allow_tensor=True, allow_operation=True)
        except TypeError as error:
            raise TypeError(
                f"Fetch argument {fetch!r} has invalid type {type(fetch)}, must be a string or Tensor. ({error})"
            ) from None
        except ValueError as error:
            raise ValueError(f"Fetch argument {fetch!r} cannot be interpreted as a Tensor. ({error})") from None
        except KeyError as error:
            raise ValueError(f"Fetch argument {fetch!r} cannot be interpreted as a Tensor. ({error})") from None
        if not self._graph.is_fetchable(element):
            raise ValueError(f"Operation {element.name!r} has been marked as not fetchable.")
        if isinstance(element, Operation):
            self._targets[element] = None
            return lambda values: None
        if isinstance(fetch, str | bytes):
            element = self._value_of(element)
        element = lifted(element)
        position = self._index.setdefault(element, len(self._index))
        if element.dtype.is_quantized:  # programs get plain integers
            return lambda values: as_integers(values[position])
        if element.op.type in HANDLE_TYPES:
            dtype = element.op.inputs[0].dtype
            return lambda values: self._handle(values[position], dtype)
        return lambda values: values[position]

    def _handle(self, text: bytes, dtype: DType) -> TensorHandle:
        session = self._session()
        assert session is not None, "results are arranged by the session"
        return TensorHandle(text.decode(), dtype, session)

    def _value_of(self, tensor: Tensor) -> Tensor:
        """A variable's name means its value, as programs expect of `run("w:0")`."""
        if tensor.op.type != "VarHandleOp":
            return tensor
        reads = (op for op in tensor.consumers() if op.name == f"{tensor.op.name}/Read/ReadVariableOp")
        return next((op.outputs[0] for op in reads), tensor)
