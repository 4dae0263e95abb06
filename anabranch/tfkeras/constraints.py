"""A constraint that the package has not."""

from __future__ import annotations

from typing import Any

import numpy as np

import anabranch as tf
from anabranch.core.values import PassedOn
from anabranch.tfkeras import package

_Constraint: Any = package.module("constraints").Constraint


class RadialConstraint(_Constraint):
    """Kernels of convolutions that are the same in all directions.

    Each square ring of a kernel has one value, of those that stand on the diagonal.
    """

    def __call__(self, w: PassedOn) -> Any:
        """A kernel (rows, columns, inputs, outputs) with one value in each ring.

        Raises:
            ValueError: its rank is not 4, or it is not square.
        """
        shape = w.shape.as_list() if w.shape.ndims is not None else []
        if len(shape) != 4:
            raise ValueError(f"The weight tensor must be of rank 4, but is of shape: {w.shape}")
        size = shape[0]
        if size is None or size != shape[1]:
            raise ValueError(
                f"The weight tensor must be square in its first two dimensions, but is of shape: {w.shape}"
            )
        ring = np.abs(2 * np.arange(size) - (size - 1)) // 2
        ring = np.maximum(ring[:, None], ring[None, :])
        # in an even kernel TensorFlow passes over one place of the diagonal between the innermost ring and the others
        source = size // 2 - 1 + ring + (ring > 0) * (1 - size % 2)
        return tf.gather_nd(w, np.stack([source, source], -1).astype(np.int32))


RadialConstraint.__module__ = "tensorflow.keras.constraints"
#: what `tf.keras.constraints` has of this
NAMES: dict[str, Any] = {"RadialConstraint": RadialConstraint, "radial_constraint": RadialConstraint}
