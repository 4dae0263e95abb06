"""Operations that stand for several others: `group`, `tuple`, `no_op`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from anabranch.core import nest
from anabranch.core.nest import Structure
from anabranch.core.values import TensorLike
from anabranch.frontend.framework import control_dependencies, device, name_scope
from anabranch.graph.collections import GraphKeys
from anabranch.graph.composite import IndexedSlices, SparseTensor
from anabranch.graph.graph import get_default_graph
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw

Value = TypeVar("Value", Tensor, IndexedSlices, SparseTensor)


def no_op(name: str | None = None) -> Operation:
    """An operation that does nothing: something to depend on.

    Args:
        name: of the operation.

    Returns:
        An operation without inputs and results.

    Raises:
        nothing

    Example:
        >>> tf.no_op("ready").name
        'ready'
    """
    result: Operation = raw.NoOp(name=name)
    return result


def group(*inputs: Structure, **kwargs: str | None) -> Operation:
    """An operation that finishes when all of `inputs` (operations, tensors, variables; also nested) have.

    Args:
        inputs: what to wait for.
        name: a name for the operation.

    Returns:
        An operation without results.

    Raises:
        TypeError: something is neither an operation nor a tensor.
        ValueError: another keyword argument.

    Example:
        >>> a, b = tf.get_variable("a", initializer=1), tf.get_variable("b", initializer=2)
        >>> both = tf.group(a.initializer, b.initializer)
        >>> sess.run(both)
        >>> sess.run([a, b])
        [np.int32(1), np.int32(2)]
    """
    name = kwargs.pop("name", None)
    if kwargs:
        raise ValueError(f"Unknown keyword arguments: {', '.join(kwargs)}")
    flat = nest.flatten(inputs)
    with name_scope(name, "group_deps", [i for i in flat if isinstance(i, Tensor | Operation)]) as scope:
        by_device: dict[str, list[Operation]] = {}
        for item in flat:
            op = _operation(item)
            by_device.setdefault(op.device, []).append(op)
        if len(by_device) <= 1:
            return _wait_for(*next(iter(by_device.items()), ("", [])), name=scope)
        # One operation per device, so that few edges cross between devices.
        parts = [_wait_for(where, by_device[where], None) for where in sorted(by_device)]
        with control_dependencies(parts):
            return no_op(name=scope)


def _wait_for(where: str, operations: list[Operation], name: str | None) -> Operation:
    with control_dependencies(operations), device(where):
        return no_op(name=name)


def _operation(item: Operation | TensorLike) -> Operation:
    if isinstance(item, Operation):
        return item
    element = getattr(item, "_as_graph_element", None)
    if element is not None:
        return _operation(element())
    # to wait for a variable's value after an update is to wait for the update
    op = item.get_attribute("updated_by", item.op) if isinstance(item, Tensor) else getattr(item, "op", None)
    if not isinstance(op, Operation):
        raise TypeError(f"Expected tf.group() to get operations or tensors, not {item!r} of type {type(item).__name__}")
    return op


def tables_initializer(name: str = "init_all_tables") -> Operation:
    """An operation that initializes all lookup tables of the default graph.

    Args:
        name: of the operation.

    Returns:
        An operation; it does nothing where the graph has no tables.

    Raises:
        nothing

    Example:
        >>> table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(["a", "b"], [10, 20]), -1)
        >>> sess.run(tf.tables_initializer())
        >>> sess.run(table.lookup(tf.constant(["b", "c"])))
        array([20, -1], dtype=int32)
    """
    return group(*get_default_graph().get_collection(GraphKeys.TABLE_INITIALIZERS), name=name)


def initialize_all_tables(name: str = "init_all_tables") -> Operation:
    """The older name of `tables_initializer`."""
    return tables_initializer(name)


def with_dependencies(dependencies: Iterable[Any], output_tensor: Value, name: str | None = None) -> Value:
    """A tensor with the value of `output_tensor` that exists only after all of `dependencies` have run.

    Args:
        dependencies: operations or tensors.
        output_tensor: a tensor, `IndexedSlices` or `SparseTensor`.
    """
    dependencies = list(dependencies)
    with name_scope(name, "control_dependency", [output_tensor]) as scope, control_dependencies(dependencies):
        copy: Any
        if isinstance(output_tensor, IndexedSlices):
            values = raw.Identity(output_tensor.values, name=scope)
            copy = IndexedSlices(values, output_tensor.indices, output_tensor.dense_shape)
        elif isinstance(output_tensor, SparseTensor):
            values = raw.Identity(output_tensor.values, name=scope)
            copy = SparseTensor(output_tensor.indices, values, output_tensor.dense_shape)
        else:
            copy = raw.Identity(output_tensor, name=scope)
        held_back: Value = copy
    return held_back


def tuple(tensors: Iterable[Any], name: str | None = None, control_inputs: Iterable[Any] | None = None) -> list[Any]:
    """Tensors with the values of `tensors`, none of which is available before all of them are.

    Args:
        tensors: tensors or `IndexedSlices`; None stays None.
        control_inputs: more operations to wait for.

    Raises:
        ValueError: no tensor is given.
        TypeError: a control input is neither an operation nor a tensor.
    """
    given = list(tensors)
    present = [t for t in given if t is not None]
    if not present:
        raise ValueError(f"Must have at least one Tensor: {given!r}")
    with name_scope(name, "tuple", [t for t in present if isinstance(t, Tensor)]):
        gate = group(*[_operation(t) for t in present], *(control_inputs or ()))
        return [None if t is None else with_dependencies([gate], t) for t in given]
