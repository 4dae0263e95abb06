"""Files of models and of their weights: HDF5 by the package, checkpoints and SavedModels of TensorFlow's formats."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
from collections.abc import Iterator
from typing import Any

import anabranch as tf
from anabranch.core.values import PassedOn
from anabranch.io import checkpoint_state
from anabranch.tfkeras import package, scopes
from anabranch.train import load_status, object_checkpoints, object_graph

_module = package.module("engine.saving")
_network = package.module("engine.network")
_io = package.module("utils.io_utils")
_backend = package.module("backend")
_HDF5 = (".h5", ".hdf5", ".keras")


def _is_hdf5(path: PassedOn) -> bool:
    return not isinstance(path, str | os.PathLike) or str(path).endswith(_HDF5)


def _format(path: PassedOn, save_format: str | None, default: str) -> str:
    """Which format is meant: "h5" or "tf".

    Raises:
        ValueError: an unknown one, or TensorFlow's for a path that ends as those of HDF5 files do.
    """
    if save_format is None:
        return "h5" if _is_hdf5(path) else default
    named = save_format.lower().strip()
    if named in ("hdf5", "h5", "keras"):
        return "h5"
    if named not in ("tf", "tensorflow"):
        raise ValueError(f'Unknown format "{save_format}". Was expecting one of {{"tf", "h5"}}.')
    if _is_hdf5(path):
        raise ValueError(
            f'save_weights got save_format="tf"/"tensorflow", but the filepath ("{path}") looks like an HDF5 file. '
            'Omit the ".h5"/".keras" when saving in TensorFlow format.'
        )
    return "tf"


def save(
    self: PassedOn,
    filepath: PassedOn,
    overwrite: bool = True,
    include_optimizer: bool = True,
    save_format: str | None = None,
    signatures: PassedOn = None,
    options: PassedOn = None,
) -> None:
    """Writes the model: an HDF5 file, or for `save_format="tf"` a SavedModel of its outputs.

    Raises:
        NotImplementedError: the model's class defines `call`, and the file would be HDF5.
        ImportError: h5py is needed and not installed.
    """
    if (save_format or "h5") not in ("h5", "hdf5", "keras"):
        export_saved_model(self, str(filepath), serving_only=not _is_described(self))
        return
    if not self._is_graph_network:
        raise NotImplementedError(
            "Saving the model to HDF5 format requires the model to be a Functional model or a Sequential model. It "
            "does not work for subclassed models, because such models are defined via the body of a Python method, "
            "which isn't safely serializable. Consider saving to the Tensorflow SavedModel format (by setting "
            'save_format="tf") or using `save_weights`.'
        )
    if _module.h5py is None:
        raise ImportError("`save_model` requires h5py.")
    with scopes.trainable_first():
        _module.save_model(self, filepath, overwrite, include_optimizer and not _is_of_train(self.optimizer))


def _is_of_train(optimizer: PassedOn) -> bool:
    """Whether an optimizer is one of `tf.train`'s, which files do not hold."""
    return optimizer is not None and hasattr(optimizer, "optimizer")


def load_model(filepath: PassedOn, custom_objects: PassedOn = None, compile: bool = True) -> Any:
    """The model that `save` wrote into an HDF5 file, with the weights and the state of its optimizer."""
    with scopes.served_classes(), scopes.trainable_first(), _nested_in_order():
        return _module.load_model(filepath, custom_objects, compile)


def save_weights(self: PassedOn, filepath: PassedOn, overwrite: bool = True, save_format: str | None = None) -> None:
    """Writes the weights: an HDF5 file for such a path, else a checkpoint of TensorFlow's format."""
    if not self.built and not self.weights:
        raise ValueError(
            f"Unable to save weights of model {self.name}: weights for model have not yet been created. Weights are "
            "created when the Model is first called on inputs or `build()` is called with an `input_shape`."
        )
    kind = _format(filepath, save_format, "tf")
    is_there = os.path.exists(str(filepath)) if kind == "h5" else tf.train.checkpoint_exists(str(filepath))
    if not overwrite and is_there and not _io.ask_to_proceed_with_overwrite(str(filepath)):
        return
    if kind == "h5":
        with _module.h5py.File(filepath, "w") as file, scopes.trainable_first():
            _module.save_weights_to_hdf5_group(file, self.layers)
            file.flush()
        return
    _saver(self).save(str(filepath), session=_backend.get_session())
    folder = os.path.dirname(str(filepath)) or "."
    checkpoint_state.write_checkpoint_state(folder, str(filepath), save_relative_paths=True)


def load_weights(
    self: PassedOn,
    filepath: PassedOn,
    by_name: bool = False,
    skip_mismatch: bool = False,
    reshape: bool = False,
) -> Any:
    """Reads the weights that `save_weights` wrote, in either format.

    Raises:
        NotImplementedError: `by_name`, of a checkpoint.
        ValueError: the model's class defines `call`, and it was not called yet.
    """
    path = str(filepath)
    if _is_hdf5(filepath) or os.path.isfile(path):
        if not self.weights and not self.built:
            raise ValueError(
                "Unable to load weights saved in HDF5 format into a subclassed Model which has not created its "
                "variables yet. Call the Model first, then load the weights."
            )
        with scopes.trainable_first(), _nested_in_order():
            _network.Network.load_weights(self, filepath, by_name, skip_mismatch, reshape)
        return None
    if by_name:
        raise NotImplementedError(
            "Weights may only be loaded based on topology into Models when loading TensorFlow-formatted weights (got "
            "by_name=True to load_weights)."
        )
    status = _saver(self).restore(path)
    self._loading = None
    if not isinstance(status, load_status.CheckpointLoadStatus):
        raise NotImplementedError(
            f"{path} was written by tf.train.Saver, whose names are not those of layers: read it with "
            "tf.train.Checkpoint or tf.train.Saver"
        )
    status.assert_nontrivial_match()
    status.restore_new(_backend.get_session())
    self._loading = status  # what is made later, as an optimizer's slots, gets its values then
    return status


def _saver(model: PassedOn) -> object_checkpoints.TrackableSaver:
    """What saves a model: the one that it had before, so that its graph does not grow."""
    kept: dict[str, Any] = model.__dict__
    if "_self_saver" not in kept:
        kept["_self_saver"] = object_checkpoints.TrackableSaver(object_graph.ObjectGraphView(model))
    saver: object_checkpoints.TrackableSaver = kept["_self_saver"]
    return saver


def _is_described(model: PassedOn) -> bool:
    """Whether a model is what its configuration says, and not what a program's `call` does."""
    return bool(model._is_graph_network or hasattr(model, "_build_input_shape"))


# ---------------------------------------------------------------------- models in models, in HDF5
@contextlib.contextmanager
def _nested_in_order() -> Iterator[None]:
    """A block in which the package finds the weights of models that are in other models' models.

    A file has all trained weights of a model first. The package hands these to the models in it, and the others
    afterwards, as if each were all that a model has; so a convolution is given the averages of a normalization.
    """
    whole = _module.preprocess_weights_for_loading
    _module.preprocess_weights_for_loading = functools.partial(_prepared, whole)
    try:
        yield
    finally:
        _module.preprocess_weights_for_loading = whole


def _prepared(prepare: PassedOn, layer: PassedOn, weights: PassedOn, *args: PassedOn, **kwargs: PassedOn) -> list[Any]:
    """What the package makes of a layer's weights in a file; of a model's, layer by layer."""
    leaves = list({id(leaf): leaf for leaf in _leaves(layer)}.values())
    counts = [(len(leaf.trainable_weights), len(leaf.weights)) for leaf in leaves]
    if not isinstance(layer, _network.Network) or sum(total for _, total in counts) != len(weights):
        result: list[Any] = prepare(layer, weights, *args, **kwargs)
        return result
    left = iter(weights)
    trained = [list(itertools.islice(left, count)) for count, _ in counts]
    others = [list(itertools.islice(left, total - count)) for count, total in counts]
    made = [prepare(leaf, [*a, *b], *args, **kwargs) for leaf, a, b in zip(leaves, trained, others, strict=True)]
    first = [value for values, (count, _) in zip(made, counts, strict=True) for value in values[:count]]
    return [*first, *(value for values, (count, _) in zip(made, counts, strict=True) for value in values[count:])]


def _leaves(layer: PassedOn) -> Iterator[Any]:
    """The layers of a model, and of the models among them, that are no models."""
    if not isinstance(layer, _network.Network):
        yield layer
        return
    for inner in layer.layers:
        yield from _leaves(inner)


def export_saved_model(
    model: PassedOn,
    saved_model_path: str,
    custom_objects: PassedOn = None,
    as_text: bool = False,
    input_signature: PassedOn = None,
    serving_only: bool = False,
) -> None:
    """Writes a SavedModel whose default signature gives the model's outputs for its inputs, and its configuration."""
    if not _is_described(model) and not serving_only:
        raise NotImplementedError(
            "Subclassed models can only be exported for serving. Please set argument serving_only=True."
        )
    if not model.built and hasattr(model, "_build_input_shape"):
        raise ValueError(
            "Weights for sequential model have not yet been created. Weights are created when the Model is first "
            "called on inputs or `build()` is called with an `input_shape`, or the first layer in the model has "
            "`input_shape` during construction."
        )
    if not model.inputs:
        raise ValueError(
            f"Model {model.name} cannot be saved because the input shapes have not been set: call it, or fit"
        )
    inputs = dict(zip(model.input_names, model.inputs, strict=False))
    outputs = dict(zip(model.output_names, model.outputs, strict=False))
    _write_saved_model(saved_model_path, inputs, outputs)
    if model._is_graph_network:
        assets = os.path.join(saved_model_path, "assets")
        os.makedirs(assets, exist_ok=True)
        with open(os.path.join(assets, "saved_model.json"), "w", encoding="utf-8") as file:
            file.write(model.to_json())
        save_weights(model, os.path.join(assets, "weights"), save_format="tf")


def _write_saved_model(path: str, inputs: dict[str, Any], outputs: dict[str, Any]) -> None:
    """Writes the graph with what has a value in it: other models and metrics may be there that have none yet."""
    session, variables = _backend.get_session(), tf.global_variables()
    has_value = session.run([tf.is_variable_initialized(variable) for variable in variables])
    names = tf.saved_model.signature_constants
    tables = tf.group(tf.tables_initializer(), name="legacy_init_op")
    builder = tf.saved_model.Builder(path)
    builder.add_meta_graph_and_variables(
        session,
        [tf.saved_model.tag_constants.SERVING],
        {
            names.DEFAULT_SERVING_SIGNATURE_DEF_KEY: tf.saved_model.signature_def_utils.predict_signature_def(
                inputs, outputs
            )
        },
        assets_collection=tf.get_collection(tf.GraphKeys.ASSET_FILEPATHS),
        main_op=tables,
        clear_devices=True,
        saver=tf.train.Saver([v for v, there in zip(variables, has_value, strict=True) if there], allow_empty=True),
    )
    builder.save()


def load_from_saved_model(saved_model_path: str, custom_objects: PassedOn = None) -> Any:
    """The functional model that `export_saved_model` wrote, with its weights."""
    assets = os.path.join(saved_model_path, "assets")
    with open(os.path.join(assets, "saved_model.json"), encoding="utf-8") as file, scopes.served_classes():
        model = package.module("models").model_from_json(file.read(), custom_objects)
    load_weights(model, os.path.join(assets, "weights"))
    return model
