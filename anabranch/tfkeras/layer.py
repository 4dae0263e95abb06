"""`tf.keras.layers.Layer`: the package's layer, as TensorFlow 1.15 has it.

It is called on tensors of any origin and on arrays, infers its dtype from them, builds with `TensorShape`s, hands
`training` down to the layers that it calls, keeps masks on tensors, and finds layers in lists and dictionaries.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import anabranch as tf
from anabranch.compat.private import keras_backend
from anabranch.core.dtypes import DTypeLike
from anabranch.core.shapes import ShapeLike
from anabranch.core.values import PassedOn
from anabranch.tfkeras import (
    calls,
    compatibility,
    graph_layers,
    history,
    initializers,
    naming,
    package,
    rebasing,
    scopes,
    shapes,
)
from anabranch.tfkeras.layer_parts import (
    any_given,
    as_list,
    as_tensor,
    copied,
    definer,
    depending,
    is_symbolic,
    layers_in,
    lengths_of,
    masks_of,
    named_function,
    once,
    parameters_of,
)
from anabranch.tfkeras.tracking import TrackedByAttributes

_base = package.module("engine.base_layer")
_backend = package.module("backend")
_PackageLayer: Any = _base.Layer
#: what a layer may be told beside what `Layer` names
_ALLOWED = frozenset({"input_shape", "batch_input_shape", "batch_size", "weights", "input_dtype"})
#: attributes that hold layers which are not parts of this one
_NOT_PARTS = frozenset({"_normalizer", "_inbound_nodes", "_outbound_nodes", "_layers", "_metrics", "_network_nodes"})
#: what errors say of tensors that Python's own control flow meets
_UNCONVERTED = ("has no truth value", "cannot be iterated over")
#: how deep lists and dictionaries of layers are looked through
_DEPTH = 8


@rebasing.serves(_PackageLayer)
class KerasLayer(_PackageLayer, TrackedByAttributes):
    """A function of tensors that owns variables.

    Args:
        trainable: whether its variables are trained.
        name: default: the class's name in small letters, with a number from the second one on.
        dtype: of its variables; default: that of its first inputs.
        dynamic: kept; in a graph a layer's `call` is run once, when the layer is called.
        kwargs: `input_shape`, `batch_input_shape`, `batch_size`, `weights`, `activity_regularizer`.

    Raises:
        TypeError: an argument that layers do not have.
    """

    _initial_weights: Any

    def __init_subclass__(cls, **kwargs: PassedOn) -> None:
        super().__init_subclass__(**kwargs)
        graph_layers.join(cls, KerasLayer)

    def __init__(
        self,
        trainable: bool = True,
        name: str | None = None,
        dtype: DTypeLike | None = None,
        dynamic: bool = False,
        **kwargs: PassedOn,
    ) -> None:
        regularizer = kwargs.pop("activity_regularizer", None)
        kwargs.pop("experimental_autocast", None)
        of_graphs = isinstance(self, tf.layers.Layer)
        scope = {word: kwargs.pop(word) for word in graph_layers.ARGUMENTS if of_graphs and word in kwargs}
        for keyword in kwargs:
            if keyword not in _ALLOWED:
                raise TypeError("Keyword argument not understood:", keyword)
        dtype = kwargs.pop("input_dtype", None) if dtype is None else dtype
        self._trainable = trainable
        self._callable_losses: list[Callable[[], Any]] = []
        if "input_shape" in kwargs:
            kwargs["input_shape"] = lengths_of(kwargs["input_shape"])
        if "batch_input_shape" in kwargs:
            kwargs["batch_input_shape"] = lengths_of(kwargs["batch_input_shape"])
        self.__dict__["_is_half_made"] = True
        super().__init__(name=name or naming.unique_name(type(self)), trainable=trainable, **kwargs)
        del self.__dict__["_is_half_made"]
        self._dtype = None if dtype is None else tf.as_dtype(dtype).name
        self._dynamic = dynamic
        if regularizer is not None:
            self.activity_regularizer = package.module("regularizers").get(regularizer)
        if of_graphs:
            regularizes = getattr(self, "activity_regularizer", None)
            said = {"trainable": trainable, "name": name, "dtype": dtype, "activity_regularizer": regularizes}
            graph_layers.initialize(self, said | scope)

    # ------------------------------------------------------------------ what it is
    @property
    def name(self) -> str:
        return str(self._name)

    @name.setter
    def name(self, name: str) -> None:
        self._name = name

    @property
    def dtype(self) -> Any:
        """The name of its variables' dtype; None before the first call where none was given."""
        return self._dtype

    @dtype.setter
    def dtype(self, dtype: DTypeLike | None) -> None:
        self._dtype = None if dtype is None else tf.as_dtype(dtype).name

    @property
    def dynamic(self) -> bool:
        return bool(self._dynamic)

    @property
    def trainable(self) -> bool:
        return bool(self._trainable)

    @trainable.setter
    def trainable(self, trainable: bool) -> None:
        self._trainable = trainable
        for part in self._parts():
            part.trainable = trainable

    @property
    def _batch_input_shape(self) -> Any:
        """`batch_input_shape`, by the name that TensorFlow has for it."""
        return getattr(self, "batch_input_shape", None)

    @_batch_input_shape.setter
    def _batch_input_shape(self, shape: PassedOn) -> None:
        self.batch_input_shape = shape

    @property
    def inbound_nodes(self) -> list[Any]:
        return [history.NodeView(node) for node in self._inbound_nodes]

    @property
    def outbound_nodes(self) -> list[Any]:
        return [history.NodeView(node) for node in self._outbound_nodes]

    def get_config(self) -> dict[str, Any]:
        config: dict[str, Any] = super().get_config()
        config["dtype"] = self._dtype
        if self._dynamic:
            config["dynamic"] = True
        return config

    @classmethod
    def from_config(cls, config: PassedOn) -> Any:
        with scopes.served_classes():
            return cls(**{name: named_function(name, value) for name, value in config.items()})

    # ------------------------------------------------------------------ its parts
    def __setattr__(self, name: str, value: PassedOn) -> None:
        if name.endswith("_initializer"):
            value = initializers.of_package(value)
        if name == "trainable" and "_is_half_made" in self.__dict__:
            return  # `_trainable` is set; a class's own property may ask for parts that are not there yet
        value = self._unmarked(name, value)
        object.__setattr__(self, name, value)
        if isinstance(value, tf.Variable):
            self._own(value)
        elif isinstance(value, package.module("metrics").Metric) and not any(
            value is metric for metric in self.__dict__.get("_metrics", [])
        ):
            self.__dict__.setdefault("_metrics", []).append(value)

    def _own(self, variable: PassedOn) -> None:
        """Counts a variable among the layer's, unless it is."""
        mine = [*self.__dict__.get("_trainable_weights", []), *self.__dict__.get("_non_trainable_weights", [])]
        if not any(variable is one for one in mine):
            kind = "_trainable_weights" if getattr(variable, "trainable", True) else "_non_trainable_weights"
            self.__dict__.setdefault(kind, []).append(variable)

    def _parts(self) -> list[Any]:
        """The layers that are attributes, or in lists and dictionaries that are, in the order of the attributes."""
        found: dict[int, Any] = {}
        for name, value in list(self.__dict__.items()):
            if name not in _NOT_PARTS:
                for part in layers_in(value, _DEPTH):
                    if part is not self and not isinstance(part, package.module("metrics").Metric):
                        found.setdefault(id(part), part)
        return list(found.values())

    def _of_parts(self, attribute: str) -> list[Any]:
        there = [part for part in self._parts() if not getattr(part, "lacks_weights", False)]
        return [item for part in there for item in getattr(part, attribute, [])]

    @property
    def trainable_weights(self) -> list[Any]:
        if not self.trainable:
            return []
        return once([*self._trainable_weights, *self._of_parts("trainable_weights")])

    @trainable_weights.setter
    def trainable_weights(self, weights: list[Any]) -> None:
        self._trainable_weights = weights

    @property
    def non_trainable_weights(self) -> list[Any]:
        if self.trainable:
            return once([*self._non_trainable_weights, *self._of_parts("non_trainable_weights")])
        return once([*self._trainable_weights, *self._non_trainable_weights, *self._of_parts("weights")])

    @non_trainable_weights.setter
    def non_trainable_weights(self, weights: list[Any]) -> None:
        self._non_trainable_weights = weights

    @property
    def variables(self) -> list[Any]:
        return list(self.weights)

    @property
    def trainable_variables(self) -> list[Any]:
        return list(self.trainable_weights)

    @property
    def non_trainable_variables(self) -> list[Any]:
        return list(self.non_trainable_weights)

    @property
    def submodules(self) -> tuple[Any, ...]:
        """The layers inside, and those inside them."""
        inside = self._parts()
        return tuple(once([one for part in inside for one in (part, *getattr(part, "submodules", ()))]))

    @property
    def metrics(self) -> list[Any]:
        return [*self._metrics, *self._of_parts("metrics")]

    # ------------------------------------------------------------------ variables
    def add_weight(
        self,
        name: str | None = None,
        shape: ShapeLike = None,
        dtype: DTypeLike | None = None,
        initializer: PassedOn = None,
        regularizer: PassedOn = None,
        trainable: bool | None = None,
        constraint: PassedOn = None,
        partitioner: PassedOn = None,
        use_resource: bool | None = None,
        synchronization: PassedOn = None,
        aggregation: PassedOn = None,
        **kwargs: PassedOn,
    ) -> Any:
        """Makes a variable of the layer.

        Args:
            shape: default: a scalar.
            dtype: default: the layer's, or the default of floats.
            initializer: default: Glorot's uniform one for floats, zeros for integers and booleans.
            regularizer: function from the variable to a loss, which the layer adds.
            trainable: default: unless it is to be read while others write (`synchronization`).
            partitioner: kept nowhere; variables of these layers are whole.
            kwargs: `getter`, `collections`, `experimental_autocast`.
        """
        read_often = synchronization is not None and synchronization == tf.VariableSynchronization.ON_READ
        if read_often and trainable:
            raise ValueError("a variable with synchronization ON_READ is not trained; leave `trainable` out")
        trainable = not read_often if trainable is None else trainable
        lengths = [] if shape is None else tf.TensorShape(shape).as_list()
        kind = tf.as_dtype(dtype or self._dtype or _backend.floatx())
        make = initializers.function(initializer, kind, name)
        getter = kwargs.get("getter")
        if getter is not None:
            given = {"dtype": kind, "initializer": make, "trainable": trainable}
            variable = getter(name=name, shape=lengths, **given)
        else:
            variable = tf.Variable(
                lambda: make(lengths, dtype=kind),
                dtype=kind,
                name=name or "Variable",
                trainable=trainable,
                constraint=constraint,
                collections=kwargs.get("collections"),
            )
        if regularizer is not None:
            with tf.name_scope(f"{name or 'weight'}/Regularizer"):
                self.add_loss(package.module("regularizers").get(regularizer)(variable))
        (self._trainable_weights if trainable else self._non_trainable_weights).append(variable)
        if name and isinstance(variable, tf.Variable):
            self._track_trackable(variable, name, overwrite=True)
        return variable

    def add_variable(self, *args: PassedOn, **kwargs: PassedOn) -> Any:
        """`add_weight` by its older name."""
        return self.add_weight(*args, **kwargs)

    # ------------------------------------------------------------------ losses and updates
    def add_loss(self, losses: PassedOn, inputs: PassedOn = None) -> None:
        """Adds losses: tensors, or functions without arguments that give them.

        Args:
            inputs: what they depend on; with None they count wherever the layer is used.
        """
        for loss in tf.nest.flatten(losses):
            if callable(loss):
                self._callable_losses.append(loss)
            elif loss is not None:
                tensor: Any = (
                    loss if isinstance(loss, tf.Tensor) else tf.convert_to_tensor(loss, dtype=_backend.floatx())
                )
                tensor._unconditional_loss = inputs is None
                self._losses.append(tensor)

    @property
    def losses(self) -> list[Any]:
        return self._all_losses()

    def _all_losses(self) -> list[Any]:
        """Its own losses, and those of its parts; twice those of a layer that two of them share."""
        own = list(self._losses)
        for index, loss in enumerate(self._callable_losses):
            made = self.__dict__.setdefault("_made_losses", {}).setdefault(tf.get_default_graph(), {})
            if index not in made and (value := loss()) is not None:
                made[index] = tf.convert_to_tensor(value, dtype=None if is_symbolic(value) else _backend.floatx())
                made[index]._unconditional_loss = True
            own.extend([made[index]] if index in made else [])
        return [*own, *self._of_parts("losses")]

    def get_losses_for(self, inputs: PassedOn) -> list[Any]:
        """The losses that depend on those inputs; with None, those that depend on none."""
        return depending(self.losses, inputs, "_unconditional_loss")

    def add_update(self, updates: PassedOn, inputs: PassedOn = None) -> None:
        """Adds operations that a step of training runs too; `inputs` as for losses."""
        for given in as_list(updates):
            update: Any = given
            if callable(given) and not isinstance(given, tf.Tensor | tf.Operation):
                update = given()
            if isinstance(update, tuple) and len(update) == 2:
                update = tf.assign(*update)
            if update is not None:
                update = update.op if isinstance(update, tf.Variable) else update
                conditional = inputs is True or bool(
                    inputs is not None and history.reached([update], tf.nest.flatten(inputs))
                )
                update._unconditional_update = not conditional
                self._updates.append(update)

    @property
    def updates(self) -> list[Any]:
        return self._all_updates()

    def _all_updates(self) -> list[Any]:
        """Its own updates, and those of its parts; none where it is not trained and keeps no state."""
        if not self.trainable and not self.stateful:
            return []
        return once([*self._updates, *self._of_parts("updates")])

    def get_updates_for(self, inputs: PassedOn) -> list[Any]:
        """The updates that depend on those inputs; with None, those that depend on none."""
        return depending(self.updates, inputs, "_unconditional_update")

    def add_metric(self, value: PassedOn, aggregation: str | None = None, name: str | None = None) -> None:
        """Adds a metric that is reported: the mean of a tensor, or what a metric's object gave.

        Raises:
            ValueError: neither an aggregation nor a metric's result, or an aggregation other than "mean".
        """
        if aggregation is not None and aggregation != "mean":
            raise ValueError(
                "We currently support only `mean` sample-wise metric aggregation. You provided aggregation="
                f"{aggregation}"
            )
        from_object = hasattr(value, "_metric_obj")
        if aggregation is None and not from_object:
            raise ValueError(
                "We do not support adding an aggregated metric result tensor that is not the output of a "
                "`tf.keras.metrics.Metric` metric instance. Without having access to the metric instance we cannot "
                'reset the state of a metric after every epoch; for the mean of a tensor say aggregation="mean"'
            )
        if not from_object and name is None:
            raise ValueError(
                "Please provide a name for your metric like `self.add_metric(tf.reduce_sum(inputs), "
                "name='mean_activation', aggregation='mean')`"
            )
        super().add_metric(value, name)

    # ------------------------------------------------------------------ calling it
    def build(self, input_shape: PassedOn) -> None:
        """Makes the layer's variables; called before the first `call`, with one shape or a structure of them."""
        self.built = True

    def __call__(self, inputs: PassedOn = None, *args: PassedOn, **kwargs: PassedOn) -> Any:
        """What the layer computes from tensors or arrays; see `call`."""
        inputs = tf.nest.map_structure(as_tensor, inputs)
        names = parameters_of(self.call)
        kwargs |= dict(zip((n for n in names if n != "**"), args, strict=False))
        masks = masks_of(inputs)
        told = dict(kwargs)
        if "mask" in names and kwargs.get("mask") is None and any_given(masks):
            kwargs["mask"] = masks
        training = self._hand_down_training(names, kwargs, told)
        if not calls.in_call():
            history.ensure((inputs, told))
        with calls.entered(training), tf.name_scope(self._name_scope()):
            self._maybe_build(inputs)
            compatibility.check(self.input_spec, inputs, self.name)
            outputs = self._compute(inputs, kwargs)
            if outputs is None:
                raise ValueError(
                    "A layer's `call` method should return a Tensor or a list of Tensors, not None (layer: "
                    f"{self.name})."
                )
            if history.is_known(inputs):
                outputs = copied(inputs, outputs)
            self._regularize(inputs, outputs)
            given = kwargs["mask"] if told.get("mask") is not None else masks
            self._mark(inputs, outputs, given)
        if history.is_known(inputs):
            history.connect(self, inputs, outputs, told)
        self._was_called(inputs, outputs)
        return outputs

    def apply(self, inputs: PassedOn, *args: PassedOn, **kwargs: PassedOn) -> Any:
        """The same as a call."""
        return self(inputs, *args, **kwargs)

    def _name_scope(self) -> str:
        return self.name

    def _compute(self, inputs: PassedOn, kwargs: dict[str, Any]) -> Any:
        """Runs `call`; control flow of Python over tensors in a program's own layer is converted."""
        try:
            outputs = self.call(inputs, **kwargs)
        except TypeError as error:
            if rebasing.is_foundation(definer(type(self), "call")) or not any(w in str(error) for w in _UNCONVERTED):
                raise
            outputs = tf.autograph.to_graph(self.call)(self, inputs, **kwargs)
        if rebasing.is_of_package(definer(type(self), "call")) and rebasing.is_of_package(
            definer(type(self), "compute_output_shape", over=True)
        ):
            self._tell_shapes(inputs, outputs)
        return outputs

    def _tell_shapes(self, inputs: PassedOn, outputs: PassedOn) -> None:
        """Gives the outputs of a layer of the package the static shapes that it computes for them."""
        known = [shapes.of(x) for x in tf.nest.flatten(inputs)]
        if any(shape.ndims is None for shape in known):
            return
        tuples = [shapes.as_tuples(shape) for shape in known]
        told = self.compute_output_shape(tuples if isinstance(inputs, list | tuple) else tuples[0])
        listed = tf.nest.flatten(outputs)
        many = told if isinstance(told, list) and len(told) == len(listed) else [told]
        for tensor, shape in zip(listed, many, strict=False):
            if isinstance(tensor, tf.Tensor) and isinstance(shape, tuple):
                computed = tf.TensorShape(list(shape))
                if tensor.shape.is_compatible_with(computed):
                    tensor.set_shape(computed)

    def _hand_down_training(self, names: list[str], kwargs: dict[str, Any], told: dict[str, Any]) -> Any:
        """The argument `training`, which is also put in the arguments of `call` where that takes it."""
        accepts = "training" in names or "**" in names
        if "training" in kwargs:
            if not accepts:
                told.pop("training")
                return kwargs.pop("training")
            if kwargs["training"] is not None:
                return kwargs["training"]
        value = calls.training()
        if value is None:
            phase = _backend.learning_phase() if accepts else keras_backend.fixed_learning_phase()
            value = bool(phase) if isinstance(phase, int | np.integer) else None
        if accepts and value is None and "training" in initializers.required_parameters(self.call)[1:]:
            value = _backend.learning_phase()
        if accepts and value is not None:
            kwargs["training"] = value
        return value

    def _maybe_build(self, inputs: PassedOn) -> None:
        if self.built:
            return
        flat = tf.nest.flatten(inputs)
        compatibility.check(self.input_spec, inputs, self.name)
        if self._dtype is None and flat and hasattr(flat[0], "dtype"):
            kind = tf.as_dtype(flat[0].dtype).base_dtype
            self._dtype = kind.name if kind.is_floating or kind.is_complex else _backend.floatx()
        self.build(tf.nest.map_structure(shapes.of, inputs))
        self.built = True
        if self._initial_weights is not None:
            self.set_weights(self._initial_weights)
            self._initial_weights = None

    def _regularize(self, inputs: PassedOn, outputs: PassedOn) -> None:
        regularizer = getattr(self, "activity_regularizer", None)
        if regularizer is None:
            return
        with tf.name_scope("ActivityRegularizer"):
            for output in tf.nest.flatten(outputs):
                loss = tf.convert_to_tensor(regularizer(output))
                self.add_loss(loss / tf.cast(tf.shape(output)[0], loss.dtype), inputs=inputs)

    def _mark(self, inputs: PassedOn, outputs: PassedOn, masks: PassedOn) -> None:
        """Sets the outputs' masks."""
        flat = tf.nest.flatten(outputs)
        if all(getattr(x, "_keras_mask", None) is not None for x in flat):
            return
        own = getattr(type(self).compute_mask, "__func__", type(self).compute_mask) is not KerasLayer.compute_mask
        computed = self.compute_mask(inputs, masks) if self.supports_masking or own else None
        listed = [None] * len(flat) if computed is None else as_list(computed)
        for x, mask in zip(flat, listed, strict=False):
            if isinstance(x, tf.Tensor):
                setattr(x, "_keras_mask", mask)  # noqa: B010 (a tensor's class does not declare it)

    def compute_mask(self, inputs: PassedOn, mask: PassedOn = None) -> Any:
        """The masks of the outputs: those of the inputs where the layer hands them on, else None.

        Raises:
            TypeError: there is a mask, and the layer does not support any.
        """
        if self.supports_masking:
            return mask
        if any_given(mask):
            raise TypeError(f"Layer {self.name} does not support masking, but was passed an input_mask: {mask}")
        return None

    def _was_called(self, inputs: PassedOn, outputs: PassedOn) -> None:
        """For those who derive from it: what is to be done after a call."""

    # ------------------------------------------------------------------ shapes
    def compute_output_shape(self, input_shape: PassedOn) -> Any:
        """The shape of the output for an input of this shape, found by calling the layer on a placeholder."""
        if not shapes.of_tensorflow(input_shape) and rebasing.is_of_package(definer(type(self), "call")):
            return input_shape
        made = tf.nest.map_structure(
            lambda shape: tf.placeholder(self._dtype or _backend.floatx(), shape),
            shapes.as_tensor_shapes(input_shape) if not isinstance(input_shape, tf.TensorShape) else input_shape,
        )
        with calls.entered(False):
            answer = tf.nest.map_structure(shapes.of, self(made))
        return answer if shapes.of_tensorflow(input_shape) else shapes.as_tuples(answer)

    def compute_output_signature(self, input_signature: PassedOn) -> Any:
        """The `TensorSpec`s of the outputs for such inputs."""
        shape = self.compute_output_shape(tf.nest.map_structure(lambda spec: spec.shape, input_signature))
        specs = tf.nest.flatten(input_signature)
        dtype = self._dtype or specs[0].dtype
        return tf.nest.map_structure(lambda one: tf.TensorSpec(dtype=dtype, shape=one), shape)
