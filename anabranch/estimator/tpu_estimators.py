"""Estimators that were written for TPUs, on the devices that there are."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Self, TypeAlias

import anabranch as tf
from anabranch.contrib.arguments import PassedOn, TensorLike
from anabranch.estimator.estimators import Estimator
from anabranch.estimator.export_outputs import ExportOutput
from anabranch.estimator.model_functions import (
    EstimatorSpec,
    InputFunction,
    ModeKeys,
    ModelFunction,
    WarmStartSettings,
    arguments_of,
)
from anabranch.estimator.tpu_config import NO_TPU, InputPipelineConfig, TPURunConfig, check_positive

#: a function, and its arguments: tensors in a list, or by name
HostCall: TypeAlias = tuple[Callable[..., Any], Sequence[TensorLike] | Mapping[str, TensorLike]]
#: names among the hyperparameters that are the estimator's own
_BATCH_SIZE, _CONTEXT = "batch_size", "context"


class _TPUSpecFields(NamedTuple):
    mode: str
    predictions: Any
    loss: TensorLike
    train_op: tf.Operation | tf.Tensor | None
    eval_metrics: HostCall | None
    export_outputs: Mapping[str, ExportOutput] | None
    scaffold_fn: Callable[[], tf.train.Scaffold] | None
    host_call: HostCall | None
    training_hooks: tuple[tf.train.SessionRunHook, ...]
    evaluation_hooks: tuple[tf.train.SessionRunHook, ...]
    prediction_hooks: tuple[tf.train.SessionRunHook, ...]


class TPUEstimatorSpec(_TPUSpecFields):
    """The operations of a model whose metrics are built by a function.

    Args:
        mode, predictions, loss, train_op, export_outputs, training_hooks, evaluation_hooks, prediction_hooks: as for
            `EstimatorSpec`.
        eval_metrics: a function that gives `eval_metric_ops`, and the tensors that it is called with: a list of them,
            or by the names of its arguments.
        scaffold_fn: gives the `Scaffold`.
        host_call: likewise a function, whose tensors or operations run in every step, and its arguments.

    Raises:
        ValueError, TypeError: `eval_metrics` or `host_call` are no such pairs, or their arguments do not fit.
    """

    __slots__ = ()

    def __new__(
        cls,
        mode: str,
        predictions: TensorLike = None,
        loss: TensorLike = None,
        train_op: tf.Operation | tf.Tensor | None = None,
        eval_metrics: HostCall | None = None,
        export_outputs: Mapping[str, ExportOutput] | None = None,
        scaffold_fn: Callable[[], tf.train.Scaffold] | None = None,
        host_call: HostCall | None = None,
        training_hooks: Iterable[tf.train.SessionRunHook] | None = None,
        evaluation_hooks: Iterable[tf.train.SessionRunHook] | None = None,
        prediction_hooks: Iterable[tf.train.SessionRunHook] | None = None,
    ) -> Self:
        for name, call in (("eval_metrics", eval_metrics), ("host_call", host_call)):
            if call is not None:
                _check_call(name, call)
        return super().__new__(
            cls,
            mode,
            predictions,
            loss,
            train_op,
            eval_metrics,
            export_outputs,
            scaffold_fn,
            host_call,
            tuple(training_hooks or ()),
            tuple(evaluation_hooks or ()),
            tuple(prediction_hooks or ()),
        )

    def as_estimator_spec(self) -> EstimatorSpec:
        """The same, its functions called: what an estimator without TPUs takes."""
        hooks = () if self.host_call is None else (_RunsEveryStep(_called(self.host_call)),)
        return EstimatorSpec(
            self.mode,
            predictions=self.predictions,
            loss=self.loss,
            train_op=self.train_op,
            eval_metric_ops=None if self.eval_metrics is None else _called(self.eval_metrics),
            export_outputs=self.export_outputs,
            scaffold=None if self.scaffold_fn is None else self.scaffold_fn(),
            training_hooks=(*self.training_hooks, *hooks),
            evaluation_hooks=(*self.evaluation_hooks, *hooks),
            prediction_hooks=(*self.prediction_hooks, *hooks),
        )


def _check_call(name: str, call: PassedOn) -> None:
    if not isinstance(call, tuple | list):
        raise ValueError(f"{name} should be tuple or list, got {type(call).__name__}")
    if len(call) != 2:
        raise ValueError(f"{name} should have two elements, a function and its tensors, got {len(call)}")
    function, tensors = call
    if not callable(function):
        raise TypeError(f"{name}[0] should be callable, got {type(function).__name__}")
    if not isinstance(tensors, tuple | list | dict):
        raise ValueError(f"{name}[1] should be tuple, list or dict, got {type(tensors).__name__}")


def _called(call: HostCall) -> PassedOn:
    function, tensors = call
    if isinstance(tensors, Mapping):
        return function(**tensors)
    return function(*tensors)


class _RunsEveryStep(tf.train.SessionRunHook):
    """Runs what a host call gave in every step."""

    def __init__(self, fetches: PassedOn) -> None:
        self._fetches = fetches

    def before_run(self, run_context: tf.train.SessionRunContext) -> tf.train.SessionRunArgs:
        return tf.train.SessionRunArgs(self._fetches)


class TPUEstimator(Estimator):
    """An estimator whose functions are told the size of a batch: `params["batch_size"]`.

    It trains on the devices that there are, as TensorFlow's does with `use_tpu=False`.

    Args:
        model_fn: as for `Estimator`; it takes `params`, and returns a `TPUEstimatorSpec` or an `EstimatorSpec`.
        model_dir: as for `Estimator`.
        config: a `tf.estimator.tpu.RunConfig`.
        params: as for `Estimator`, with string keys other than "batch_size" and "context".
        use_tpu: False.
        train_batch_size, eval_batch_size, predict_batch_size: what `params["batch_size"]` is in each mode.
        batch_axis, eval_on_tpu, export_to_tpu, export_to_cpu: accepted; they are for TPUs.
        warm_start_from: as for `Estimator`.
        embedding_config_spec: None.

    Raises:
        ValueError: a configuration of another kind, a reserved key in `params`, or a batch size that is no positive
            whole number.
        NotImplementedError: `use_tpu` is true, or `embedding_config_spec` is given.
    """

    def __init__(
        self,
        model_fn: ModelFunction,
        model_dir: str | os.PathLike[str] | None = None,
        config: TPURunConfig | None = None,
        params: PassedOn = None,
        use_tpu: bool = True,
        train_batch_size: int | None = None,
        eval_batch_size: int | None = None,
        predict_batch_size: int | None = None,
        batch_axis: Sequence[int] | None = None,
        eval_on_tpu: bool = True,
        export_to_tpu: bool = True,
        export_to_cpu: bool = True,
        warm_start_from: str | WarmStartSettings | None = None,
        embedding_config_spec: None = None,
    ) -> None:
        if use_tpu:
            raise NotImplementedError(f"TPUEstimator with use_tpu=True: {NO_TPU}")
        if embedding_config_spec is not None:
            raise NotImplementedError(f"TPUEstimator with embedding_config_spec: {NO_TPU}")
        if not isinstance(config, TPURunConfig):
            raise ValueError(f"`config` must be provided with type `tf.estimator.tpu.RunConfig`, got {config!r}")
        _check_takes_params("model_fn", model_fn)
        if reserved := [name for name in (_BATCH_SIZE, _CONTEXT) if params is not None and name in params]:
            raise ValueError(f"{reserved} are reserved keys but existed in params {params}.")
        sizes = {
            ModeKeys.TRAIN: ("train_batch_size", train_batch_size),
            ModeKeys.EVAL: ("eval_batch_size", eval_batch_size),
            ModeKeys.PREDICT: ("predict_batch_size", predict_batch_size),
        }
        for name, size in sizes.values():
            if size is not None:
                check_positive(name, size)
        if config.tpu_config.eval_training_input_configuration == InputPipelineConfig.SLICED:
            raise ValueError("eval_training_input_configuration: SLICED mode only works on use_tpu = True.")
        self._batch_sizes = {mode: size for mode, (_, size) in sizes.items()}
        super().__init__(model_fn, model_dir, config, params, warm_start_from)

    def _params_for(self, mode: str, exporting: bool = False) -> PassedOn:
        size = None if exporting else self._batch_sizes[mode]
        return _extended(self.params, {} if size is None else {_BATCH_SIZE: size})

    def _input(self, input_fn: InputFunction, mode: str) -> tuple[Any, Any, list[tf.train.SessionRunHook]]:
        _check_takes_params("input_fn", input_fn)
        return super()._input(input_fn, mode)

    def _checked_spec(self, spec: PassedOn) -> EstimatorSpec:
        return super()._checked_spec(spec.as_estimator_spec() if isinstance(spec, TPUEstimatorSpec) else spec)


def _check_takes_params(what: str, function: Callable[..., object]) -> None:
    if "params" not in arguments_of(function):
        raise ValueError(
            f"{what} ({function}) does not include params argument, required by TPUEstimator to pass batch size as "
            'params["batch_size"]'
        )


def _extended(params: PassedOn, more: Mapping[str, int]) -> PassedOn:
    """A copy of hyperparameters, a dictionary or an `HParams`, with further ones."""
    extended = copy.deepcopy(params)
    for name, value in more.items():
        if isinstance(extended, dict):
            extended[name] = value
        elif name in extended:
            extended.set_hparam(name, value)
        else:
            extended.add_hparam(name, value)
    return extended
