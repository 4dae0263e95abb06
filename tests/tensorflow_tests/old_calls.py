"""Calls of NumPy that its version 2 refuses or will refuse, as test files of TensorFlow's time write them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np


def restore() -> None:
    """Lets this process make such calls; what they mean is what they meant."""
    setattr(np, "array", _copying_if_needed(np.array))  # noqa: B010 (its type would be another)
    setattr(np, "reshape", _with_new_shape(np.reshape))  # noqa: B010


def _copying_if_needed(array: Callable[..., Any]) -> Callable[..., Any]:
    """`np.array(x, copy=False)` copies where it must."""

    @functools.wraps(array)
    def call(*args: object, **kwargs: object) -> Any:
        if kwargs.get("copy") is False:
            kwargs["copy"] = None
        return array(*args, **kwargs)

    return call


def _with_new_shape(reshape: Callable[..., Any]) -> Callable[..., Any]:
    """`np.reshape(x, newshape=s)`."""

    @functools.wraps(reshape)
    def call(*args: object, **kwargs: object) -> Any:
        if "newshape" in kwargs:
            kwargs["shape"] = kwargs.pop("newshape")
        return reshape(*args, **kwargs)

    return call
