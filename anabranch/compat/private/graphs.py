"""Private functions of `tensorflow.python.framework.ops` that libraries call."""

from __future__ import annotations

import abc
import itertools
from collections.abc import Iterable
from typing import Any

import anabranch as tf
from anabranch.core.dtypes import DTypeLike
from anabranch.core.values import TensorLike
from anabranch.frontend.framework import graph_of_values

_uids = itertools.count(1)
_registered: list[type] = []


class _TensorLike(abc.ABC):  # noqa: B024 (it is asked about, never derived from)
    """What a graph computes: `isinstance` holds for tensors, sparse tensors and indexed slices."""


class CompositeTensor(abc.ABC):  # noqa: B024 (libraries derive from it)
    """What is made of several tensors: `isinstance` holds for sparse tensors and indexed slices."""


CompositeTensor.register(tf.SparseTensor)
CompositeTensor.register(tf.IndexedSlices)
_TensorLike.register(tf.Tensor)
_TensorLike.register(tf.SparseTensor)
_TensorLike.register(tf.IndexedSlices)


def register_dense_tensor_like_type(tensor_type: type) -> None:
    """Registers a type of the program's own, which a conversion to tensors is registered for, as one of tensors.

    Raises:
        TypeError: it has no property `name`, or none `dtype`.
    """
    for name in ("name", "dtype"):
        if not isinstance(getattr(tensor_type, name, None), property):
            raise TypeError(f"Type {tensor_type.__name__} does not define a `{name}` property")
    _registered.append(tensor_type)


def inside_function() -> bool:
    """Whether the default graph is that of a function's body."""
    return bool(tf.get_default_graph().building_function)


def uid() -> int:
    """A number that no other call in this process gives."""
    return next(_uids)


def _get_graph_from_inputs(op_input_list: Iterable[TensorLike], graph: tf.Graph | None = None) -> tf.Graph:
    """The graph that new operations on these inputs belong to.

    Raises:
        TypeError: `graph` is no graph.
        ValueError: the inputs belong to different graphs, or to another one than `graph`.
    """
    inputs = tuple(op_input_list)
    if graph is None:
        return graph_of_values(inputs)
    if not isinstance(graph, tf.Graph):
        raise TypeError(f"Input graph needs to be a Graph: {graph!r}")
    for value in inputs:
        if getattr(value, "graph", graph) is not graph:
            raise ValueError(f"{value!r} is not from the passed-in graph")
    return graph


def get_name_scope() -> str:
    """The current name scope of the default graph, without a slash at its end."""
    return tf.get_default_graph().get_name_scope()


def prepend_name_scope(name: str, import_scope: str | None) -> str:
    """A name as it is inside a scope; what stands for the name of a node in "loc:@" and "^" moves with it."""
    if not import_scope:
        return name
    for mark in ("loc:@", "^"):
        if name.startswith(mark):
            return f"{mark}{import_scope}/{name[len(mark) :]}"
    return f"{import_scope}/{name}"


def strip_name_scope(name: str, export_scope: str | None) -> str:
    """A name as it is outside of a scope that it begins with."""
    if not export_scope:
        return name
    for mark in ("loc:@", "^", ""):
        if name.startswith(f"{mark}{export_scope}/"):
            return mark + name[len(mark) + len(export_scope) + 1 :]
    return name


def internal_convert_to_tensor(
    value: TensorLike,
    dtype: DTypeLike | None = None,
    name: str | None = None,
    as_ref: bool = False,
    preferred_dtype: DTypeLike | None = None,
) -> tf.Tensor:
    """`tf.convert_to_tensor`; there are no references, whatever `as_ref` says."""
    return tf.convert_to_tensor(value, dtype=dtype, name=name, preferred_dtype=preferred_dtype)


def is_dense_tensor_like(t: object) -> bool:
    """Whether a value is a tensor, or stands for one: a variable, or of a registered type."""
    return isinstance(t, (tf.Tensor, tf.Variable, *_registered))


def is_resource_variable(var: object) -> bool:
    """Whether a value is a variable that a handle names, or says that it acts as one: every variable is one here."""
    return isinstance(var, tf.Variable) or hasattr(var, "_should_act_as_resource_variable")


def convert_n_to_tensor(values: Iterable[TensorLike], dtype: DTypeLike | None = None, name: str | None = None) -> Any:
    """Each value as a tensor; `name` gets the number of the value at its end."""
    return [
        tf.convert_to_tensor(value, dtype=dtype, name=None if name is None else f"{name}_{at}")
        for at, value in enumerate(values)
    ]


def _bucketize(input: TensorLike, boundaries: list[float], name: str | None = None) -> tf.Tensor:
    """The number of boundaries that are not greater than each element, int32, in the shape of `input`."""
    counts: tf.Tensor = tf.raw_ops.Bucketize(input=input, boundaries=boundaries, name=name)
    return counts
