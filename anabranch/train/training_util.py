"""The global step: the variable that counts training steps, by which schedules and checkpoints are numbered."""

from __future__ import annotations

from typing import Any

import numpy as np

from anabranch.core import dtypes
from anabranch.core.dtypes import DTypeLike
from anabranch.core.shapes import ShapeLike
from anabranch.frontend.platform import logging
from anabranch.frontend.variables.partitioned import PartitionInfo
from anabranch.frontend.variables.policy import VariableAggregation
from anabranch.frontend.variables.scope import get_variable
from anabranch.frontend.variables.variables import Variable
from anabranch.graph.collections import GraphKeys
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.graph import Graph, get_default_graph
from anabranch.graph.operation import StepRunner, Tensor
from anabranch.ops import raw

#: the collection that holds the tensor which hooks read
_READ_COLLECTION = "global_step_read_op_cache"


def global_step(sess: StepRunner, global_step_tensor: Tensor | Variable) -> int:
    """The value of a global step (one number, of whatever rank), read in a step of its own."""
    return int(np.asarray(sess.run(global_step_tensor)).item())


def get_global_step(graph: Graph | None = None) -> Variable | None:
    """The global step variable of a graph (default: the default graph).

    It is the one member of the collection `GraphKeys.GLOBAL_STEP`, or else the variable or tensor called "global_step".

    Args:
        graph: default: the default graph.

    Returns:
        A scalar variable or tensor; None if there is none, or the collection holds several, which is logged.

    Raises:
        TypeError: it is not a scalar of an integer dtype.

    Example:
        >>> tf.train.get_global_step() is None
        True
        >>> step = tf.train.create_global_step()
        >>> tf.train.get_global_step() is step
        True
    """
    graph = graph or get_default_graph()
    members = graph.get_collection(GraphKeys.GLOBAL_STEP)
    if len(members) > 1:
        logging.error("Multiple tensors in global_step collection.")
        return None
    step = members[0] if members else named_global_step(graph)
    if step is not None:
        assert_global_step(step)
    result: Variable | None = step
    return result


def named_global_step(graph: Graph) -> Any:
    """The variable or tensor called "global_step", of whatever dtype and shape; None if there is none."""
    for variable in graph.get_collection_ref(GraphKeys.GLOBAL_VARIABLES):
        if variable.name == "global_step:0":
            return variable
    try:
        return graph.get_tensor_by_name("global_step:0")
    except KeyError:
        return None


def create_global_step(graph: Graph | None = None) -> Variable:
    """Creates the global step: int64, shape [], zero, not trainable, in the collection `GraphKeys.GLOBAL_STEP`.

    Raises:
        ValueError: the graph has one already.
    """
    graph = graph or get_default_graph()
    if get_global_step(graph) is not None:
        raise ValueError('"global_step" already exists.')
    with graph.as_default(), graph.name_scope(None):
        return get_variable(
            "global_step",
            shape=[],
            dtype=dtypes.int64,
            initializer=_zero,
            trainable=False,
            aggregation=VariableAggregation.ONLY_FIRST_REPLICA,
            collections=[GraphKeys.GLOBAL_VARIABLES, GraphKeys.GLOBAL_STEP],
        )


def _zero(shape: ShapeLike, dtype: DTypeLike | None = None, partition_info: PartitionInfo | None = None) -> Tensor:
    return convert_to_tensor(np.zeros([], np.int64))


def get_or_create_global_step(graph: Graph | None = None) -> Variable:
    """The global step of a graph, created if there is none.

    Args:
        graph: default: the default graph.

    Returns:
        A variable of dtype int64 and shape [], in `GraphKeys.GLOBAL_STEP`.

    Raises:
        TypeError: what the graph has under that name is not a scalar of an integer dtype.

    Example:
        >>> step = tf.train.get_or_create_global_step()
        >>> sess.run(step.initializer)
        >>> sess.run(step)
        np.int64(0)
    """
    graph = graph or get_default_graph()
    step = get_global_step(graph)
    return create_global_step(graph) if step is None else step


def assert_global_step(global_step_tensor: Tensor | Variable) -> None:
    """Raises TypeError unless this is a variable or tensor that can count steps: an integer scalar."""
    if not isinstance(global_step_tensor, Tensor) and not hasattr(global_step_tensor, "handle"):
        raise TypeError(f'Existing "global_step" must be a Variable or Tensor: {global_step_tensor}.')
    if not global_step_tensor.dtype.base_dtype.is_integer:
        raise TypeError(f'Existing "global_step" does not have integer type: {global_step_tensor.dtype}')
    if global_step_tensor.shape.ndims not in (0, None):
        raise TypeError(f'Existing "global_step" is not scalar: {global_step_tensor.shape}')


def get_or_create_global_step_read(graph: Graph | None = None) -> Tensor | None:
    """The tensor that hooks fetch to learn the global step, made once per graph; None if there is no global step."""
    graph = graph or get_default_graph()
    members = graph.get_collection(_READ_COLLECTION)
    if members:
        tensor: Tensor = members[0]
        return tensor
    variable = get_global_step(graph)
    if variable is None:
        return None
    with graph.as_default(), graph.name_scope(variable.op.name + "/"), graph.control_dependencies(None):
        tensor = raw.Identity(convert_to_tensor(variable), name="hook_read")
    graph.add_to_collection(_READ_COLLECTION, tensor)
    return tensor
