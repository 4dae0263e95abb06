"""Arrays as a model is fed them: lists in the order of its inputs and outputs, with weights of examples or of steps."""

from __future__ import annotations

from typing import Any

from anabranch.core.values import PassedOn
from anabranch.tfkeras import package

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
    x = _utils.standardize_input_data(
        x,
        model._feed_input_names,
        model._feed_input_shapes if feed else None,
        check_batch_axis=False,
        exception_prefix="input",
    )
    weights: list[Any] = []
    if y is None:
        y = []
    else:
        names = model._feed_output_names
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
