"""Loads all import rules."""

from __future__ import annotations

from anabranch.onnx import (
    rules_control as _control,
    rules_elementwise as _elementwise,
    rules_images as _images,
    rules_layout as _layout,
    rules_linear as _linear,
    rules_machine_learning as _machine_learning,
    rules_normalization as _normalization,
    rules_quantized as _quantized,
    rules_recurrent as _recurrent,
    rules_reductions as _reductions,
    rules_regions as _regions,
    rules_selection as _selection,
    rules_signal as _signal,
    rules_strings as _strings,
    rules_trees as _trees,
    rules_windows as _windows,
)

_FAMILIES = (
    _control,
    _elementwise,
    _images,
    _layout,
    _linear,
    _machine_learning,
    _normalization,
    _quantized,
    _recurrent,
    _reductions,
    _regions,
    _selection,
    _signal,
    _strings,
    _trees,
    _windows,
)


def load() -> int:
    """Makes sure that the rules are registered; returns the number of families."""
    return len(_FAMILIES)
