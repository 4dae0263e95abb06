"""Products and convolutions of bytes by oneDNN, where the extra `native` is installed: sums of 32 bits.

They are offered on processors that add four products of bytes to 32 bits in one instruction (VNNI). On others the
library adds two products in 16 bits, which is not exact: the largest ones do not fit. So before any is offered, the
largest are multiplied (`is_exact`).

Bytes are multiplied as they are; the steps that stand for zero are made up for as `ops.quantized.products` does.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
from jax import lax, numpy as jnp

from anabranch.core.kernels import KernelCase, register_kernel
from anabranch.core.registry import find_op_def
from anabranch.kernels import native_calls, onednn
from anabranch.kernels.onednn import NativeError, Strided
from anabranch.kernels.onednn_stages import Computation
from anabranch.kernels.quantised_convolutions import OPERATIONS as CONVOLUTIONS, are_bytes, compiled, factors_of
from anabranch.ops.quantized import arithmetic, fused, nn
from anabranch.ops.quantized.products import Bytes, ByteWindow, from_steps, with_ones

#: what the texts of these computations begin with
_KIND: Final = "bytes"
#: what share of the time of the operation's own kernel they take (1024 cubed: 671 and 1795 GOP/s with AVX512-VNNI)
_SHARE: Final = 0.4
PRODUCTS: Final = ("QuantizedMatMul", *fused.MATRIX_PRODUCTS)


Placed = tuple[tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class ByteProduct:
    """A product of matrices, or a convolution, of uint8 with int8, as the library describes it.

    Attributes:
        first, second, result: lengths and strides (elements) of [rows, inner], [inner, columns], [rows, columns]; or of
            [batch, channels, rows, columns], [outputs, channels, *size], [batch, outputs, rows, columns].
        strides, dilations: of a convolution, which has no padding; a dilation of 0 is none. Empty: a product.
    """

    first: Placed
    second: Placed
    result: Placed
    strides: tuple[int, ...] = ()
    dilations: tuple[int, ...] = ()

    @staticmethod
    def of_matrices(rows: int, inner: int, columns: int) -> ByteProduct:
        """The product of two matrices that lie row by row."""
        return ByteProduct(_placed((rows, inner)), _placed((inner, columns)), _placed((rows, columns)))

    @staticmethod
    def of_images(images: Sequence[int], filter: Sequence[int], window: ByteWindow) -> ByteProduct:
        """The convolution of images [batch, rows, columns, channels], padded already, by [*size, channels, outputs]."""
        inner = window._replace(pads=((0, 0), (0, 0)))
        result = (images[0], *inner.places(images[1:3], filter[:2]), filter[3])
        return ByteProduct(
            _placed(images, (0, 3, 1, 2)),
            _placed(filter, (3, 2, 0, 1)),
            _placed(result, (0, 3, 1, 2)),
            tuple(map(int, window.strides)),
            tuple(int(dilation) - 1 for dilation in window.dilations),
        )

    @property
    def text(self) -> str:
        """What `native_calls.prepared` takes; the same in every process."""
        return f"{_KIND} {json.dumps(asdict(self), separators=(',', ':'))}"

    @property
    def small_enough(self) -> bool:
        return all(0 < math.prod(one[0]) <= onednn.MOST_ELEMENTS for one in (self.first, self.second, self.result))

    @property
    def products(self) -> int:
        """Multiplications and additions."""
        inner = self.second[0][1:] if self.strides else self.second[0][:1]
        return math.prod(self.result[0]) * math.prod(inner)


def _placed(shape: Sequence[int], axes: Sequence[int] | None = None) -> Placed:
    """Lengths and strides of an array that lies row by row, of these axes in this order."""
    strides, order = onednn.row_strides(shape), range(len(shape)) if axes is None else axes
    return tuple(int(shape[axis]) for axis in order), tuple(strides[axis] for axis in order)


# ---------------------------------------------------------------------- computations
def _make(text: str) -> native_calls.Prepared:
    """What `native_calls` calls."""
    library = onednn.library()
    if library is None:
        raise NativeError(f"oneDNN is not there: {onednn.library_state().missing}")
    values = json.loads(text)
    types = {"first": onednn.UINT8, "second": onednn.INT8, "result": onednn.INT32}
    one, other, result = (Strided(tuple(values[name][0]), tuple(values[name][1]), type) for name, type in types.items())
    described = library.described(one), library.described(other, free=True), library.described(result)
    if values["strides"]:
        first, second, third = (each.value for each in described)
        none = onednn.dimensions((0,) * len(values["strides"]))
        window = *(onednn.dimensions(values[name]) for name in ("strides", "dilations")), none, none
        inputs = (onednn.FORWARD_TRAINING, onednn.CONVOLUTION_DIRECT, first, second, None, third, *window)
        primitive = library.convolution("convolution_forward", *inputs)
    else:
        primitive = library.product(*described)
    given = {onednn.SOURCE: one, onednn.WEIGHTS: other}
    computation = Computation(library, primitive, given, {onednn.DESTINATION: result})
    return native_calls.Prepared(computation, tuple(math.prod(array.lengths) for array in (one, other, result)))


native_calls.register_maker(_KIND, _make)


@functools.lru_cache(1024)
def _usable(product: ByteProduct) -> bool:
    """Whether the library has an implementation that is worth while."""
    return product.small_enough and native_calls.can_prepare(product.text)


def is_exact(library: onednn.Library) -> bool:
    """Whether the library multiplies bytes, and the largest ones rightly."""
    return library.adds_bytes and _multiplies_largest(library)


@functools.cache
def _multiplies_largest(library: onednn.Library) -> bool:
    """Whether sums of the largest products of bytes are right, in a product and in a convolution."""
    images, filter = np.full((2, 8, 8, 32), 255, np.uint8), np.full((3, 3, 32, 32), 127, np.int8)
    filter[..., 1::2] = -128
    matrix, columns = images.reshape(-1, 32), filter[0, 0]
    window = ByteWindow((1, 1), ((0, 0), (0, 0)))
    for one, other, product in (
        (matrix, columns, ByteProduct.of_matrices(128, 32, 32)),
        (images, filter, ByteProduct.of_images(images.shape, filter.shape, window)),
    ):
        wanted = other.reshape(-1, 32).sum(axis=0, dtype=np.int32) * np.int32(255)
        found = np.zeros((math.prod(product.result[0]) // 32, 32), np.int32)
        try:
            computation = native_calls.prepared(product.text)
        except NativeError:
            return False
        scratch = np.zeros(computation.scratch_bytes, np.uint8)
        computation.run([array.ctypes.data for array in (one, other, found)], scratch.ctypes.data, scratch.size)
        if not (found == wanted).all():
            return False
    return True


# ---------------------------------------------------------------------- the kernels
def multiply(a: Bytes, b: Bytes, name: str) -> Any:
    """The product of two matrices of bytes: int32."""
    a, b = a.unsigned, b.signed
    second = with_ones(b)
    (rows, inner), columns = a.array.shape, second.shape[1]
    product, shape = ByteProduct.of_matrices(rows, inner, columns), (rows, columns)
    return from_steps(native_calls.call(name, product.text, [a.array, second], shape, np.int32), a, b)


def convolve(x: Bytes, w: Bytes, window: ByteWindow, name: str) -> Any:
    """The convolution of images with a filter, of bytes: int32."""
    x, w = x.unsigned, w.signed
    images, filter = _padded(x, window), with_ones(w)
    product = ByteProduct.of_images(images.shape, filter.shape, window)
    places = window.places(x.array.shape[1:3], filter.shape[:2])
    shape = (images.shape[0], *places, filter.shape[3])
    return from_steps(native_calls.call(name, product.text, [images, filter], shape, np.int32), x, w)


def _padded(x: Bytes, window: ByteWindow) -> Any:
    pads = [(0, 0, 0), *((low, high, 0) for low, high in window.pads), (0, 0, 0)]
    return lax.pad(jnp.asarray(x.array), np.uint8(x.zero), pads) if any(map(any, window.pads)) else x.array


def _product_of(case: KernelCase) -> ByteProduct | None:
    """What the library is to compute; None where it cannot."""
    library = onednn.library()
    if library is None or not are_bytes(case) or not is_exact(library):
        return None
    one, other = (given.shape for given in case.inputs[:2])
    x, w = factors_of(case)
    more = int(w.signed_zero != 0)
    if case.op_type in PRODUCTS:
        rows, inner = one[::-1] if case.attrs["transpose_a"] else one
        return ByteProduct.of_matrices(rows, inner, other[0 if case.attrs["transpose_b"] else 1] + more)
    window = nn.window_of(one, other, case.attrs)
    if case.op_type != "QuantizedConv2D":
        window = fused.window_of(one, other, case.attrs)
    elif any(map(any, window.pads)) and not 0 <= x.unsigned_zero <= 255:
        return None  # no byte is zero, which stands outside the images
    padded = (one[0], *(n + low + high for n, (low, high) in zip(one[1:3], window.pads, strict=True)), one[3])
    return ByteProduct.of_images(padded, (*other[:3], other[3] + more), window)


def _takes(case: KernelCase) -> bool:
    product = _product_of(case)
    return product is not None and _usable(product)


def _estimate(case: KernelCase) -> float:
    product = _product_of(case)
    assert product is not None  # `_takes` has said so
    return _SHARE + native_calls.call_cost(product.products)


def _multiplying(op_type: str) -> Callable[..., Any]:
    if op_type == "QuantizedMatMul":
        return arithmetic.compiled_matrix_product(multiply)
    op_def = find_op_def(op_type)
    assert op_def is not None  # it is one of `PRODUCTS`
    return fused.compiled_product(op_def, fused.MATRIX_PRODUCTS[op_type], multiply)


for _op_type in (*PRODUCTS, *CONVOLUTIONS):
    _kernel = _multiplying(_op_type) if _op_type in PRODUCTS else compiled(_op_type, convolve)
    register_kernel(_op_type, "onednn", device_type="CPU", applies=_takes, cost=_estimate, rough=True, calls_back=True)(
        _kernel
    )
