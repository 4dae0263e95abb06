"""The one replica that a program is: what `tf.distribute` says where no strategy was entered.

No strategy of TensorFlow's is here, so this always holds. Libraries ask for it to make a value that all replicas share.
"""

from __future__ import annotations

import contextlib
import enum
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from anabranch.core.values import PassedOn, TensorLike
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.operation import Tensor
from anabranch.ops import raw

_Result = TypeVar("_Result")


class ReduceOp(enum.Enum):
    """How the values of replicas become one.

    Raises:
        ValueError: there is none of that value.
    """

    SUM = "SUM"
    MEAN = "MEAN"


class _Threads(threading.local):
    """Whether a `merge_call` is running in this thread."""

    merging = False


_threads = _Threads()


class _OneReplicaExtended:
    """Places of variables and updates where there is one replica."""

    worker_devices = parameter_devices = ("",)
    experimental_require_static_shapes = experimental_between_graph = False
    should_checkpoint = should_save_summary = experimental_should_init = True

    def update(
        self,
        var: PassedOn,
        fn: Callable[..., _Result],
        args: Sequence[PassedOn] = (),
        kwargs: Mapping[str, PassedOn] | None = None,
        group: bool = True,
    ) -> _Result | tuple[_Result, ...]:
        """Calls ``fn(var, *args, **kwargs)``; without `group` the result is in a tuple, one for each replica."""
        result = fn(var, *args, **(kwargs or {}))
        return result if group else (result,)

    def update_non_slot(
        self,
        colocate_with: PassedOn,
        fn: Callable[..., _Result],
        args: Sequence[PassedOn] = (),
        kwargs: Mapping[str, PassedOn] | None = None,
        group: bool = True,
    ) -> _Result | tuple[_Result, ...]:
        """Calls ``fn(*args, **kwargs)``; without `group` the result is in a tuple, one for each replica."""
        result = fn(*args, **(kwargs or {}))
        return result if group else (result,)

    def call_for_each_replica(
        self, fn: Callable[..., _Result], args: Sequence[PassedOn] = (), kwargs: Mapping[str, PassedOn] | None = None
    ) -> _Result:
        """Calls a function once, and returns what it returns."""
        return fn(*args, **(kwargs or {}))

    def reduce_to(self, reduce_op: ReduceOp | str, value: _Result, destinations: PassedOn) -> _Result:
        """The value of the one replica.

        Raises:
            ValueError: `reduce_op` is neither SUM nor MEAN.
        """
        ReduceOp(reduce_op)
        return value

    def value_container(self, value: _Result) -> _Result:
        """What holds a replica's value: the value itself."""
        return value

    def read_var(self, v: PassedOn) -> Tensor:
        """The value of a variable."""
        return convert_to_tensor(v)

    def non_slot_devices(self, var_list: Sequence[PassedOn]) -> PassedOn:
        """Where optimizers place what belongs to no variable: by the first, by name."""
        return min(var_list, key=lambda variable: str(variable.name))

    def variable_created_in_scope(self, v: PassedOn) -> bool:
        """True: there is one scope."""
        return True

    @contextlib.contextmanager
    def colocate_vars_with(self, colocate_with_variable: PassedOn) -> Iterator[None]:
        """Changes nothing: variables are where their device functions say."""
        yield


class OneReplica:
    """What `get_strategy` returns: the strategy that runs everything once.

    Attributes:
        num_replicas_in_sync: 1.
    """

    num_replicas_in_sync = 1

    @property
    def extended(self) -> _OneReplicaExtended:
        """What libraries ask a strategy for."""
        return _OneReplicaExtended()

    @contextlib.contextmanager
    def scope(self) -> Iterator[OneReplica]:
        """Changes nothing: it is the strategy that holds everywhere."""
        yield self

    def experimental_run_v2(
        self, fn: Callable[..., _Result], args: Sequence[PassedOn] = (), kwargs: Mapping[str, PassedOn] | None = None
    ) -> _Result:
        """Calls a function once, and returns what it returns."""
        return fn(*args, **(kwargs or {}))

    def experimental_local_results(self, value: PassedOn) -> tuple[Any, ...]:
        """The values of the replicas here: a tuple of the one."""
        return (value,)

    def experimental_distribute_dataset(self, dataset: PassedOn) -> Any:
        """The dataset itself."""
        return dataset

    def reduce(self, reduce_op: ReduceOp | str, value: TensorLike, axis: int | None) -> Tensor:
        """The value of the one replica; its sum or mean along `axis` where that is given.

        Raises:
            ValueError: `reduce_op` is neither SUM nor MEAN.
        """
        kind, tensor = ReduceOp(reduce_op), convert_to_tensor(value)
        if axis is None:
            return tensor
        return (raw.Sum if kind is ReduceOp.SUM else raw.Mean)(tensor, axis)  # type: ignore[no-any-return]


class ReplicaContext:
    """The place of a replica among all: the first of one.

    Attributes:
        strategy: what `get_strategy` returns.
        num_replicas_in_sync: 1.
        replica_id_in_sync_group: 0.

    Raises:
        nothing

    Example:
        >>> tf.distribute.get_replica_context().num_replicas_in_sync
        1
    """

    num_replicas_in_sync = 1
    replica_id_in_sync_group = 0

    @property
    def strategy(self) -> OneReplica:
        return get_strategy()

    def merge_call(
        self,
        merge_fn: Callable[..., _Result],
        args: Sequence[PassedOn] = (),
        kwargs: Mapping[str, PassedOn] | None = None,
    ) -> _Result:
        """Calls a function for all replicas together: ``merge_fn(strategy, *args, **kwargs)``."""
        before, _threads.merging = _threads.merging, True
        try:
            return merge_fn(get_strategy(), *args, **(kwargs or {}))
        finally:
            _threads.merging = before

    def all_reduce(self, reduce_op: ReduceOp | str, value: _Result) -> _Result:
        """The values of all replicas as one: that of this one.

        Raises:
            ValueError: `reduce_op` is neither SUM nor MEAN.
        """
        ReduceOp(reduce_op)
        return value


_one, _context = OneReplica(), ReplicaContext()


def get_strategy() -> OneReplica:
    """The strategy that runs everything once; there is no other.

    Returns:
        An object with `num_replicas_in_sync` (1), `scope`, `experimental_run_v2`, `reduce` and their like.

    Raises:
        nothing

    Example:
        >>> tf.distribute.get_strategy().num_replicas_in_sync
        1
    """
    return _one


def has_strategy() -> bool:
    """Whether a program entered a strategy.

    Returns:
        False: there is none to enter.

    Raises:
        nothing

    Example:
        >>> tf.distribute.has_strategy()
        False
    """
    return False


def get_replica_context() -> ReplicaContext | None:
    """The one replica.

    Returns:
        A `ReplicaContext`; None in a function that `merge_call` calls.

    Raises:
        nothing

    Example:
        >>> tf.distribute.get_replica_context().merge_call(lambda strategy, x: x + 1, args=(2,))
        3
    """
    return None if _threads.merging else _context


def in_cross_replica_context() -> bool:
    """Whether what runs speaks for all replicas together.

    Returns:
        True in a function that `merge_call` calls.

    Raises:
        nothing

    Example:
        >>> tf.distribute.in_cross_replica_context()
        False
    """
    return _threads.merging
