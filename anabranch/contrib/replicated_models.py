"""`tf.contrib.estimator.replicate_model_fn`: a model function on several devices, each with a part of the batch.

Variables are shared. Each copy ("tower") computes gradients of its loss; the last one applies their sum.
"""

from __future__ import annotations

import contextlib
import inspect
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import anabranch as tf
from anabranch.contrib.arguments import GradientsAndVariables, PassedOn

#: what the optimizer that waits gives
FromInner: TypeAlias = Any
_STATE: Final = "replicate_model_fn_graph_states"
_MODES: Final = tf.estimator.ModeKeys


@dataclass
class _Towers:
    """What the copies of one graph know of each other."""

    count: int = 1
    is_sum: bool = False
    now: int = 0
    is_used: bool = False
    #: of each copy: what each call of an optimizer in it was to apply
    gradients: defaultdict[int, list[list[Any]]] = field(default_factory=lambda: defaultdict(list))


def _towers() -> _Towers:
    states = tf.get_collection_ref(_STATE)
    if not states:
        states.append(_Towers())
    latest: _Towers = states[-1]
    return latest


class TowerOptimizer(tf.train.Optimizer):
    """An optimizer that waits for the gradients of all copies of a model; alone, it is the one that it is given.

    Args:
        optimizer_or_optimizer_fn: an optimizer, or a function without arguments that makes one.
    """

    def __init__(self, optimizer_or_optimizer_fn: PassedOn) -> None:
        self._given = optimizer_or_optimizer_fn

    @staticmethod
    def has_been_used() -> bool:
        """Whether the default graph has one."""
        return _towers().is_used

    def _inner(self) -> Any:
        if not isinstance(self._given, tf.train.Optimizer):
            self._given = self._given()
        _towers().is_used = True
        return self._given

    def get_slot(self, var: PassedOn, name: str) -> FromInner:
        return self._inner().get_slot(var, name)

    def get_slot_names(self) -> FromInner:
        return self._inner().get_slot_names()

    def get_name(self) -> FromInner:
        return self._inner().get_name()

    def variables(self) -> FromInner:
        return self._inner().variables()

    def compute_gradients(self, loss: PassedOn, *values: PassedOn, **options: PassedOn) -> FromInner:
        """Gradients of the part that the loss of this copy has in the loss of all."""
        return self._inner().compute_gradients(_part(loss, _towers()), *values, **options)

    def apply_gradients(
        self, grads_and_vars: GradientsAndVariables, global_step: PassedOn = None, name: str | None = None
    ) -> FromInner:
        """In the last copy, the operation that applies the sums; in others, one that computes the gradients."""
        towers = _towers()
        pairs = list(grads_and_vars)
        if towers.count == 1:
            return self._inner().apply_gradients(pairs, global_step, name)
        calls = towers.gradients
        calls[towers.now].append(pairs)
        if towers.now < towers.count - 1:
            with tf.control_dependencies([one for one, _ in pairs if isinstance(one, tf.Tensor)]):
                return tf.no_op(name="train_op_placeholder")
        at = len(calls[towers.now]) - 1
        of_variable: dict[Any, list[Any]] = {}
        for one in range(towers.count):
            for gradient, variable in calls[one][at]:
                if gradient is not None:
                    of_variable.setdefault(variable, []).append(gradient)
        with tf.variable_scope(tf.VariableScope(reuse=False, name="")), tf.name_scope(""):
            sums = [(_summed(gradients), variable) for variable, gradients in of_variable.items()]
            return self._inner().apply_gradients(sums, global_step, name)


def _part(loss: PassedOn, towers: _Towers) -> Any:
    return loss if loss is None or towers.count == 1 or towers.is_sum else tf.div(loss, 1.0 * towers.count)


def _summed(gradients: Sequence[Any]) -> Any:
    if isinstance(gradients[0], tf.IndexedSlices):
        values = tf.concat([one.values for one in gradients], 0)
        return tf.IndexedSlices(values, tf.concat([one.indices for one in gradients], 0), gradients[0].dense_shape)
    return tf.add_n(list(gradients))


def replicate_model_fn(
    model_fn: Callable[..., Any],
    loss_reduction: str = tf.losses.Reduction.SUM_BY_NONZERO_WEIGHTS,
    devices: Sequence[str] | None = None,
) -> Callable[..., Any]:
    """A model function that runs on several devices, each with an equal part of the batch.

    Args:
        model_fn: of a `tf.estimator.Estimator`; its optimizers are `TowerOptimizer`s.
        loss_reduction: of `tf.losses.Reduction`: SUM adds the losses of the parts, others take their mean.
        devices: None: all GPUs, or where there are none the processor.

    Returns:
        A model function. Losses and gradients are added, metrics are those of the whole batch, predictions are those
        of the parts one after the other.

    Raises:
        ValueError: the reduction is NONE; and, where the model is made, a batch cannot be divided, or an optimizer is
            none that waits.
    """
    if loss_reduction == tf.losses.Reduction.NONE:
        raise ValueError(f"Tower losses need to be reduced in some way, yet {loss_reduction} reduction is specified.")
    places = list(devices or _local("GPU") or _local("CPU"))
    known = inspect.signature(model_fn).parameters

    def replicated(
        features: PassedOn, labels: PassedOn, mode: str, params: PassedOn = None, config: PassedOn = None
    ) -> Any:
        offered = {"mode": mode, "params": params, "config": config}
        options = {name: value for name, value in offered.items() if name in known}
        towers = _towers()
        towers.count, towers.is_sum = len(places), loss_reduction == tf.losses.Reduction.SUM
        parts = list(zip(_divided(features, len(places)), _divided(labels, len(places)), strict=True))
        specs, metrics = [], []
        for i, (place, (some, theirs)) in enumerate(zip(places, parts, strict=True)):
            towers.now = i
            before = len(tf.get_collection(tf.GraphKeys.METRIC_VARIABLES))
            with _tower(i, place):
                arguments = (some, theirs) if "labels" in known else (some,)
                spec = model_fn(*arguments, **options)
            if spec.train_op is not None and len(places) > 1 and not towers.is_used:
                raise ValueError(
                    "Please wrap optimizers with TowerOptimizer in order to use replicate_model_fn with multiple "
                    "devices."
                )
            specs.append(spec._replace(loss=_part(spec.loss, towers)))
            metrics.append(tf.get_collection(tf.GraphKeys.METRIC_VARIABLES)[before:])
        if len({len(calls) for calls in towers.gradients.values()}) > 1:
            raise ValueError("Each invocation of model_fn was supposed to make the same optimizer calls.")
        tf.get_default_graph().clear_collection(_STATE)
        return specs[0] if len(specs) == 1 else _together(specs, metrics, mode)

    return replicated


def _local(kind: str) -> list[str]:
    found = tf.config.experimental.list_physical_devices(kind)
    return [f"/{kind.lower()}:{i}" for i in range(len(found))]


@contextlib.contextmanager
def _tower(number: int, place: str) -> Iterator[None]:
    """The scope of a copy, whose variables are those of the first."""
    names = tf.name_scope(f"tower_{number}") if number else contextlib.nullcontext()
    with tf.variable_scope(tf.get_variable_scope(), reuse=number > 0 or None), names, tf.device(place):
        yield


def _divided(values: PassedOn, count: int) -> list[Any]:
    if values is None or count == 1:
        return [values] * count
    if isinstance(values, Mapping):
        parts = {name: _divided(value, count) for name, value in values.items()}
        return [{name: some[i] for name, some in parts.items()} for i in range(count)]
    if isinstance(values, tf.SparseTensor):
        return list(tf.sparse.split(sp_input=values, num_split=count, axis=0))
    size = tf.convert_to_tensor(values).shape[0].value
    if size is not None and size % count:
        raise ValueError(f"Batch size {size} needs to be divisible by the number of GPUs, which is {count}.")
    return list(tf.split(values, count))


def _together(specs: Sequence[Any], metrics: Sequence[Sequence[Any]], mode: str) -> Any:
    if mode == _MODES.PREDICT:
        outputs = {name: _output([one.export_outputs[name] for one in specs]) for name in specs[0].export_outputs or {}}
        said = _joined([one.predictions for one in specs])
        return specs[0]._replace(predictions=said, export_outputs=outputs or None)
    loss = tf.add_n([one.loss for one in specs], name="loss")
    if mode == _MODES.TRAIN:
        return specs[-1]._replace(loss=loss)
    updates = [update for one in specs for _, update in one.eval_metric_ops.values()]
    with tf.control_dependencies(updates):
        moved = _moved_to_first(metrics)
    return specs[0]._replace(
        loss=loss, eval_metric_ops={name: (value, moved) for name, (value, _) in specs[0].eval_metric_ops.items()}
    )


def _moved_to_first(metrics: Sequence[Sequence[Any]]) -> tf.Operation:
    """Adds the sums and counts of all copies to those of the first, and lets the others begin anew."""
    if len({len(some) for some in metrics}) > 1:
        counts = [len(some) for some in metrics]
        raise ValueError(f"Different EstimatorSpec.eval_metric_ops across model_fn() calls: {counts} variables")
    done = []
    for first, *others in zip(*metrics, strict=True):
        added = tf.assign_add(first, tf.add_n([tf.identity(one) for one in others]))
        with tf.control_dependencies([added]):
            done += [tf.assign(one, tf.zeros_like(one)) for one in others]
    return tf.group(*done)


def _joined(parts: Sequence[Any]) -> Any:
    if isinstance(parts[0], Mapping):
        return {name: tf.concat([one[name] for one in parts], 0) for name in parts[0]}
    return tf.concat(list(parts), 0)


def _output(parts: Sequence[Any]) -> Any:
    export = tf.estimator.export
    if isinstance(parts[0], export.RegressionOutput):
        return export.RegressionOutput(_joined([one.value for one in parts]))
    if isinstance(parts[0], export.ClassificationOutput):
        fields = ([one.scores for one in parts], [one.classes for one in parts])
        return export.ClassificationOutput(*(None if some[0] is None else _joined(some) for some in fields))
    return export.PredictOutput(_joined([one.outputs for one in parts]))
