"""Functions on variables: listing, initializing and checking them, and updates in function form  (§3.1)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from anabranch.core.dtypes import DType
from anabranch.core.shapes import TensorShape
from anabranch.core.values import TensorLike
from anabranch.frontend.arrays.gathering import boolean_mask
from anabranch.frontend.variables.updates import UnreadVariable, VariableUpdates
from anabranch.frontend.variables.variables import Variable
from anabranch.graph.collections import GraphKeys
from anabranch.graph.composite import IndexedSlices
from anabranch.graph.conversion import REFERENCE, constant_of, convert_to_tensor
from anabranch.graph.graph import Graph, get_default_graph
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw


# ---------------------------------------------------------------------- listing
def global_variables(scope: str | None = None) -> list[Variable]:
    """The variables that all tasks of a cluster share, in the order of creation.

    Args:
        scope: only variables whose name matches this prefix (a regular expression). The same in all functions here.

    Returns:
        A list of variables.

    Raises:
        nothing

    Example:
        >>> v = tf.get_variable("v", [2])
        >>> [variable.name for variable in tf.global_variables()]
        ['v:0']
    """
    return get_default_graph().get_collection(GraphKeys.GLOBAL_VARIABLES, scope)


def all_variables() -> list[Variable]:
    """The old name of `global_variables`.

    Returns:
        A list of variables, in the order of creation.

    Raises:
        nothing

    Example:
        >>> v = tf.get_variable("v", [2])
        >>> tf.all_variables() == [v]
        True
    """
    return global_variables()


def local_variables(scope: str | None = None) -> list[Variable]:
    """The variables of one process that checkpoints leave out, such as those of metrics."""
    return get_default_graph().get_collection(GraphKeys.LOCAL_VARIABLES, scope)


def model_variables(scope: str | None = None) -> list[Variable]:
    """The variables that inference needs."""
    return get_default_graph().get_collection(GraphKeys.MODEL_VARIABLES, scope)


def trainable_variables(scope: str | None = None) -> list[Variable]:
    """The variables that optimizers change by default.

    Args:
        scope: only variables whose name matches this prefix (a regular expression).

    Returns:
        A list of variables, in the order of creation.

    Raises:
        nothing

    Example:
        >>> weights = tf.get_variable("weights", [2])
        >>> steps = tf.get_variable("steps", [], trainable=False)
        >>> [v.name for v in tf.trainable_variables()]
        ['weights:0']
    """
    return get_default_graph().get_collection(GraphKeys.TRAINABLE_VARIABLES, scope)


def moving_average_variables(scope: str | None = None) -> list[Variable]:
    """The variables of which an `ExponentialMovingAverage` keeps averages."""
    return get_default_graph().get_collection(GraphKeys.MOVING_AVERAGE_VARIABLES, scope)


# ---------------------------------------------------------------------- initializing
def variables_initializer(var_list: Iterable[Variable], name: str = "init") -> Operation:
    """An operation that initializes the variables of `var_list`, all in one step.

    Args:
        var_list: a list of variables.
        name: of the operation.

    Returns:
        An operation.

    Raises:
        AttributeError: the list holds something else than variables.

    Example:
        >>> a, b = tf.get_variable("a", initializer=1.0), tf.get_variable("b", initializer=2.0)
        >>> sess.run(tf.variables_initializer([a, b]))
        >>> sess.run([a, b])
        [np.float32(1.0), np.float32(2.0)]
    """
    initializers = [v.initializer for v in var_list or []]
    graph = initializers[0].graph if initializers else get_default_graph()
    with graph.as_default(), graph.control_dependencies(initializers):
        op: Operation = raw.NoOp(name=name)
        return op


def initialize_variables(var_list: Iterable[Variable], name: str = "init") -> Operation:
    """The old name of `variables_initializer`."""
    return variables_initializer(var_list, name)


def global_variables_initializer() -> Operation:
    """An operation, named "init", that initializes all global variables.

    Returns:
        An operation; it does nothing where there are no variables.

    Raises:
        nothing

    Example:
        >>> v = tf.get_variable("v", initializer=[1.0, 2.0])
        >>> sess.run(tf.global_variables_initializer())
        >>> sess.run(v)
        array([1., 2.], dtype=float32)
    """
    return variables_initializer(global_variables())


def initialize_all_variables() -> Operation:
    """The old name of `global_variables_initializer`.

    Returns:
        An operation.

    Raises:
        nothing

    Example:
        >>> v = tf.get_variable("v", initializer=1.0)
        >>> sess.run(tf.initialize_all_variables())
    """
    return global_variables_initializer()


def local_variables_initializer() -> Operation:
    """An operation, named "init", that initializes all local variables.

    Returns:
        An operation; it does nothing where there are no local variables.

    Raises:
        nothing

    Example:
        >>> _, update = tf.metrics.mean([1.0, 2.0])
        >>> sess.run(tf.local_variables_initializer())
        >>> sess.run(update)
        np.float32(1.5)
    """
    return variables_initializer(local_variables())


def initialize_local_variables() -> Operation:
    """The old name of `local_variables_initializer`."""
    return local_variables_initializer()


def is_variable_initialized(variable: Variable | Tensor) -> Tensor:
    """Whether the variable (or the variable that a handle names) has a value: bool, shape []."""
    if isinstance(variable, Tensor):
        handle = variable.op.inputs[0] if REFERENCE in variable.op.attrs else variable
        result: Tensor = raw.VarIsInitializedOp(handle)
        return result
    return variable.is_initialized()


def assert_variables_initialized(var_list: Iterable[Variable] | None = None) -> Tensor | None:
    """A tensor whose evaluation fails with `FailedPreconditionError` if a variable has no value.

    Args:
        var_list: default: all global and local variables.

    Returns:
        None where there is no variable.
    """
    variables = _global_and_local() if var_list is None else list(var_list)
    if not variables:
        return None
    with get_default_graph().name_scope("assert_variables_initialized"):
        shapes = [raw.VariableShape(v.handle) for v in variables]
        tensor: Tensor = raw.ConcatV2(shapes, axis=0) if len(shapes) > 1 else raw.Identity(shapes[0])
        return tensor


def report_uninitialized_variables(
    var_list: Iterable[Variable] | None = None, name: str = "report_uninitialized_variables"
) -> Tensor:
    """The names of the variables that have no value: string, shape [n], without the ":0".

    Args:
        var_list: default: all global and local variables.
    """
    variables = _global_and_local() if var_list is None else list(var_list)
    with get_default_graph().name_scope(name):
        names = constant_of(np.array([v.op.name.encode() for v in variables], object), "Const")
        if not variables:
            return names
        initialized = raw.Pack([v.is_initialized() for v in variables], name="stack")
        missing: Tensor = boolean_mask(names, raw.LogicalNot(initialized))
        return missing


def _global_and_local() -> list[Any]:
    return list(dict.fromkeys([*global_variables(), *local_variables()]))


# ---------------------------------------------------------------------- updates
class _Referenced(VariableUpdates):
    """The variable that a tensor is a reference to, as graphs of older programs have them."""

    def __init__(self, reference: Tensor) -> None:
        self._reference = reference

    @property
    def handle(self) -> Tensor:
        return self._reference.op.inputs[0]

    @property
    def name(self) -> str:
        return self._reference.name

    @property
    def dtype(self) -> DType:
        return self._reference.dtype

    @property
    def shape(self) -> TensorShape:
        return self._reference.shape

    @property
    def graph(self) -> Graph:
        return self._reference.graph

    def value(self) -> Tensor:
        return convert_to_tensor(self._reference)

    _read = value


def _variable(ref: Variable) -> Any:
    if isinstance(ref, Variable) or hasattr(ref, "assign"):
        return ref
    if isinstance(ref, Tensor) and REFERENCE in ref.op.attrs:
        return _Referenced(ref)
    raise TypeError(
        f"a variable is needed to assign to, got {ref!r}; a tensor (v + 1, tf.identity(v)) has no memory of its own"
    )


def assign(
    ref: Variable,
    value: TensorLike,
    validate_shape: bool | None = None,
    use_locking: bool | None = None,
    name: str | None = None,
) -> UnreadVariable:
    """Replaces the value of a variable.

    Args:
        ref: the variable.
        value: of its dtype and of a shape that its static shape allows.
        validate_shape, use_locking: accepted; the variable's own static shape decides, and updates are in sequence.
        name: of the operation.

    Returns:
        The variable's value after the assignment.

    Raises:
        TypeError: `ref` is not a variable (holds for all updates).
        ValueError: the shape or dtype of `value` does not fit.

    Example:
        >>> v = tf.get_variable("v", initializer=1.0)
        >>> sess.run(v.initializer)
        >>> sess.run(tf.assign(v, 5.0))
        np.float32(5.0)
    """
    result: UnreadVariable = _variable(ref).assign(value, name=name)
    return result


def assign_add(
    ref: Variable, value: TensorLike, use_locking: bool | None = None, name: str | None = None
) -> UnreadVariable:
    """Adds to a variable.

    Args:
        ref: the variable.
        value: of its dtype and shape.
        use_locking: accepted; updates are in sequence.
        name: of the operation.

    Returns:
        The variable's value afterwards, of its shape.

    Raises:
        TypeError: `ref` is not a variable.
        ValueError: the shape or dtype of `value` does not fit.

    Example:
        >>> v = tf.get_variable("v", initializer=1.0)
        >>> sess.run(v.initializer)
        >>> sess.run(tf.assign_add(v, 5.0))
        np.float32(6.0)
    """
    result: UnreadVariable = _variable(ref).assign_add(value, name=name)
    return result


def assign_sub(
    ref: Variable, value: TensorLike, use_locking: bool | None = None, name: str | None = None
) -> UnreadVariable:
    """Subtracts `value`; the result is the variable's value afterwards."""
    result: UnreadVariable = _variable(ref).assign_sub(value, name=name)
    return result


def count_up_to(ref: Variable, limit: int, name: str | None = None) -> Tensor:
    """Adds one until `limit` is reached, then fails with `OutOfRangeError`; the result is the value before."""
    variable = _variable(ref)
    result: Tensor = raw.ResourceCountUpTo(variable.handle, limit=limit, T=variable.dtype, name=name)
    return result


_SCATTER_DOC = """{what}; the result is the variable's value afterwards.

    Args:
        ref: the variable.
        indices: row numbers, int32 or int64, of any shape; one that occurs twice counts twice.
        updates: of ref's dtype; shape {shape}, or a scalar for all.
        use_locking: accepted; updates of one variable are always in sequence.

    Raises:
        InvalidArgumentError: (in the step) a row number is out of range; the variable keeps its value.
    """
_SCATTER_ND_DOC = """{what}; the result is the variable's value afterwards.

    Args:
        ref: the variable.
        indices: int32 or int64 [..., k]: each vector is the position of an element, or of a slice if k < ref's rank.
        updates: of ref's dtype; shape ``indices.shape[:-1] + ref.shape[k:]``.
        use_locking: accepted; updates of one variable are always in sequence.

    Raises:
        InvalidArgumentError: (in the step) a position is out of range; the variable keeps its value.
    """


def _scatter(method: str, what: str, shape: str = "``indices.shape + ref.shape[1:]``") -> Callable[..., UnreadVariable]:
    def scatter(
        ref: Variable, indices: TensorLike, updates: TensorLike, use_locking: bool = False, name: str | None = None
    ) -> UnreadVariable:
        variable = _variable(ref)
        slices = IndexedSlices(convert_to_tensor(updates, variable.dtype), convert_to_tensor(indices))
        result: UnreadVariable = getattr(variable, method)(slices, name=name)
        return result

    scatter.__name__ = scatter.__qualname__ = method
    scatter.__doc__ = _SCATTER_DOC.format(what=what, shape=shape)
    return scatter


def _scatter_nd(method: str, what: str) -> Callable[..., UnreadVariable]:
    def scatter(
        ref: Variable, indices: TensorLike, updates: TensorLike, use_locking: bool = False, name: str | None = None
    ) -> UnreadVariable:
        result: UnreadVariable = getattr(_variable(ref), method)(indices, updates, name=name)
        return result

    scatter.__name__ = scatter.__qualname__ = method
    scatter.__doc__ = _SCATTER_ND_DOC.format(what=what)
    return scatter


scatter_update = _scatter("scatter_update", "Replaces rows of a variable")
scatter_add = _scatter("scatter_add", "Adds to rows of a variable")
scatter_sub = _scatter("scatter_sub", "Subtracts from rows of a variable")
scatter_mul = _scatter("scatter_mul", "Multiplies rows of a variable")
scatter_div = _scatter("scatter_div", "Divides rows of a variable")
scatter_min = _scatter("scatter_min", "Lowers rows of a variable to at most the updates")
scatter_max = _scatter("scatter_max", "Raises rows of a variable to at least the updates")
batch_scatter_update = _scatter(
    "batch_scatter_update",
    "Replaces, in each element of a batch, rows of a variable (numbered within the element)",
    "``indices.shape + ref.shape[indices.ndims:]``",
)
scatter_nd_update = _scatter_nd("scatter_nd_update", "Replaces elements or slices of a variable")
scatter_nd_add = _scatter_nd("scatter_nd_add", "Adds to elements or slices of a variable")
scatter_nd_sub = _scatter_nd("scatter_nd_sub", "Subtracts from elements or slices of a variable")
