"""`tf.data.Options`: wishes about how a pipeline runs. All are accepted; none changes the elements."""

from __future__ import annotations

from typing import Any, NoReturn


class _Wishes:
    """A set of named options; unset ones are None.

    Raises:
        AttributeError: an option that does not exist is set.
    """

    _names: tuple[str, ...] = ()

    def __init__(self) -> None:
        for name in self._names:
            object.__setattr__(self, name, None)

    def __setattr__(self, name: str, value: object) -> None:
        if name not in self._names:
            raise AttributeError(f"{type(self).__name__} has no option {name!r}; it has {list(self._names)}")
        object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} has no option {name!r}; it has {list(self._names)}")

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]

    def _set(self) -> dict[str, Any]:
        return {k: v for k, v in vars(self).items() if v is not None}


class ThreadingOptions(_Wishes):
    """Sizes of thread pools."""

    _names = ("max_intra_op_parallelism", "private_threadpool_size")


class StatsOptions(_Wishes):
    """What statistics to collect."""

    _names = ("aggregator", "prefix", "counter_prefix", "latency_all_edges")


class DistributeOptions(_Wishes):
    """How to divide a dataset among workers."""

    _names = ("auto_shard", "num_devices", "make_stateless", "auto_shard_policy")


class MapVectorizationOptions(_Wishes):
    """Whether functions of elements are to be applied to batches of them."""

    _names = ("enabled", "use_choose_fastest")


class OptimizationOptions(_Wishes):
    """Which rewrites to make."""

    _names = (
        "apply_default_optimizations",
        "autotune",
        "autotune_buffers",
        "autotune_algorithm",
        "autotune_cpu_budget",
        "filter_fusion",
        "filter_with_random_uniform_fusion",
        "hoist_random_uniform",
        "map_and_batch_fusion",
        "map_and_filter_fusion",
        "map_fusion",
        "map_parallelization",
        "map_vectorization",
        "noop_elimination",
        "parallel_batch",
        "shuffle_and_repeat_fusion",
    )

    def __init__(self) -> None:
        super().__init__()
        self.map_vectorization = MapVectorizationOptions()


class Options(_Wishes):
    """Options of a dataset, for `Dataset.with_options`."""

    _names = (
        "experimental_allow_stateful",
        "experimental_autotune",
        "experimental_deterministic",
        "experimental_distribute",
        "experimental_external_state_policy",
        "experimental_numa_aware",
        "experimental_optimization",
        "experimental_slack",
        "experimental_stats",
        "experimental_threading",
        "experimental_stateful_whitelist",
    )

    def __init__(self) -> None:
        super().__init__()
        self.experimental_distribute = DistributeOptions()
        self.experimental_optimization = OptimizationOptions()
        self.experimental_stats = StatsOptions()
        self.experimental_threading = ThreadingOptions()

    def merge(self, options: Options) -> Options:
        """These options and those that `options` sets.

        Raises:
            ValueError: it is no `Options`, or both set one option to different values.
        """
        if not isinstance(options, Options):
            raise ValueError(f"Options can only be merged with Options, got {options!r}")
        merged = Options()
        for source in (self, options):
            _set_all(merged, source)
        return merged


def _set_all(target: _Wishes, source: _Wishes) -> None:
    for name, value in source._set().items():
        known = getattr(target, name)
        if isinstance(value, _Wishes) and type(known) is type(value):
            _set_all(known, value)
        else:
            _set_once(target, name, value)


def _set_once(options: object, name: str, value: object) -> None:
    old = getattr(options, name)
    if old is not None and old != value:
        raise ValueError(f"Cannot merge incompatible values of option {name!r}: {old!r} and {value!r}")
    setattr(options, name, value)
