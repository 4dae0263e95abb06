"""What arguments of contributed functions may be, by a name for each kind."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, SupportsIndex, TypeAlias

import numpy as np

import anabranch as tf

#: what can be converted to a tensor: tensors, variables, arrays, numbers, strings, nested lists of them
TensorLike: TypeAlias = Any
#: what is handed on as it is: who takes it in the end knows what it may be
PassedOn: TypeAlias = Any
#: what `tf.as_dtype` takes
DTypeLike: TypeAlias = "tf.DType | str | int | type[Any] | np.dtype[Any]"
#: what `tf.TensorShape` takes
ShapeLike: TypeAlias = "tf.TensorShape | Iterable[tf.Dimension | SupportsIndex | None] | tf.Dimension | int | None"
#: where variables are made: a scope, or the name of one
ScopeLike: TypeAlias = "tf.VariableScope | str"
#: a number that an optimizer computes with, or a function that gives one when the gradients are applied
HyperParameter: TypeAlias = "TensorLike | Callable[[], TensorLike]"
#: gradients and their variables, as `tf.train.Optimizer.compute_gradients` returns them
GradientsAndVariables: TypeAlias = "Iterable[tuple[Any, Any]]"
