"""What libraries ask of `tensorflow.python.util.serialization`: objects as what JSON can say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

import anabranch as tf
from anabranch.core.values import PassedOn


def get_json_type(obj: PassedOn) -> Any:
    """An object that JSON does not know, as one that it does; what `json.dumps` takes as `default`.

    Args:
        obj: what has `get_config` gives its class's name and configuration; an array a list, a number of NumPy's
            Python's; a function or a class its name; a `Dimension` or a `TensorShape` numbers; a mapping a dictionary.

    Raises:
        TypeError: it is none of these.
    """
    if hasattr(obj, "get_config"):
        return {"class_name": type(obj).__name__, "config": obj.get_config()}
    if isinstance(obj, np.ndarray):
        return obj.tolist()
    if isinstance(obj, np.generic):
        return obj.item()
    if callable(obj):
        return obj.__name__
    if isinstance(obj, tf.Dimension):
        return obj.value
    if isinstance(obj, tf.TensorShape):
        return obj.as_list()
    if isinstance(obj, Mapping):
        return dict(obj)
    raise TypeError("Not JSON Serializable:", obj)
