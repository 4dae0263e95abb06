"""Arguments of layers: sizes, paddings, data formats, activations, initializers; lengths of outputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from anabranch.core.nest import Structure
from anabranch.core.values import TensorLike
from anabranch.frontend.arguments import Activation, InitializerLike, PerAxis
from anabranch.frontend.control_flow.conditionals import cond
from anabranch.frontend.nn import activations as nn_activations
from anabranch.frontend.variables import initializers
from anabranch.graph.constants import constant_value as known_value
from anabranch.graph.operation import Tensor
from anabranch.ops import raw


# ---------------------------------------------------------------------- arguments
def normalize_tuple(value: PerAxis, n: int, name: str) -> tuple[int, ...]:
    """`n` integers from one integer or from `n` of them.

    Raises:
        ValueError: `value` is neither.
    """
    if isinstance(value, int):
        return (value,) * n
    message = f"The `{name}` argument must be a tuple of {n} integers. Received: {value}"
    try:
        values = tuple(int(v) for v in value)
    except (TypeError, ValueError):
        raise ValueError(message) from None
    if len(values) != n:
        raise ValueError(message)
    return values


def normalize_data_format(value: str | None) -> str:
    """``"channels_first"`` or ``"channels_last"`` (the default); raises ValueError for anything else."""
    data_format = "channels_last" if value is None else str(value).lower()
    if data_format not in {"channels_first", "channels_last"}:
        raise ValueError(
            f"The `data_format` argument must be one of 'channels_first', 'channels_last'. Received: {value}"
        )
    return data_format


def normalize_padding(value: str, allowed: tuple[str, ...] = ("valid", "same")) -> str:
    """The padding's name in lower case; raises ValueError if it is not allowed."""
    padding = str(value).lower()
    if padding not in allowed:
        raise ValueError(f"The `padding` argument must be one of {list(allowed)}. Received: {value}")
    return padding


def convert_data_format(data_format: str, ndim: int) -> str:
    """The data format's name in operations: "NHWC", "NCHW", and the like for 3 and 5 dimensions."""
    spatial = {3: "W", 4: "HW", 5: "DHW"}.get(ndim)
    if spatial is None:
        raise ValueError(f"Input rank not supported: {ndim}; it must be 3, 4 or 5")
    return f"N{spatial}C" if data_format == "channels_last" else f"NC{spatial}"


def get_activation(identifier: Activation | None) -> Callable[..., Any] | None:
    """A function of a tensor; None for none.

    Raises:
        ValueError: a name that is not known.
    """
    if identifier is None or callable(identifier):
        return identifier
    if identifier == "linear":
        return None
    if identifier not in _ACTIVATIONS:
        raise ValueError(f"unknown activation {identifier!r}; pass a function, or one of {['linear', *_ACTIVATIONS]}")
    return _ACTIVATIONS[identifier]


def _tanh(x: TensorLike) -> Any:
    return raw.Tanh(x)


def _sigmoid(x: TensorLike) -> Any:
    return raw.Sigmoid(x)


def _exponential(x: TensorLike) -> Any:
    return raw.Exp(x)


_ACTIVATIONS: dict[str, Callable[..., Any]] = {
    "relu": nn_activations.relu,
    "relu6": nn_activations.relu6,
    "tanh": _tanh,
    "sigmoid": _sigmoid,
    "exponential": _exponential,
    "softmax": nn_activations.softmax,
    "elu": nn_activations.elu,
    "selu": nn_activations.selu,
    "softplus": nn_activations.softplus,
    "softsign": nn_activations.softsign,
}

_INITIALIZERS: dict[str, Callable[[], Any]] = {
    "zeros": initializers.Zeros,
    "ones": initializers.Ones,
    "random_uniform": lambda: initializers.RandomUniform(-0.05, 0.05),
    "random_normal": lambda: initializers.RandomNormal(stddev=0.05),
    "truncated_normal": lambda: initializers.TruncatedNormal(stddev=0.05),
    "orthogonal": initializers.Orthogonal,
    "identity": initializers.Identity,
    "glorot_uniform": initializers.GlorotUniform,
    "glorot_normal": initializers.GlorotNormal,
    "he_normal": initializers.he_normal,
    "he_uniform": initializers.he_uniform,
    "lecun_normal": initializers.lecun_normal,
    "lecun_uniform": initializers.lecun_uniform,
}


def get_initializer(identifier: InitializerLike | None) -> Any:
    """An initializer: what is given, or the one of that name.

    Raises:
        ValueError: a name that is not known.
    """
    if not isinstance(identifier, str):
        return identifier
    if identifier not in _INITIALIZERS:
        raise ValueError(f"unknown initializer {identifier!r}; pass an initializer, or one of {sorted(_INITIALIZERS)}")
    return _INITIALIZERS[identifier]()


# ---------------------------------------------------------------------- lengths
def conv_output_length(
    length: int | None, filter_size: int, padding: str, stride: int, dilation: int = 1
) -> int | None:
    """The length that a window of `filter_size` leaves of a dimension; None stands for unknown."""
    if length is None:
        return None
    window = filter_size + (filter_size - 1) * (dilation - 1)
    reduced = length if padding in {"same", "causal"} else length - window + 1
    return (reduced + stride - 1) // stride


def deconv_output_length(length: int | None, filter_size: int, padding: str, stride: int) -> int | None:
    """The length that a transposed window makes of a dimension; None stands for unknown."""
    if length is None:
        return None
    extra = max(filter_size - stride, 0) if padding == "valid" else 0
    return length * stride + extra


# ---------------------------------------------------------------------- conditions
def constant_value(pred: TensorLike) -> bool | None:
    """Whether `pred` is true, where that is known while the graph is built, else None.

    Raises:
        TypeError: `pred` is neither a bool, nor 0 or 1, nor a tensor or variable.
    """
    if isinstance(pred, bool | np.bool_):
        return bool(pred)
    if isinstance(pred, int) and pred in (0, 1):
        return bool(pred)
    if isinstance(pred, Tensor):
        value = known_value(pred)
        return None if value is None else bool(value)
    if hasattr(pred, "value") and hasattr(pred, "dtype"):
        return None  # a variable
    raise TypeError(f"`pred` must be a Tensor, or a Python bool, or 1 or 0. Received: {pred!r}")


def smart_cond(
    pred: TensorLike,
    true_fn: Callable[[], Any] | None = None,
    false_fn: Callable[[], Any] | None = None,
    name: str | None = None,
) -> Structure:
    """`tf.cond`, or only the branch taken where `pred` is known while the graph is built."""
    known = constant_value(pred)
    if known is None:
        return cond(pred, true_fn=true_fn, false_fn=false_fn, name=name)
    taken = true_fn if known else false_fn
    if not callable(taken):
        raise TypeError(f"smart_cond(): the branch for {known} must be callable, got {taken!r}")
    return taken()
