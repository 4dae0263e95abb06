"""`tf.keras.optimizers`: what all of them have; the rules stand in `update_rules`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

import anabranch as tf
from anabranch.core.dtypes import DTypeLike
from anabranch.core.values import PassedOn, TensorLike
from anabranch.tfkeras import naming, package, schedules
from anabranch.tfkeras.schedules import LearningRateSchedule
from anabranch.tfkeras.tracking import TrackedOptimizer

_module = package.module("optimizers")
_backend = package.module("backend")
_initializers = package.module("initializers")
_PackageOptimizer: Any = _module.Optimizer
#: the optimizers by their names in small letters; filled in by `update_rules`
BY_NAME: dict[str, Any] = {}


class KerasOptimizer(_PackageOptimizer, TrackedOptimizer):
    """Changes variables along gradients.

    A subclass makes what it keeps for each variable in `_create_slots`, and applies a gradient in
    `_resource_apply_dense` and `_resource_apply_sparse`. Numbers that `_set_hyper` sets are variables of the graph, so
    that they can be changed while training.

    Args:
        name: begins its variables' names; None: the class's, in small letters, with a number from the second one on.
        kwargs: `clipnorm` (of each gradient), `clipvalue`, `lr` (for `learning_rate`) and `decay` (of the learning rate
            over steps, lr / (1 + decay · steps)).

    Raises:
        TypeError: another argument.
        ValueError: a negative number.
    """

    _iterations: Any

    def __init__(self, name: str | None, **kwargs: PassedOn) -> None:
        name = name or naming.unique_name(type(self))
        for keyword, value in kwargs.items():
            if keyword not in ("clipnorm", "clipvalue", "lr", "decay"):
                raise TypeError(f"Unexpected keyword argument passed to optimizer: {keyword}")
            if isinstance(value, int | float) and value < 0:
                raise ValueError(f"Expected {keyword} >= 0, received: {value}")
        self.__dict__.update(_hyper={}, _slots={}, _slot_names=[], _weights=[], _iterations=None, _name=name)
        self._hypers_created = False
        decay = kwargs.pop("decay", 0.0)
        self._initial_decay = decay
        kwargs.pop("lr", None)
        self.__dict__.update(kwargs)
        self.updates: list[Any] = []

    # ------------------------------------------------------------------ numbers
    def _set_hyper(self, name: str, value: PassedOn) -> None:
        """Sets a number, a tensor, a function without arguments or a schedule."""
        before = self._hyper.get(name)
        if (
            isinstance(before, tf.Variable)
            and not isinstance(value, tf.Tensor | LearningRateSchedule)
            and not callable(value)
        ):
            _backend.set_value(before, value)
        else:
            self._hyper[name] = value

    def _get_hyper(self, name: str, dtype: DTypeLike | None = None) -> Any:
        """The value of a number, as a tensor or a variable."""
        if not self._hypers_created:
            self._create_hypers()
        value = self._hyper[name]
        if isinstance(value, LearningRateSchedule):
            return value
        if callable(value):
            value = value()
        return value if dtype is None else tf.cast(value, dtype)

    def _create_hypers(self) -> None:
        if self._hypers_created:
            return
        self._hypers_created = True
        for name, value in sorted(self._hyper.items()):
            if not isinstance(value, tf.Tensor | tf.Variable | LearningRateSchedule) and not callable(value):
                self._hyper[name] = self.add_weight(name, shape=[], initializer=float(value), trainable=False)

    def __getattr__(self, name: str) -> Any:
        hyper = self.__dict__.get("_hyper", {})
        if name == "lr":
            name = "learning_rate"
        if name in hyper:
            return self._get_hyper(name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __setattr__(self, name: str, value: PassedOn) -> None:
        if name == "lr":
            name = "learning_rate"
        if name in self.__dict__.get("_hyper", {}):
            self._set_hyper(name, value)
        else:
            object.__setattr__(self, name, value)

    def _decayed_lr(self, dtype: DTypeLike) -> Any:
        """The learning rate of this step."""
        rate = self._get_hyper("learning_rate", dtype)
        if isinstance(rate, LearningRateSchedule):
            rate = tf.cast(rate(tf.cast(self.iterations, dtype)), dtype)
        if self._initial_decay > 0.0:
            rate = rate / (1.0 + self._get_hyper("decay", dtype) * tf.cast(self.iterations, dtype))
        return rate

    # ------------------------------------------------------------------ variables
    def add_weight(
        self,
        name: str,
        shape: PassedOn,
        dtype: DTypeLike | None = None,
        initializer: PassedOn = "zeros",
        trainable: bool | None = None,
        **kwargs: PassedOn,
    ) -> Any:
        """Makes a variable of the optimizer."""
        kind = tf.as_dtype(dtype or _backend.floatx())
        if isinstance(initializer, str) or callable(initializer):
            make = _initializers.get(initializer)
            initial: Any = lambda: make(shape, dtype=kind)  # noqa: E731
        else:
            initial = np.full(shape, initializer, kind.as_numpy_dtype)
        scope = f"{self._name}/" if "/" not in name else ""
        with tf.name_scope(None):
            return tf.Variable(initial, dtype=kind, name=scope + name, trainable=bool(trainable))

    @property
    def iterations(self) -> Any:
        """A variable: how many steps were made."""
        if self._iterations is None:
            self._iterations = self.add_weight("iter", shape=[], dtype=tf.int64, initializer=0)
            self._weights.append(self._iterations)
        return self._iterations

    @iterations.setter
    def iterations(self, variable: PassedOn) -> None:
        if self._iterations is not None:
            raise RuntimeError(
                "Cannot set `iterations` to a new Variable after the Optimizer weights have been created"
            )
        self._iterations = variable
        self._weights.append(variable)

    @property
    def weights(self) -> list[Any]:
        return list(self._weights)

    @weights.setter
    def weights(self, value: PassedOn) -> None:
        """The package's constructor sets none."""

    def variables(self) -> list[Any]:
        return list(self._weights)

    def get_weights(self) -> list[Any]:
        return list(_backend.batch_get_value(self.weights))

    def set_weights(self, weights: Sequence[Any]) -> None:
        mine = self.weights
        if len(mine) != len(weights):
            raise ValueError(
                f"You called `set_weights(weights)` on optimizer {self._name} with a weight list of length "
                f"{len(weights)}, but the optimizer was expecting {len(mine)} weights."
            )
        for variable, value in zip(mine, weights, strict=True):
            if variable.shape.as_list() != list(np.shape(value)):
                raise ValueError(
                    f"Optimizer weight shape {variable.shape} not compatible with provided weight shape "
                    f"{np.shape(value)}"
                )
        _backend.batch_set_value(list(zip(mine, weights, strict=True)))

    def add_slot(self, var: PassedOn, slot_name: str, initializer: PassedOn = "zeros") -> Any:
        """Makes, once, what is kept for a variable under a name."""
        if slot_name not in self._slot_names:
            self._slot_names.append(slot_name)
        of_variable = self._slots.setdefault(key_of(var), {})
        if slot_name not in of_variable:
            given = initializer
            if isinstance(initializer, str) or callable(initializer):
                make = _initializers.get(initializer) if isinstance(initializer, str) else initializer
                given = lambda: make(var.shape.as_list(), dtype=var.dtype.base_dtype)  # noqa: E731
            base = var.op.name
            with tf.name_scope(None):
                slot = tf.Variable(
                    given, dtype=var.dtype.base_dtype, name=f"{self._name}/{base}/{slot_name}", trainable=False
                )
            of_variable[slot_name] = slot
            self._weights.append(slot)
        return of_variable[slot_name]

    def get_slot(self, var: PassedOn, slot_name: str) -> Any:
        """What is kept for a variable under a name."""
        return self._slots[key_of(var)][slot_name]

    def get_slot_names(self) -> list[str]:
        return list(self._slot_names)

    def _create_slots(self, var_list: Sequence[Any]) -> None:
        """Makes what is kept for each variable."""

    def _create_all_weights(self, var_list: Sequence[Any]) -> None:
        _ = self.iterations
        self._create_hypers()
        self._create_slots(var_list)

    # ------------------------------------------------------------------ gradients
    def get_gradients(self, loss: TensorLike, params: Sequence[Any]) -> list[Any]:
        """The gradients of a loss, clipped as the optimizer was told.

        Raises:
            ValueError: one of the variables has none.
        """
        params = list(params) if isinstance(params, list | tuple) else [params]
        if not params:
            return []
        found = tf.gradients(loss, params)
        for grad, param in zip(found, params, strict=True):
            if grad is None:
                raise ValueError(
                    f"Variable {param} has `None` for gradient. Please make sure that all of your ops have a gradient "
                    "defined (i.e. are differentiable). Common ops without gradient: K.argmax, K.round, K.eval."
                )
        return self._clipped(found)

    def _clipped(self, grads: Sequence[Any]) -> list[Any]:
        if getattr(self, "clipnorm", None) is not None:
            grads = [tf.clip_by_norm(g, self.clipnorm) if g is not None else None for g in grads]
        if getattr(self, "clipvalue", None) is not None:
            low, high = -self.clipvalue, self.clipvalue
            grads = [tf.clip_by_value(g, low, high) if g is not None else None for g in grads]
        return list(grads)

    def _compute_gradients(
        self, loss: PassedOn, var_list: PassedOn, grad_loss: PassedOn = None
    ) -> list[tuple[Any, Any]]:
        value = loss() if callable(loss) else loss
        variables = var_list() if callable(var_list) else tf.nest.flatten(var_list)
        grads = tf.gradients(value, variables, grad_ys=grad_loss)
        return list(zip(self._clipped(grads), variables, strict=True))

    def minimize(self, loss: PassedOn, var_list: PassedOn, grad_loss: PassedOn = None, name: str | None = None) -> Any:
        """An operation that changes the variables so that the loss, a tensor or a function, becomes smaller."""
        return self.apply_gradients(self._compute_gradients(loss, var_list, grad_loss), name=name)

    def apply_gradients(self, grads_and_vars: Iterable[tuple[Any, Any]], name: str | None = None) -> Any:
        """An operation that changes variables along gradients, and counts the step.

        Raises:
            ValueError: no variable has a gradient.
        """
        given = list(grads_and_vars)
        pairs = [(grad, var) for grad, var in given if grad is not None]
        if given and not pairs:
            raise ValueError("No gradients provided for any variable.")
        variables = [var for _, var in pairs]
        self._create_all_weights(variables)
        with tf.name_scope(name or self._name):
            state = self._prepare(variables)
            made = [self._apply_one(grad, var, state) for grad, var in pairs]
            with tf.control_dependencies(made):
                return self.iterations.assign_add(1, read_value=False)

    def _apply_one(self, grad: PassedOn, var: PassedOn, state: PassedOn) -> Any:
        accepts = "apply_state" in self._resource_apply_dense.__code__.co_varnames
        kwargs = {"apply_state": state} if accepts else {}
        if isinstance(grad, tf.IndexedSlices):
            update = self._resource_apply_sparse_duplicate_indices(grad.values, var, grad.indices, **kwargs)
        else:
            update = self._resource_apply_dense(tf.convert_to_tensor(grad), var, **kwargs)
        constraint = getattr(var, "constraint", None)
        if constraint is None:
            return update if update is not None else tf.no_op()
        with tf.control_dependencies([update] if update is not None else []):
            return var.assign(constraint(var.read_value() if hasattr(var, "read_value") else var))

    def _prepare(self, var_list: Sequence[Any]) -> dict[Any, Any]:
        """What the variables' updates share, by device and dtype."""
        state: dict[Any, Any] = {}
        for device, dtype in {(var.device, var.dtype.base_dtype) for var in var_list}:
            state[device, dtype] = {}
            self._prepare_local(device, dtype, state)
        return state

    def _prepare_local(self, var_device: str, var_dtype: tf.DType, apply_state: dict[Any, Any]) -> None:
        if "learning_rate" in self._hyper:
            rate = tf.identity(self._decayed_lr(var_dtype))
            apply_state[var_device, var_dtype]["lr_t"] = rate
            apply_state[var_device, var_dtype]["neg_lr_t"] = -rate

    def _shared(self, var: PassedOn, state: PassedOn) -> dict[str, Any]:
        key = var.device, var.dtype.base_dtype
        if state is None or key not in state:
            state = {key: {}}
            self._prepare_local(*key, state)
        return dict(state[key])

    def _resource_apply_dense(self, grad: TensorLike, var: PassedOn) -> Any:
        raise NotImplementedError

    def _resource_apply_sparse(self, grad: TensorLike, var: PassedOn, indices: TensorLike) -> Any:
        raise NotImplementedError

    def _resource_apply_sparse_duplicate_indices(
        self, grad: TensorLike, var: PassedOn, indices: TensorLike, **kwargs: PassedOn
    ) -> Any:
        """Adds up what rows that occur more than once get."""
        unique, positions = tf.unique(indices)
        summed = tf.unsorted_segment_sum(grad, positions, tf.size(unique))
        return self._resource_apply_sparse(summed, var, unique, **kwargs)

    def _resource_scatter_add(self, x: PassedOn, i: TensorLike, v: TensorLike) -> Any:
        with tf.control_dependencies([tf.raw_ops.ResourceScatterAdd(resource=x.handle, indices=i, updates=v)]):
            return x.value()

    def get_updates(self, loss: TensorLike, params: Sequence[Any]) -> list[Any]:
        """The operations of a step, as the package's models ask for them."""
        pairs = list(zip(self.get_gradients(loss, params), params, strict=True))
        return [self.apply_gradients(pairs)]

    # ------------------------------------------------------------------ configurations
    def _serialize_hyperparameter(self, name: str) -> Any:
        value = self._hyper[name]
        if isinstance(value, LearningRateSchedule):
            return schedules.serialize(value)
        if callable(value) and not isinstance(value, tf.Tensor | tf.Variable):
            return value()
        if isinstance(value, tf.Tensor | tf.Variable):
            return _backend.get_value(value)
        return value

    def get_config(self) -> dict[str, Any]:
        config = {"name": self._name}
        for name in ("clipnorm", "clipvalue"):
            if getattr(self, name, None) is not None:
                config[name] = getattr(self, name)
        return config

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: dict[str, Any] | None = None) -> Any:
        config = dict(config)
        if "lr" in config:
            config["learning_rate"] = config.pop("lr")
        if isinstance(config.get("learning_rate"), dict):
            config["learning_rate"] = schedules.deserialize(config["learning_rate"], custom_objects)
        return cls(**config)


KerasOptimizer.__name__ = KerasOptimizer.__qualname__ = "Optimizer"  # which configurations have
KerasOptimizer.__module__ = "tensorflow.keras.optimizers"


_TFOptimizer: Any = _module.TFOptimizer


class TrainOptimizer(_TFOptimizer):
    """One of `tf.train`'s optimizers, for a model."""

    def get_updates(self, loss: TensorLike, params: Sequence[Any]) -> list[Any]:
        """The operations of a step; without variables it is counted only."""
        return list(super().get_updates(loss, params)) if params else [tf.assign_add(self.iterations, 1)]

    @property
    def weights(self) -> list[Any]:
        """What the optimizer keeps for its variables."""
        return list(self.optimizer.variables())


def key_of(var: PassedOn) -> Any:
    """What slots of a variable are found by."""
    return getattr(var, "_unique_id", None) or var.op


def serialize(optimizer: PassedOn) -> dict[str, Any]:
    """An optimizer as its class's name and its configuration."""
    return {"class_name": type(optimizer).__name__, "config": optimizer.get_config()}


def deserialize(config: dict[str, Any], custom_objects: dict[str, Any] | None = None) -> Any:
    """The optimizer that `serialize` described; names of classes may be in small letters.

    Raises:
        ValueError: there is no such class.
    """
    known = package.module("utils.generic_utils")._GLOBAL_CUSTOM_OBJECTS
    named = config["class_name"]
    cls: Callable[..., Any] | None = {**known, **(custom_objects or {})}.get(named) or BY_NAME.get(named.lower())
    if cls is None:
        raise ValueError(f"Unknown optimizer: {named}")
    return cls.from_config(config["config"]) if hasattr(cls, "from_config") else cls(**config["config"])


def get(identifier: PassedOn) -> Any:
    """The optimizer of a name or a configuration; one of `tf.train`'s is wrapped, what is one is itself.

    Raises:
        ValueError: it is nothing of the kind.
    """
    if isinstance(identifier, _PackageOptimizer):
        return identifier
    if isinstance(identifier, tf.train.Optimizer):
        return TrainOptimizer(identifier)
    if isinstance(identifier, dict):
        return deserialize(identifier)
    if isinstance(identifier, str):
        return deserialize({"class_name": identifier, "config": {}})
    raise ValueError(f"Could not interpret optimizer identifier: {identifier}")
