"""Discrete cosine transforms of types I to IV, by Fourier transforms."""

from __future__ import annotations

import math

from anabranch.core.values import TensorLike
from anabranch.frontend.arithmetic.elementwise import exp, rsqrt
from anabranch.frontend.arithmetic.math import complex as complex_, real
from anabranch.frontend.arithmetic.reduction import range as range_
from anabranch.frontend.arithmetic.spectral import irfft, rfft
from anabranch.frontend.arrays.casting import cast
from anabranch.frontend.arrays.joining import concat
from anabranch.frontend.arrays.layout import pad
from anabranch.frontend.arrays.rearranging import reverse
from anabranch.frontend.arrays.shapes import shape
from anabranch.frontend.framework import name_scope
from anabranch.graph.constants import constant_value
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.operation import Tensor
from anabranch.ops import raw

_INVERSE = {1: 1, 2: 3, 3: 2, 4: 4}
_OTHERS = math.sqrt(0.5)


def dct(
    input: TensorLike,
    type: int = 2,
    n: int | None = None,
    axis: int = -1,
    norm: str | None = None,
    name: str | None = None,
) -> Tensor:
    """The discrete cosine transform of the last dimension, as SciPy defines its types.

    Args:
        input: shape [..., samples], float32 or float64.
        type: 1, 2, 3 or 4.
        n: how many samples are transformed, the input being cut or padded with zeros; default: all.
        axis: -1, no other is possible.
        norm: None, or "ortho", which makes it orthogonal; type 1 has no such form.

    Returns:
        A tensor of the input's type, of shape [..., n].

    Raises:
        ValueError: there is no such type or norm, `n` is not positive, or type 1 has fewer than two samples.
        NotImplementedError: another axis is named.

    Example:
        >>> sess.run(tf.signal.dct([1.0, 2.0, 3.0]))
        array([12.       , -3.4641016,  0.       ], dtype=float32)
    """
    _check(type, n, axis, norm)
    with name_scope(name, "dct", [input]):
        x = convert_to_tensor(input, name="input")
        if not x.dtype.is_floating:
            raise ValueError(f"a cosine transform takes floating-point numbers, not {x.dtype.name}")
        x.shape.with_rank_at_least(1)
        x = x if n is None else _fitted(x, n)
        if type == 1:
            return _first(x)
        if type == 2:
            return _second(x, norm)
        return _third(x, norm) if type == 3 else _fourth(x, norm)


def idct(
    input: TensorLike,
    type: int = 2,
    n: int | None = None,
    axis: int = -1,
    norm: str | None = None,
    name: str | None = None,
) -> Tensor:
    """The inverse of `dct` of that type: exactly with norm "ortho", without it times 2 n, or 2 (n - 1) for type 1.

    Arguments, result and errors as of `dct`; `n` is None.

    Example:
        >>> sess.run(tf.signal.idct(tf.signal.dct([1.0, 2.0, 3.0], norm="ortho"), norm="ortho"))
        array([1., 2., 3.], dtype=float32)
    """
    if n is not None:
        raise ValueError("idct takes all samples: n is None")
    _check(type, n, axis, norm)
    return dct(input, _INVERSE[type], n, axis, norm, name or "idct")


def _check(type: int, n: int | None, axis: int, norm: str | None) -> None:
    if axis != -1:
        raise NotImplementedError(f"axis must be -1, not {axis}; transpose the input before")
    if n is not None and n < 1:
        raise ValueError(f"n must be positive, not {n}")
    if type not in _INVERSE:
        raise ValueError(f"there are cosine transforms of types 1 to 4, not {type}")
    if norm not in (None, "ortho"):
        raise ValueError(f"norm is None or 'ortho', not {norm!r}")
    if type == 1 and norm == "ortho":
        raise ValueError("the cosine transform of type 1 has no orthogonal form here")


def _fitted(x: Tensor, n: int) -> Tensor:
    """The first `n` samples, with zeros after them where there are fewer."""
    dims = x.shape.ndims
    if dims is None:
        raise ValueError(f"how many dimensions {x.name!r} has must be known; give its placeholder a shape")
    cut = x[..., :n]
    return pad(cut, [*([[0, 0]] * (dims - 1)), [0, n - shape(cut)[-1]]])


def _size(x: Tensor) -> Tensor:
    return shape(x)[-1]


def _turned(x: Tensor, angle: float) -> Tensor:
    """[samples], complex: ``exp(i * angle * k / samples)``."""
    size = _size(x)
    phase = cast(range_(size), x.dtype) * convert_to_tensor(angle, x.dtype) / cast(size, x.dtype)
    return exp(complex_(phase * 0, phase))


def _first(x: Tensor) -> Tensor:
    known = constant_value(_size(x))
    if known is not None and known < 2:
        raise ValueError(f"the cosine transform of type 1 takes two samples or more, not {int(known)}")
    mirrored = concat([x, reverse(x[..., 1:-1], [-1])], -1)
    return real(rfft(mirrored))


def _second(x: Tensor, norm: str | None) -> Tensor:
    size = _size(x)
    result = real(rfft(x, [2 * size])[..., :size] * (2 * _turned(x, -math.pi / 2)))
    return result if norm is None else result * _weights(x, 0.5)


def _third(x: Tensor, norm: str | None) -> Tensor:
    size = _size(x)
    if norm is not None:
        # the transpose of the orthogonal type 2, whose first term counts once here and the others twice
        x = x * _weights(x, 1.0)
    spectrum = complex_(x, x * 0) * _turned(x, math.pi / 2)
    return irfft(spectrum, [2 * size])[..., :size] * cast(2 * size, x.dtype)


def _fourth(x: Tensor, norm: str | None) -> Tensor:
    size = _size(x)
    dims = x.shape.ndims
    if dims is None:
        raise ValueError(f"how many dimensions {x.name!r} has must be known; give its placeholder a shape")
    longer = pad(x, [*([[0, 0]] * (dims - 1)), [0, size]])
    result = _second(longer, None)[..., 1::2]
    return result if norm is None else result * rsqrt(cast(2 * size, x.dtype))


def _weights(x: Tensor, first: float) -> Tensor:
    """[samples]: ``first / sqrt(samples)``, then ``sqrt(0.5 / samples)``: what makes types 2 and 3 orthogonal."""
    size = _size(x)
    factors = raw.Select(range_(size) < 1, *(raw.Fill([size], convert_to_tensor(f, x.dtype)) for f in (first, _OTHERS)))
    result: Tensor = factors * rsqrt(cast(size, x.dtype))
    return result
