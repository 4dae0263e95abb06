"""Patches of volumes, and fingerprints of the rows of a tensor."""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.core.values import TensorLike
from anabranch.graph.operation import Tensor
from anabranch.ops import raw


def extract_volume_patches(
    input: TensorLike, ksizes: Sequence[int], strides: Sequence[int], padding: str, name: str | None = None
) -> Tensor:
    """The patches of volumes, each flattened into the depth dimension.

    Args:
        input: [batch, planes, rows, columns, depth], of a real dtype.
        ksizes: [1, planes, rows, columns, 1]: the size of a patch.
        strides: [1, planes, rows, columns, 1]: the distance between the centres of neighbouring patches.
        padding: "VALID" or "SAME".
        name: of the result.

    Returns:
        [batch, planes, rows, columns, ksizes[1] * ksizes[2] * ksizes[3] * depth].

    Raises:
        ValueError: a size is not positive, or the input has another number of dimensions.
    """
    patches: Tensor = raw.ExtractVolumePatches(
        input, ksizes=list(ksizes), strides=list(strides), padding=padding, name=name
    )
    return patches


def fingerprint(data: TensorLike, method: str = "farmhash64", name: str | None = None) -> Tensor:
    """Fingerprints of 64 bits of the rows of a tensor: equal rows have equal ones, others most likely not.

    Args:
        data: of any dtype, at least one dimension.
        method: "farmhash64".
        name: of the result.

    Returns:
        uint8, [rows, 8]: the bytes of each fingerprint, the lowest first.

    Raises:
        ValueError: there is no such method, or `data` is a scalar.
    """
    marks: Tensor = raw.Fingerprint(data, method, name=name)
    return marks
