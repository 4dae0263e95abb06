"""What `compile` and the methods that train check and prepare before the package sees it."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import anabranch as tf
from anabranch.core.values import PassedOn
from anabranch.tfkeras import initializers, losses, package, rebasing, scopes

_losses = package.module("losses")
_Wrapper: Any = rebasing.served(_losses.LossFunctionWrapper)
#: functions that `tf.keras.losses` serves by those of the package
_served = {id(fn.__wrapped__): fn for fn in losses.NAMES.values() if hasattr(fn, "__wrapped__")}
_NOT_COMPILED = "You must compile your model before training/testing. Use `model.compile(optimizer, loss)`."


def prepared_loss(loss: PassedOn, output_names: Sequence[str]) -> Any:
    """What was given as a loss, as objects that hold the package's functions: it compares with those.

    Outputs that a dictionary has no loss for are named in a warning, and have none.
    """
    if isinstance(loss, dict):
        missing = [name for name in output_names if name not in loss]
        for name in missing if loss else ():
            tf.logging.warning(
                f"Output {name} missing from loss dictionary. We assume this was done on purpose. The fit and evaluate "
                f"APIs will not be expecting any data to be passed to {name}."
            )
        nothing: dict[str, Any] = dict.fromkeys(missing) if loss else {}
        return nothing | {name: _prepared(one) for name, one in loss.items()}
    if isinstance(loss, list | tuple):
        return [_prepared(one) for one in loss]
    return _prepared(loss)


def _prepared(loss: PassedOn) -> Any:
    if loss is None or isinstance(loss, _losses.Loss):
        return loss
    function: Any = getattr(loss, "__wrapped__", loss) if id(getattr(loss, "__wrapped__", None)) in _served else loss
    function = _losses.get(function)
    if function is None or isinstance(function, _losses.Loss):
        return function
    name = getattr(function, "__name__", type(function).__name__)
    return _Wrapper(function, losses.LossReduction.SUM_OVER_BATCH_SIZE, name)


def public_loss(loss: PassedOn) -> Any:
    """A loss of a compiled model as programs see it: with the function that `tf.keras.losses` has."""
    function = _served.get(id(getattr(loss, "fn", None)))
    if function is None or type(loss) is not _Wrapper:
        return loss
    return _Wrapper(function, loss.reduction, loss.name)


def objects(given: PassedOn, module: PassedOn) -> Any:
    """What `compile` is given, with the objects that configurations of a file describe.

    Args:
        module: that of losses or that of metrics.
    """
    if isinstance(given, list | tuple):
        return [objects(one, module) for one in given]
    if not isinstance(given, dict):
        return given
    if set(given) != {"class_name", "config"}:
        return {name: objects(one, module) for name, one in given.items()}
    with scopes.served_classes():
        made = module.deserialize(given)
    if not rebasing.is_of_package(type(made)):
        return made
    return rebasing.served(type(made)).from_config(made.get_config())


def is_of_classes(loss: PassedOn) -> bool:
    """Whether a loss takes the numbers of classes."""
    return getattr(loss, "fn", None) is _losses.sparse_categorical_crossentropy


def check_names(argument: str, given: PassedOn, names: Sequence[str]) -> None:
    """Refuses a dictionary with keys that are no outputs' names.

    Raises:
        ValueError: it has such a key.
    """
    if not isinstance(given, dict):
        return
    unknown = sorted(str(key) for key in given if key not in names)
    if unknown:
        raise ValueError(
            f"Unknown entries in {argument} dictionary: {unknown}. Only expected following keys: {list(names)}"
        )


def check_compiled(model: PassedOn) -> None:
    """Raises RuntimeError for a model that was not compiled."""
    if not getattr(model, "optimizer", None):
        raise RuntimeError(_NOT_COMPILED)


def check_call(model: PassedOn, method: str) -> None:
    """Refuses a model whose `call` takes more than its inputs.

    Raises:
        ValueError: it has such a `call`.
    """
    if model._is_graph_network or hasattr(model, "_build_input_shape"):
        return
    more = [name for name in initializers.required_parameters(model.call)[1:] if name not in ("training", "mask")]
    if more:
        raise ValueError(
            f"Models passed to `{method}` can only have `training` and the first argument in `call` as positional "
            f"arguments, found: {more}."
        )


def check_validation(data: PassedOn, split: PassedOn, steps: PassedOn) -> None:
    """Raises ValueError where steps of validation are given and nothing to validate on."""
    if steps and data is None and not split:
        raise ValueError("`validation_steps` should not be specified if `validation_data` is None.")


def check_no_batch_size(kwargs: dict[str, Any]) -> None:
    """Takes the argument `batch_size` away, which data sets do not take; ValueError where it is given."""
    if kwargs.pop("batch_size", None) is not None:
        raise ValueError("The `batch_size` argument must not be specified when `x` is a dataset or an iterator.")


def print_samples(x: PassedOn) -> None:
    """Prints how many samples arrays have."""
    arrays = [one for one in tf.nest.flatten(x) if getattr(one, "shape", None)]
    if arrays:
        sys.stdout.write(f"Train on {arrays[0].shape[0]} samples\n")


def trainable_state(model: PassedOn) -> list[tuple[Any, bool]]:
    """A model and what is inside it, each with whether it is trained."""
    return [(one, bool(one.__dict__["_trainable"])) for one in (model, *model.submodules) if "_trainable" in vars(one)]


@contextlib.contextmanager
def restored(state: list[tuple[Any, bool]]) -> Iterator[None]:
    """A block in which it is trained what was trained then."""
    now = [(one, bool(one.__dict__["_trainable"])) for one, _ in state]
    for one, is_trained in state:
        one.__dict__["_trainable"] = is_trained
    try:
        yield
    finally:
        for one, is_trained in now:
            one.__dict__["_trainable"] = is_trained


@contextlib.contextmanager
def lengths_explained() -> Iterator[None]:
    """A block in which outputs of another length than their batch are named as such, where they are put together."""
    try:
        yield
    except ValueError as error:
        found = re.search(r"could not broadcast input array from shape (\(.*?\)) into shape (\(.*?\))", str(error))
        if found is None:
            raise
        raise ValueError(
            "Mismatch between expected batch size and model output batch size. Output shape = "
            f"{_spaced(found[1])}, expected output shape = shape {_spaced(found[2])}"
        ) from error


def weights_of_examples(output: str, of_steps: bool) -> Any:
    """The input for weights of an output's examples, or of their steps; 1 for all where none are fed."""
    ones, shape = ([[1.0]], [None, None]) if of_steps else ([1.0], [None])
    kind = package.module("backend").floatx()
    return tf.placeholder_with_default(tf.constant(ones, dtype=kind), shape, name=f"{output}_sample_weights")


def check_batch(batch: PassedOn) -> None:
    """Raises ValueError for what a generator gave, where that is no batch of inputs, targets and weights."""
    if isinstance(batch, tuple) and len(batch) not in (1, 2, 3):
        raise ValueError(f"{_THREE} Found: {batch}")


@contextlib.contextmanager
def generators_explained() -> Iterator[None]:
    """A block in which an error about what a generator gave says what is expected of it here."""
    try:
        yield
    except ValueError as error:
        if not str(error).startswith("Output of generator should be a tuple"):
            raise
        raise ValueError(f"{_THREE} {str(error).partition('. ')[2]}") from error


_THREE = (
    "Output of generator should be a tuple of 1 or 2 or 3 elements: (input,) or (input, target) or (input, target, "
    "sample_weights)."
)


def _spaced(shape: str) -> str:
    return re.sub(r",\s*(?=\d)", ", ", shape)
