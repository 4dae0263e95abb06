"""What graphs that were written for TPUs use, where one replica computes: sums over replicas are what there is."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ParamSpec, TypeVar

from anabranch.core import dtypes
from anabranch.core.values import PassedOn, TensorLike
from anabranch.frontend.measures.losses import Reduction
from anabranch.frontend.variables.scope import VariableScope, variable_scope
from anabranch.frontend.variables.variables import Variable
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw
from anabranch.train.delegating_optimizer import DelegatingOptimizer
from anabranch.train.optimizer import Optimizer

_P = ParamSpec("_P")
_R = TypeVar("_R")


class CrossShardOptimizer(DelegatingOptimizer):
    """An optimizer that sums gradients over the replicas of a TPU, of which there is one here: it hands all on.

    Args:
        opt: the optimizer that applies the gradients.
        reduction: how the losses of replicas become one, `Reduction.MEAN` or `SUM`; of one loss both are that loss.
        name: of the optimizer.
        group_assignment: which replicas belong together; None, or one group of the replica 0.

    Raises:
        ValueError: another `reduction`, or groups of several replicas.
        TypeError: `opt` is no `tf.train.Optimizer`.

    Example:
        >>> w = tf.get_variable("w", initializer=1.0)
        >>> inner = tf.train.GradientDescentOptimizer(0.25)
        >>> step = tf.tpu.CrossShardOptimizer(inner).minimize(tf.square(w))
        >>> sess.run(w.initializer)
        >>> sess.run(step)
        >>> sess.run(w)
        np.float32(0.5)
    """

    def __init__(
        self,
        opt: Optimizer,
        reduction: str = Reduction.MEAN,
        name: str = "CrossShardOptimizer",
        group_assignment: Sequence[Sequence[int]] | None = None,
    ) -> None:
        if reduction not in {Reduction.SUM, Reduction.MEAN}:
            raise ValueError(f"Unsupported reduction: {reduction}; it is tf.losses.Reduction.MEAN or SUM")
        if not isinstance(opt, Optimizer):
            raise TypeError(f"CrossShardOptimizer wraps a tf.train.Optimizer, got {type(opt).__name__}")
        _check_one_replica(group_assignment)
        super().__init__(opt, False, name)

    def apply_gradients(
        self, grads_and_vars: Iterable[tuple[Any, Any]], global_step: Variable | None = None, name: str | None = None
    ) -> Operation:
        """As the optimizer that is wrapped applies them. Arguments, result and errors are those of `Optimizer`."""
        return self._opt.apply_gradients(grads_and_vars, global_step, name)


def _check_one_replica(groups: Sequence[Sequence[int]] | None) -> None:
    if groups is not None and [list(group) for group in groups] != [[0]]:
        raise ValueError(f"group_assignment must be None or [[0]], since there is one replica; got {groups}")


def cross_replica_sum(
    x: TensorLike, group_assignment: Sequence[Sequence[int]] | None = None, name: str | None = None
) -> Tensor:
    """The sum of a tensor over the replicas of a TPU; of the only one here, the tensor.

    Args:
        x: any tensor.
        group_assignment: which replicas belong together; None, or one group of the replica 0.
        name: of the operation.

    Returns:
        A tensor like `x`.

    Raises:
        ValueError: groups of several replicas.

    Example:
        >>> sess.run(tf.tpu.cross_replica_sum([1.0, 2.0]))
        array([1., 2.], dtype=float32)
    """
    _check_one_replica(group_assignment)
    summed: Tensor = raw.Identity(convert_to_tensor(x), name=name)
    return summed


def outside_compilation(computation: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> _R:
    """Calls `computation`, whose operations TensorFlow would run on a TPU's host; here they run where all others do.

    Args:
        computation: builds operations.
        *args, **kwargs: what it is called with.

    Returns:
        What it returns.

    Example:
        >>> sess.run(tf.tpu.outside_compilation(tf.add, 1, 2))
        np.int32(3)
    """
    return computation(*args, **kwargs)


@contextlib.contextmanager
def bfloat16_scope() -> Iterator[VariableScope]:
    """A variable scope in which variables that are asked for in bfloat16 are kept in float32, and cast when read.

    Returns:
        A context manager that gives the scope.

    Example:
        >>> with tf.tpu.bfloat16_scope():
        ...     w = tf.get_variable("w", [2], tf.bfloat16)
        >>> w.dtype, tf.global_variables()[0].dtype
        (tf.bfloat16, tf.float32)
    """

    def kept_in_float32(getter: Callable[..., Any], *args: PassedOn, **kwargs: PassedOn) -> object:
        if kwargs.get("dtype") is None or dtypes.as_dtype(kwargs["dtype"]) != dtypes.bfloat16:
            return getter(*args, **kwargs)
        return raw.Cast(getter(*args, **{**kwargs, "dtype": dtypes.float32}), DstT=dtypes.bfloat16)

    with variable_scope("", custom_getter=kept_in_float32) as scope:
        yield scope
