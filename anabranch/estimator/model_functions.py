"""What model functions take and give: modes, specs, and what a model starts from."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Self, TypeAlias

import anabranch as tf
from anabranch.contrib.arguments import PassedOn, TensorLike
from anabranch.estimator.export_outputs import ExportOutput
from anabranch.estimator.head_metrics import MetricObject

#: a function of features, labels, and what else it names of mode, params and config
ModelFunction: TypeAlias = "Callable[..., EstimatorSpec]"
#: a function that gives a dataset, or a pair of features and labels
InputFunction: TypeAlias = Callable[..., Any]


class ModeKeys:
    """What a model function is called for."""

    TRAIN = "train"
    EVAL = "eval"
    PREDICT = "infer"


class _SpecFields(NamedTuple):
    mode: str
    predictions: Any
    loss: tf.Tensor | None
    train_op: tf.Operation | tf.Tensor | None
    eval_metric_ops: dict[str, tuple[tf.Tensor, tf.Tensor | tf.Operation] | MetricObject]
    export_outputs: dict[str, ExportOutput] | None
    training_chief_hooks: tuple[tf.train.SessionRunHook, ...]
    training_hooks: tuple[tf.train.SessionRunHook, ...]
    scaffold: tf.train.Scaffold
    evaluation_hooks: tuple[tf.train.SessionRunHook, ...]
    prediction_hooks: tuple[tf.train.SessionRunHook, ...]


class EstimatorSpec(_SpecFields):
    """The operations of a model, as its function built them for a mode.

    Args:
        mode: of `ModeKeys`.
        predictions: a tensor, or tensors by name; needed to predict.
        loss: a scalar, or a vector of one element; needed to train and to evaluate.
        train_op: makes a step of training; needed to train.
        eval_metric_ops: by name: a pair of a value and an operation that updates it, as `tf.metrics` gives, or a metric
            of a head or of Keras, which has values.
        export_outputs: by signature's name, what an exported model gives; None: the predictions.
        training_chief_hooks: hooks of the chief while it trains.
        training_hooks: hooks of each worker that trains.
        scaffold: how the model is initialized and saved.
        evaluation_hooks: hooks of an evaluation.
        prediction_hooks: hooks of a prediction.

    Raises:
        ValueError: what the mode needs is missing, or the loss is no scalar.
        TypeError: an argument is of another kind than it must be.
    """

    __slots__ = ()

    def __new__(
        cls,
        mode: str,
        predictions: TensorLike = None,
        loss: TensorLike = None,
        train_op: tf.Operation | tf.Tensor | None = None,
        eval_metric_ops: Mapping[str, tuple[TensorLike, PassedOn] | MetricObject] | None = None,
        export_outputs: Mapping[str, ExportOutput] | None = None,
        training_chief_hooks: Iterable[tf.train.SessionRunHook] | None = None,
        training_hooks: Iterable[tf.train.SessionRunHook] | None = None,
        scaffold: tf.train.Scaffold | None = None,
        evaluation_hooks: Iterable[tf.train.SessionRunHook] | None = None,
        prediction_hooks: Iterable[tf.train.SessionRunHook] | None = None,
    ) -> Self:
        if mode not in {ModeKeys.TRAIN, ModeKeys.EVAL, ModeKeys.PREDICT}:
            raise ValueError(f"mode {mode!r} is none of ModeKeys")
        if predictions is None:
            if mode == ModeKeys.PREDICT:
                raise ValueError("Missing predictions.")
            predictions = {}
        if train_op is None and mode == ModeKeys.TRAIN:
            raise ValueError("Missing train_op.")
        if loss is None and mode != ModeKeys.PREDICT:
            raise ValueError("Missing loss.")
        return super().__new__(
            cls,
            mode,
            predictions,
            None if loss is None else _scalar(loss),
            train_op,
            _checked_metrics(eval_metric_ops or {}),
            _checked_outputs(export_outputs),
            _checked_hooks("training_chief_hooks", training_chief_hooks),
            _checked_hooks("training_hooks", training_hooks),
            tf.train.Scaffold() if scaffold is None else scaffold,
            _checked_hooks("evaluation_hooks", evaluation_hooks),
            _checked_hooks("prediction_hooks", prediction_hooks),
        )


def _scalar(loss: TensorLike) -> tf.Tensor:
    tensor: tf.Tensor = tf.convert_to_tensor(loss)
    if tensor.shape.num_elements() not in {None, 1}:
        raise ValueError(f"Loss must be scalar, given: {tensor}")
    return tensor if tensor.shape.ndims == 0 else tf.reshape(tensor, [])


def _checked_metrics(metrics: Mapping[str, tuple[TensorLike, PassedOn] | MetricObject]) -> dict[str, Any]:
    if not isinstance(metrics, Mapping):
        raise TypeError(f"eval_metric_ops must be a dict, given: {metrics}")
    for name, metric in metrics.items():
        if isinstance(metric, tuple) and len(metric) == 2:
            continue
        if not isinstance(metric, MetricObject):
            raise TypeError(
                "Values of eval_metric_ops must be (metric_value, update_op) tuples or metrics, given: "
                f"{metric} for key: {name}"
            )
        if not metric.updates:
            raise ValueError(f"metric {name!r} of eval_metric_ops has no values; call its update_state")
    return dict(metrics)


def _checked_outputs(outputs: Mapping[str, ExportOutput] | None) -> dict[str, ExportOutput] | None:
    if outputs is None:
        return None
    if not isinstance(outputs, Mapping):
        raise TypeError(f"export_outputs must be dict, given: {outputs}")
    for name, output in outputs.items():
        if not isinstance(output, ExportOutput):
            raise TypeError(f"Values in export_outputs must be ExportOutput objects, given {name}: {output}")
    result, default = dict(outputs), tf.saved_model.signature_constants.DEFAULT_SERVING_SIGNATURE_DEF_KEY
    if len(result) == 1:
        result[default] = next(iter(result.values()))
    elif result and default not in result:
        raise ValueError(
            "Multiple export_outputs were provided, but none of them is specified as the default. Do this by naming "
            f"one of them with {default!r} (tf.saved_model.signature_constants.DEFAULT_SERVING_SIGNATURE_DEF_KEY)."
        )
    return result


def _checked_hooks(name: str, hooks: Iterable[tf.train.SessionRunHook] | None) -> tuple[tf.train.SessionRunHook, ...]:
    checked = tuple(hooks or ())
    for hook in checked:
        if not isinstance(hook, tf.train.SessionRunHook):
            raise TypeError(f"{name}: all hooks must be SessionRunHook instances, given: {hook}")
    return checked


class WarmStartSettings(NamedTuple):
    """Where variables take their first values from; the fields are the arguments of `tf.train.warm_start`."""

    ckpt_to_initialize_from: str
    vars_to_warm_start: str | Sequence[str] | Sequence[tf.Variable] | None = ".*"
    var_name_to_vocab_info: Mapping[str, tf.train.VocabInfo] | None = None
    var_name_to_prev_var_name: Mapping[str, str] | None = None


def arguments_of(function: Callable[..., object]) -> tuple[str, ...]:
    """The names of a function's arguments; those that `functools.partial` has given by keyword count too."""
    if not callable(function):
        raise TypeError(f"expected a function, got {type(function).__name__}")
    kinds = {inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY}
    names = [name for name, parameter in inspect.signature(function).parameters.items() if parameter.kind in kinds]
    return tuple(name for name in names if name != "self")
