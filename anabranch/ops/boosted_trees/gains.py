"""The best weight of a leaf, and what it gains.

A leaf of weight w changes the loss by g'w + w'(H + l2)w / 2 + l1 |w|, where g is the sum of the gradients of its
examples and H the sum of their hessians. The best weight is what minimises that; the gain is twice the decrease.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from anabranch.core.arrays import HostArray
from anabranch.errors import InvalidArgumentError

#: what a hessian must exceed to be divided by
_LEAST_HESSIAN: Final = 1e-15
_FLOAT = np.float32


def weight_and_gain(
    gradients: HostArray, hessians: HostArray, l1: HostArray, l2: HostArray
) -> tuple[HostArray, HostArray]:
    """The weights of many leaves and their gains.

    Args:
        gradients: float32 [..., logits].
        hessians: float32 [..., logits] (only the diagonal) or [..., logits * logits] (column by column).
        l1, l2: scalars; `l1` counts where there is one logit.

    Returns:
        float32 [..., logits] and [...].

    Raises:
        InvalidArgumentError: the hessians have another size.
    """
    logits = gradients.shape[-1]
    if logits == 1:
        return _of_one_logit(gradients, hessians[..., :1], _FLOAT(l1), _FLOAT(l2))
    if hessians.shape[-1] == logits:
        regular = hessians + _FLOAT(l2)
        invertible = (regular != 0).all(axis=-1, keepdims=True)
        weights = -(_FLOAT(1) / np.where(invertible, regular, _FLOAT(1))) * gradients
        for at in np.argwhere(~invertible[..., 0]):
            weights[tuple(at)] = -_solution(np.diag(regular[tuple(at)]), gradients[tuple(at)])
    elif hessians.shape[-1] == logits * logits:
        matrices = hessians.reshape(*hessians.shape[:-1], logits, logits).swapaxes(-1, -2)
        matrices = matrices + _FLOAT(l2) * np.eye(logits, dtype=_FLOAT)
        weights = np.empty_like(gradients)
        for at in np.ndindex(gradients.shape[:-1]):
            weights[at] = -_solution(matrices[at], gradients[at])
    else:
        raise InvalidArgumentError(
            None,
            None,
            f"hessians of {logits} logits are {logits} (diagonal) or {logits * logits} (whole) numbers, got "
            f"{hessians.shape[-1]}",
        )
    return weights, -(gradients * weights).sum(axis=-1, dtype=_FLOAT)


def _of_one_logit(
    gradients: HostArray, hessians: HostArray, l1: np.float32, l2: np.float32
) -> tuple[HostArray, HostArray]:
    shrunk = gradients
    if l1 > 0:
        shrunk = np.where(gradients > l1, gradients - l1, np.where(gradients < -l1, gradients + l1, _FLOAT(0)))
    regular = hessians + l2
    divisible = ~(regular <= _LEAST_HESSIAN) & (shrunk != 0)
    weights = np.where(divisible, -shrunk / np.where(divisible, regular, _FLOAT(1)), _FLOAT(0))
    return weights.astype(_FLOAT), (-shrunk * weights)[..., 0].astype(_FLOAT)


def _solution(matrix: HostArray, vector: HostArray) -> HostArray:
    """A solution of a linear system; of a singular one, that which uses the fewest unknowns.

    Elimination by Householder reflections, with the column of the greatest remaining norm first.
    """
    a, b = matrix.astype(np.float64), vector.astype(np.float64)
    size = len(b)
    order = np.arange(size)
    for k in range(size):
        pick = k + int(np.argmax(np.linalg.norm(a[k:, k:], axis=0)))
        a[:, [k, pick]], order[[k, pick]] = a[:, [pick, k]], order[[pick, k]]
        normal = a[k:, k].copy()
        normal[0] += np.copysign(np.linalg.norm(normal), normal[0])
        square = normal @ normal
        if square > 0:
            a[k:, k:] -= np.outer(normal, 2 / square * (normal @ a[k:, k:]))
            b[k:] -= normal * (2 / square * (normal @ b[k:]))
    pivots = np.abs(np.diag(a))
    rank = int(np.count_nonzero(pivots > np.finfo(_FLOAT).eps * size * pivots.max(initial=0.0)))
    found = np.zeros(size)
    found[order[:rank]] = np.linalg.solve(np.triu(a[:rank, :rank]), b[:rank])
    return found.astype(_FLOAT)
