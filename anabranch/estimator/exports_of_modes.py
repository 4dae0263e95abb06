"""`tf.contrib.estimator`: models written with graphs for training and evaluation, and what such graphs receive."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import anabranch as tf
from anabranch.contrib.arguments import PassedOn
from anabranch.estimator.estimators import Estimator
from anabranch.estimator.model_functions import ModeKeys
from anabranch.estimator.receivers import SupervisedInputReceiver, build_raw_supervised_input_receiver_fn


def export_saved_model_for_mode(
    estimator: Estimator,
    export_dir_base: str,
    input_receiver_fn: Callable[[], Any],
    assets_extra: Mapping[str, str] | None = None,
    as_text: bool = False,
    checkpoint_path: str | None = None,
    mode: str = ModeKeys.PREDICT,
) -> bytes:
    """Writes a trained model with the graph of one mode; see `tf.estimator.Estimator.export_saved_model`.

    Args:
        estimator: is trained.
        export_dir_base, assets_extra, as_text, checkpoint_path: as for its method.
        input_receiver_fn: gives what the graph receives.
        mode: of `tf.estimator.ModeKeys`.
    """
    return estimator.export_saved_model(
        export_dir_base, input_receiver_fn, assets_extra, as_text, checkpoint_path, experimental_mode=mode
    )


def export_all_saved_models(
    estimator: Estimator,
    export_dir_base: str,
    input_receiver_fn_map: Mapping[str, Callable[[], Any]],
    assets_extra: Mapping[str, str] | None = None,
    as_text: bool = False,
    checkpoint_path: str | None = None,
) -> bytes:
    """Writes a trained model with a graph for each mode.

    Args:
        estimator: is trained.
        export_dir_base, input_receiver_fn_map, assets_extra, as_text, checkpoint_path: as for
            `tf.estimator.Estimator.experimental_export_all_saved_models`.
    """
    return estimator.experimental_export_all_saved_models(
        export_dir_base, input_receiver_fn_map, assets_extra, as_text, checkpoint_path
    )


def build_supervised_input_receiver_fn_from_input_fn(
    input_fn: Callable[..., Any], **input_fn_args: PassedOn
) -> Callable[[], SupervisedInputReceiver]:
    """A function that makes a placeholder for each feature and label that an input function gives.

    Args:
        input_fn: gives features and labels, or a `tf.data.Dataset` of both.
        input_fn_args: its arguments.
    """
    with tf.Graph().as_default():
        given = input_fn(**input_fn_args)
        if isinstance(given, tf.data.Dataset):
            given = given.make_one_shot_iterator().get_next()
        features, labels = given
        return build_raw_supervised_input_receiver_fn(features, labels)
