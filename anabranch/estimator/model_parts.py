"""What ready-made models are made of: dense layers, linear models, and how the logits of such parts become a model."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import anabranch as tf
from anabranch.contrib.arguments import PassedOn
from anabranch.estimator.heads import Head
from anabranch.estimator.model_functions import EstimatorSpec, ModeKeys
from anabranch.feature_column.columns import FeatureColumn

#: an optimizer, the name of one, or a function that makes one
OptimizerLike: TypeAlias = "str | tf.train.Optimizer | Callable[[], tf.train.Optimizer]"
#: a function of tensors
Activation: TypeAlias = "Callable[[tf.Tensor], tf.Tensor] | None"
_OPTIMIZERS: dict[str, Callable[..., tf.train.Optimizer]] = {
    "Adagrad": tf.train.AdagradOptimizer,
    "Adam": tf.train.AdamOptimizer,
    "Ftrl": tf.train.FtrlOptimizer,
    "RMSProp": tf.train.RMSPropOptimizer,
    "SGD": tf.train.GradientDescentOptimizer,
}


class ModelPart(Protocol):
    """A part of a model, with an optimizer of its own for the variables in its scope."""

    @property
    def scope(self) -> str:
        """The variable scope."""

    @property
    def optimizer(self) -> OptimizerLike:
        """What trains the part."""

    @property
    def learning_rate(self) -> float:
        """Of an optimizer that is given by name."""

    def logits(self, features: Mapping[str, PassedOn], mode: str, units: int) -> tf.Tensor:
        """The logits, [batch, units]."""


def optimizer_of(given: OptimizerLike, learning_rate: float) -> tf.train.Optimizer:
    """The optimizer; one that is given by name has that learning rate.

    Raises:
        ValueError: no optimizer has that name, or something else is given.
    """
    if isinstance(given, str):
        if given not in _OPTIMIZERS:
            raise ValueError(f"Unsupported optimizer name: {given}. Supported names are: {sorted(_OPTIMIZERS)}")
        return _OPTIMIZERS[given](learning_rate=learning_rate)
    made = given if isinstance(given, tf.train.Optimizer) else given()
    if not isinstance(made, tf.train.Optimizer):
        raise ValueError(f"The given object is not an Optimizer instance. Given: {made}")
    return made


@dataclass(frozen=True)
class Deep:
    """A part of dense layers."""

    hidden_units: tuple[int, ...]
    columns: tuple[FeatureColumn, ...]
    optimizer: OptimizerLike
    learning_rate: float
    activation_fn: Activation
    dropout: float | None
    batch_norm: bool
    partitioner: PassedOn
    scope = "dnn"

    def logits(self, features: Mapping[str, PassedOn], mode: str, units: int) -> tf.Tensor:
        with tf.variable_scope(self.scope, values=list(features.values()), partitioner=self.partitioner):
            with tf.variable_scope("input_from_feature_columns"):
                net = tf.feature_column.input_layer(features, self.columns)
            for i, size in enumerate(self.hidden_units):
                net = self._layer(net, f"hiddenlayer_{i}", size, mode)
            return tf.layers.dense(net, units, kernel_initializer=tf.glorot_uniform_initializer(), name="logits")

    def _layer(self, net: tf.Tensor, name: str, size: int, mode: str) -> tf.Tensor:
        is_training = mode == ModeKeys.TRAIN
        net = tf.layers.dense(
            net, size, activation=self.activation_fn, kernel_initializer=tf.glorot_uniform_initializer(), name=name
        )
        if self.dropout is not None and is_training:
            net = tf.layers.dropout(net, rate=self.dropout, training=True)
        if self.batch_norm:
            net = tf.layers.batch_normalization(
                net, momentum=0.999, training=is_training, name=name.replace("hiddenlayer", "batchnorm")
            )
        tf.summary.scalar(f"dnn/{name}/fraction_of_zero_values", tf.nn.zero_fraction(net))
        tf.summary.histogram(f"dnn/{name}/activation", net)
        return net


@dataclass(frozen=True)
class Wide:
    """A linear part."""

    columns: tuple[FeatureColumn, ...]
    optimizer: OptimizerLike
    largest_rate: float
    sparse_combiner: str
    partitioner: PassedOn
    scope = "linear"

    @property
    def learning_rate(self) -> float:
        return min(self.largest_rate, 1 / math.sqrt(len(self.columns)))

    def logits(self, features: Mapping[str, PassedOn], mode: str, units: int) -> tf.Tensor:
        with tf.variable_scope(self.scope, values=list(features.values()), partitioner=self.partitioner):
            return tf.feature_column.linear_model(
                features, self.columns, units=units, sparse_combiner=self.sparse_combiner
            )


def model_function(head: Head, parts: Sequence[ModelPart]) -> Callable[..., EstimatorSpec]:
    """The model function of some parts, whose logits are added; each part is trained by its own optimizer."""

    def model_fn(features: PassedOn, labels: PassedOn, mode: str) -> EstimatorSpec:
        if not isinstance(features, Mapping):
            raise ValueError(f"features should be a dictionary of `Tensor`s. Given type: {type(features)}")
        tensors = [part.logits(features, mode, head.logits_dimension) for part in parts]
        logits = tensors[0] if len(tensors) == 1 else tf.add_n(tensors)

        def train_op_fn(loss: tf.Tensor) -> tf.Operation:
            return train_parts(loss, parts)

        # the only part of a model has the head in its scope, as in TensorFlow; the name scope alone, so that the
        # variables of optimizers keep their names
        with tf.name_scope(f"{parts[0].scope}/") if len(parts) == 1 else contextlib.nullcontext():
            return head.create_estimator_spec(features, mode, logits, labels, train_op_fn=train_op_fn)

    return model_fn


def train_parts(loss: tf.Tensor, parts: Sequence[ModelPart]) -> tf.Operation:
    """The operation that trains each part by its own optimizer, and counts the step."""
    step = tf.train.get_or_create_global_step()
    updates = tf.get_collection(tf.GraphKeys.UPDATE_OPS)
    with tf.control_dependencies(updates):
        steps = [
            optimizer_of(part.optimizer, part.learning_rate).minimize(
                loss, var_list=tf.get_collection(tf.GraphKeys.TRAINABLE_VARIABLES, f"{part.scope}/")
            )
            for part in parts
        ]
    with tf.control_dependencies(steps):
        result: tf.Operation = tf.assign_add(step, 1).op
    return result
