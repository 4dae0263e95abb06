"""tf.xla.experimental: what asks for XLA, by which every step is compiled anyhow."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from anabranch.core import nest
from anabranch.core.nest import Structure
from anabranch.core.values import PassedOn, TensorLike
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.graph import get_default_graph
from anabranch.graph.operation import Operation
from anabranch.ops import raw


def compile(computation: Callable[..., Any], inputs: Sequence[TensorLike] | None = None) -> Structure:
    """The results of a function of tensors, after all operations that it returns.

    Args:
        computation: takes the inputs; returns tensors and what becomes some, operations, or nothing.
        inputs: its arguments.

    Returns:
        What the function returns, operations left out and a single value in a tuple; an operation that waits for
        everything where it returns no tensor.

    Raises:
        TypeError: `inputs` is no list, or the function returns what no tensor can be.
        ValueError: it returns tensors after operations.

    Example:
        >>> total, = tf.xla.experimental.compile(lambda x, y: x + y, [tf.constant(1), tf.constant(2)])
        >>> sess.run(total).item()
        3
    """
    if inputs is not None and not isinstance(inputs, list | tuple):
        raise TypeError("inputs must be a list")
    arguments = [nest.map_structure(convert_to_tensor, item) for item in inputs or ()]
    graph = get_default_graph()
    with graph.name_scope("cluster"):
        found = computation(*[nest.map_structure(raw.Identity, item) for item in arguments])
        if found is None or isinstance(found, Operation):
            return _after([found] if isinstance(found, Operation) else [])
        structured = found if nest.is_nested(found) else (found,)
        flat = nest.flatten(structured)
        operations = [item for item in flat if isinstance(item, Operation)]
        values = [item for item in flat if not isinstance(item, Operation) and item is not None]
        if nest.is_nested(found) and flat[len(values) :] != operations and operations:
            raise ValueError("computation must return zero or more tensor values followed by zero or more operations")
        if not values:
            return _after(operations)
        with graph.control_dependencies(operations):
            results = [raw.Identity(convert_to_tensor(value)) for value in values]
        return tuple(results) if operations else nest.pack_sequence_as(structured, results)


def _after(operations: Sequence[Operation]) -> Operation:
    with get_default_graph().control_dependencies(list(operations)):
        done: Operation = raw.NoOp()
    return done


@contextlib.contextmanager
def jit_scope(
    compile_ops: bool | Callable[..., bool] = True, separate_compiled_gradients: bool = False, **_: PassedOn
) -> Iterator[None]:
    """Operations created inside say in a GraphDef that TensorFlow is to compile them; here all are compiled.

    Args:
        compile_ops: false takes it back. A function of a node is taken for True.
        separate_compiled_gradients: accepted.

    Example:
        >>> with tf.xla.experimental.jit_scope():
        ...     x = tf.constant(1.0) + 2.0
        >>> x.op.get_attr("_XlaCompile")
        True
    """
    wanted = bool(compile_ops)
    number = len(get_default_graph().get_collection_ref(_SCOPES))
    get_default_graph().add_to_collection(_SCOPES, number)
    with get_default_graph()._attr_scope({"_XlaCompile": wanted, "_XlaScope": f"jit_scope_{number}".encode()}):
        yield


_SCOPES: Any = ("jit scopes",)
