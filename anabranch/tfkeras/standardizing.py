"""Arrays as a model is fed them: lists in the order of its inputs and outputs, with weights of examples or of steps."""

from __future__ import annotations

from typing import Any

from anabranch.core.values import PassedOn
from anabranch.tfkeras import compiling, composite, package

_utils = package.module("engine.training_utils")


def standardized(
    model: PassedOn,
    x: PassedOn,
    y: PassedOn,
    sample_weight: PassedOn,
    class_weight: PassedOn,
    check_lengths: bool,
    batch_size: int | None,
) -> tuple[list[Any], list[Any], list[Any]]:
    """What the package's method of models makes of arrays, where targets may have the shapes that their losses take.

    Losses that want targets of the shape of the outputs check arrays; targets of a data set are broadcast, as tensors
    are. Weights of steps are taken by models of any kind.

    Raises:
        ValueError: arrays are missing, or their numbers, shapes or lengths do not fit.
    """
    feed = model._is_graph_network
    if isinstance(x, int | float):
        raise ValueError(f"Error when checking input: expected arrays, one for each input, but got: {x}")
    x = _utils.standardize_input_data(
        x,
        model._feed_input_names,
        [None if _is_of_numbers(shape) else shape for shape in model._feed_input_shapes] if feed else None,
        check_batch_axis=False,
        exception_prefix="input",
    )
    # the package makes columns of vectors
    x = [a[:, 0] if _is_of_numbers(s) and a.ndim == 2 else a for a, s in zip(x, model._feed_input_shapes, strict=True)]
    composite.check_structure(x, model._feed_inputs)
    weights: list[Any] = []
    if y is None:
        y = []
    else:
        names = model._feed_output_names
        compiling.check_names("sample_weight", sample_weight, model.output_names)
        compiling.check_names("class_weight", class_weight, _outputs_of(class_weight, model.output_names))
        for what, one in zip(("target", "sample_weight"), (y, sample_weight), strict=True):
            if any(isinstance(each, int | float) for each in (one if isinstance(one, list | tuple) else [one])):
                raise ValueError(f"Error when checking {what}: expected arrays, one for each output, but got: {one}")
        y = _utils.standardize_input_data(y, names, None, check_batch_axis=False, exception_prefix="target")
        of_examples = _utils.standardize_sample_weights(sample_weight, names)
        of_classes = _utils.standardize_class_weights(class_weight, names)
        modes = model._feed_sample_weight_modes
        weights = [_utils.standardize_weights(*given) for given in zip(y, of_examples, of_classes, modes, strict=False)]
        if check_lengths:
            _utils.check_array_length_consistency(x, y, weights)
        if feed and not model._targets_are_tensors:
            _utils.check_loss_and_target_compatibility(y, model._feed_loss_fns, model._feed_output_shapes)
    if model.stateful and batch_size and len(x[0]) % batch_size:
        raise ValueError(
            "In a stateful network, you should only pass inputs with a number of samples that can be divided by the "
            f"batch size. Found: {len(x[0])} samples"
        )
    return x, y, weights


def _outputs_of(class_weight: PassedOn, names: list[str]) -> list[Any]:
    """The names that a dictionary of weights may have: of outputs, or for one output its classes."""
    return list(class_weight) if isinstance(class_weight, dict) and len(names) == 1 else names


def _is_of_numbers(shape: PassedOn) -> bool:
    """Whether each example is a number."""
    return shape is not None and len(shape) == 1
