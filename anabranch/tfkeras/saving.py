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
from anabranch.tfkeras import optimizers, package, scopes

_module = package.module("engine.saving")
_network = package.module("engine.network")
_io = package.module("utils.io_utils")
_backend = package.module("backend")
_HDF5 = (".h5", ".hdf5", ".keras")
_ENDING = "/.ATTRIBUTES/VARIABLE_VALUE"


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
    session = _backend.get_session()
    _saver(self, dict(_stored(self))).save(session, str(filepath), write_meta_graph=False, write_state=False)
    tf.train.update_checkpoint_state(os.path.dirname(str(filepath)) or ".", str(filepath))


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
    if not self.built and not self.weights and not self.layers:
        raise AssertionError(f"Nothing to load. No dependencies have been added to {self} yet.")
    if not self.weights and not self.built:
        self._weights_to_load = path  # once there are variables
        return _LoadStatus([], [])
    there = {name for name, _ in tf.train.list_variables(path)}
    mine = dict(_stored(self))
    common = {name: variable for name, variable in mine.items() if name in there}
    status = _LoadStatus(sorted(set(mine) - there), sorted(n for n in there - set(mine) if n.endswith(_ENDING)))
    if common:
        _saver(self, common).restore(_backend.get_session(), path)
    elif not status.is_of_nothing:
        raise AssertionError(f"Nothing except the root object matched a checkpointed value of {path}")
    if any(_is_of_optimizer(name) for name in there - set(mine)):
        self._optimizer_to_load = path  # once the step of training is made
    return status


def _saver(model: PassedOn, variables: dict[str, Any]) -> tf.train.Saver:
    """A saver of those variables: the one that the model had of them before, so that its graph does not grow."""
    key = tuple((name, id(variable)) for name, variable in variables.items())
    kept: dict[Any, tf.train.Saver] = model.__dict__.setdefault("_savers", {}).setdefault(tf.get_default_graph(), {})
    if key not in kept:
        kept[key] = tf.train.Saver(variables, max_to_keep=0, allow_empty=True)
    return kept[key]


def _is_described(model: PassedOn) -> bool:
    """Whether a model is what its configuration says, and not what a program's `call` does."""
    return bool(model._is_graph_network or hasattr(model, "_build_input_shape"))


def _is_of_optimizer(name: str) -> bool:
    return name.startswith("optimizer/") or "/.OPTIMIZER_SLOT/" in name


def load_optimizer(model: PassedOn, path: str) -> None:
    """Reads what a checkpoint has of a model's optimizer."""
    there = {name for name, _ in tf.train.list_variables(path)}
    mine = {name: variable for name, variable in _stored(model) if _is_of_optimizer(name) and name in there}
    if mine:
        tf.train.Saver(mine, max_to_keep=0).restore(_backend.get_session(), path)


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


class _LoadStatus:
    """What a checkpoint had of a model."""

    def __init__(self, missing: list[str], unused: list[str]) -> None:
        self._missing, self._unused = missing, unused

    @property
    def is_of_nothing(self) -> bool:
        """Whether neither the checkpoint nor the model has a variable."""
        return not self._missing and not self._unused

    def assert_consumed(self) -> _LoadStatus:
        """Raises AssertionError unless the checkpoint and the model have the same variables."""
        if self._missing or self._unused:
            raise AssertionError(f"only one of checkpoint and model has {(self._missing or self._unused)[0]}")
        return self

    def assert_existing_objects_matched(self) -> _LoadStatus:
        """Raises AssertionError unless the checkpoint has all variables of the model."""
        if self._missing:
            raise AssertionError(f"the checkpoint has no {self._missing[0]}")
        return self

    assert_nontrivial_match = assert_existing_objects_matched

    def expect_partial(self) -> _LoadStatus:
        return self

    def initialize_or_restore(self, session: PassedOn = None) -> None:
        """Nothing is left to be done."""

    run_restore_ops = initialize_or_restore


def _stored(model: PassedOn, prefix: str = "", seen: set[int] | None = None) -> Iterator[tuple[str, Any]]:
    """The variables by their names in a checkpoint of objects."""
    seen = set() if seen is None else seen
    if getattr(model, "_is_graph_network", False) or hasattr(model, "_build_input_shape"):
        weighted = [layer for layer in model.layers if layer.weights]
        children = [(f"layer_with_weights-{index}", layer) for index, layer in enumerate(weighted)]
    else:
        children = [(name, value) for name, value in vars(model).items() if not name.startswith("_")]
    of_variables: dict[int, str] = {}
    for name, child in children:
        for stored, variable in _below(child, f"{prefix}{name}", seen):
            of_variables[id(variable)] = stored.removesuffix(_ENDING)
            yield stored, variable
    own = [*getattr(model, "_trainable_weights", []), *getattr(model, "_non_trainable_weights", [])]
    for variable in own if hasattr(model, "_is_graph_network") else ():  # those that are no attributes
        if id(variable) not in of_variables and id(variable) not in seen:
            seen.add(id(variable))
            stored = f"{prefix}{variable.op.name.rpartition('/')[2]}"
            of_variables[id(variable)] = stored
            yield stored + _ENDING, variable
    optimizer = getattr(model, "optimizer", None)
    if not prefix and isinstance(optimizer, optimizers.KerasOptimizer):
        yield from _of_optimizer(model, of_variables)
    elif not prefix and _is_of_train(optimizer):
        yield from _of_train(model, of_variables)


def _of_train(model: PassedOn, of_variables: dict[int, str]) -> Iterator[tuple[str, Any]]:
    """What one of `tf.train`'s optimizers keeps."""
    optimizer = model.optimizer.optimizer
    slots: set[int] = set()
    for variable in model.weights:
        stored = of_variables.get(id(variable))
        for name in optimizer.get_slot_names() if stored else ():
            slot = optimizer.get_slot(variable, name)
            if slot is not None:
                slots.add(id(slot))
                yield f"{stored}/.OPTIMIZER_SLOT/optimizer/{name}{_ENDING}", slot
    for variable in optimizer.variables():
        if id(variable) not in slots:
            yield f"optimizer/{variable.op.name.rpartition('/')[2]}{_ENDING}", variable


def _of_optimizer(model: PassedOn, of_variables: dict[int, str]) -> Iterator[tuple[str, Any]]:
    """What an optimizer keeps: its numbers, and slots beside the variables that they are for."""
    optimizer = model.optimizer
    if optimizer._iterations is None:
        return
    yield f"optimizer/iter{_ENDING}", optimizer.iterations
    for name, value in optimizer._hyper.items():
        if isinstance(value, tf.Variable):
            yield f"optimizer/{name}{_ENDING}", value
    for variable in model.weights:
        stored = of_variables.get(id(variable))
        for slot, kept in (optimizer._slots.get(optimizers.key_of(variable), {}) if stored else {}).items():
            yield f"{stored}/.OPTIMIZER_SLOT/optimizer/{slot}{_ENDING}", kept


def _below(value: PassedOn, path: str, seen: set[int]) -> Iterator[tuple[str, Any]]:
    if id(value) in seen:
        return
    if isinstance(value, tf.Variable):
        seen.add(id(value))
        yield path + _ENDING, value
    elif isinstance(value, list | tuple):
        for index, one in enumerate(value):
            yield from _below(one, f"{path}/{index}", seen)
    elif isinstance(value, dict):
        for key, one in value.items():
            yield from _below(one, f"{path}/{key}", seen)
    elif not getattr(value, "lacks_weights", False) and hasattr(value, "weights") and hasattr(value, "call"):
        seen.add(id(value))
        yield from _stored(value, f"{path}/", seen)
        for variable in value.weights:  # those that are no attributes
            if id(variable) not in seen:
                seen.add(id(variable))
                yield f"{path}/{variable.op.name.rpartition('/')[2]}{_ENDING}", variable


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
