"""Writing a trained model as a SavedModel: signatures, restored variables, assets."""

from __future__ import annotations

import os
import time
from typing import Any

import anabranch as tf
from anabranch.estimator.export_outputs import ExportOutput, PredictOutput
from anabranch.estimator.model_functions import EstimatorSpec
from anabranch.estimator.receivers import ServingInputReceiver, TensorServingInputReceiver

_DEFAULT = tf.saved_model.signature_constants.DEFAULT_SERVING_SIGNATURE_DEF_KEY


def export_model(
    spec: EstimatorSpec,
    receiver: ServingInputReceiver | TensorServingInputReceiver,
    checkpoint_path: str,
    export_dir_base: str,
    assets_extra: dict[str, str],
    as_text: bool,
    session_config: tf.ConfigProto | None,
) -> bytes:
    """Writes the model of the default graph; its directory.

    Args:
        spec: the model in the default graph, for prediction.
        receiver: what it receives.
        checkpoint_path: the values of its variables.
        export_dir_base: the directory of directories.
        assets_extra: file in `assets.extra` -> file to copy.
        as_text: whether the graph is written as text.
        session_config: of the session that restores and saves.
    """
    signatures = signatures_of(spec, receiver)
    scaffold = spec.scaffold
    prepare = scaffold.local_init_op
    if prepare is None:
        prepare = tf.group(tf.local_variables_initializer(), tf.tables_initializer())
    saver = scaffold.saver or tf.train.Saver(sharded=True)
    final = _new_directory(export_dir_base)
    # written beside its place: whoever serves what is in the base sees whole models only
    unfinished = os.path.join(export_dir_base, f"temp-{os.path.basename(final)}")
    with tf.Session(config=session_config) as session:
        saver.restore(session, checkpoint_path)
        session.run(prepare)
        builder = tf.saved_model.Builder(unfinished)
        builder.add_meta_graph_and_variables(
            session,
            [tf.saved_model.tag_constants.SERVING],
            signature_def_map=signatures,
            assets_collection=tf.get_collection(tf.GraphKeys.ASSET_FILEPATHS),
            main_op=prepare,
            saver=saver,
        )
        builder.save(as_text)
    for name, source in assets_extra.items():
        target = os.path.join(unfinished, "assets.extra", name)
        tf.gfile.MakeDirs(os.path.dirname(target))
        tf.gfile.Copy(source, target)
    tf.gfile.Rename(unfinished, final)
    return final.encode()


def signatures_of(spec: EstimatorSpec, receiver: ServingInputReceiver | TensorServingInputReceiver) -> dict[str, Any]:
    """The signatures of a model, by name: each output from what is received, and from each alternative to it.

    Raises:
        ValueError: no output goes with what is received.
    """
    outputs: dict[str, ExportOutput] = spec.export_outputs or {_DEFAULT: PredictOutput(spec.predictions)}
    signatures: dict[str, Any] = {}
    refusals = []
    for name, output in outputs.items():
        try:
            signatures[name] = output.as_signature_def(receiver.receiver_tensors)
        except ValueError as error:  # classification and regression take serialized examples only
            refusals.append(f"{name}: {error}")
    for other, tensors in (receiver.receiver_tensors_alternatives or {}).items():
        for name, output in outputs.items():
            try:
                signatures[f"{other}:{name}"] = output.as_signature_def(tensors)
            except ValueError as error:
                refusals.append(f"{other}:{name}: {error}")
    for refusal in refusals:
        tf.logging.warning("Export excludes the signature %s", refusal)
    if not signatures:
        raise ValueError(f"no output of the model goes with what it receives: {'; '.join(refusals)}")
    return signatures


def _new_directory(base: str) -> str:
    """A path in the base that is not taken, named after the time in seconds."""
    tf.gfile.MakeDirs(base)
    stamp = int(time.time())
    while tf.gfile.Exists(os.path.join(base, str(stamp))):
        stamp += 1
    return os.path.join(base, str(stamp))
