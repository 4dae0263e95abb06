"""Writing a trained model as a SavedModel: signatures, restored variables, assets."""

from __future__ import annotations

import os
import time
from typing import Any, Final, Self

import anabranch as tf
from anabranch.contrib.arguments import PassedOn
from anabranch.estimator.export_outputs import EvaluationOutput, ExportOutput, PredictOutput, TrainingOutput
from anabranch.estimator.model_functions import EstimatorSpec, ModeKeys
from anabranch.serving.constants import TRAIN_OP_KEY

_DEFAULT = tf.saved_model.signature_constants.DEFAULT_SERVING_SIGNATURE_DEF_KEY
#: the tag of each mode's graph, in the order in which one of them saves the variables
TAGS: Final = {
    ModeKeys.TRAIN: tf.saved_model.tag_constants.TRAINING,
    ModeKeys.EVAL: "eval",
    ModeKeys.PREDICT: tf.saved_model.tag_constants.SERVING,
}
_SUPERVISED: Final = {ModeKeys.TRAIN: TrainingOutput, ModeKeys.EVAL: EvaluationOutput}


class ModelExport:
    """A model that is being written, a graph for each mode; its variables are saved with the first.

    As a context, it leaves nothing behind where an exception ends it.

    Args:
        export_dir_base: the directory of directories.
        checkpoint_path: the values of the variables.
        session_config: of the sessions that restore and save.
    """

    def __init__(self, export_dir_base: str, checkpoint_path: str, session_config: tf.ConfigProto | None) -> None:
        self._final = _new_directory(export_dir_base)
        # written beside its place: whoever serves what is in the base sees whole models only
        self._unfinished = os.path.join(export_dir_base, f"temp-{os.path.basename(self._final)}")
        self._builder = tf.saved_model.Builder(self._unfinished)
        self._checkpoint, self._config = checkpoint_path, session_config
        self._has_variables = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, exc_type: type[BaseException] | None, exc: object, traceback: object) -> None:
        if exc_type is not None and tf.gfile.Exists(self._unfinished):
            tf.gfile.DeleteRecursively(self._unfinished)

    def add(self, spec: EstimatorSpec, receiver: PassedOn) -> None:
        """Adds the default graph.

        Args:
            spec: the model in it.
            receiver: what it receives.
        """
        signatures = signatures_of(spec, receiver)
        prepare = spec.scaffold.local_init_op
        if prepare is None:
            prepare = tf.group(tf.local_variables_initializer(), tf.tables_initializer())
        saver = spec.scaffold.saver or tf.train.Saver(sharded=True)
        if spec.mode == ModeKeys.TRAIN:
            tf.add_to_collection(TRAIN_OP_KEY, spec.train_op)
        settings: dict[str, Any] = {
            "signature_def_map": signatures,
            "assets_collection": tf.get_collection(tf.GraphKeys.ASSET_FILEPATHS),
            "main_op": prepare,
            "saver": saver,
        }
        with tf.Session(config=self._config) as session:
            saver.restore(session, self._checkpoint)
            session.run(prepare)
            if self._has_variables:
                self._builder.add_meta_graph([TAGS[spec.mode]], **settings)
            else:
                self._builder.add_meta_graph_and_variables(session, [TAGS[spec.mode]], **settings)
        self._has_variables = True

    def finish(self, assets_extra: dict[str, str], as_text: bool) -> bytes:
        """Writes the model; its directory.

        Args:
            assets_extra: file in `assets.extra` -> file to copy.
            as_text: whether the graph is written as text.
        """
        self._builder.save(as_text)
        for name, source in assets_extra.items():
            target = os.path.join(self._unfinished, "assets.extra", name)
            tf.gfile.MakeDirs(os.path.dirname(target))
            tf.gfile.Copy(source, target)
        tf.gfile.Rename(self._unfinished, self._final)
        return self._final.encode()


def signatures_of(spec: EstimatorSpec, receiver: PassedOn) -> dict[str, Any]:
    """The signatures of a model, by name: each output from what is received, and from each alternative to it.

    For training and evaluation there is one, of the mode's name: loss, predictions and metrics.

    Raises:
        ValueError: no output goes with what is received.
    """
    if spec.mode != ModeKeys.PREDICT:
        supervised = _SUPERVISED[spec.mode](spec.loss, spec.predictions, spec.eval_metric_ops)
        return {spec.mode: supervised.as_signature_def(receiver.receiver_tensors)}
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
