"""The class that all layers extend: names, variables, sharing, losses and updates."""

from __future__ import annotations

import copy
import inspect
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from anabranch.core import nest
from anabranch.core.dtypes import DType, DTypeLike, as_dtype, float32
from anabranch.core.nest import Structure
from anabranch.core.shapes import ShapeLike, TensorShape
from anabranch.core.trackables import AutoTrackable, Trackable, hide_attributes
from anabranch.core.values import PassedOn, TensorLike
from anabranch.frontend.arguments import InitializerLike, Partitioner
from anabranch.frontend.framework import init_scope, is_tensor
from anabranch.frontend.layers.input_spec import InputSpec
from anabranch.frontend.layers.style import owns_variables
from anabranch.frontend.layers.utils import get_initializer
from anabranch.frontend.variables.initializers import glorot_uniform_initializer, zeros_initializer
from anabranch.frontend.variables.partitioned import PartitionedVariable
from anabranch.frontend.variables.policy import VariableAggregation, VariableSynchronization, outermost_graph
from anabranch.frontend.variables.scope import VariableScope, get_variable, variable_scope
from anabranch.frontend.variables.variables import Variable
from anabranch.graph.collections import GraphKeys
from anabranch.graph.composite import SparseTensor
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.graph import Graph, get_default_graph
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw


class _NameCounts:
    """How many layers of each kind a graph has."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()


_NAMES: Any = ("layer names",)


def _unique_layer_name(base: str) -> str:
    held = get_default_graph().get_collection_ref(_NAMES)
    if not held:
        held.append(_NameCounts())
    counts: Counter[str] = held[0].counts
    counts[base] += 1
    return f"{base}_{counts[base]}"


def _snake_case(name: str) -> str:
    split = re.sub("(.)([A-Z][a-z0-9]+)", r"\1_\2", name)
    snake = re.sub("([a-z])([A-Z])", r"\1_\2", split).lower()
    return "private" + snake if snake[0] == "_" else snake


class Layer(AutoTrackable):
    """A function of tensors that owns variables.

    A subclass makes its variables in `build` (called once, with the shape of the first input) by `add_weight`, and
    computes in `call`. The variables live in a variable scope that is fixed by the first call; calling the layer
    again uses the same variables.

    Args:
        trainable: whether its variables are added to `GraphKeys.TRAINABLE_VARIABLES`.
        name: its name; default: the class's name in small letters with a number.
        dtype: of its variables; default: that of the first input.
        activity_regularizer: function from an output to a loss; the loss is divided by the batch's size.
        _reuse: whether variables of the scope exist already (see `tf.variable_scope`).
        _scope: variable scope for its variables.

    Raises:
        TypeError: an argument that layers do not have.
    """

    def __init__(
        self,
        trainable: bool = True,
        name: str | VariableScope | None = None,
        dtype: DTypeLike | None = None,
        **kwargs: PassedOn,
    ) -> None:
        scope = kwargs.pop("_scope", None)
        self._reuse = kwargs.pop("_reuse", None)
        self.activity_regularizer: Callable[..., Any] | None = kwargs.pop("activity_regularizer", None)
        input_shape = kwargs.pop("input_shape", None)
        self._batch_input_shape = kwargs.pop("batch_input_shape", input_shape)
        if kwargs:
            raise TypeError(f"{type(self).__name__} has no argument {next(iter(kwargs))!r}")
        self.trainable = trainable
        self._set_name(name)
        self._dtype = None if dtype is None else as_dtype(dtype).name
        self.built = False
        self.stateful = False
        self.supports_masking = False
        self.input_spec: InputSpec | list[InputSpec] | None = None
        self._trainable_weights: list[Any] = []
        self._non_trainable_weights: list[Any] = []
        self._losses: list[tuple[Any, Any]] = []
        self._updates: list[tuple[Any, Any]] = []
        self._calls: list[tuple[Any, Any]] = []
        # checkpoints know the variables by the names that `add_weight` was given
        hide_attributes(self, ("_trainable_weights", "_non_trainable_weights", "_losses", "_updates", "_calls"))
        self._graph = get_default_graph()
        self._current_scope: VariableScope | None = None
        self._scope: VariableScope | None = None
        self._owns_variables = owns_variables()
        self._own_scope: str | None = None
        if self._owns_variables and (scope is not None or self._reuse):
            raise ValueError(f"layer {self.name} owns its variables (Keras style), and takes neither scope nor reuse")
        if scope is not None:
            with variable_scope(scope) as captured:
                self._scope = captured

    def _set_name(self, name: str | VariableScope | None) -> None:
        base = _snake_case(type(self).__name__)
        if isinstance(name, VariableScope):
            self._base_name: str = name.name
            self._name: str = _unique_layer_name(base)
        else:
            self._base_name = name or base
            self._name = name or _unique_layer_name(base)

    # ------------------------------------------------------------------ what subclasses define
    def build(self, input_shape: ShapeLike) -> None:
        """Makes the layer's variables; called before the first `call`."""
        self.built = True

    def call(self, inputs: TensorLike, *args: PassedOn, **kwargs: PassedOn) -> nest.Structure:
        """What the layer computes."""
        return inputs

    def compute_output_shape(self, input_shape: ShapeLike) -> nest.Structure:
        """The shape of the output for an input of this shape."""
        raise NotImplementedError(f"layer {self.name} does not tell its output's shape")

    # ------------------------------------------------------------------ what it is
    @property
    def name(self) -> str:
        return self._name

    @property
    def dtype(self) -> str | None:
        """The name of its variables' dtype; None before the first call where none was given."""
        return self._dtype

    @property
    def graph(self) -> Graph:
        return self._graph

    @property
    def scope_name(self) -> str:
        """The variable scope of its variables.

        Raises:
            ValueError: the layer was not called yet.
        """
        if self._scope is None:
            raise ValueError(
                f"No name available for layer scope because the layer {self._name!r} has not been used yet. "
                "The scope name is determined the first time the layer is called; call it first"
            )
        return self._scope.name

    @property
    def trainable_weights(self) -> list[Any]:
        return list(self._trainable_weights) if self.trainable else []

    @property
    def non_trainable_weights(self) -> list[Any]:
        if self.trainable:
            return list(self._non_trainable_weights)
        return [*self._trainable_weights, *self._non_trainable_weights]

    @property
    def weights(self) -> list[Any]:
        """All variables, the trainable ones first."""
        return [*self.trainable_weights, *self.non_trainable_weights]

    @property
    def trainable_variables(self) -> list[Any]:
        return self.trainable_weights

    @property
    def non_trainable_variables(self) -> list[Any]:
        return self.non_trainable_weights

    @property
    def variables(self) -> list[Any]:
        return self.weights

    @property
    def losses(self) -> list[Any]:
        """The losses of its regularizers and those that it added."""
        return [loss for loss, _ in self._losses]

    @property
    def updates(self) -> list[Any]:
        """The operations that training must run beside the gradient step, such as those of moving averages."""
        return [update for update, _ in self._updates] if self.trainable or self.stateful else []

    def count_params(self) -> int:
        """The number of elements of all variables.

        Raises:
            ValueError: the layer is not built yet.
        """
        if not self.built:
            raise ValueError(f"layer {self.name} has no variables before it is built; call it first")
        return sum(v.shape.num_elements() or 0 for v in self.weights)

    @property
    def input(self) -> nest.Structure:
        """The input of the layer, if it was called once."""
        return self._only_call()[0]

    @property
    def output(self) -> nest.Structure:
        """The output of the layer, if it was called once."""
        return self._only_call()[1]

    @property
    def input_shape(self) -> nest.Structure:
        return nest.map_structure(lambda t: tuple(t.shape.as_list()), self.input)

    @property
    def output_shape(self) -> nest.Structure:
        return nest.map_structure(lambda t: tuple(t.shape.as_list()), self.output)

    def _only_call(self) -> tuple[Any, Any]:
        if len(self._calls) != 1:
            raise AttributeError(
                f"layer {self.name} was called {len(self._calls)} times; its input and output are not unique"
            )
        return self._calls[0]

    # ------------------------------------------------------------------ variables
    def add_weight(
        self,
        name: str,
        shape: ShapeLike,
        dtype: DTypeLike | None = None,
        initializer: InitializerLike | None = None,
        regularizer: Callable[..., Any] | None = None,
        trainable: bool | None = None,
        constraint: Callable[..., Any] | None = None,
        use_resource: bool | None = None,
        synchronization: VariableSynchronization = VariableSynchronization.AUTO,
        aggregation: VariableAggregation = VariableAggregation.NONE,
        partitioner: Partitioner | None = None,
        **kwargs: PassedOn,
    ) -> Variable:
        """A variable of the layer: a new one, or one that is shared.

        Args:
            name: within the layer's variable scope.
            dtype: default: the layer's.
            initializer, regularizer, constraint, partitioner, synchronization, aggregation: see `tf.get_variable`.
            trainable: default True; false for a layer that is not.

        Raises:
            ValueError: trainable, and only brought together when read.
        """
        if trainable and synchronization is VariableSynchronization.ON_READ:
            raise ValueError(f"weight {name!r} of layer {self.name}: ON_READ synchronization needs trainable=False")
        trains = synchronization is not VariableSynchronization.ON_READ if trainable is None else trainable
        if self._owns_variables:
            return self._own_weight(name, shape, as_dtype(dtype or self.dtype or float32), initializer, regularizer,
                                    trains, constraint, use_resource, synchronization, aggregation)  # fmt: skip
        self._set_scope(None)
        assert self._scope is not None
        graph = get_default_graph()
        losses = graph.get_collection_ref(GraphKeys.REGULARIZATION_LOSSES)
        losses_before = len(losses)
        existing = {id(one) for one in graph.get_collection(GraphKeys.GLOBAL_VARIABLES)}
        reuse = self.built or self._reuse
        with variable_scope(self._scope, reuse=reuse, auxiliary_name_scope=False) as scope:
            self._current_scope = scope
            variable = get_variable(
                name,
                shape=shape,
                dtype=as_dtype(dtype or self.dtype or float32),
                initializer=get_initializer(initializer),
                trainable=trains and self.trainable,
                constraint=constraint,
                partitioner=partitioner,
                use_resource=use_resource,
                synchronization=synchronization,
                aggregation=aggregation,
                **kwargs,
            )
            parts = list(variable) if isinstance(variable, PartitionedVariable) else [variable]
            if regularizer and not any(id(part) in existing for part in parts):
                _regularize(parts, f"{scope.original_name_scope}{name}/Regularizer/", regularizer)
        self._losses.extend((loss, None) for loss in losses[losses_before:])
        self._note_variable(variable, name, trains)
        return variable

    def _note_variable(self, variable: TensorLike, name: str, trains: bool) -> None:
        """Counts a variable among the layer's, whose checkpoints have it under the name."""
        (self._trainable_weights if trains else self._non_trainable_weights).append(variable)
        if isinstance(variable, Trackable):  # a getter may have made something else of it
            self._track_trackable(variable, name, overwrite=True)

    def _own_weight(
        self,
        name: str,
        shape: ShapeLike,
        dtype: DType,
        initializer: InitializerLike | None,
        regularizer: Callable[..., Any] | None,
        trains: bool,
        constraint: Callable[..., Any] | None,
        use_resource: bool | None,
        synchronization: VariableSynchronization,
        aggregation: VariableAggregation,
    ) -> Variable:
        """A variable that no store of variables knows."""
        graph = get_default_graph()
        if self._own_scope is None:
            with graph.name_scope(self._name) as opened:
                self._own_scope = opened
        made = get_initializer(initializer)
        if made is None:
            made = glorot_uniform_initializer() if dtype.is_floating else zeros_initializer()
        with graph.name_scope(self._own_scope):
            variable = Variable(
                lambda: made(TensorShape(shape).as_list(), dtype=dtype),
                trainable=trains and self.trainable,
                name=name,
                dtype=dtype,
                constraint=constraint,
                use_resource=use_resource,
                synchronization=synchronization,
                aggregation=aggregation,
            )
            if regularizer is not None:
                with graph.name_scope(f"{name}/Regularizer"):
                    self.add_loss(regularizer(variable))
        self._note_variable(variable, name, trains)
        return variable

    def add_variable(self, *args: PassedOn, **kwargs: PassedOn) -> Variable:
        """The old name of `add_weight`."""
        return self.add_weight(*args, **kwargs)

    def add_loss(self, losses: TensorLike | Sequence[TensorLike], inputs: TensorLike | None = None) -> None:
        """Adds losses to the layer and to `GraphKeys.REGULARIZATION_LOSSES`.

        Args:
            losses: a tensor, a function without arguments that returns one, or a list of these.
            inputs: the tensors that the losses depend on; None for losses of the variables alone.
        """
        for item in losses if isinstance(losses, list | tuple) else [losses]:
            loss = item() if callable(item) else item
            if loss is not None:
                self._losses.append((loss, inputs))
                _add_once(GraphKeys.REGULARIZATION_LOSSES, loss)

    def add_update(
        self, updates: Operation | TensorLike | Sequence[Operation | TensorLike], inputs: TensorLike | None = None
    ) -> None:
        """Adds operations for `GraphKeys.UPDATE_OPS`; `inputs` as in `add_loss`."""
        for update in updates if isinstance(updates, list | tuple) else [updates]:
            self._updates.append((update, inputs))

    def get_losses_for(self, inputs: TensorLike) -> list[Any]:
        """The losses that depend on `inputs`; for None those that depend on no input."""
        return _depending(self._losses, inputs)

    def get_updates_for(self, inputs: TensorLike) -> list[Any]:
        """The updates that depend on `inputs`; for None those that depend on no input."""
        return _depending(self._updates, inputs)

    # ------------------------------------------------------------------ calling
    def _set_scope(self, scope: str | VariableScope | None = None) -> None:
        if self._scope is not None:
            return
        if self._reuse:
            opened = variable_scope(scope if scope is not None else self._base_name)
        else:
            opened = variable_scope(scope, default_name=self._base_name)
        with opened as captured:
            self._scope = captured

    def __call__(self, inputs: TensorLike, *args: PassedOn, **kwargs: PassedOn) -> nest.Structure:
        """The layer's output for `inputs` (a tensor, what converts to one, or a nested structure of these).

        Args:
            args, kwargs: passed on to `call`; `scope` is the variable scope to use in the first call.

        Raises:
            ValueError: an input does not have the rank, shape or dtype that the layer asks for, or is of another graph.
        """
        if self._owns_variables:
            if kwargs.get("scope") is not None:
                raise ValueError(f"layer {self.name} owns its variables (Keras style), and takes no scope")
            self._check_graph(inputs)
            with get_default_graph().name_scope(self._name) as opened:
                self._own_scope = self._own_scope or opened
                return self._compute(inputs, args, kwargs)
        self._set_scope(kwargs.pop("scope", None))
        assert self._scope is not None
        self._check_graph(inputs)
        reuse = True if self.built else self._reuse
        graph = get_default_graph()
        with variable_scope(self._scope, reuse=reuse, auxiliary_name_scope=False) as scope:
            self._current_scope = scope
            if "scope" in _call_parameters(type(self)):
                kwargs["scope"] = scope
            with graph.name_scope(self._name_scope()):
                outputs = self._compute(inputs, args, kwargs)
        # the bodies of functions keep their updates to themselves: an outer step cannot run them
        if not graph.building_function:
            for update in self.updates:
                _add_once(GraphKeys.UPDATE_OPS, update)
        return outputs

    def apply(self, inputs: TensorLike, *args: PassedOn, **kwargs: PassedOn) -> nest.Structure:
        """The same as calling the layer."""
        return self(inputs, *args, **kwargs)

    def _name_scope(self) -> str:
        assert self._current_scope is not None
        return self._current_scope.original_name_scope

    def _compute(self, inputs: TensorLike, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        inputs = nest.map_structure(
            lambda v: v if v is None or isinstance(v, Tensor | SparseTensor) else convert_to_tensor(v), inputs
        )
        tensors = [t for t in nest.flatten(inputs) if isinstance(t, Tensor)]
        self._check_inputs(tensors)
        if not self.built:
            if self._dtype is None and tensors:
                self._dtype = tensors[0].dtype.base_dtype.name
            self.build(nest.map_structure(lambda t: getattr(t, "shape", TensorShape(None)), inputs))
            self.built = True
            # rank and sizes that `build` learnt hold for this input too
            self._check_inputs(tensors)
        outputs = self.call(inputs, *args, **kwargs)
        if self.activity_regularizer is not None:
            self._regularize_activity(inputs, outputs)
        self._calls.append((inputs, outputs))
        return outputs

    def _check_inputs(self, tensors: list[Tensor]) -> None:
        if self.input_spec is None:
            return
        specs = self.input_spec if isinstance(self.input_spec, list | tuple) else [self.input_spec]
        if len(specs) != len(tensors):
            raise ValueError(
                f"Layer {self.name} expects {len(specs)} inputs, but it received {len(tensors)} input tensors"
            )
        for i, (spec, tensor) in enumerate(zip(specs, tensors, strict=True)):
            if spec is not None:
                spec.check(tensor, i, self.name)

    def _check_graph(self, inputs: TensorLike) -> None:
        for tensor in nest.flatten(inputs):
            if isinstance(tensor, Tensor) and outermost_graph(tensor.graph) is not outermost_graph(self._graph):
                raise ValueError(
                    f"layer {self.name} belongs to another graph than its input {tensor.name}; make the layer while "
                    "the input's graph is the default graph"
                )

    def _regularize_activity(self, inputs: TensorLike, outputs: TensorLike) -> None:
        assert self.activity_regularizer is not None
        with get_default_graph().name_scope("ActivityRegularizer"):
            for output in nest.flatten(outputs):
                loss = self.activity_regularizer(output)
                batch = raw.StridedSlice(raw.Shape(output), [0], [1], [1], shrink_axis_mask=1)
                self.add_loss(raw.RealDiv(loss, raw.Cast(batch, DstT=loss.dtype), name="truediv"), inputs)

    def __deepcopy__(self, memo: dict[int, Any]) -> Layer:
        """Copies the settings; the graph and its elements are shared."""
        result = type(self).__new__(type(self))
        memo[id(self)] = result
        for key, value in self.__dict__.items():
            if key.startswith("_self_"):  # what checkpoints hold of it: the copies of what it holds
                held = {name: _copied(one, memo) for name, one in value.items()} if isinstance(value, dict) else value
                result.__dict__[key] = copy.copy(held)
                continue
            shared = key in {"_graph", "_scope", "_current_scope", "_calls", "_losses", "_updates"}
            setattr(result, key, copy.copy(value) if shared and isinstance(value, list) else value)
            if not shared:
                setattr(result, key, _copied(value, memo))
        return result

    def __repr__(self) -> str:
        return f"<{type(self).__name__} layer {self._name!r}>"


def _copied(value: Structure, memo: dict[int, Any]) -> Any:
    if isinstance(value, list | tuple) and any(is_tensor(v) for v in value):
        return copy.copy(value)
    return value if is_tensor(value) else copy.deepcopy(value, memo)


def _call_parameters(cls: type) -> Iterable[str]:
    return inspect.signature(cls.call).parameters  # type: ignore[attr-defined]


def _add_once(collection: str, item: object) -> None:
    held = get_default_graph().get_collection_ref(collection)
    if all(item is not other for other in held):
        held.append(item)


def _depending(items: list[tuple[Any, Any]], inputs: TensorLike) -> list[Any]:
    if inputs is None:
        return [item for item, given in items if given is None]
    sources = {t.op for t in nest.flatten(inputs) if isinstance(t, Tensor)}
    return [item for item, given in items if given is not None and _reaches(item, sources)]


def _reaches(item: Operation | TensorLike, sources: set[Operation]) -> bool:
    """Whether `item` is computed from one of `sources`."""
    root = item if isinstance(item, Operation) else item.op
    seen = {root}
    stack = [root]
    while stack:
        op = stack.pop()
        if op in sources:
            return True
        makers = {t.op for t in op.inputs} - seen
        seen |= makers
        stack.extend(makers)
    return False


def _regularize(parts: Sequence[Variable], scope: str, regularizer: Callable[..., Any]) -> None:
    """Adds the losses of a weight to the collection of them; they are named after the weight, not the variable."""
    with init_scope():
        graph = get_default_graph()
        for part in parts:
            with graph.colocate_with(part.op), graph.name_scope(scope):
                loss = regularizer(part)
            if loss is not None:
                graph.add_to_collection(GraphKeys.REGULARIZATION_LOSSES, loss)
