"""Fingerprints of the rows of a tensor."""

from __future__ import annotations

from typing import Any

import numpy as np

from anabranch.core.kernel_context import OperationContext
from anabranch.core.shapes import TensorShape
from anabranch.errors import InvalidArgumentError
from anabranch.graph.building import define_op
from anabranch.graph.constants import ShapeContext
from anabranch.ops.strings.hashing import fingerprint64

Array = np.ndarray[Any, Any]

_METHOD = b"farmhash64"
_SIZE = 8

Fingerprint = define_op("Fingerprint", "data: T, method: string -> fingerprint: uint8", "T: any", ranks={"method": 0})
Fingerprint.not_differentiable()


@Fingerprint.shape
def _(data: TensorShape, method: TensorShape, *, ctx: ShapeContext) -> TensorShape:
    if data.ndims == 0:
        raise ValueError("`data` should have at least one dimension, got a scalar")
    name = ctx.constant("method")
    if name is not None and name.item() != _METHOD:
        raise ValueError(f"Unsupported method: {name.item()!r}; use {_METHOD!r}")
    return TensorShape([None if data.ndims is None else data[0], None if name is None else _SIZE])


@Fingerprint.host_kernel
def _(data: Array, method: Array, *, ctx: OperationContext) -> Array:
    """Of several strings in a row, the fingerprint is that of their fingerprints."""
    if method.item() != _METHOD:
        raise InvalidArgumentError(None, ctx.op, f"Unsupported fingerprint method: {method.item()!r}; use {_METHOD!r}")
    if np.ndim(data) < 1:
        raise InvalidArgumentError(None, ctx.op, "`data` should have at least one dimension, got a scalar")
    marks = [fingerprint64(_row_bytes(row)) for row in data]
    return np.array(marks, "<u8").view(np.uint8).reshape(len(marks), _SIZE)


def _row_bytes(row: Array | bytes) -> bytes:
    if isinstance(row, bytes):
        return row
    array = np.asarray(row)
    if array.dtype != np.object_:
        return array.tobytes()
    strings: list[bytes] = array.reshape(-1).tolist()
    return strings[0] if len(strings) == 1 else b"".join(fingerprint64(s).to_bytes(8, "little") for s in strings)
