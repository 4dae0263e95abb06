"""Jacobians by the graph's gradients and by central differences (`tf.test.compute_gradient`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from anabranch.autodiff.gradients import gradients
from anabranch.core import nest
from anabranch.core.nest import Structure
from anabranch.core.shapes import ShapeLike, TensorShape
from anabranch.core.values import TensorValue
from anabranch.graph.composite import IndexedSlicesValue
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw

Array = np.ndarray[Any, Any]


def compute_gradient(
    x: Tensor | Sequence[Tensor],
    x_shape: ShapeLike | Sequence[ShapeLike],
    y: Tensor,
    y_shape: Sequence[int],
    x_init_value: TensorValue | None = None,
    delta: float = 1e-3,
    init_targets: Structure | None = None,
    extra_feed_dict: dict[Any, Any] | None = None,
) -> nest.Structure:
    """The theoretical and the numeric Jacobian dy/dx, in the default session.

    Args:
        x: a floating or complex tensor, or a list of them.
        x_shape: the shape of `x`, or a list of shapes.
        y: the result, a tensor.
        y_shape: its shape.
        x_init_value: where to differentiate, an array of shape `x_shape` (a list for a list); default: in [0, 1).
        delta: half the width of the central differences.
        init_targets: operations to run first, one or a list.
        extra_feed_dict: feeds for placeholders other than `x`.

    Returns:
        A pair of arrays of shape [elements of x, elements of y]; for a list of `x` a list of pairs. A complex tensor
        has two elements per number, the real and the imaginary part.

    Raises:
        ValueError: `x` is neither floating nor complex, or `x_init_value` has another shape than `x_shape`.
    """
    _run_targets(y, init_targets)
    xs: list[Any] = list(x) if isinstance(x, list | tuple) else [x]
    shapes: Any = x_shape if isinstance(x, list | tuple) else [x_shape]
    given = x_init_value if isinstance(x, list | tuple) and x_init_value is not None else [x_init_value] * len(xs)
    starts = [_start(t, shape, value) for t, shape, value in zip(xs, shapes, given, strict=True)]
    feeds = {**dict(zip(xs, starts, strict=True)), **(extra_feed_dict or {})}
    results = []
    for tensor in xs:
        theoretical = _theoretical(tensor, y, tuple(y_shape), feeds)
        results.append((theoretical, _numeric(tensor, y, feeds, delta)))
    return results if isinstance(x, list | tuple) else results[0]


def compute_gradient_error(
    x: Tensor | Sequence[Tensor],
    x_shape: ShapeLike | Sequence[ShapeLike],
    y: Tensor,
    y_shape: Sequence[int],
    x_init_value: TensorValue | None = None,
    delta: float = 1e-3,
    init_targets: Structure | None = None,
    extra_feed_dict: dict[Any, Any] | None = None,
) -> np.float64:
    """The greatest absolute difference between the two Jacobians of `compute_gradient`; the same arguments."""
    jacobians = compute_gradient(x, x_shape, y, y_shape, x_init_value, delta, init_targets, extra_feed_dict)
    pairs = jacobians if isinstance(jacobians, list) else [jacobians]
    return max((np.float64(np.max(np.abs(a - b))) for a, b in pairs if a.size), default=np.float64(0))


def _run_targets(y: Tensor, targets: Structure) -> None:
    for target in targets if isinstance(targets, list | tuple) else [targets]:
        if isinstance(target, Operation):
            target.run()
        elif target is not None:
            Tensor.EVALUATE["eval"](target, None, None)


def _start(x: Tensor, shape: ShapeLike, value: TensorValue) -> Array:
    dtype = x.dtype
    if not (dtype.is_floating or dtype.is_complex):
        raise ValueError(
            f"the gradient for {x.name} cannot be checked: its dtype {dtype.name} is not floating or complex"
        )
    dims = tuple(int(d) for d in TensorShape(shape))
    if value is None:
        random = np.random  # NumPy's own generator, which tests of TensorFlow's time seed
        value = random.random_sample(dims) + (1j * random.random_sample(dims) if dtype.is_complex else 0)
    array = np.array(value, dtype=dtype.as_numpy_dtype)
    if array.shape != dims:
        raise ValueError(f"x_init_value for {x.name} has shape {array.shape}, x_shape is {dims}")
    return array


def _parts(array: Array) -> Array:
    """A flat, writable view of an array's real numbers: two per complex number."""
    flat = array.reshape(-1)
    return flat.view(flat.real.dtype) if array.dtype.kind == "c" else flat


def _theoretical(x: Tensor, y: Tensor, y_shape: tuple[int, ...], feeds: dict[Any, Any]) -> Array:
    """One row per element of y, by the gradient of that element; transposed at the end.

    The gradient for a complex `x` holds the derivatives for the real and the imaginary part in its two parts.
    """
    with x.graph.as_default():
        dims = y.shape.sizes() if y.shape.is_fully_defined() else y_shape
        weight = raw.Placeholder(dtype=y.dtype, shape=TensorShape(dims))
        (grad,) = gradients([y], [x], grad_ys=[weight])
    selector = np.zeros(dims, y.dtype.as_numpy_dtype)
    rows = _parts(selector)
    if rows.size == 0 and grad is not None:
        _check_empty(Tensor.EVALUATE["eval"](grad, {**feeds, weight: selector}, None), feeds[x])
    jacobian = np.zeros((rows.size, _parts(feeds[x]).size), rows.dtype)
    for i in range(rows.size):
        if grad is None:
            break
        rows[:] = 0
        rows[i] = 1
        value = Tensor.EVALUATE["eval"](grad, {**feeds, weight: selector}, None)
        jacobian[i] = _parts(np.ascontiguousarray(_dense(value, feeds[x])))
    return jacobian.T


def _check_empty(value: TensorValue, like: Array) -> None:
    """Without elements of y the gradient is zero, but must still have the shape of x."""
    grad = _dense(value, like)
    if grad.shape != like.shape:
        raise ValueError(f"Empty gradient has wrong shape: expected {like.shape}, got {grad.shape}")
    if np.any(grad):
        raise ValueError("Empty tensors with nonzero gradients")


def _dense(value: TensorValue, like: Array) -> Array:
    if not isinstance(value, IndexedSlicesValue):
        return np.asarray(value)
    dense = np.zeros_like(like)
    np.add.at(dense, value.indices, value.values)
    return dense


def _numeric(x: Tensor, y: Tensor, feeds: dict[Any, Any], delta: float) -> Array:
    start = feeds[x]
    rows = []
    for i in range(_parts(start).size):
        sides = []
        for sign in (1, -1):
            moved = start.copy()
            _parts(moved)[i] += sign * delta
            sides.append(_parts(np.array(y.eval({**feeds, x: moved}))).copy())
        rows.append((sides[0] - sides[1]) / (2 * delta))
    return np.stack(rows) if rows else np.zeros((0, y.shape.num_elements() or 0))
