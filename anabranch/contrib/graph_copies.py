"""`tf.contrib.copy_graph`: variables, operations and what they depend on, in another graph."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import anabranch as tf
from anabranch.contrib.arguments import PassedOn


def copy_variable_to_graph(org_instance: tf.Variable, to_graph: tf.Graph, scope: str = "") -> tf.Variable:
    """A variable of another graph that begins with the initial value of a variable.

    Args:
        org_instance: the variable.
        to_graph: the other graph.
        scope: put before the name of the copy, and before the names of its collections but those of global and
            trainable variables.

    Raises:
        TypeError: it is no variable.
    """
    if not isinstance(org_instance, tf.Variable):
        raise TypeError(f"{org_instance!r} is not a Variable")
    kept = (tf.GraphKeys.GLOBAL_VARIABLES, tf.GraphKeys.TRAINABLE_VARIABLES)
    collections = [name if name in kept else _scoped(name, scope) for name in _collections(org_instance)]
    with org_instance.graph.as_default(), tf.Session() as session:
        value = session.run(org_instance.initialized_value())
    with to_graph.as_default():
        return tf.Variable(
            value,
            trainable=org_instance in org_instance.graph.get_collection(tf.GraphKeys.TRAINABLE_VARIABLES),
            name=_scoped(org_instance.op.name, scope),
            collections=collections,
            validate_shape=False,
        )


def copy_op_to_graph(
    org_instance: PassedOn, to_graph: tf.Graph, variables: Iterable[tf.Variable], scope: str = ""
) -> PassedOn:
    """Copies an operation or tensor, and what it depends on, as far as the other graph has nothing of these names yet.

    Args:
        org_instance: an operation or a tensor.
        to_graph: the other graph.
        variables: the copies of the variables that it needs, which `copy_variable_to_graph` made.
        scope: put before the names of the copies.

    Returns:
        The copy.

    Raises:
        TypeError: it is neither an operation nor a tensor.

    Example:
        >>> y = 2.0 * tf.placeholder(tf.float32, [], name="x")
        >>> other = tf.Graph()
        >>> copy = tf.contrib.copy_graph.copy_op_to_graph(y, other, [])
        >>> tf.Session(graph=other).run(copy, {"x:0": 4.0})
        np.float32(8.0)
    """
    if not isinstance(org_instance, tf.Tensor | tf.Operation):
        raise TypeError(f"Could not copy instance: {org_instance!r}")
    operation = org_instance.op if isinstance(org_instance, tf.Tensor) else org_instance
    present = {v.op.name for v in variables} | {op.name for op in to_graph.get_operations()}
    missing = _missing(operation, present, scope)
    if missing:
        _create(missing, present, to_graph, scope)
    copied: Any = to_graph.get_operation_by_name(_scoped(operation.name, scope))
    if isinstance(org_instance, tf.Tensor):
        copied = copied.outputs[org_instance.value_index]
        if operation in missing:
            for name in _collections(org_instance):
                to_graph.add_to_collection(_scoped(name, scope), copied)
    return copied


def get_copied_op(org_instance: PassedOn, graph: tf.Graph, scope: str = "") -> PassedOn:
    """What has the name of an operation or tensor in another graph.

    Args:
        org_instance: the operation or tensor.
        graph: the other graph.
        scope: put before the name.

    Raises:
        KeyError: there is none.
    """
    return graph.as_graph_element(_scoped(org_instance.name, scope), allow_tensor=True, allow_operation=True)


def _scoped(name: str, scope: str) -> str:
    return f"{scope}/{name}" if scope else name


def _collections(item: PassedOn) -> list[str]:
    return [
        name for name in item.graph.get_all_collection_keys() if any(item is x for x in item.graph.get_collection(name))
    ]


def _missing(operation: tf.Operation, present: set[str], scope: str) -> list[tf.Operation]:
    """What an operation depends on, itself included, that is not there under the names of copies."""
    found: dict[tf.Operation, None] = {}
    waiting = [operation]
    while waiting:
        op = waiting.pop()
        if op not in found and _scoped(op.name, scope) not in present:
            found[op] = None
            waiting += [*(x.op for x in op.inputs), *op.control_inputs]
    return list(found)


def _create(operations: list[tf.Operation], present: set[str], to_graph: tf.Graph, scope: str) -> None:
    whole = operations[0].graph.as_graph_def()
    graph_def = tf.GraphDef(versions=whole.versions, library=whole.library)
    given: dict[str, Any] = {}
    for op in operations:
        node = graph_def.node.add()
        node.CopyFrom(op.node_def)
        node.name = _scoped(op.name, scope)
        for x in op.inputs:
            name = _scoped(x.name, scope)
            if _scoped(x.op.name, scope) in present:
                given[name] = to_graph.get_tensor_by_name(name)
        for control in op.control_inputs:
            name = _scoped(control.name, scope)
            if name in present:
                given[f"^{name}"] = to_graph.get_operation_by_name(name)
        if scope:
            node.input[:] = [_moved_input(text, scope) for text in node.input]
            places = node.attr["_class"].list.s
            places[:] = [place.replace(b"loc:@", f"loc:@{scope}/".encode(), 1) for place in places]
            if not places:
                del node.attr["_class"]
    with to_graph.as_default():
        tf.import_graph_def(graph_def, given, name="")


def _moved_input(text: str, scope: str) -> str:
    return f"^{scope}/{text[1:]}" if text.startswith("^") else f"{scope}/{text}"
