"""What `train_and_evaluate` exports: the last model, the latest ones, or the best."""

from __future__ import annotations

import abc
import os
from collections.abc import Callable, Mapping
from typing import Any

import anabranch as tf
from anabranch.contrib.arguments import PassedOn
from anabranch.estimator.estimators import Estimator


class Exporter(abc.ABC):
    """Decides after an evaluation whether and how to export the model."""

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """The name of its directory."""

    @abc.abstractmethod
    def export(
        self,
        estimator: Estimator,
        export_path: str,
        checkpoint_path: str,
        eval_result: Mapping[str, Any] | None,
        is_the_final_export: bool,
    ) -> bytes | None:
        """Exports a model, or not.

        Args:
            estimator: of the model.
            export_path: the directory of this exporter.
            checkpoint_path: the checkpoint that was evaluated.
            eval_result: its metrics.
            is_the_final_export: whether training has ended.

        Returns:
            The directory of the exported model; None: nothing was exported.
        """


class _SavedModelExporter(Exporter):
    def __init__(
        self,
        name: str,
        serving_input_receiver_fn: Callable[[], PassedOn],
        assets_extra: Mapping[str, str] | None = None,
        as_text: bool = False,
    ) -> None:
        if not name:
            raise ValueError('"name" of an exporter must not be empty.')
        self._name, self._receiver_fn = name, serving_input_receiver_fn
        self._assets_extra, self._as_text = assets_extra, as_text

    @property
    def name(self) -> str:
        return self._name

    def _export(self, estimator: Estimator, export_path: str, checkpoint_path: str) -> bytes:
        return estimator.export_saved_model(
            export_path, self._receiver_fn, self._assets_extra, self._as_text, checkpoint_path
        )


class FinalExporter(_SavedModelExporter):
    """Exports once, when training has ended.

    Args:
        name: of the directory.
        serving_input_receiver_fn, assets_extra, as_text: as for `Estimator.export_saved_model`.
    """

    def export(
        self,
        estimator: Estimator,
        export_path: str,
        checkpoint_path: str,
        eval_result: Mapping[str, Any] | None,
        is_the_final_export: bool,
    ) -> bytes | None:
        return self._export(estimator, export_path, checkpoint_path) if is_the_final_export else None


class LatestExporter(_SavedModelExporter):
    """Exports after each evaluation, and keeps the latest models.

    Args:
        name: of the directory.
        serving_input_receiver_fn, assets_extra, as_text: as for `Estimator.export_saved_model`.
        exports_to_keep: how many; None: all.

    Raises:
        ValueError: the number is not positive.
    """

    def __init__(
        self,
        name: str,
        serving_input_receiver_fn: Callable[[], PassedOn],
        assets_extra: Mapping[str, str] | None = None,
        as_text: bool = False,
        exports_to_keep: int | None = 5,
    ) -> None:
        super().__init__(name, serving_input_receiver_fn, assets_extra, as_text)
        _check_number(exports_to_keep)
        self._exports_to_keep = exports_to_keep

    def export(
        self,
        estimator: Estimator,
        export_path: str,
        checkpoint_path: str,
        eval_result: Mapping[str, Any] | None,
        is_the_final_export: bool,
    ) -> bytes | None:
        result = self._export(estimator, export_path, checkpoint_path)
        _keep_latest(export_path, self._exports_to_keep)
        return result


def _check_number(exports_to_keep: int | None) -> None:
    if exports_to_keep is not None and exports_to_keep <= 0:
        raise ValueError(f"`exports_to_keep`, if provided, must be a positive number. Got {exports_to_keep}")


def _keep_latest(folder: str, number: int | None) -> None:
    """Deletes all models of a directory but the latest."""
    if number is None:
        return
    models = sorted(int(name.rstrip("/")) for name in tf.gfile.ListDirectory(folder) if name.rstrip("/").isdigit())
    for stamp in models[:-number]:
        tf.gfile.DeleteRecursively(os.path.join(folder, str(stamp)))


def _is_loss_smaller(best_eval_result: Mapping[str, Any], current_eval_result: Mapping[str, Any]) -> bool:
    for result in (best_eval_result, current_eval_result):
        if "loss" not in result:
            raise ValueError(f"eval_result has no 'loss', only {sorted(result)}; give a compare_fn")
    return bool(best_eval_result["loss"] > current_eval_result["loss"])


class BestExporter(_SavedModelExporter):
    """Exports when an evaluation is better than all before, those of earlier runs included.

    Args:
        name: of the directory.
        serving_input_receiver_fn: as for `Estimator.export_saved_model`.
        event_file_pattern: of event files in the model's directory with the results of earlier runs, such as
            "eval/*.tfevents.*"; None: they do not count.
        compare_fn: of `best_eval_result` and `current_eval_result`: whether the current one is better; by default, its
            loss is smaller.
        assets_extra, as_text: as for `Estimator.export_saved_model`.
        exports_to_keep: how many; None: all.

    Raises:
        ValueError: the number is not positive.
    """

    def __init__(
        self,
        name: str = "best_exporter",
        serving_input_receiver_fn: Callable[[], PassedOn] | None = None,
        event_file_pattern: str | None = None,
        compare_fn: Callable[..., bool] = _is_loss_smaller,
        assets_extra: Mapping[str, str] | None = None,
        as_text: bool = False,
        exports_to_keep: int | None = 5,
    ) -> None:
        if serving_input_receiver_fn is None:
            raise ValueError("BestExporter needs a serving_input_receiver_fn")
        super().__init__(name, serving_input_receiver_fn, assets_extra, as_text)
        _check_number(exports_to_keep)
        self._compare, self._pattern, self._exports_to_keep = compare_fn, event_file_pattern, exports_to_keep
        self._best: Mapping[str, Any] | None = None
        self._has_looked = False

    def export(
        self,
        estimator: Estimator,
        export_path: str,
        checkpoint_path: str,
        eval_result: Mapping[str, Any] | None,
        is_the_final_export: bool,
    ) -> bytes | None:
        if eval_result is None:
            raise ValueError("BestExporter compares evaluations: eval_result is None")
        if not self._has_looked and self._pattern is not None:
            self._best = self._earlier_best(os.path.join(estimator.model_dir, self._pattern), eval_result)
        self._has_looked = True
        if self._best is not None and not self._compare(best_eval_result=self._best, current_eval_result=eval_result):
            return None
        self._best = eval_result
        result = self._export(estimator, export_path, checkpoint_path)
        _keep_latest(export_path, self._exports_to_keep)
        return result

    def _earlier_best(self, pattern: str, current: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """The best result in event files of steps before the current one."""
        best: Mapping[str, Any] | None = None
        for path in tf.gfile.Glob(pattern):
            for event in tf.train.summary_iterator(path):
                values = {
                    value.tag: value.simple_value for value in event.summary.value if value.HasField("simple_value")
                }
                if not values or event.step >= current.get("global_step", 0):
                    continue
                if best is None or self._compare(best_eval_result=best, current_eval_result=values):
                    best = values
        return best
