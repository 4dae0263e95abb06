"""The optimizers of `tf.keras`, each a rule over the kernels of the graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anabranch as tf
from anabranch.core.values import PassedOn, TensorLike
from anabranch.tfkeras import package
from anabranch.tfkeras.optimizers import BY_NAME, KerasOptimizer

_backend = package.module("backend")
_raw = tf.raw_ops


class _Rule(KerasOptimizer):
    """What the rules share: numbers by name, and their configuration.

    Attributes:
        _numbers: the names of those that are variables of the graph.
        _constants: the names of those that are fixed.
    """

    _numbers: Sequence[str] = ()
    _constants: Sequence[str] = ()

    def __init__(self, name: str, numbers: dict[str, Any], constants: dict[str, Any], kwargs: dict[str, Any]) -> None:
        rate = kwargs.get("lr")
        super().__init__(name, **kwargs)
        if rate is not None:
            numbers["learning_rate"] = rate
        for key, value in numbers.items():
            self._set_hyper(key, value)
        self._set_hyper("decay", self._initial_decay)
        self.__dict__.update(constants)

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        config |= {name: self._serialize_hyperparameter(name) for name in (*self._numbers, "decay")}
        return config | {name: getattr(self, name) for name in self._constants}

    def _prepare_local(self, var_device: str, var_dtype: tf.DType, apply_state: dict[Any, Any]) -> None:
        """Adds the rule's numbers, each as one tensor for all variables; "1-rho" is what is left of "rho"."""
        super()._prepare_local(var_device, var_dtype, apply_state)
        shared = apply_state[var_device, var_dtype]
        for name in self._numbers:
            if name != "learning_rate":
                shared[name] = tf.identity(self._get_hyper(name, var_dtype))
        for name in ("rho", "beta_1", "beta_2"):
            if name in shared:
                shared[f"1-{name}"] = 1 - shared[name]
        for name in ("epsilon", "l2_shrinkage_regularization_strength"):
            if name in self._constants:
                shared[name] = tf.convert_to_tensor(getattr(self, name), var_dtype)


class SGD(_Rule):
    """Gradient descent, with momentum and Nesterov's momentum."""

    _numbers = ("learning_rate", "momentum")
    _constants = ("nesterov",)

    def __init__(
        self,
        learning_rate: PassedOn = 0.01,
        momentum: PassedOn = 0.0,
        nesterov: bool = False,
        name: str = "SGD",
        **kwargs: PassedOn,
    ) -> None:
        if isinstance(momentum, int | float) and not 0 <= momentum <= 1:
            raise ValueError("`momentum` must be between [0, 1].")
        moves = isinstance(momentum, tf.Tensor) or callable(momentum) or bool(momentum)
        self.__dict__["_moves"] = moves
        numbers = {"learning_rate": learning_rate, "momentum": momentum}
        super().__init__(name, numbers, {"nesterov": nesterov, "_moves": moves}, kwargs)

    def _create_slots(self, var_list: Sequence[Any]) -> None:
        if self._moves:
            for var in var_list:
                self.add_slot(var, "momentum")

    def _resource_apply_dense(self, grad: TensorLike, var: PassedOn, apply_state: PassedOn = None) -> Any:
        shared = self._shared(var, apply_state)
        if not self._moves:
            return _raw.ResourceApplyGradientDescent(var=var.handle, alpha=shared["lr_t"], delta=grad)
        return _raw.ResourceApplyKerasMomentum(
            var=var.handle,
            accum=self.get_slot(var, "momentum").handle,
            lr=shared["lr_t"],
            grad=grad,
            momentum=shared["momentum"],
            use_nesterov=self.nesterov,
        )

    def _resource_apply_sparse_duplicate_indices(
        self, grad: TensorLike, var: PassedOn, indices: TensorLike, **kwargs: PassedOn
    ) -> Any:
        if self._moves:
            return super()._resource_apply_sparse_duplicate_indices(grad, var, indices, **kwargs)
        rate = self._shared(var, kwargs.get("apply_state"))["neg_lr_t"]
        return _raw.ResourceScatterAdd(resource=var.handle, indices=indices, updates=grad * rate)

    def _resource_apply_sparse(
        self, grad: TensorLike, var: PassedOn, indices: TensorLike, apply_state: PassedOn = None
    ) -> Any:
        shared = self._shared(var, apply_state)
        return _raw.ResourceSparseApplyKerasMomentum(
            var=var.handle,
            accum=self.get_slot(var, "momentum").handle,
            lr=shared["lr_t"],
            grad=grad,
            indices=indices,
            momentum=shared["momentum"],
            use_nesterov=self.nesterov,
        )


class _Moments(_Rule):
    """A rule that keeps moving averages of gradients (`m`) and of their squares (`v`)."""

    def _create_slots(self, var_list: Sequence[Any]) -> None:
        for slot in ("m", "v"):
            for var in var_list:
                self.add_slot(var, slot)

    def _prepare_local(self, var_device: str, var_dtype: tf.DType, apply_state: dict[Any, Any]) -> None:
        super()._prepare_local(var_device, var_dtype, apply_state)
        shared = apply_state[var_device, var_dtype]
        step = tf.cast(self.iterations + 1, var_dtype)
        for name in ("beta_1", "beta_2"):
            shared[f"{name}_power"] = tf.pow(shared[name], step)
            shared[f"1-{name}_power"] = 1 - shared[f"{name}_power"]

    def _averaged(self, kept: PassedOn, shared: dict[str, Any], beta: str, indices: TensorLike, new: TensorLike) -> Any:
        """A slot after beta · slot + (1 - beta) · new, where only some rows have something new."""
        with tf.control_dependencies([kept.assign(kept * shared[beta], read_value=False)]):
            return self._resource_scatter_add(kept, indices, new * shared[f"1-{beta}"])


class Adam(_Moments):
    """Adam, and AMSGrad."""

    _numbers = ("learning_rate", "beta_1", "beta_2")
    _constants = ("epsilon", "amsgrad")

    def __init__(
        self,
        learning_rate: PassedOn = 0.001,
        beta_1: PassedOn = 0.9,
        beta_2: PassedOn = 0.999,
        epsilon: float | None = 1e-7,
        amsgrad: bool = False,
        name: str = "Adam",
        **kwargs: PassedOn,
    ) -> None:
        numbers = {"learning_rate": learning_rate, "beta_1": beta_1, "beta_2": beta_2}
        super().__init__(name, numbers, {"epsilon": epsilon or _backend.epsilon(), "amsgrad": amsgrad}, kwargs)

    def _create_slots(self, var_list: Sequence[Any]) -> None:
        super()._create_slots(var_list)
        if self.amsgrad:
            for var in var_list:
                self.add_slot(var, "vhat")

    def _prepare_local(self, var_device: str, var_dtype: tf.DType, apply_state: dict[Any, Any]) -> None:
        super()._prepare_local(var_device, var_dtype, apply_state)
        shared = apply_state[var_device, var_dtype]
        shared["lr_sparse"] = shared["lr_t"] * tf.sqrt(shared["1-beta_2_power"]) / shared["1-beta_1_power"]

    def set_weights(self, weights: Sequence[Any]) -> None:
        count = len(self.variables())
        super().set_weights(weights[:count] if len(weights) == 3 * ((count - 1) // 2) + 1 else weights)

    def _resource_apply_dense(self, grad: TensorLike, var: PassedOn, apply_state: PassedOn = None) -> Any:
        shared = self._shared(var, apply_state)
        given = {
            "var": var.handle,
            "m": self.get_slot(var, "m").handle,
            "v": self.get_slot(var, "v").handle,
            "beta1_power": shared["beta_1_power"],
            "beta2_power": shared["beta_2_power"],
            "lr": shared["lr_t"],
            "beta1": shared["beta_1"],
            "beta2": shared["beta_2"],
            "epsilon": shared["epsilon"],
            "grad": grad,
        }
        if self.amsgrad:
            return _raw.ResourceApplyAdamWithAmsgrad(vhat=self.get_slot(var, "vhat").handle, **given)
        return _raw.ResourceApplyAdam(**given)

    def _resource_apply_sparse(
        self, grad: TensorLike, var: PassedOn, indices: TensorLike, apply_state: PassedOn = None
    ) -> Any:
        shared = self._shared(var, apply_state)
        rate = shared["lr_sparse"]
        m = self._averaged(self.get_slot(var, "m"), shared, "beta_1", indices, grad)
        v = self._averaged(self.get_slot(var, "v"), shared, "beta_2", indices, grad * grad)
        if self.amsgrad:
            vhat = self.get_slot(var, "vhat")
            v = vhat.assign(tf.maximum(vhat, v))
        return var.assign_sub(rate * m / (tf.sqrt(v) + shared["epsilon"]), read_value=False)


class Adamax(_Moments):
    """Adam with the largest gradient in place of the squares' average."""

    _numbers = ("learning_rate", "beta_1", "beta_2")
    _constants = ("epsilon",)

    def __init__(
        self,
        learning_rate: PassedOn = 0.001,
        beta_1: PassedOn = 0.9,
        beta_2: PassedOn = 0.999,
        epsilon: float | None = 1e-7,
        name: str = "Adamax",
        **kwargs: PassedOn,
    ) -> None:
        numbers = {"learning_rate": learning_rate, "beta_1": beta_1, "beta_2": beta_2}
        super().__init__(name, numbers, {"epsilon": epsilon or _backend.epsilon()}, kwargs)

    def _prepare_local(self, var_device: str, var_dtype: tf.DType, apply_state: dict[Any, Any]) -> None:
        super()._prepare_local(var_device, var_dtype, apply_state)
        shared = apply_state[var_device, var_dtype]
        shared["neg_lr_sparse"] = shared["neg_lr_t"] / shared["1-beta_1_power"]

    def _resource_apply_dense(self, grad: TensorLike, var: PassedOn, apply_state: PassedOn = None) -> Any:
        shared = self._shared(var, apply_state)
        return _raw.ResourceApplyAdaMax(
            var=var.handle,
            m=self.get_slot(var, "m").handle,
            v=self.get_slot(var, "v").handle,
            beta1_power=shared["beta_1_power"],
            lr=shared["lr_t"],
            beta1=shared["beta_1"],
            beta2=shared["beta_2"],
            epsilon=shared["epsilon"],
            grad=grad,
        )

    def _resource_apply_sparse(
        self, grad: TensorLike, var: PassedOn, indices: TensorLike, apply_state: PassedOn = None
    ) -> Any:
        shared = self._shared(var, apply_state)
        m, v = self.get_slot(var, "m"), self.get_slot(var, "v")
        m_rows = shared["beta_1"] * tf.gather(m, indices) + shared["1-beta_1"] * grad
        v_rows = tf.maximum(shared["beta_2"] * tf.gather(v, indices), tf.abs(grad))
        step = shared["neg_lr_sparse"] * m_rows / (v_rows + shared["epsilon"])
        with tf.control_dependencies([step]):
            kept = [
                _raw.ResourceScatterUpdate(resource=m.handle, indices=indices, updates=m_rows),
                _raw.ResourceScatterUpdate(resource=v.handle, indices=indices, updates=v_rows),
            ]
        with tf.control_dependencies(kept):
            return _raw.ResourceScatterAdd(resource=var.handle, indices=indices, updates=step)


class Nadam(_Moments):
    """Adam with Nesterov's momentum, whose share grows with the steps."""

    _product: Any
    _rests: tuple[Any, Any, Any]

    _numbers = ("learning_rate", "beta_1", "beta_2")
    _constants = ("epsilon",)

    def __init__(
        self,
        learning_rate: PassedOn = 0.001,
        beta_1: PassedOn = 0.9,
        beta_2: PassedOn = 0.999,
        epsilon: float | None = 1e-7,
        name: str = "Nadam",
        **kwargs: PassedOn,
    ) -> None:
        kwargs["decay"] = kwargs.pop("schedule_decay", kwargs.get("decay", 0.004))
        numbers = {"learning_rate": learning_rate, "beta_1": beta_1, "beta_2": beta_2}
        super().__init__(name, numbers, {"epsilon": epsilon or _backend.epsilon(), "_product": None}, kwargs)

    def _create_slots(self, var_list: Sequence[Any]) -> None:
        if self._product is None:
            self._product = self.add_weight("momentum_cache", shape=[], initializer="ones")
            self._weights.append(self._product)
        super()._create_slots(var_list)

    def _decayed_lr(self, dtype: PassedOn) -> Any:
        return self._get_hyper("learning_rate", dtype)

    def _prepare(self, var_list: Sequence[Any]) -> dict[Any, Any]:
        kind = var_list[0].dtype.base_dtype if var_list else tf.float32
        step = tf.cast(self.iterations + 1, kind)
        beta_1, decay = self._get_hyper("beta_1", kind), self._initial_decay
        self._now = beta_1 * (1.0 - 0.5 * tf.pow(0.96, decay * step))
        self._then = beta_1 * (1.0 - 0.5 * tf.pow(0.96, decay * (step + 1)))
        product = tf.cast(self._product.read_value(), kind) * self._now
        self._so_far = tf.cast(self._product.assign(tf.cast(product, self._product.dtype.base_dtype)), kind)
        self._rests = 1.0 - self._so_far, 1.0 - self._so_far * self._then, 1.0 - self._now
        return super()._prepare(var_list)

    def _resource_apply_dense(self, grad: TensorLike, var: PassedOn, apply_state: PassedOn = None) -> Any:
        shared = self._shared(var, apply_state)
        m, v = self.get_slot(var, "m"), self.get_slot(var, "v")
        m_new = m.assign(shared["beta_1"] * m + shared["1-beta_1"] * grad)
        v_new = v.assign(shared["beta_2"] * v + shared["1-beta_2"] * tf.square(grad))
        return var.assign_sub(self._step(shared, grad, m_new, v_new), read_value=False)

    def _step(self, shared: dict[str, Any], grad: TensorLike, m: TensorLike, v: TensorLike) -> Any:
        of_grad, of_m, of_now = self._rests
        grad_bar = grad / of_grad
        m_bar = m / of_m
        v_bar = v / shared["1-beta_2_power"]
        mixed = of_now * grad_bar + self._then * m_bar
        return shared["lr_t"] * mixed / (tf.sqrt(v_bar) + shared["epsilon"])

    def _resource_apply_sparse(
        self, grad: TensorLike, var: PassedOn, indices: TensorLike, apply_state: PassedOn = None
    ) -> Any:
        shared = self._shared(var, apply_state)
        m = self._averaged(self.get_slot(var, "m"), shared, "beta_1", indices, grad)
        v = self._averaged(self.get_slot(var, "v"), shared, "beta_2", indices, grad * grad)
        step = self._step(shared, grad, *(_raw.Gather(params=x, indices=indices) for x in (m, v)))
        return _raw.ResourceScatterAdd(resource=var.handle, indices=indices, updates=-step)


class RMSprop(_Rule):
    """Divides gradients by a moving average of their size; `centered` by that of their deviation."""

    _numbers = ("learning_rate", "rho", "momentum")
    _constants = ("epsilon", "centered")

    def __init__(
        self,
        learning_rate: PassedOn = 0.001,
        rho: PassedOn = 0.9,
        momentum: PassedOn = 0.0,
        epsilon: float | None = 1e-7,
        centered: bool = False,
        name: str = "RMSprop",
        **kwargs: PassedOn,
    ) -> None:
        if isinstance(momentum, int | float) and not 0 <= momentum <= 1:
            raise ValueError("`momentum` must be between [0, 1].")
        constants = {
            "epsilon": epsilon or _backend.epsilon(),
            "centered": centered,
            "_moves": isinstance(momentum, tf.Tensor) or bool(momentum),
        }
        numbers = {"learning_rate": learning_rate, "rho": rho, "momentum": momentum}
        super().__init__(name, numbers, constants, kwargs)

    def _create_slots(self, var_list: Sequence[Any]) -> None:
        names = ["rms", *(["momentum"] if self._moves else []), *(["mg"] if self.centered else [])]
        for slot in names:
            for var in var_list:
                self.add_slot(var, slot)

    def _apply(self, grad: TensorLike, var: PassedOn, indices: TensorLike | None, state: PassedOn) -> Any:
        shared = self._shared(var, state)
        rate, rho, rest, rms = shared["lr_t"], shared["rho"], shared["1-rho"], self.get_slot(var, "rms")
        rows = rms if indices is None else tf.gather(rms, indices)
        squares = _keep(rms, rho * rows + rest * tf.square(grad), indices)
        deviation = squares
        if self.centered:
            mg = self.get_slot(var, "mg")
            mean_rows = mg if indices is None else tf.gather(mg, indices)
            mean = _keep(mg, rho * mean_rows + rest * grad, indices)
            deviation = squares - tf.square(mean)
        if not self._moves:
            inside = tf.sqrt(deviation) + shared["epsilon"]
            return _move(var, rate * grad / inside, indices)
        momentum = self.get_slot(var, "momentum")
        moved = momentum if indices is None else tf.gather(momentum, indices)
        step = _keep(
            momentum, shared["momentum"] * moved + rate * grad / tf.sqrt(deviation + shared["epsilon"]), indices
        )
        return _move(var, step, indices)

    def _resource_apply_dense(self, grad: TensorLike, var: PassedOn, apply_state: PassedOn = None) -> Any:
        return self._apply(grad, var, None, apply_state)

    def _resource_apply_sparse(
        self, grad: TensorLike, var: PassedOn, indices: TensorLike, apply_state: PassedOn = None
    ) -> Any:
        return self._apply(grad, var, indices, apply_state)


def _keep(slot: PassedOn, new: TensorLike, indices: TensorLike | None) -> Any:
    """Assigns to a slot or to some of its rows; what was assigned, after it was."""
    if indices is None:
        return slot.assign(new)
    with tf.control_dependencies([_raw.ResourceScatterUpdate(resource=slot.handle, indices=indices, updates=new)]):
        return tf.identity(new)


def _move(var: PassedOn, step: TensorLike, indices: TensorLike | None) -> Any:
    if indices is None:
        return var.assign_sub(step, read_value=False)
    return _raw.ResourceScatterAdd(resource=var.handle, indices=indices, updates=-step)


class Adagrad(_Rule):
    """Divides gradients by the root of the sum of their squares so far."""

    _numbers = ("learning_rate",)
    _constants = ("initial_accumulator_value", "epsilon")

    def __init__(
        self,
        learning_rate: PassedOn = 0.001,
        initial_accumulator_value: float = 0.1,
        epsilon: float | None = 1e-7,
        name: str = "Adagrad",
        **kwargs: PassedOn,
    ) -> None:
        if initial_accumulator_value < 0.0:
            raise ValueError(f"initial_accumulator_value must be non-negative: {initial_accumulator_value}")
        constants = {
            "initial_accumulator_value": initial_accumulator_value,
            "epsilon": _backend.epsilon() if epsilon is None else epsilon,
        }
        super().__init__(name, {"learning_rate": learning_rate}, constants, kwargs)

    def _create_slots(self, var_list: Sequence[Any]) -> None:
        for var in var_list:
            self.add_slot(var, "accumulator", tf.constant_initializer(self.initial_accumulator_value))

    def _resource_apply_dense(self, grad: TensorLike, var: PassedOn, apply_state: PassedOn = None) -> Any:
        shared = self._shared(var, apply_state)
        return _raw.ResourceApplyAdagradV2(
            var=var.handle,
            accum=self.get_slot(var, "accumulator").handle,
            lr=shared["lr_t"],
            epsilon=shared["epsilon"],
            grad=grad,
        )

    def _resource_apply_sparse(
        self, grad: TensorLike, var: PassedOn, indices: TensorLike, apply_state: PassedOn = None
    ) -> Any:
        shared = self._shared(var, apply_state)
        return _raw.ResourceSparseApplyAdagradV2(
            var=var.handle,
            accum=self.get_slot(var, "accumulator").handle,
            lr=shared["lr_t"],
            epsilon=shared["epsilon"],
            grad=grad,
            indices=indices,
        )


class Adadelta(_Rule):
    """Steps of the size of earlier steps, over the size of gradients."""

    _numbers = ("learning_rate", "rho")
    _constants = ("epsilon",)

    def __init__(
        self,
        learning_rate: PassedOn = 0.001,
        rho: PassedOn = 0.95,
        epsilon: float | None = 1e-7,
        name: str = "Adadelta",
        **kwargs: PassedOn,
    ) -> None:
        constants = {"epsilon": epsilon or _backend.epsilon()}
        super().__init__(name, {"learning_rate": learning_rate, "rho": rho}, constants, kwargs)

    def _create_slots(self, var_list: Sequence[Any]) -> None:
        for slot in ("accum_grad", "accum_var"):
            for var in var_list:
                self.add_slot(var, slot)

    def _given(self, grad: TensorLike, var: PassedOn, state: PassedOn) -> dict[str, Any]:
        shared = self._shared(var, state)
        return {
            "var": var.handle,
            "accum": self.get_slot(var, "accum_grad").handle,
            "accum_update": self.get_slot(var, "accum_var").handle,
            "lr": shared["lr_t"],
            "rho": shared["rho"],
            "epsilon": shared["epsilon"],
            "grad": grad,
        }

    def _resource_apply_dense(self, grad: TensorLike, var: PassedOn, apply_state: PassedOn = None) -> Any:
        return _raw.ResourceApplyAdadelta(**self._given(grad, var, apply_state))

    def _resource_apply_sparse(
        self, grad: TensorLike, var: PassedOn, indices: TensorLike, apply_state: PassedOn = None
    ) -> Any:
        return _raw.ResourceSparseApplyAdadelta(indices=indices, **self._given(grad, var, apply_state))


class Ftrl(_Rule):
    """Follow the regularized leader, with an L1 and two kinds of L2 penalty."""

    _numbers = ("learning_rate", "learning_rate_power", "l1_regularization_strength", "l2_regularization_strength")
    _constants = ("initial_accumulator_value", "l2_shrinkage_regularization_strength")

    def __init__(
        self,
        learning_rate: PassedOn = 0.001,
        learning_rate_power: float = -0.5,
        initial_accumulator_value: float = 0.1,
        l1_regularization_strength: float = 0.0,
        l2_regularization_strength: float = 0.0,
        name: str = "Ftrl",
        l2_shrinkage_regularization_strength: float = 0.0,
        **kwargs: PassedOn,
    ) -> None:
        for what, value in (
            ("initial_accumulator_value", initial_accumulator_value),
            ("l1_regularization_strength", l1_regularization_strength),
            ("l2_regularization_strength", l2_regularization_strength),
            ("l2_shrinkage_regularization_strength", l2_shrinkage_regularization_strength),
        ):
            if value < 0.0:
                raise ValueError(f"{what} {value} needs to be positive or zero")
        if learning_rate_power > 0.0:
            raise ValueError(f"learning_rate_power {learning_rate_power} needs to be negative or zero")
        numbers = {
            "learning_rate": learning_rate,
            "learning_rate_power": learning_rate_power,
            "l1_regularization_strength": l1_regularization_strength,
            "l2_regularization_strength": l2_regularization_strength,
        }
        constants = {
            "initial_accumulator_value": initial_accumulator_value,
            "l2_shrinkage_regularization_strength": l2_shrinkage_regularization_strength,
        }
        super().__init__(name, numbers, constants, kwargs)

    def _create_slots(self, var_list: Sequence[Any]) -> None:
        for var in var_list:
            self.add_slot(var, "accumulator", tf.constant_initializer(self.initial_accumulator_value))
            self.add_slot(var, "linear")

    def _given(self, grad: TensorLike, var: PassedOn, state: PassedOn) -> dict[str, Any]:
        shared = self._shared(var, state)
        given = {
            "var": var.handle,
            "accum": self.get_slot(var, "accumulator").handle,
            "linear": self.get_slot(var, "linear").handle,
            "grad": grad,
            "lr": shared["lr_t"],
            "l1": shared["l1_regularization_strength"],
            "l2": shared["l2_regularization_strength"],
            "lr_power": shared["learning_rate_power"],
        }
        if self.l2_shrinkage_regularization_strength > 0.0:
            given["l2_shrinkage"] = shared["l2_shrinkage_regularization_strength"]
        return given

    def _resource_apply_dense(self, grad: TensorLike, var: PassedOn, apply_state: PassedOn = None) -> Any:
        given = self._given(grad, var, apply_state)
        return _raw.ResourceApplyFtrlV2(**given) if "l2_shrinkage" in given else _raw.ResourceApplyFtrl(**given)

    def _resource_apply_sparse(
        self, grad: TensorLike, var: PassedOn, indices: TensorLike, apply_state: PassedOn = None
    ) -> Any:
        given = self._given(grad, var, apply_state) | {"indices": indices}
        if "l2_shrinkage" in given:
            return _raw.ResourceSparseApplyFtrlV2(**given)
        return _raw.ResourceSparseApplyFtrl(**given)


OPTIMIZERS = (SGD, RMSprop, Adagrad, Adadelta, Adam, Adamax, Nadam, Ftrl)
for _cls in OPTIMIZERS:
    _cls.__module__ = "tensorflow.keras.optimizers"
    BY_NAME[_cls.__name__.lower()] = _cls
