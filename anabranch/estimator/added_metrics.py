"""Further metrics of an estimator that is there already."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from anabranch.contrib.arguments import PassedOn
from anabranch.estimator.estimators import Estimator
from anabranch.estimator.model_functions import EstimatorSpec, ModeKeys, arguments_of
from anabranch.estimator.run_config import RunConfig

_ARGUMENTS: Final = ("features", "labels", "predictions", "config")


def add_metrics(estimator: Estimator, metric_fn: Callable[..., dict[str, Any]]) -> Estimator:
    """An estimator like another, which evaluates further metrics.

    Args:
        estimator: whose model function, directory, configuration and warm start the new one has.
        metric_fn: of any of `features`, `labels`, `predictions` and `config`: gives metrics by name, as
            `EstimatorSpec` takes them; those of the same names are replaced.

    Returns:
        The new estimator.

    Raises:
        ValueError: `metric_fn` takes other arguments.
    """
    wanted = arguments_of(metric_fn)
    if unknown := sorted(set(wanted) - set(_ARGUMENTS)):
        raise ValueError(f"metric_fn ({metric_fn}) has following not expected args: {unknown}")

    def model_fn(features: PassedOn, labels: PassedOn, mode: str, config: RunConfig) -> EstimatorSpec:
        spec = estimator.model_fn(features, labels, mode, config)
        if mode != ModeKeys.EVAL:
            return spec
        offered = {"features": features, "labels": labels, "predictions": spec.predictions, "config": config}
        added = metric_fn(**{name: value for name, value in offered.items() if name in wanted})
        return EstimatorSpec(**{**spec._asdict(), "eval_metric_ops": {**spec.eval_metric_ops, **added}})

    return Estimator(model_fn, estimator.model_dir, estimator.config, warm_start_from=estimator.warm_start_from)
