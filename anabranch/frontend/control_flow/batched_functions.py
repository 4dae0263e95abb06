"""Functions that are called once for several steps: `nondifferentiable_batch_function`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from anabranch.core.shapes import TensorShape
from anabranch.core.values import PassedOn, TensorLike
from anabranch.frontend.autograph.settings import ConversionOptions
from anabranch.frontend.control_flow.functions import PolymorphicFunction
from anabranch.frontend.specs import TensorSpec
from anabranch.graph.graph import get_default_graph
from anabranch.graph.operation import Tensor
from anabranch.ops import raw


def nondifferentiable_batch_function(
    num_batch_threads: int,
    max_batch_size: int,
    batch_timeout_micros: int,
    allowed_batch_sizes: Sequence[int] | None = None,
    max_enqueued_batches: int = 10,
    autograph: bool = True,
) -> Callable[[Callable[..., Any]], Callable[..., list[Tensor]]]:
    """Decorator for a function whose calls in several steps that run at once become one call.

    The arguments of these calls are joined along their first dimension, and each step gets its own rows of the results.

    Args:
        num_batch_threads: how many batches are computed at once.
        max_batch_size: the most rows of a batch.
        batch_timeout_micros: how long (µs) the first call of a batch waits for others.
        allowed_batch_sizes: the numbers of rows to which batches are filled up; ascending, the last one is
            `max_batch_size`. Default: they are not filled up.
        max_enqueued_batches: how many batches may wait; more fail with UnavailableError.
        autograph: whether statements over tensors are converted, as `tf.function` does it.

    Returns:
        A decorator; what it makes takes tensors of shape [n, ...] and returns a list of tensors of shape [n, ...].

    Raises:
        ValueError: the decorated function is called with what is no tensor.

    Example:
        >>> @tf.nondifferentiable_batch_function(1, 8, 100)
        ... def double(x):
        ...     return x + x
        >>> sess.run(double(tf.constant([1.0, 2.0])))
        [array([2., 4.], dtype=float32)]
    """

    def decorate(fn: Callable[..., Any]) -> Callable[..., list[Tensor]]:
        conversion = ConversionOptions(user_requested=True) if autograph else None
        traced = PolymorphicFunction(fn, conversion=conversion)

        @functools.wraps(fn)
        def decorated(*args: TensorLike) -> list[Tensor]:
            tensors = [_tensor(a) for a in args]
            specs = [TensorSpec(_of_any_batch(t.shape), t.dtype, f"batch_{i}") for i, t in enumerate(tensors)]
            function = traced.get_concrete_function(*specs)
            with get_default_graph().name_scope("batch"):
                results: list[Tensor] = raw.BatchFunction(
                    tensors,
                    function.captured_inputs,
                    f=function.add_to_graph(),
                    num_batch_threads=num_batch_threads,
                    max_batch_size=max_batch_size,
                    batch_timeout_micros=batch_timeout_micros,
                    allowed_batch_sizes=list(allowed_batch_sizes or ()),
                    max_enqueued_batches=max_enqueued_batches,
                    Tout=[t.dtype for t in function.outputs],
                )
            return results

        return decorated

    return decorate


def _tensor(value: PassedOn) -> Tensor:
    if not isinstance(value, Tensor):
        raise ValueError(
            f"All arguments to functions decorated with `batch_function` are supposed to be Tensors; found {value!r}"
        )
    return value


def _of_any_batch(shape: TensorShape) -> TensorShape:
    """The shape without the number of rows, of which a batch has more."""
    rows = shape.with_rank_at_least(1)
    return rows if rows.ndims is None else TensorShape([None]).concatenate(rows[1:])
