"""`tf.contrib.predictor`: a SavedModel, or a model of `tf.estimator`, as a function of arrays."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from typing import Any

import anabranch as tf
from anabranch.contrib.arguments import PassedOn


class Predictor:
    """A function from arrays by name to arrays by name.

    Attributes:
        graph, session: where it computes.
        feed_tensors, fetch_tensors: its inputs and outputs, by name.
    """

    def __init__(
        self,
        graph: tf.Graph,
        session: tf.Session,
        feed_tensors: Mapping[str, tf.Tensor],
        fetch_tensors: Mapping[str, tf.Tensor],
    ) -> None:
        self.graph, self.session = graph, session
        self.feed_tensors, self.fetch_tensors = dict(feed_tensors), dict(fetch_tensors)

    def __call__(self, input_dict: Mapping[str, Any]) -> dict[str, Any]:
        """The outputs for some inputs.

        Raises:
            ValueError: an input has a name that the model does not know.
        """
        unknown = sorted({*input_dict} - {*self.feed_tensors})
        if unknown:
            raise ValueError(f"Got unexpected keys in input_dict: {unknown}; expected {sorted(self.feed_tensors)}")
        fed = {self.feed_tensors[name]: value for name, value in input_dict.items()}
        results: dict[str, Any] = self.session.run(self.fetch_tensors, fed)
        return results

    def __repr__(self) -> str:
        return f"Predictor with feed tensors {self.feed_tensors} and fetch_tensors {self.fetch_tensors}"


def from_saved_model(
    export_dir: str,
    signature_def_key: str | None = None,
    signature_def: PassedOn = None,
    input_names: Mapping[str, str] | None = None,
    output_names: Mapping[str, str] | None = None,
    tags: str | None = None,
    graph: tf.Graph | None = None,
    config: tf.ConfigProto | None = None,
) -> Predictor:
    """The function that a SavedModel describes.

    Args:
        export_dir: its folder.
        signature_def_key: the name of a signature; None: "serving_default".
        signature_def: a signature instead.
        input_names, output_names: tensors by names of the user's own, instead of a signature.
        tags: of the graph in the model, with commas between them; None: "serve".
        graph: where to load it; None: a new one.
        config: of the session.

    Raises:
        ValueError: signatures and names are mixed, or there is no such signature.
    """
    given = [what for what in (signature_def_key, signature_def, input_names) if what is not None]
    if len(given) > 1 or (input_names is None) != (output_names is None):
        raise ValueError("specify one of signature_def_key, signature_def, or input_names with output_names")
    graph = graph or tf.Graph()
    with graph.as_default():
        session = tf.Session(graph=graph, config=config)
        wanted = (tags or tf.saved_model.tag_constants.SERVING).split(",")
        loaded = tf.saved_model.loader.load(session, wanted, export_dir)
    if input_names is None or output_names is None:
        signature = signature_def or _signature(loaded, signature_def_key)
        input_names = {name: info.name for name, info in signature.inputs.items()}
        output_names = {name: info.name for name, info in signature.outputs.items()}
    fed, fetched = (
        {name: graph.get_tensor_by_name(tensor) for name, tensor in names.items()}
        for names in (input_names, output_names)
    )
    return Predictor(graph, session, fed, fetched)


def _signature(loaded: PassedOn, key: str | None) -> Any:
    wanted = key or tf.saved_model.signature_constants.DEFAULT_SERVING_SIGNATURE_DEF_KEY
    if wanted not in loaded.signature_def:
        raise ValueError(
            f'Got signature_def_key "{wanted}". Available signatures are {sorted(loaded.signature_def)}: name one'
        )
    return loaded.signature_def[wanted]


def from_estimator(
    estimator: tf.estimator.Estimator,
    serving_input_receiver_fn: Callable[[], Any],
    output_key: str | None = None,
    graph: tf.Graph | None = None,
    config: tf.ConfigProto | None = None,
) -> Predictor:
    """The function that a trained model is; its newest checkpoint is exported to a temporary folder for it.

    Args:
        serving_input_receiver_fn: makes the inputs; see `tf.estimator.export`.
        output_key: which of the model's outputs; None: the default one.
        graph, config: as for `from_saved_model`.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = tf.compat.as_str_any(estimator.export_savedmodel(folder, serving_input_receiver_fn))
        return from_saved_model(path, output_key, graph=graph, config=config)
