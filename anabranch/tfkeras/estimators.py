"""`tf.keras.estimator.model_to_estimator`: a compiled model as an Estimator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anabranch as tf
from anabranch.core.values import PassedOn
from anabranch.tfkeras import cloning, optimizers, package, saving, scopes

_module = package.module("optimizers")
_backend = package.module("backend")
_generic = package.module("utils.generic_utils")


def model_to_estimator(
    keras_model: PassedOn = None,
    keras_model_path: str | None = None,
    custom_objects: PassedOn = None,
    model_dir: str | None = None,
    config: PassedOn = None,
    checkpoint_format: str | None = None,
) -> Any:
    """An Estimator that trains a compiled functional or sequential model, from the weights that it has now.

    Args:
        keras_model: the model.
        keras_model_path: an HDF5 file of one, in its place.
        custom_objects: the program's classes and functions by their names.
        model_dir: of the Estimator.
        config: of the Estimator.
        checkpoint_format: kept; checkpoints hold variables by their names.

    Raises:
        ValueError: neither or both of model and path, or a model that is not compiled.
    """
    if (keras_model is None) == (keras_model_path is None):
        raise ValueError("Either `keras_model` or `keras_model_path` needs to be provided, and not both.")
    if keras_model is None:
        keras_model = saving.load_model(keras_model_path, custom_objects)
    if not keras_model.optimizer:
        raise ValueError("The given keras model has not been compiled yet. Please compile the model first.")
    weights = keras_model.get_weights()
    make_optimizer = _maker(keras_model.optimizer)

    def model_fn(features: PassedOn, labels: PassedOn, mode: str) -> Any:
        return _specify(keras_model, make_optimizer, weights, custom_objects or {}, (features, labels, mode))

    return tf.estimator.Estimator(model_fn, model_dir=model_dir, config=config)


def _maker(optimizer: PassedOn) -> Callable[[], Any]:
    """A function that makes such an optimizer in the default graph."""
    if isinstance(optimizer, _module.TFOptimizer):
        return lambda: _module.TFOptimizer(optimizer.optimizer)
    cls, config = type(optimizer), optimizer.get_config()
    return lambda: cls.from_config(config)


def _specify(
    model: PassedOn, make_optimizer: Callable[[], Any], weights: list[Any], custom: dict[str, Any], given: PassedOn
) -> Any:
    """The graph of one mode."""
    features, labels, mode = given
    modes = tf.estimator.ModeKeys
    _backend.set_learning_phase(int(mode == modes.TRAIN))
    step = tf.train.get_or_create_global_step()
    inputs = _ordered(features, model.input_names)
    with scopes.served_classes(), _generic.CustomObjectScope(custom):
        if mode == modes.PREDICT:
            copy = cloning.clone_model(model, inputs)
        else:
            optimizer = make_optimizer()
            if isinstance(optimizer, optimizers.KerasOptimizer | _module.TFOptimizer):
                optimizer.iterations = step
            targets = _ordered(labels, model.output_names)
            copy = cloning.clone_and_build_model(model, inputs, targets, optimizer)
    variables = copy.weights
    scaffold = tf.train.Scaffold(init_fn=lambda _, session: _load(session, variables, weights))
    predictions = dict(zip(model.output_names, copy.outputs, strict=True))
    if mode == modes.PREDICT:
        exports = {
            tf.saved_model.signature_constants.DEFAULT_SERVING_SIGNATURE_DEF_KEY: tf.estimator.export.PredictOutput(
                predictions
            )
        }
        return tf.estimator.EstimatorSpec(mode, predictions, export_outputs=exports, scaffold=scaffold)
    metrics = _metric_operations(copy)
    train = None
    if mode == modes.TRAIN:
        copy._make_train_function()
        train = copy.train_function.updates_op
    return tf.estimator.EstimatorSpec(
        mode, predictions, loss=copy.total_loss, train_op=train, eval_metric_ops=metrics, scaffold=scaffold
    )


def _ordered(values: PassedOn, names: list[str]) -> list[Any]:
    """Tensors in the order of the names; what is no dictionary has that order."""
    if isinstance(values, dict):
        if set(names) - set(values):
            if len(names) == len(values) == 1:
                return list(values.values())
            raise KeyError(f"the model's inputs or outputs are {names}, and the input function gives {sorted(values)}")
        return [values[name] for name in names]
    return list(tf.nest.flatten(values))


def _load(session: PassedOn, variables: list[Any], weights: list[Any]) -> None:
    for variable, value in zip(variables, weights, strict=True):
        variable.load(value, session)


def _metric_operations(model: PassedOn) -> dict[str, Any]:
    """The values and updates of the model's metrics, whose variables are local: each evaluation begins anew."""
    found = {}
    everywhere = tf.get_collection_ref(tf.GraphKeys.GLOBAL_VARIABLES)
    for metric in model.metrics:
        if not metric.updates:
            continue
        for variable in metric.weights:
            everywhere[:] = [one for one in everywhere if one is not variable]
            tf.add_to_collection(tf.GraphKeys.LOCAL_VARIABLES, variable)
        found[metric.name] = (metric.result(), tf.group(*metric.updates))
    return found
