"""What the package is told in the place of None for an initializer, which it refuses and TensorFlow takes."""

from __future__ import annotations

from typing import Any

import anabranch as tf
from anabranch.core.dtypes import DTypeLike
from anabranch.core.values import PassedOn


class DefaultInitializer:
    """The default of a variable's dtype: Glorot's uniform numbers for floats, zeros for others."""

    #: what configurations of cells have for it, whose weights are floats
    __name__ = "glorot_uniform"

    def __call__(self, shape: PassedOn, dtype: DTypeLike | None = None) -> Any:
        kind = tf.as_dtype(dtype or tf.float32)
        make = tf.glorot_uniform_initializer() if kind.is_floating else tf.zeros_initializer()
        return make(shape, dtype=kind)


UNSAID = DefaultInitializer()
