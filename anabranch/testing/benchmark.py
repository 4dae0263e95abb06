"""`tf.test.Benchmark`: classes whose methods time operations and report what they find."""

from __future__ import annotations

import inspect
import os
import re
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from google.protobuf import text_format

from anabranch.core.nest import Structure
from anabranch.frontend.platform import logging
from anabranch.graph.operation import FeedDict, Operation, Tensor
from anabranch.proto.config_pb2 import ConfigProto, RunMetadata, RunOptions
from anabranch.proto.test_log_pb2 import BenchmarkEntries, BenchmarkEntry
from anabranch.runtime.timeline import Timeline
from anabranch.session import BaseSession, Session, get_default_session

#: an environment variable: how the names of the files begin that reports are written to; where it is not set, reports
#: are printed
_PREFIX: Final = "TEST_REPORT_FILE_PREFIX"
_CLASSES: Final[list[type[Benchmark]]] = []


def benchmark_config() -> ConfigProto:
    """A ConfigProto for benchmarks, which turns TensorFlow's optimizer of dependencies off.

    Here it changes nothing, as there is no such optimizer; see `tf.ConfigProto`.
    """
    config = ConfigProto()
    options = config.graph_options.rewrite_options
    options.dependency_optimization = type(options).OFF
    return config


class Benchmark:
    """A class of benchmarks: its methods whose names begin with "benchmark".

    `tf.test.main` runs those of all subclasses whose full names, module, class and method, match the regular
    expression that the argument ``--benchmarks=`` of the command line gives ("all": every one).

    Example:
        >>> class SquareBenchmark(tf.test.Benchmark):
        ...     def benchmark_square(self):
        ...         with tf.Session() as session:
        ...             self.run_op_benchmark(session, tf.square(3.0))
    """

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        _CLASSES.append(cls)

    @classmethod
    def is_abstract(cls) -> bool:
        """Whether this is `Benchmark` itself, which has no benchmarks."""
        return cls is Benchmark

    def report_benchmark(
        self,
        iters: int | None = None,
        cpu_time: float | None = None,
        wall_time: float | None = None,
        throughput: float | None = None,
        extras: Mapping[str, Any] | None = None,
        name: str | None = None,
        metrics: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        """Reports what was found: prints a BenchmarkEntries, or writes it to a file.

        Where the environment variable TEST_REPORT_FILE_PREFIX is set, the file's name is its value and the name of the
        benchmark, with "__" for "/".

        Args:
            iters: how many times something ran.
            cpu_time, wall_time: how long once takes, in seconds.
            throughput: in megabytes per second.
            extras: more of it: numbers, and what is written as text.
            name: of the benchmark, behind that of the class; default: the name of the method.
            metrics: dicts with "name" and "value", and perhaps "min_value" and "max_value", between which it should be.

        Raises:
            TypeError: `extras` is no dict, `metrics` no list, or one of these lacks its name or value.
            FileExistsError: the file exists.
        """
        full_name = f"{type(self).__name__}.{name or self._calling_method()}"
        entries = BenchmarkEntries()
        entry = entries.entry.add(name=full_name)
        for field, value in (
            ("iters", iters),
            ("cpu_time", cpu_time),
            ("wall_time", wall_time),
            ("throughput", throughput),
        ):
            if value is not None:
                setattr(entry, field, value)
        _add_extras(entry, extras)
        _add_metrics(entry, metrics)
        logging.info("Benchmark [%s] iters: %s, wall_time: %s, cpu_time: %s", full_name, iters, wall_time, cpu_time)
        prefix = os.environ.get(_PREFIX)
        if prefix is None:
            sys.stdout.write(f"{text_format.MessageToString(entries)}\n")
            return
        path = prefix + full_name.replace("/", "__")
        with open(path, "xb") as file:
            file.write(entries.SerializeToString())

    def _calling_method(self) -> str:
        """The name of the outermost method of this benchmark that is being run."""
        found = [frame.function for frame in inspect.stack(context=0) if frame.frame.f_locals.get("self") is self]
        return found[-1]

    def run_op_benchmark(
        self,
        sess: BaseSession,
        op_or_tensor: Operation | Tensor,
        feed_dict: FeedDict | None = None,
        burn_iters: int = 2,
        min_iters: int = 10,
        store_trace: bool = False,
        store_memory_usage: bool = True,
        name: str | None = None,
        extras: dict[str, Any] | None = None,
        mbs: float = 0,
    ) -> dict[str, Any]:
        """Runs something several times and reports how long it takes, the median.

        Args:
            sess: the session that runs it.
            op_or_tensor: what to run.
            feed_dict: what to feed.
            burn_iters: how often to run it before time is measured.
            min_iters: how often to run it then.
            store_trace: whether to run it once more, for a trace.
            store_memory_usage: taken, without effect: no memory is measured.
            name, extras: as of `report_benchmark`.
            mbs: how many megabytes it moves.

        Returns:
            What is reported: "iters", "wall_time", "extras", "name", "throughput". The extras have the trace as well,
            which is not reported, as "full_trace_chrome_format".
        """
        for _ in range(burn_iters):
            sess.run(op_or_tensor, feed_dict=feed_dict)
        times = [_seconds_of(sess, op_or_tensor, feed_dict) for _ in range(min_iters)]
        median = statistics.median(times) if times else -1.0
        values: dict[str, Any] = {
            "iters": min_iters,
            "wall_time": median,
            "extras": dict(extras or {}),
            "name": name,
            "throughput": mbs / median,
        }
        self.report_benchmark(**values)
        if store_trace:
            options, metadata = RunOptions(trace_level=RunOptions.FULL_TRACE), RunMetadata()
            sess.run(op_or_tensor, feed_dict=feed_dict, options=options, run_metadata=metadata)
            values["extras"]["full_trace_chrome_format"] = Timeline(metadata.step_stats).generate_chrome_trace_format()
        return values

    def evaluate(self, tensors: Structure) -> Structure:
        """The values of a tensor or a structure of tensors, in the default session, or else in one for this call."""
        session = get_default_session()
        if session is not None:
            return session.run(tensors)
        with Session() as own:
            return own.run(tensors)


def _seconds_of(session: BaseSession, fetched: Operation | Tensor, feed_dict: FeedDict | None) -> float:
    begin = time.perf_counter()
    session.run(fetched, feed_dict=feed_dict)
    return time.perf_counter() - begin


def _add_extras(entry: BenchmarkEntry, extras: Mapping[str, Any] | None) -> None:
    if extras is not None and not isinstance(extras, dict):
        raise TypeError(f"extras must be a dict, got {type(extras).__name__}")
    for key, value in (extras or {}).items():
        if isinstance(value, int | float):
            entry.extras[key].double_value = value
        else:
            entry.extras[key].string_value = str(value)


def _add_metrics(entry: BenchmarkEntry, metrics: Sequence[Mapping[str, Any]] | None) -> None:
    if metrics is not None and not isinstance(metrics, list):
        raise TypeError(f"metrics must be a list, got {type(metrics).__name__}")
    for metric in metrics or []:
        for key in ("name", "value"):
            if key not in metric:
                raise TypeError(f"a metric must have a {key!r} field, got {metric}")
        added = entry.metrics.add(name=metric["name"], value=metric["value"])
        for bound in ("min_value", "max_value"):
            if bound in metric:
                getattr(added, bound).value = metric[bound]


def run_benchmarks(pattern: str) -> None:
    """Runs the benchmarks of all subclasses of `Benchmark` whose full names match a regular expression, or all."""
    for cls in _CLASSES:
        chosen = [
            method
            for method in dir(cls)
            if method.startswith("benchmark") and callable(getattr(cls, method))
            if pattern == "all" or re.search(pattern, f"{cls.__module__}.{cls.__name__}.{method}")
        ]
        instance = cls() if chosen else None
        for method in chosen:
            getattr(instance, method)()
