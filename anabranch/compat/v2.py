"""`tf.compat.v2`: names of TensorFlow 2 that have a meaning in graphs, for libraries written for both versions.

Where TensorFlow 2 gave a name another signature or behaviour, it has that here (`where` broadcasts, `while_loop`
returns the structure that it is given); what is the same is the same object. Names that only version 1 has are not
there, and neither is what needs eager execution. `tf.compat.v2.keras` is what serves `tf.keras`.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any, Final

import anabranch as tf
from anabranch.compat import v2_modules, v2_summary
from anabranch.core import absent_names
from anabranch.core.dtypes import DTypeLike
from anabranch.core.nest import Structure
from anabranch.core.stand_ins import stands_in
from anabranch.core.values import TensorLike

__version__ = tf.__version__

_MISSING: Final = object()

#: names of version 1 alone
_OLD: Final = frozenset(
    [
        "Session",
        "InteractiveSession",
        "placeholder",
        "placeholder_with_default",
        "sparse_placeholder",
        "get_variable",
        "get_local_variable",
        "variable_scope",
        "get_variable_scope",
        "global_variables",
        "local_variables",
        "trainable_variables",
        "global_variables_initializer",
        "local_variables_initializer",
        "variables_initializer",
        "tables_initializer",
        "get_default_graph",
        "get_default_session",
        "reset_default_graph",
        "get_collection",
        "add_to_collection",
        "set_random_seed",
        "app",
        "flags",
        "logging",
        "gfile",
        "layers",
        "python_io",
        "resource_loader",
        "contrib",
        "distributions",
        "manip",
        "spectral",
        "log",
        "log1p",
        "lgamma",
        "digamma",
        "div",
        "to_float",
        "to_double",
        "to_int32",
        "to_int64",
        "to_bfloat16",
        "random_normal",
        "random_uniform",
        "random_shuffle",
        "random_gamma",
        "multinomial",
        "truncated_normal",
        "sparse_tensor_dense_matmul",
        "diag",
        "diag_part",
        "matrix_diag",
        "matrix_diag_part",
        "matrix_set_diag",
        "cholesky",
        "matrix_inverse",
        "Print",
        "py_func",
    ]
)


def where(
    condition: TensorLike, x: TensorLike | None = None, y: TensorLike | None = None, name: str | None = None
) -> tf.Tensor:
    """Elements of `x` where `condition` is true and of `y` elsewhere, after all three are broadcast; or positions.

    Without `x` and `y` as `tf.where`: int64 [number of true elements, rank of `condition`].

    Raises:
        ValueError: only one of `x` and `y` is given.
    """
    if x is None and y is None:
        return tf.where(condition, name=name)
    if x is None or y is None:
        raise ValueError("x and y must both be non-None or both be None.")
    if isinstance(x, tf.Tensor | tf.Variable):
        y = tf.convert_to_tensor(y, dtype=x.dtype.base_dtype)
    else:
        y = tf.convert_to_tensor(y)
        x = tf.convert_to_tensor(x, dtype=y.dtype)
    chosen: tf.Tensor = tf.raw_ops.SelectV2(condition=condition, t=x, e=y, name=name)
    return chosen


def cond(
    pred: TensorLike,
    true_fn: Callable[[], Structure] | None = None,
    false_fn: Callable[[], Structure] | None = None,
    name: str | None = None,
) -> Structure:
    """`tf.cond` that returns lists of one tensor as they are."""
    return tf.cond(pred, true_fn, false_fn, strict=True, name=name)


def while_loop(
    cond: Callable[..., Any],
    body: Callable[..., Any],
    loop_vars: Structure,
    shape_invariants: Structure | None = None,
    parallel_iterations: int = 10,
    back_prop: bool = True,
    swap_memory: bool = False,
    maximum_iterations: TensorLike | None = None,
    name: str | None = None,
) -> Structure:
    """`tf.while_loop` that returns the structure of its loop variables, also of one alone."""
    return tf.while_loop(
        cond,
        body,
        loop_vars,
        shape_invariants,
        parallel_iterations,
        back_prop,
        swap_memory,
        name,
        maximum_iterations,
        return_same_structure=True,
    )


def ones_like(input: TensorLike, dtype: DTypeLike | None = None, name: str | None = None) -> tf.Tensor:
    """Ones in the shape of `input`."""
    return tf.ones_like(input, dtype=dtype, name=name)


def zeros_like(input: TensorLike, dtype: DTypeLike | None = None, name: str | None = None) -> tf.Tensor:
    """Zeros in the shape of `input`."""
    return tf.zeros_like(input, dtype=dtype, name=name)


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name in _OLD:
        raise AttributeError(f"tf.compat.v2 has no {name}, which is of version 1; tf.compat.v1.{name} is there")
    if name == "summary":  # nothing in it is as in version 1
        return v2_summary
    value = getattr(tf, name, _MISSING)
    if value is _MISSING:
        raise AttributeError(absent_names.absence("", name, dir(tf)))
    if stands_in(value):
        return value
    return v2_modules.changed(name, value) if isinstance(value, ModuleType) else v2_modules.of_version_2(name, value)


def __dir__() -> list[str]:
    return sorted({*globals(), *dir(tf)} - _OLD)
