"""`tf.contrib.learn.Estimator` and the models made of it: those of `tf.estimator`, with `fit` and arrays as input."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Self, TypeAlias

import numpy as np

import anabranch as tf
from anabranch.contrib.arguments import PassedOn
from anabranch.contrib.learn.interfaces import BaseEstimator
from anabranch.contrib.learn.model_operations import MetricSpec, ModelFnOps, metric_operations
from anabranch.contrib.learn.serving_inputs import as_receiver
from anabranch.contrib.learn.step_monitors import as_hooks

#: what was said to examples: an iterator, an array, or arrays by name
Predictions: TypeAlias = Any
_DEFAULT = tf.saved_model.signature_constants.DEFAULT_SERVING_SIGNATURE_DEF_KEY


class LearnsFromArrays:
    """The methods `fit`, `evaluate` and `predict` as `tf.contrib.learn` had them; stands before a `tf.estimator` class.

    Data are `x` and `y`, arrays whose first axis counts the examples, or what `input_fn` returns.
    """

    #: a head may say its own loss
    _reserved_metrics = ("global_step",)
    #: metrics of the evaluation that goes on
    _metrics: Mapping[str, MetricSpec] | None = None
    #: which output is the default signature of the model that is being exported
    _served: str | None = None
    #: the names of outputs of which none is the default
    _alternatives: Sequence[str] = ()

    def fit(
        self,
        x: PassedOn = None,
        y: PassedOn = None,
        input_fn: Callable[..., Any] | None = None,
        steps: int | None = None,
        batch_size: int | None = None,
        monitors: Sequence[tf.train.SessionRunHook] | None = None,
        max_steps: int | None = None,
    ) -> Self:
        """Trains, from the latest checkpoint on.

        Args:
            x, y: features and labels; batches of them are drawn again and again.
            input_fn: gives features and labels instead.
            steps: how many steps to make.
            batch_size: of batches of `x`; None: all of it.
            monitors: hooks of the session.
            max_steps: the global step to stop at; not both.

        Returns:
            The estimator itself.

        Raises:
            ValueError: there is both an `input_fn` and arrays, or neither.
        """
        function = input_function(x, y, input_fn, batch_size, shuffle=True, epochs=None)
        hooks = as_hooks(monitors, self)
        self.train(function, hooks=hooks, steps=steps, max_steps=max_steps)  # type: ignore[attr-defined]
        return self

    partial_fit = fit

    def evaluate(
        self,
        x: PassedOn = None,
        y: PassedOn = None,
        input_fn: Callable[..., Any] | None = None,
        feed_fn: None = None,
        batch_size: int | None = None,
        steps: int | None = None,
        metrics: Mapping[str, MetricSpec] | None = None,
        name: str | None = None,
        checkpoint_path: str | None = None,
        hooks: Sequence[tf.train.SessionRunHook] | None = None,
        log_progress: bool = True,
    ) -> dict[str, Any]:
        """The metrics of the model on data, once.

        Args:
            x, y, input_fn, batch_size: as for `fit`.
            steps: how many batches; None: until the input ends.
            metrics: further ones, by name.
            name: of the evaluation, whose summaries go to a directory of their own.
            checkpoint_path: which checkpoint; None: the latest.
            hooks: of the session.
        """
        function = input_function(x, y, input_fn, batch_size, shuffle=False, epochs=1)
        self._metrics = metrics
        try:
            return super().evaluate(function, steps, hooks, checkpoint_path, name)  # type: ignore[misc,no-any-return]
        finally:
            self._metrics = None

    score = evaluate

    def predict(
        self,
        x: PassedOn = None,
        input_fn: Callable[..., Any] | None = None,
        batch_size: int | None = None,
        outputs: Sequence[str] | None = None,
        as_iterable: bool = True,
    ) -> Predictions:
        """What the model says to each example.

        Args:
            x, input_fn, batch_size: as for `fit`.
            outputs: the names of the predictions that are wanted.
            as_iterable: whether the result is an iterator, or an array (arrays by name).
        """
        function = input_function(x, None, input_fn, batch_size, shuffle=False, epochs=1)
        said = super().predict(function, predict_keys=outputs)  # type: ignore[misc]
        return said if as_iterable else stacked(said)

    def export_savedmodel(
        self,
        export_dir_base: str,
        serving_input_fn: Callable[[], Any],
        default_output_alternative_key: str | None = None,
        assets_extra: Mapping[str, str] | None = None,
        as_text: bool = False,
        checkpoint_path: str | None = None,
        graph_rewrite_specs: PassedOn = None,
        strip_default_attrs: bool = False,
    ) -> bytes:
        """Writes the trained model as a SavedModel for serving.

        Args:
            export_dir_base: the model goes to a new folder in it, named after the time in seconds.
            serving_input_fn: gives an `InputFnOps`, or a `tf.estimator.export.ServingInputReceiver`.
            default_output_alternative_key: which of the outputs of a `ModelFnOps` is the default signature; None: the
                only one, or the one of the name None.
            assets_extra, as_text, checkpoint_path: as for `tf.estimator.Estimator.export_saved_model`.
            graph_rewrite_specs, strip_default_attrs: not used: a graph for serving is not rewritten.

        Returns:
            The folder of the model, as bytes.

        Raises:
            ValueError: there is no checkpoint, no such function, or no output of that name.
        """
        if serving_input_fn is None:
            raise ValueError("serving_input_fn must be defined.")
        self._served = default_output_alternative_key
        try:
            return super().export_saved_model(  # type: ignore[misc, no-any-return]
                export_dir_base, lambda: as_receiver(serving_input_fn()), assets_extra, as_text, checkpoint_path
            )
        finally:
            self._served = None

    def _call_model_fn(
        self, features: PassedOn, labels: PassedOn, mode: str, config: PassedOn, exporting: bool = False
    ) -> tf.estimator.EstimatorSpec:
        spec = super()._call_model_fn(features, labels, mode, config, exporting)  # type: ignore[misc]
        if mode == tf.estimator.ModeKeys.EVAL and self._metrics:
            added = metric_operations(self._metrics, features, labels, spec.predictions)
            return spec._replace(eval_metric_ops={**spec.eval_metric_ops, **added})  # type: ignore[no-any-return]
        if exporting and self._served is None and self._alternatives:
            raise ValueError(f"Say default_output_alternative_key: the model has the outputs {self._alternatives}")
        if exporting and self._served is not None:
            outputs = spec.export_outputs or {}
            if self._served not in outputs:
                raise ValueError(f"The model has no output {self._served!r}; there are {sorted(outputs)}")
            return spec._replace(export_outputs={**outputs, _DEFAULT: outputs[self._served]})  # type: ignore[no-any-return]
        return spec  # type: ignore[no-any-return]


BaseEstimator.register(LearnsFromArrays)


class LearnEstimator(LearnsFromArrays, tf.estimator.Estimator):  # type: ignore[misc]
    """A model that a function describes, trained, evaluated and asked.

    Args:
        model_fn: takes features, labels and, if it wants them, mode, params and config; returns a `ModelFnOps`, a
            triple of predictions, loss and training operation, or a `tf.estimator.EstimatorSpec`.
        model_dir: of checkpoints and summaries; None: that of `config`, or a temporary one.
        config: a `RunConfig`.
        params: what `model_fn` is given as such.
        feature_engineering_fn: changes features and labels before `model_fn` gets them.
    """

    def __init__(
        self,
        model_fn: Callable[..., Any],
        model_dir: str | None = None,
        config: tf.estimator.RunConfig | None = None,
        params: PassedOn = None,
        feature_engineering_fn: Callable[[Any, Any], tuple[Any, Any]] | None = None,
    ) -> None:
        super().__init__(_by_position(model_fn), model_dir, config, params)
        self._engineered = feature_engineering_fn
        self._mode: str | None = None

    def _call_model_fn(
        self, features: PassedOn, labels: PassedOn, mode: str, config: PassedOn, exporting: bool = False
    ) -> tf.estimator.EstimatorSpec:
        if self._engineered is not None:
            features, labels = self._engineered(features, labels)
        self._mode = mode
        return super()._call_model_fn(features, labels, mode, config, exporting)

    def _checked_spec(self, spec: PassedOn) -> tf.estimator.EstimatorSpec:
        if isinstance(spec, tuple) and not isinstance(spec, tf.estimator.EstimatorSpec | ModelFnOps):
            if len(spec) != 3:
                raise ValueError(
                    f"Unrecognized value returned by model_fn, a tuple of {len(spec)}: 3 are predictions, "
                    "loss and training operation"
                )
            spec = ModelFnOps(self._mode or "", *spec)
        if isinstance(spec, ModelFnOps):
            names = sorted(name for name in spec.output_alternatives or {} if name)
            self._alternatives = names if len(names) > 1 and len(names) == len(spec.output_alternatives or {}) else ()
            return _as_estimator_spec(spec, self._mode or spec.mode)
        return super()._checked_spec(spec)


def _by_position(model_fn: Callable[..., Any]) -> Callable[..., Any]:
    """Calls a model function with features and labels at the first places, whatever it calls them."""
    known = inspect.signature(model_fn).parameters

    def called(features: PassedOn, labels: PassedOn, mode: str, params: PassedOn, config: PassedOn) -> Any:
        offered = {"mode": mode, "params": params, "config": config, "model_dir": config.model_dir}
        return model_fn(features, labels, **{name: value for name, value in offered.items() if name in known})

    return called


def _as_estimator_spec(parts: ModelFnOps, mode: str) -> tf.estimator.EstimatorSpec:
    outputs = {
        name or _DEFAULT: tf.estimator.export.PredictOutput(dict(alternative))
        for name, (_, alternative) in (parts.output_alternatives or {}).items()
    }
    if len(outputs) > 1 and _DEFAULT not in outputs:
        outputs[_DEFAULT] = next(iter(outputs.values()))  # which one it is, is said when the model is exported
    if not outputs and parts.predictions is not None and mode == tf.estimator.ModeKeys.PREDICT:
        outputs[_DEFAULT] = tf.estimator.export.PredictOutput(parts.predictions)
    return tf.estimator.EstimatorSpec(
        mode,
        parts.predictions,
        parts.loss if mode != tf.estimator.ModeKeys.PREDICT else None,
        parts.train_op if mode == tf.estimator.ModeKeys.TRAIN else None,
        dict(parts.eval_metric_ops or {}),
        outputs or None,
        training_chief_hooks=parts.training_chief_hooks,
        training_hooks=parts.training_hooks,
        scaffold=parts.scaffold,
    )


def input_function(
    x: PassedOn,
    y: PassedOn,
    input_fn: Callable[..., Any] | None,
    batch_size: int | None,
    shuffle: bool,
    epochs: int | None,
) -> Callable[..., Any]:
    """The function that gives batches of arrays, where there is none yet.

    Raises:
        ValueError: there is both a function and arrays, or neither; or a size of batches and a function.
    """
    if input_fn is not None:
        if x is not None or y is not None or batch_size is not None:
            raise ValueError("Can not provide both input_fn and x, y or batch_size.")
        return input_fn
    if x is None:
        raise ValueError("Must provide x or input_fn.")
    features = {name: np.asarray(one) for name, one in x.items()} if isinstance(x, Mapping) else np.asarray(x)
    labels = None if y is None else np.asarray(y)
    count = len(next(iter(features.values())) if isinstance(features, dict) else features)

    def batches() -> Any:
        data = tf.data.Dataset.from_tensor_slices(features if labels is None else (features, labels))
        if shuffle:
            data = data.shuffle(max(count, 1))
        return data.repeat(epochs).batch(batch_size or max(count, 1))

    return batches


def stacked(values: Iterator[Any]) -> Any:
    """An array of what was said to all examples; arrays by name, where that has names."""
    rows = list(values)
    if rows and isinstance(rows[0], Mapping):
        return {name: np.array([row[name] for row in rows]) for name in rows[0]}
    return np.array(rows)
