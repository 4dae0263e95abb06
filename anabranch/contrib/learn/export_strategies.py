"""`tf.contrib.learn.ExportStrategy` and what makes some: how an experiment exports its model, and what it keeps."""

from __future__ import annotations

import glob
import inspect
import os
import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

import anabranch as tf
from anabranch.contrib.arguments import PassedOn
from anabranch.contrib.learn.serving_inputs import build_parsing_serving_input_fn

#: what a program's own function says that it wrote, a path; None where it wrote nothing
ExportedPath: TypeAlias = Any


class ExportStrategy(NamedTuple):
    """How a model is exported.

    Attributes:
        name: of the folder, within that of all exports.
        export_fn: takes the estimator and the folder and, where it has arguments of these names, `checkpoint_path`,
            `eval_result` and `strip_default_attrs`; returns the path of what it wrote.
        strip_default_attrs: what `export_fn` is given as such.
    """

    name: str
    export_fn: Callable[..., Any]
    strip_default_attrs: bool | None = None

    def export(
        self,
        estimator: PassedOn,
        export_path: str,
        checkpoint_path: str | None = None,
        eval_result: Mapping[str, Any] | None = None,
    ) -> ExportedPath:
        """Exports a model, and returns the path.

        Args:
            export_path: the folder.
            checkpoint_path: which one; None: the latest.
            eval_result: of the evaluation that came before.

        Raises:
            ValueError: `export_fn` does not take an argument that is given.
        """
        known = set(inspect.signature(self.export_fn).parameters)
        if checkpoint_path is not None and "checkpoint_path" not in known:
            raise ValueError("An export_fn accepting checkpoint_path argument is required.")
        given: dict[str, Any] = {
            "checkpoint_path": checkpoint_path,
            "eval_result": eval_result,
            "strip_default_attrs": self.strip_default_attrs,
        }
        named = {name: value for name, value in given.items() if name in known and value is not None}
        return self.export_fn(estimator, export_path, **named)


def get_timestamped_export_dir(export_dir_base: str) -> bytes:
    """The path of a folder that is not there, named after the seconds since 1970."""
    number = int(time.time())
    while os.path.exists(path := os.path.join(_text(export_dir_base), str(number))):
        number += 1
    return os.fsencode(path)


def get_temp_export_dir(timestamped_export_dir: str | bytes) -> bytes:
    """The path of a folder beside one, whose name is no number: what is being written is not taken for a model."""
    folder, name = os.path.split(_text(timestamped_export_dir))
    return os.fsencode(os.path.join(folder, f"temp-{name}"))


def _exports(export_dir_base: str | bytes) -> list[str]:
    """The folders that numbers name, the oldest first."""
    found = [path for path in glob.glob(os.path.join(glob.escape(_text(export_dir_base)), "*")) if _is_number(path)]
    return sorted(found, key=lambda path: int(os.path.basename(path)))


def _is_number(path: str) -> bool:
    return os.path.isdir(path) and os.path.basename(path).isdecimal()


def _text(path: str | bytes) -> str:
    return os.fsdecode(path)


def get_most_recent_export(export_dir_base: str | bytes) -> str | None:
    """The path of the newest export in a folder; None where there is none."""
    found = _exports(export_dir_base)
    return found[-1] if found else None


def garbage_collect_exports(export_dir_base: str | bytes, exports_to_keep: int | None) -> None:
    """Removes the oldest exports of a folder; with None, none."""
    if exports_to_keep is not None:
        for old in _exports(export_dir_base)[: -exports_to_keep or None]:
            shutil.rmtree(old)


def make_export_strategy(
    serving_input_fn: Callable[[], Any],
    default_output_alternative_key: str | None = None,
    assets_extra: Mapping[str, str] | None = None,
    as_text: bool = False,
    exports_to_keep: int | None = 5,
    strip_default_attrs: bool | None = None,
) -> ExportStrategy:
    """A strategy "Servo" that writes a SavedModel after each evaluation that an experiment exports after.

    Args:
        serving_input_fn: gives an `InputFnOps`, or a `tf.estimator.export.ServingInputReceiver`.
        default_output_alternative_key: which of a model's outputs is the default signature.
        assets_extra: file in `assets.extra` of the model -> file to copy.
        as_text: whether the graph is written as text.
        exports_to_keep: how many; None: all.
        strip_default_attrs: kept by the strategy.
    """

    def export_fn(
        estimator: PassedOn,
        export_dir_base: str | bytes,
        checkpoint_path: str | None = None,
        strip_default_attrs: bool | None = False,
    ) -> Any:
        folder = _text(export_dir_base)
        given: dict[str, Any] = {"assets_extra": assets_extra, "as_text": as_text, "checkpoint_path": checkpoint_path}
        if default_output_alternative_key is not None:
            if type(estimator).export_savedmodel is tf.estimator.Estimator.export_savedmodel:
                raise ValueError("default_output_alternative_key is not supported in core Estimator.")
            given["default_output_alternative_key"] = default_output_alternative_key
        result = estimator.export_savedmodel(folder, serving_input_fn, **given)
        garbage_collect_exports(folder, exports_to_keep)
        return result

    return ExportStrategy("Servo", export_fn, strip_default_attrs)


def make_parsing_export_strategy(
    feature_columns: Iterable[Any],
    default_output_alternative_key: str | None = None,
    assets_extra: Mapping[str, str] | None = None,
    as_text: bool = False,
    exports_to_keep: int | None = 5,
    target_core: bool = False,
    strip_default_attrs: bool | None = None,
) -> ExportStrategy:
    """`make_export_strategy` of models that are fed serialized `tf.train.Example`s, which feature columns describe.

    Args:
        target_core: whether the models are those of `tf.estimator`; both take the same here.
    """
    spec = tf.feature_column.make_parse_example_spec(list(feature_columns))
    return make_export_strategy(
        build_parsing_serving_input_fn(spec),
        default_output_alternative_key,
        assets_extra,
        as_text,
        exports_to_keep,
        strip_default_attrs,
    )


def _is_loss_smaller(curr_best_eval_result: Mapping[str, Any], cand_eval_result: Mapping[str, Any]) -> bool:
    for name, result in (("curr_best_eval_result", curr_best_eval_result), ("cand_eval_result", cand_eval_result)):
        if not result or "loss" not in result:
            raise ValueError(f"{name} cannot be empty or no loss is found in it.")
    return bool(curr_best_eval_result["loss"] > cand_eval_result["loss"])


def make_best_model_export_strategy(
    serving_input_fn: Callable[[], Any],
    exports_to_keep: int | None = 1,
    model_dir: str | None = None,
    event_file_pattern: str | None = None,
    compare_fn: Callable[[Mapping[str, Any], Mapping[str, Any]], bool] | None = None,
    default_output_alternative_key: str | None = None,
    strip_default_attrs: bool | None = None,
) -> ExportStrategy:
    """A strategy "best_model" that exports only after an evaluation that is better than those before.

    Args:
        serving_input_fn, default_output_alternative_key, strip_default_attrs: as for `make_export_strategy`.
        exports_to_keep: how many; None: all.
        model_dir, event_file_pattern: where events of earlier evaluations are, the best of which counts too.
        compare_fn: takes the best results so far and new ones, by name, and says whether the new ones are better;
            default: whether their loss is smaller.
    """
    better = compare_fn or _is_loss_smaller
    base = make_export_strategy(serving_input_fn, default_output_alternative_key, exports_to_keep=exports_to_keep)
    earlier: list[Mapping[str, Any]] = []
    if model_dir and event_file_pattern:
        for result in _results_of_events(os.path.join(model_dir, event_file_pattern)):
            if not earlier or better(earlier[0], result):
                earlier[:] = [result]

    def export_fn(
        estimator: PassedOn,
        export_dir_base: str,
        checkpoint_path: str | None = None,
        eval_result: Mapping[str, Any] | None = None,
    ) -> Any:
        if not eval_result:
            return None
        if earlier and not better(earlier[0], eval_result):
            return None
        earlier[:] = [eval_result]
        return base.export(estimator, export_dir_base, checkpoint_path)

    return ExportStrategy("best_model", export_fn, strip_default_attrs)


def _results_of_events(pattern: str) -> list[dict[str, Any]]:
    """The scalars that events of evaluations hold, by name; an item for each event."""
    found = []
    for path in sorted(glob.glob(pattern)):
        for event in tf.train.summary_iterator(path):
            values = {v.tag: v.simple_value for v in event.summary.value if v.HasField("simple_value")}
            if values:
                found.append(values)
    return found


def extend_export_strategy(
    base_export_strategy: ExportStrategy,
    post_export_fn: Callable[[str, str], Any],
    post_export_name: str | None = None,
) -> ExportStrategy:
    """A strategy that changes what another one wrote.

    Args:
        post_export_fn: takes the path that was written and one to write to, which takes the former's place.
        post_export_name: of the strategy; None: the other one's.
    """

    def export_fn(estimator: PassedOn, export_dir_base: str, checkpoint_path: str | None = None) -> Any:
        temporary = _text(get_temp_export_dir(get_timestamped_export_dir(export_dir_base)))
        written = base_export_strategy.export(estimator, temporary, checkpoint_path)
        name = os.path.basename(_text(written))
        target = os.path.join(_text(export_dir_base), name)
        os.makedirs(_text(export_dir_base), exist_ok=True)
        post_export_fn(_text(written), target)
        shutil.rmtree(temporary, ignore_errors=True)
        return os.fsencode(target)

    return ExportStrategy(post_export_name or base_export_strategy.name, export_fn)
