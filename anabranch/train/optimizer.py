"""The base class of optimizers: gradients of a loss, slots beside variables, and update operations  (§4.1).

An optimizer is nothing but graph construction: `compute_gradients` adds the backward pass, `apply_gradients` one update
operation per variable. A new one is a subclass that says which slots it keeps and how a gradient is applied.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

from anabranch.autodiff.dead_ends import explain_missing_gradients
from anabranch.autodiff.gradients import gradients
from anabranch.core import dtypes, nest
from anabranch.core.dtypes import DType, DTypeLike
from anabranch.core.nest import Structure
from anabranch.core.shapes import ShapeLike
from anabranch.core.trackables import Trackable, TrackableReference
from anabranch.core.values import TensorLike
from anabranch.frontend.control_flow import grouping
from anabranch.frontend.framework import init_scope
from anabranch.frontend.variables.policy import outermost_graph
from anabranch.frontend.variables.variables import Variable
from anabranch.graph.collections import GraphKeys
from anabranch.graph.composite import Gradient, IndexedSlices
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.graph import Graph, get_default_graph
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw
from anabranch.train import slot_creator
from anabranch.train.growing_parts import GrowingVariable

GradientsAndVariables = list[tuple[Any, Any]]
#: a number that an optimizer computes with, or a function that gives one when the gradients are applied
HyperParameter: TypeAlias = "TensorLike | Callable[[], TensorLike]"

#: The methods that apply a gradient, the preferred one first: all variables are resources.
_DENSE_METHODS = ("_resource_apply_dense", "_apply_dense")
_SPARSE_METHODS = (
    "_resource_apply_sparse_duplicate_indices",
    "_resource_apply_sparse",
    "_apply_sparse_duplicate_indices",
    "_apply_sparse",
)


class Optimizer(Trackable):
    """Base class of optimizers.

    A subclass overrides `_create_slots`, `_prepare`, `_finish`, and `_resource_apply_dense(grad, var)` and
    `_resource_apply_sparse(grad, var, indices)`. One that was written for other kinds of variables, with
    `_apply_dense(grad, var)` and `_apply_sparse(grad, var)`, works too: of the two forms, the one overridden in the
    most derived class is called.

    Args:
        use_locking: accepted for programs that pass it; updates of one variable are always in sequence.
        name: the name scope of the update operations, and the suffix of the slots' names.

    Raises:
        ValueError: the name is empty.

    Example:
        >>> class SignOptimizer(tf.train.Optimizer):
        ...     def _resource_apply_dense(self, grad, var):
        ...         return var.assign_sub(0.25 * tf.sign(grad))
        >>> w = tf.get_variable("w", initializer=1.0, use_resource=True)
        >>> step = SignOptimizer(False, "Sign").minimize(tf.square(w))
        >>> sess.run(w.initializer)
        >>> sess.run(step)
        >>> sess.run(w)
        np.float32(0.75)
    """

    #: Values for `gate_gradients`: gradients may be used as soon as they exist; when all gradients of the operation
    #: that they belong to exist; when all gradients exist.
    GATE_NONE = 0
    GATE_OP = 1
    GATE_GRAPH = 2

    def __init__(self, use_locking: bool, name: str) -> None:
        if not name:
            raise ValueError("Must specify the optimizer name")
        self._use_locking = use_locking
        self._name = name
        self._slots: dict[str, dict[Any, Any]] = {}
        self._non_slot_dict: dict[tuple[str, Graph], Any] = {}

    def get_name(self) -> str:
        """The name given at construction."""
        return self._name

    # ------------------------------------------------------------------ public steps
    def minimize(
        self,
        loss: TensorLike,
        global_step: Variable | None = None,
        var_list: Structure | None = None,
        gate_gradients: int = GATE_OP,
        aggregation_method: int | None = None,
        colocate_gradients_with_ops: bool = False,
        name: str | None = None,
        grad_loss: TensorLike | None = None,
    ) -> Operation:
        """Adds the operations that make `loss` smaller: `compute_gradients`, then `apply_gradients`.

        Args:
            loss: what to minimize, or a function that returns it.
            global_step: a variable that is incremented after the update.
            var_list: the variables to change; default: the trainable variables of the graph.
            gate_gradients: `GATE_NONE`, `GATE_OP` or `GATE_GRAPH`.
            aggregation_method: how gradients that meet are summed, a value of `AggregationMethod`.
            colocate_gradients_with_ops: whether gradients are computed where the operations they belong to are.
            name: of the returned operation; default: the optimizer's name.
            grad_loss: the gradient of what follows the loss, of its shape.

        Returns:
            The operation that updates the variables and increments `global_step`.

        Raises:
            ValueError: no variable has a gradient.

        Example:
            >>> w = tf.get_variable("w", initializer=1.0)
            >>> step = tf.train.GradientDescentOptimizer(0.25).minimize(tf.square(w))
            >>> sess.run(w.initializer)
            >>> sess.run(step)
            >>> sess.run(w)
            np.float32(0.5)
        """
        loss = loss() if callable(loss) else loss
        grads_and_vars = self.compute_gradients(
            loss,
            var_list=var_list,
            gate_gradients=gate_gradients,
            aggregation_method=aggregation_method,
            colocate_gradients_with_ops=colocate_gradients_with_ops,
            grad_loss=grad_loss,
        )
        if all(grad is None for grad, _ in grads_and_vars):
            names = [str(var) for _, var in grads_and_vars]
            raise ValueError(
                "No gradients provided for any variable, check your graph for ops that do not support gradients, "
                f"between variables {names} and loss {loss}. "
                + explain_missing_gradients([loss], [var for _, var in grads_and_vars])
            )
        return self.apply_gradients(grads_and_vars, global_step=global_step, name=name)

    def compute_gradients(
        self,
        loss: TensorLike,
        var_list: Structure | None = None,
        gate_gradients: int = GATE_OP,
        aggregation_method: int | None = None,
        colocate_gradients_with_ops: bool = False,
        grad_loss: TensorLike | None = None,
    ) -> GradientsAndVariables:
        """Adds the backward pass. Arguments as in `minimize`; `var_list` may hold tensors too.

        Args:
            loss: what to minimize, a tensor or a function that returns it.
            var_list: the variables, and tensors; default: the trainable variables of the graph.
            gate_gradients, aggregation_method, colocate_gradients_with_ops, grad_loss: as of `minimize`.

        Returns:
            Pairs (gradient, variable); the gradient is a tensor, an `IndexedSlices`, or None.

        Raises:
            TypeError: `var_list` holds something else than variables and tensors.
            ValueError: there are no variables, one has a dtype that this optimizer cannot update, or `gate_gradients`
                is no such value.

        Example:
            >>> w = tf.get_variable("w", initializer=3.0)
            >>> (gradient, variable), = tf.train.GradientDescentOptimizer(0.1).compute_gradients(tf.square(w))
            >>> sess.run(w.initializer)
            >>> sess.run(gradient), variable is w
            (np.float32(6.0), True)
        """
        if gate_gradients not in (self.GATE_NONE, self.GATE_OP, self.GATE_GRAPH):
            raise ValueError(
                "gate_gradients must be one of: Optimizer.GATE_NONE, Optimizer.GATE_OP, Optimizer.GATE_GRAPH. "
                f"Not {gate_gradients}"
            )
        loss = loss() if callable(loss) else loss
        self._assert_valid_dtypes([_as_tensor(loss)])
        if grad_loss is not None:
            self._assert_valid_dtypes([_as_tensor(grad_loss)])
        variables = _variables_to_train(var_list)
        if not variables:
            raise ValueError("No variables to optimize.")
        grads = gradients(
            loss,
            variables,
            grad_ys=grad_loss,
            gate_gradients=gate_gradients == self.GATE_OP,
            aggregation_method=aggregation_method,
            colocate_gradients_with_ops=colocate_gradients_with_ops,
        )
        if gate_gradients == self.GATE_GRAPH:
            grads = grouping.tuple(grads)
        self._assert_valid_dtypes([v for g, v in zip(grads, variables, strict=True) if g is not None])
        return list(zip(grads, variables, strict=True))

    def apply_gradients(
        self, grads_and_vars: Iterable[tuple[Any, Any]], global_step: Variable | None = None, name: str | None = None
    ) -> Operation:
        """Adds the updates.

        Args:
            grads_and_vars: pairs as `compute_gradients` returns them.
            global_step: a variable that is incremented after the updates.
            name: of the returned operation; default: the optimizer's name.

        Returns:
            The operation that updates the variables and increments `global_step`.

        Raises:
            TypeError: a gradient is neither a tensor, an `IndexedSlices` nor None, or a variable is none.
            ValueError: no pairs, or none with a gradient.

        Example:
            >>> w = tf.get_variable("w", initializer=3.0)
            >>> step = tf.train.GradientDescentOptimizer(0.5).apply_gradients([(tf.constant(1.0), w)])
            >>> sess.run(w.initializer)
            >>> sess.run(step)
            >>> sess.run(w)
            np.float32(2.5)
        """
        pairs = [(_checked_gradient(g), _checked_variable(v)) for g, v in grads_and_vars]
        if not pairs:
            raise ValueError("No variables provided.")
        updated = [var for grad, var in pairs if grad is not None]
        if not updated:
            raise ValueError(f"No gradients provided for any variable: {[str(v) for _, v in pairs]}.")
        with init_scope():
            self._create_slots(updated)
        graph = get_default_graph()
        with graph.name_scope(name or self._name) as scope:
            self._prepare()
            update_ops = [self._update(grad, var) for grad, var in pairs if grad is not None]
            if global_step is None:
                train_op = self._finish(update_ops, scope)
            else:
                # where steps are counted: by way of this worker, the count would wait for two messages and not for one
                counts_on = global_step.device
                with graph.device(counts_on) if counts_on else contextlib.nullcontext():
                    finished = self._finish(update_ops, "update")
                with graph.control_dependencies([finished]):
                    train_op = _increment(global_step, scope)
            train_op = _as_operation(train_op)
            if train_op not in graph.get_collection_ref(GraphKeys.TRAIN_OP):
                graph.add_to_collection(GraphKeys.TRAIN_OP, train_op)
            return train_op

    # ------------------------------------------------------------------ slots
    def get_slot(self, var: Variable, name: str) -> Variable | None:
        """The slot `name` of a variable (a variable of the same shape, such as its momentum), or None."""
        return self._slots.get(name, {}).get(_variable_key(var))

    def _kept_slot(self, var: Variable, name: str) -> Variable:
        """The slot `name` of a variable that has one: what update operations take."""
        slot = self.get_slot(var, name)
        assert slot is not None, f"the optimizer {self._name!r} keeps no {name!r} for {var}"
        return slot

    def get_slot_names(self) -> list[str]:
        """The names of the slots that this optimizer has created, sorted."""
        return sorted(self._slots)

    def variables(self) -> list[Any]:
        """The variables in which this optimizer keeps its state in the default graph, by name."""
        graph = get_default_graph()
        kept = [*self._non_slot_variables(), *(slot for slots in self._slots.values() for slot in slots.values())]
        return sorted((v for v in kept if v.graph is graph), key=lambda v: str(v.name))

    def _slot_dict(self, slot_name: str) -> dict[Any, Any]:
        return self._slots.setdefault(slot_name, {})

    def _get_or_make_slot(self, var: Variable, val: TensorLike, slot_name: str, op_name: str) -> Any:
        """The slot of `var`, created with the initial value `val` and called ``<variable>/<op_name>``."""
        return self._slot(var, slot_name, lambda: slot_creator.create_slot(var, val, op_name))

    def _get_or_make_slot_with_initializer(
        self,
        var: Variable,
        initializer: Callable[..., Any],
        shape: ShapeLike,
        dtype: DTypeLike,
        slot_name: str,
        op_name: str,
    ) -> Any:
        """The same as `_get_or_make_slot`, with an initializer: a function of shape and dtype."""
        return self._slot(
            var,
            slot_name,
            lambda: slot_creator.create_slot_with_initializer(var, initializer, shape, dtype, op_name),
        )

    def _zeros_slot(self, var: Variable, slot_name: str, op_name: str) -> Any:
        """The slot of `var`, created full of zeros."""
        return self._slot(var, slot_name, lambda: slot_creator.create_zeros_slot(var, op_name))

    def _slot(self, var: Variable, slot_name: str, create: Callable[[], Any]) -> Any:
        named = self._slot_dict(slot_name)
        key = _variable_key(var)
        if key not in named:
            named[key] = create()
        return named[key]

    def _create_non_slot_variable(self, initial_value: TensorLike, name: str, colocate_with: Variable) -> Any:
        """State that belongs to no variable, one per name and graph, on the device of `colocate_with`."""
        graph = colocate_with.graph
        key = (name, graph)
        if key not in self._non_slot_dict:
            with graph.colocate_with(colocate_with):
                self._non_slot_dict[key] = Variable(initial_value, name=name, trainable=False)
        return self._non_slot_dict[key]

    def _get_non_slot_variable(self, name: str, graph: Graph | None = None) -> Any:
        return self._non_slot_dict.get((name, outermost_graph(graph)))

    def _non_slot_variables(self) -> list[Any]:
        return list(self._non_slot_dict.values())

    @property
    def _checkpoint_dependencies(self) -> list[TrackableReference]:
        """What belongs to no variable, in the default graph; and optimizers and the like inside this one.

        Checkpoints find slots by `get_slot_names` and `get_slot`.
        """
        graph = get_default_graph()
        held = {name: v for (name, _), v in self._non_slot_dict.items() if v.graph is graph}
        inside = {name: value for name, value in vars(self).items() if isinstance(value, Trackable)}
        everything = self._self_dependencies | dict(sorted(held.items())) | inside
        return [TrackableReference(*item) for item in everything.items()]

    # ------------------------------------------------------------------ what subclasses say
    def _valid_dtypes(self) -> set[DType]:
        """The dtypes of losses, variables and gradients that this optimizer works on."""
        return {dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64}

    def _create_slots(self, var_list: Sequence[Any]) -> None:
        """Creates the slots of the variables that will be updated. Default: none."""

    def _prepare(self) -> None:
        """Makes the tensors that all updates need, such as the learning rate's. Default: none."""

    def _apply_dense(self, grad: Tensor, var: Variable) -> Any:
        """Returns an operation that applies a dense gradient."""
        raise NotImplementedError(f"{type(self).__name__} does not say how to apply a dense gradient ({grad.name})")

    def _resource_apply_dense(self, grad: Tensor, handle: Variable) -> Any:
        """Returns an operation that applies a dense gradient; `handle` is the variable."""
        raise NotImplementedError(f"{type(self).__name__} does not say how to apply a dense gradient ({grad.name})")

    def _apply_sparse_duplicate_indices(self, grad: IndexedSlices, var: Variable) -> Any:
        """Applies a sparse gradient whose rows may repeat. Default: sums equal rows, then `_apply_sparse`."""
        values, indices = deduplicated(grad.values, grad.indices)
        return self._apply_sparse(IndexedSlices(values, indices, grad.dense_shape), var)

    def _apply_sparse(self, grad: IndexedSlices, var: Variable) -> Any:
        """Returns an operation that applies a sparse gradient, no row of which repeats."""
        raise NotImplementedError(f"{type(self).__name__} does not say how to apply a sparse gradient ({grad.name})")

    def _resource_apply_sparse_duplicate_indices(self, grad: Tensor, handle: Variable, indices: Tensor) -> Any:
        """Applies the rows `grad` at `indices`, which may repeat.

        Default: sums equal rows, then `_resource_apply_sparse`.
        """
        values, unique_indices = deduplicated(grad, indices)
        return self._resource_apply_sparse(values, handle, unique_indices)

    def _resource_apply_sparse(self, grad: Tensor, handle: Variable, indices: Tensor) -> Any:
        """Returns an operation that applies the rows `grad` at `indices`, none of which repeats."""
        raise NotImplementedError(f"{type(self).__name__} does not say how to apply a sparse gradient ({grad.name})")

    def _finish(self, update_ops: list[Any], name_scope: str) -> Any:
        """Returns the operation called `name_scope` that runs all updates. Override to add some at the end."""
        return grouping.group(*update_ops, name=name_scope)

    def _call_if_callable(self, param: HyperParameter) -> Any:
        """The value of a hyperparameter that may be given as a function."""
        return param() if callable(param) else param

    def _hyperparameter(self, value: HyperParameter, name: str) -> Tensor:
        """The tensor of a number, tensor, variable or function that was given as a hyperparameter."""
        return convert_to_tensor(self._call_if_callable(value), name=name)

    # ------------------------------------------------------------------ one variable
    def _update(self, grad: Gradient, var: Variable) -> Any:
        """The operation that applies one gradient, followed by the variable's constraint."""
        graph = get_default_graph()
        with graph.name_scope("update_" + var.op.name), graph.colocate_with(var):
            if isinstance(grad, IndexedSlices):
                if var.constraint is not None:
                    raise RuntimeError("Cannot use a constraint function on a sparse variable.")
                with graph.control_dependencies(var.part.attached() if isinstance(var, GrowingVariable) else []):
                    return self._apply_rows(grad, var)
            update = self._apply_whole(grad, var)
            if var.constraint is None:
                return update
            with graph.control_dependencies([update]):
                return var.assign(var.constraint(var.read_value())).op

    def _apply_whole(self, grad: Tensor, var: Variable) -> Any:
        methods = sorted(_DENSE_METHODS, key=self._distance)
        try:
            return getattr(self, methods[0])(grad, var)
        except NotImplementedError:
            if self._distance(methods[1]) == self._distance(""):
                raise
            return getattr(self, methods[1])(grad, var)

    def _apply_rows(self, grad: IndexedSlices, var: Variable) -> Any:
        if min(_SPARSE_METHODS, key=self._distance).startswith("_resource"):
            return self._resource_apply_sparse_duplicate_indices(grad.values, var, grad.indices)
        return self._apply_sparse_duplicate_indices(grad, var)

    def _distance(self, method: str) -> int:
        """How far above this object's class the override of a method stands; `Optimizer` itself is farthest."""
        classes = type(self).__mro__
        end = classes.index(Optimizer)
        return next((i for i, cls in enumerate(classes[:end]) if method in vars(cls)), end)

    def _assert_valid_dtypes(self, tensors: Iterable[Any]) -> None:
        valid = self._valid_dtypes()
        for tensor in tensors:
            dtype = tensor.dtype.base_dtype
            if dtype not in valid:
                names = sorted(d.name for d in valid)
                raise ValueError(f"Invalid type {dtype.name!r} for {tensor.name}, expected: {names}. Use tf.cast.")


# ---------------------------------------------------------------------- helpers
def _variable_key(var: Variable) -> Any:
    return (var.op.graph, var.op.name)


def _as_tensor(value: TensorLike) -> Any:
    return value if isinstance(value, IndexedSlices) else convert_to_tensor(value)


def _as_operation(value: Operation | Tensor) -> Operation:
    """The operation behind what `_finish` returned: an operation, a tensor, or what an assignment gives."""
    return value if isinstance(value, Operation) else value.op


def _variables_to_train(var_list: Structure) -> list[Any]:
    graph = get_default_graph()
    if var_list is None:
        var_list = [
            *graph.get_collection(GraphKeys.TRAINABLE_VARIABLES),
            *graph.get_collection(GraphKeys.TRAINABLE_RESOURCE_VARIABLES),
        ]
    flat = [part for item in nest.flatten(var_list) for part in _pieces(item)]
    for item in flat:
        if not isinstance(item, Tensor) and not hasattr(item, "handle"):
            raise TypeError(f"Argument is not a variable or tensor: {item!r}")
    return flat


def _pieces(item: Structure) -> list[Any]:
    """A partitioned variable stands for its parts."""
    parts = getattr(item, "_get_variable_list", None)
    return list(parts()) if parts is not None else [item]


def _checked_gradient(grad: TensorLike) -> Any:
    if grad is None or isinstance(grad, Tensor | IndexedSlices):
        return grad
    try:
        return convert_to_tensor(grad)
    except (TypeError, ValueError) as error:
        raise TypeError(f"Gradient must be convertible to a Tensor or IndexedSlices, or None: {grad}") from error


def _checked_variable(var: object) -> Any:
    if isinstance(var, Tensor):
        raise NotImplementedError(f"Trying to update a Tensor {var}; apply_gradients needs variables")
    if not hasattr(var, "handle"):
        raise TypeError(f"Variable must be a tf.Variable: {var!r}")
    return var


def deduplicated(values: Tensor, indices: Tensor) -> tuple[Tensor, Tensor]:
    """The sum of the rows with equal indices, once per index, and these indices."""
    unique = raw.Unique(indices)
    count = raw.StridedSlice(raw.Shape(unique.y), [0], [1], [1], shrink_axis_mask=1)
    return raw.UnsortedSegmentSum(values, unique.idx, count), unique.y


def _increment(global_step: Variable, name: str) -> Operation:
    graph = get_default_graph()
    with graph.colocate_with(global_step):
        one = convert_to_tensor(1, dtype=global_step.dtype.base_dtype)
        op: Operation = raw.AssignAddVariableOp(global_step.handle, one, name=name)
        return op
