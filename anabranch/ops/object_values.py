"""Values that are no arrays, handles and lists of tensors, where an operation takes tensors of any type.

Kernels that know them get them as they are (`OpDef.knows_objects`). All others get each as an array of rank 0 that
holds it: so they can be pushed to a stack, staged, queued, be elements of a dataset, reshaped or stacked like strings.
What comes out of such an operation as an array of rank 0 is taken out of it again.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from anabranch.core import arrays
from anabranch.core.resources import ResourceHandle
from anabranch.core.values import TensorValue
from anabranch.ops.lists.values import TensorList

_OBJECTS = (ResourceHandle, TensorList)


def boxed(value: TensorValue) -> Any:
    """A handle or a list of tensors in an array of rank 0; any other value as it is."""
    return arrays.boxed(value) if isinstance(value, _OBJECTS) else value


def unboxed(value: TensorValue) -> Any:
    """The way back from `boxed`."""
    if isinstance(value, np.ndarray) and value.dtype == np.object_ and value.ndim == 0:
        element = value.item()
        if isinstance(element, _OBJECTS):
            return element
    return value
