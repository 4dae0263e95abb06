"""Layers that normalize."""

from __future__ import annotations

from typing import Any

import numpy as np

import anabranch as tf
from anabranch.core.values import PassedOn
from anabranch.tfkeras import package, rebasing
from anabranch.tfkeras.layer import KerasLayer

_module = package.module("layers.normalization")
_backend = package.module("backend")
_initializers = package.module("initializers")
_regularizers = package.module("regularizers")
_constraints = package.module("constraints")
_BatchNormalization: Any = rebasing.rebased(_module.BatchNormalization)


@rebasing.serves(_module.BatchNormalization)
class KerasBatchNormalization(_BatchNormalization):
    """Batch normalization, as `tf.layers` has it: over several axes, with renormalization and virtual batches.

    The layer trains where `training` says so, by default in the learning phase. Its averages are updated by `updates`.
    """

    def __init__(
        self,
        axis: PassedOn = -1,
        momentum: float = 0.99,
        epsilon: float = 1e-3,
        center: bool = True,
        scale: bool = True,
        beta_initializer: PassedOn = "zeros",
        gamma_initializer: PassedOn = "ones",
        moving_mean_initializer: PassedOn = "zeros",
        moving_variance_initializer: PassedOn = "ones",
        beta_regularizer: PassedOn = None,
        gamma_regularizer: PassedOn = None,
        beta_constraint: PassedOn = None,
        gamma_constraint: PassedOn = None,
        renorm: bool = False,
        renorm_clipping: PassedOn = None,
        renorm_momentum: float = 0.99,
        fused: bool | None = None,
        trainable: bool = True,
        virtual_batch_size: int | None = None,
        adjustment: PassedOn = None,
        name: str | None = None,
        **kwargs: PassedOn,
    ) -> None:
        KerasLayer.__init__(self, name=name, trainable=trainable, **kwargs)
        if not isinstance(axis, int | list | tuple):
            raise TypeError("axis must be int or list, type given: %s" % type(axis))  # noqa: UP031
        self.axis = list(axis) if isinstance(axis, list | tuple) else axis
        self.momentum, self.epsilon, self.center, self.scale = momentum, epsilon, center, scale
        self.renorm, self.virtual_batch_size = renorm, virtual_batch_size
        self.fused = fused is None or fused
        self.renorm_clipping, self.renorm_momentum, self.adjustment = renorm_clipping, renorm_momentum, adjustment
        self.beta_initializer = _initializers.get(beta_initializer)
        self.gamma_initializer = _initializers.get(gamma_initializer)
        self.moving_mean_initializer = _initializers.get(moving_mean_initializer)
        self.moving_variance_initializer = _initializers.get(moving_variance_initializer)
        self.beta_regularizer = _regularizers.get(beta_regularizer)
        self.gamma_regularizer = _regularizers.get(gamma_regularizer)
        self.beta_constraint = _constraints.get(beta_constraint)
        self.gamma_constraint = _constraints.get(gamma_constraint)
        self.supports_masking = True
        self._normalizer = tf.layers.BatchNormalization(
            axis=axis,
            momentum=momentum,
            epsilon=epsilon,
            center=center,
            scale=scale,
            renorm=renorm,
            renorm_clipping=renorm_clipping,
            renorm_momentum=renorm_momentum,
            fused=fused,
            virtual_batch_size=virtual_batch_size,
            adjustment=adjustment,
            name=self.name,
        )

    def build(self, input_shape: PassedOn) -> None:
        shape = tf.TensorShape(input_shape)
        inner: Any = self._normalizer
        inner._dtype = self.dtype
        inner.add_weight = self._add_for_normalizer
        inner._owns_variables = True
        inner.build(shape)
        self.axis = list(inner.axis)
        of_pictures = shape.ndims == 4 and self.axis in ([1], [3])
        self.fused = self.fused and of_pictures and self.virtual_batch_size is None and self.adjustment is None
        self.gamma, self.beta = inner.gamma, inner.beta
        self.moving_mean, self.moving_variance = inner.moving_mean, inner.moving_variance
        self.input_spec = _module.InputSpec(ndim=shape.ndims, axes={a: shape.as_list()[a] for a in inner.axis})
        self.built = True

    def _add_for_normalizer(
        self,
        name: str,
        shape: PassedOn,
        dtype: PassedOn = None,
        initializer: PassedOn = None,
        regularizer: PassedOn = None,
        trainable: bool | None = None,
        constraint: PassedOn = None,
    ) -> Any:
        mine = getattr(self, f"{name}_initializer", None)
        return self.add_weight(
            name=name,
            shape=shape,
            dtype=dtype,
            initializer=mine if mine is not None else initializer,
            regularizer=getattr(self, f"{name}_regularizer", None),
            trainable=trainable,
            constraint=getattr(self, f"{name}_constraint", None),
        )

    def call(self, inputs: PassedOn, training: PassedOn = None) -> Any:
        if training is None:
            training = _backend.learning_phase()
        if isinstance(training, int | np.integer):
            training = bool(training)
        inner = self._normalizer
        before = len(inner._updates)
        outputs = inner.call(inputs, training=training)
        for update, _ in inner._updates[before:]:
            self.add_update(update, inputs=inputs)
        return outputs

    def compute_output_shape(self, input_shape: PassedOn) -> Any:
        return input_shape

    def get_config(self) -> dict[str, Any]:
        axis = self.axis
        config = {
            "axis": axis[0] if isinstance(axis, list) and len(axis) == 1 else axis,
            "momentum": self.momentum,
            "epsilon": self.epsilon,
            "center": self.center,
            "scale": self.scale,
            "beta_initializer": _initializers.serialize(self.beta_initializer),
            "gamma_initializer": _initializers.serialize(self.gamma_initializer),
            "moving_mean_initializer": _initializers.serialize(self.moving_mean_initializer),
            "moving_variance_initializer": _initializers.serialize(self.moving_variance_initializer),
            "beta_regularizer": _regularizers.serialize(self.beta_regularizer),
            "gamma_regularizer": _regularizers.serialize(self.gamma_regularizer),
            "beta_constraint": _constraints.serialize(self.beta_constraint),
            "gamma_constraint": _constraints.serialize(self.gamma_constraint),
        }
        if self.renorm:
            config |= {
                "renorm": True,
                "renorm_clipping": self.renorm_clipping,
                "renorm_momentum": self.renorm_momentum,
            }
        if self.virtual_batch_size is not None:
            config["virtual_batch_size"] = self.virtual_batch_size
        return KerasLayer.get_config(self) | config


class LayerNormalization(KerasLayer):
    """Each example normalized over some of its axes.

    Args:
        axis: the axes, of which each element has a scale (`gamma`) and an offset (`beta`).
    """

    def __init__(
        self,
        axis: PassedOn = -1,
        epsilon: float = 1e-3,
        center: bool = True,
        scale: bool = True,
        beta_initializer: PassedOn = "zeros",
        gamma_initializer: PassedOn = "ones",
        beta_regularizer: PassedOn = None,
        gamma_regularizer: PassedOn = None,
        beta_constraint: PassedOn = None,
        gamma_constraint: PassedOn = None,
        trainable: bool = True,
        name: str | None = None,
        **kwargs: PassedOn,
    ) -> None:
        super().__init__(name=name, trainable=trainable, **kwargs)
        if not isinstance(axis, int | list | tuple):
            raise ValueError(
                f"Expected an int or a list/tuple of ints for the argument 'axis', but received instead: {axis}"
            )
        self.axis: Any = list(axis) if isinstance(axis, list | tuple) else axis
        self.epsilon, self.center, self.scale = epsilon, center, scale
        self.beta_initializer = _initializers.get(beta_initializer)
        self.gamma_initializer = _initializers.get(gamma_initializer)
        self.beta_regularizer = _regularizers.get(beta_regularizer)
        self.gamma_regularizer = _regularizers.get(gamma_regularizer)
        self.beta_constraint = _constraints.get(beta_constraint)
        self.gamma_constraint = _constraints.get(gamma_constraint)
        self.gamma: Any = None
        self.beta: Any = None
        self.supports_masking = True

    def build(self, input_shape: PassedOn) -> None:
        lengths = tf.TensorShape(input_shape).as_list()
        axes = [self.axis] if isinstance(self.axis, int) else self.axis
        for axis in axes:
            if not -len(lengths) <= axis < len(lengths):
                raise ValueError(f"Invalid axis: {axis}")
        axes = [axis % len(lengths) for axis in axes]
        if len(set(axes)) != len(axes):
            raise ValueError(f"Duplicate axis: {axes}")
        self.axis = axes
        shape = [lengths[axis] for axis in axes]
        if self.scale:
            self.gamma = self.add_weight(
                name="gamma",
                shape=shape,
                initializer=self.gamma_initializer,
                regularizer=self.gamma_regularizer,
                constraint=self.gamma_constraint,
            )
        if self.center:
            self.beta = self.add_weight(
                name="beta",
                shape=shape,
                initializer=self.beta_initializer,
                regularizer=self.beta_regularizer,
                constraint=self.beta_constraint,
            )
        self.built = True

    def call(self, inputs: PassedOn) -> Any:
        lengths, axes = inputs.shape.as_list(), list(self.axis)
        mean, variance = tf.nn.moments(inputs, axes, keep_dims=True)
        broad = [lengths[i] if i in axes else 1 for i in range(len(lengths))]
        plain = axes == [len(lengths) - 1]

        def spread(value: PassedOn) -> Any:
            return value if value is None or plain else tf.reshape(value, broad)

        outputs = tf.nn.batch_normalization(inputs, mean, variance, spread(self.beta), spread(self.gamma), self.epsilon)
        outputs.set_shape(inputs.shape)
        return outputs

    def compute_output_shape(self, input_shape: PassedOn) -> Any:
        return input_shape

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {
            "axis": self.axis,
            "epsilon": self.epsilon,
            "center": self.center,
            "scale": self.scale,
            "beta_initializer": _initializers.serialize(self.beta_initializer),
            "gamma_initializer": _initializers.serialize(self.gamma_initializer),
            "beta_regularizer": _regularizers.serialize(self.beta_regularizer),
            "gamma_regularizer": _regularizers.serialize(self.gamma_regularizer),
            "beta_constraint": _constraints.serialize(self.beta_constraint),
            "gamma_constraint": _constraints.serialize(self.gamma_constraint),
        }
