"""Discrete Fourier transforms over the innermost dimensions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anabranch.core import dtypes
from anabranch.core.values import TensorLike
from anabranch.frontend.framework import name_scope
from anabranch.graph.building import OpFunction
from anabranch.graph.constants import constant_value
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.operation import Tensor
from anabranch.ops import raw
from anabranch.ops.arithmetic import fft as ops


def _complex_transform(name: str, op: OpFunction, what: str) -> Callable[..., Tensor]:
    def function(input: TensorLike, name: str | None = None) -> Tensor:
        result: Tensor = op(input, name=name)
        return result

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{what} of a complex64 or complex128 tensor, of its shape."
    return function


fft = _complex_transform("fft", ops.FFT, "The Fourier transform of the last dimension")
fft2d = _complex_transform("fft2d", ops.FFT2D, "The Fourier transform of the last 2 dimensions")
fft3d = _complex_transform("fft3d", ops.FFT3D, "The Fourier transform of the last 3 dimensions")
ifft = _complex_transform("ifft", ops.IFFT, "The inverse Fourier transform of the last dimension")
ifft2d = _complex_transform("ifft2d", ops.IFFT2D, "The inverse Fourier transform of the last 2 dimensions")
ifft3d = _complex_transform("ifft3d", ops.IFFT3D, "The inverse Fourier transform of the last 3 dimensions")


def _real_transform(name: str, op: OpFunction, rank: int, inverse: bool) -> Callable[..., Tensor]:
    def function(input_tensor: TensorLike, fft_length: TensorLike | None = None, name: str | None = None) -> Tensor:
        with name_scope(name, op.name.lower(), [input_tensor, fft_length]) as scope:
            x = convert_to_tensor(input_tensor, name="input")
            x.shape.with_rank_at_least(rank)
            length = _default_length(x, rank, inverse) if fft_length is None else fft_length
            length = convert_to_tensor(length, dtypes.int32, name="fft_length")
            wide = x.dtype in (dtypes.float64, dtypes.complex128)
            kinds = (
                {"Treal": "float64", "Tcomplex": "complex128"}
                if wide
                else {"Treal": "float32", "Tcomplex": "complex64"}
            )
            result: Tensor = op(_padded(x, length, rank, inverse), length, name=scope, **kinds)
            return result

    function.__name__ = function.__qualname__ = name
    kind = "complex" if inverse else "real"
    function.__doc__ = f"""The {"inverse " * inverse}Fourier transform of a real signal's last {rank} dimensions.

    Args:
        input_tensor: {kind}; of the last of its transformed dimensions the spectrum holds n // 2 + 1 elements only.
        fft_length: int32, shape [{rank}]: the lengths of the signal, which is cut or padded with zeros;
            default: as given.
    """
    return function


def _padded(x: Tensor, length: Tensor, rank: int, inverse: bool) -> Tensor:
    """`x` with zeros after the end of the dimensions that are too short for a signal of that length."""
    if x.shape.ndims is not None and 0 in x.shape.as_list():
        return x
    shape = raw.Shape(x)
    outer = raw.StridedSlice(shape, [0], [-rank], [1], begin_mask=1)
    inner = raw.StridedSlice(shape, [-rank], [0], [1], end_mask=1)
    if inverse:
        length = raw.Select([i == rank - 1 for i in range(rank)], raw.AddV2(raw.FloorDiv(length, 2), 1), length)
    missing = raw.Maximum(raw.Sub(length, inner), 0)
    known = constant_value(missing)
    if known is not None and not known.any():
        return x
    after = raw.ConcatV2([raw.ZerosLike(outer), missing], 0)
    return raw.Pad(x, raw.Pack([raw.ZerosLike(after), after], axis=1))  # type: ignore[no-any-return]


def _default_length(x: Tensor, rank: int, inverse: bool) -> Any:
    dims = [] if x.shape.ndims is None else [d for d in x.shape.as_list()[-rank:] if d is not None]
    if len(dims) == rank:
        return [*dims[:-1], max(0, 2 * (dims[-1] - 1))] if inverse else dims
    sizes = raw.StridedSlice(raw.Shape(x), [-rank], [0], [1], end_mask=1)
    if not inverse:
        return sizes
    signal = raw.Maximum(raw.Mul(raw.Sub(sizes, 1), 2), 0)
    last = [i == rank - 1 for i in range(rank)]
    return raw.Select(last, signal, sizes)


rfft = _real_transform("rfft", ops.RFFT, 1, False)
rfft2d = _real_transform("rfft2d", ops.RFFT2D, 2, False)
rfft3d = _real_transform("rfft3d", ops.RFFT3D, 3, False)
irfft = _real_transform("irfft", ops.IRFFT, 1, True)
irfft2d = _real_transform("irfft2d", ops.IRFFT2D, 2, True)
irfft3d = _real_transform("irfft3d", ops.IRFFT3D, 3, True)


def fftshift(x: TensorLike, axes: TensorLike | None = None, name: str | None = None) -> Tensor:
    """Moves the frequency zero to the middle of a spectrum: the halves of dimensions trade places.

    Args:
        x: of any type.
        axes: the dimensions, an integer or several; default: all.

    Returns:
        A tensor of the shape and type of `x`.

    Example:
        >>> sess.run(tf.signal.fftshift([0, 1, 2, -2, -1]))
        array([-2, -1,  0,  1,  2], dtype=int32)
    """
    return _shifted(x, axes, 1, name or "fftshift")


def ifftshift(x: TensorLike, axes: TensorLike | None = None, name: str | None = None) -> Tensor:
    """The inverse of `fftshift`; arguments and result as there.

    Example:
        >>> sess.run(tf.signal.ifftshift([-2, -1, 0, 1, 2]))
        array([ 0,  1,  2, -2, -1], dtype=int32)
    """
    return _shifted(x, axes, -1, name or "ifftshift")


def _shifted(x: TensorLike, axes: TensorLike | None, sign: int, name: str) -> Tensor:
    with name_scope(name, name, [x]) as scope:
        value = convert_to_tensor(x, name="x")
        sizes = raw.Shape(value)
        if axes is None:
            along = raw.Range(0, raw.Size(sizes), 1)
        else:
            along = raw.Reshape(convert_to_tensor(axes, dtypes.int32, name="axes"), [-1])
        sizes = raw.GatherV2(sizes, raw.FloorMod(along, raw.Size(sizes)), 0)
        # odd sizes: one element more comes before the middle than after it, which the inverse undoes
        result: Tensor = raw.Roll(value, sign * raw.FloorDiv(sizes, 2), along, name=scope)
        return result
