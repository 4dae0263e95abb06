"""Sessions: how a client runs steps of a graph (§3.2, WP2).

A session maps fetches and feeds to arrays and back; a `Master` prepares and runs the steps. A step that ran before is
found by its fetches and fed tensors and goes straight to its plan.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self, TypeVar, overload

from anabranch.core import nest
from anabranch.core.collected import when_collected
from anabranch.core.values import TensorLike, TensorValue
from anabranch.distributed.masters import master_for, reset_containers
from anabranch.errors import OpError, UnimplementedError
from anabranch.frontend.feeds import fed_tensors, feed_array
from anabranch.frontend.fetches import FetchMapping, feed_function_for
from anabranch.graph.graph import Graph, get_default_graph
from anabranch.graph.graph_copy import name_operation
from anabranch.graph.immediate import ImmediateGraph
from anabranch.graph.operation import FeedDict, Operation, Tensor
from anabranch.placement.cost_model import CostModel
from anabranch.placement.policy import PlacementPolicy
from anabranch.proto.config_pb2 import CallableOptions, ConfigProto, RunMetadata, RunOptions
from anabranch.proto.graph_pb2 import GraphDef
from anabranch.runtime.bound_partition import bound_partitions
from anabranch.runtime.partial_runs import PartialRuns
from anabranch.runtime.protocols import Step
from anabranch.runtime.step_stats import StepRecord, wants_trace
from anabranch.xla.heap import return_freed_memory

_Key = TypeVar("_Key")

_MAX_MAPPINGS = 4096


class BaseSession:
    """Runs steps of one graph. Safe to use from several threads.

    Args:
        target: "" for resources of the session's own; ``local://<name>`` to share variables with the other sessions of
            that name in this process; ``grpc://<host>:<port>``, a `tf.train.Server`'s `target`, to run on its cluster.
        graph: the graph to run; default: the default graph.
        config: a `ConfigProto`. Of devices it says how many of each type there are (`device_count`), whether requests
            that cannot be met are given up (`allow_soft_placement`), and whether to print where operations go
            (`log_device_placement`).
        placement: a `PlacementPolicy`, or the path of its file: where things run, whatever the model says (D12).
            Default: the file that the environment variable ANABRANCH_PLACEMENT names, if any.

    Raises:
        TypeError: an argument is of the wrong type.
        InvalidArgumentError: the target is of an unknown kind, the configuration names devices that do not exist, or
            the policy is malformed.
        NotFoundError: there is no such policy file.
    """

    def __init__(
        self,
        target: str | bytes = "",
        graph: Graph | None = None,
        config: ConfigProto | None = None,
        *,
        placement: PlacementPolicy | str | os.PathLike[str] | None = None,
    ) -> None:
        if graph is not None and not isinstance(graph, Graph):
            raise TypeError(f"graph must be a tf.Graph, but got {type(graph)}")
        if config is not None and not isinstance(config, ConfigProto):
            raise TypeError(f"config must be a tf.ConfigProto, but got {type(config)}")
        self._graph = graph if graph is not None else get_default_graph()
        self._target = target.decode() if isinstance(target, bytes) else target
        if not isinstance(self._target, str):
            raise TypeError(f"target must be a string, but got {type(target)}")
        self._config = config
        #: seconds that a step may wait, unless its options say otherwise; None: any time
        self._timeout = _seconds(getattr(config, "operation_timeout_in_ms", 0))
        self._master = master_for(self._target, config, placement)
        # threads that compute ahead would keep the containers of a forgotten session alive, and themselves
        when_collected(self, self._master.forget)
        self._closed = False
        self._mappings: dict[Any, FetchMapping] = {}
        self._preparing = threading.RLock()
        self._structure_version = self._graph.structure_version
        self._partial_runs = PartialRuns(self._master.prepare)

    @property
    def graph(self) -> Graph:
        return self._graph

    @property
    def graph_def(self) -> GraphDef:
        """The graph as a serialisable message."""
        return self._graph.as_graph_def()

    @property
    def sess_str(self) -> str:
        return self._target

    def list_devices(self) -> list[Any]:
        """The devices that steps can use."""
        return self._master.devices()

    def close(self) -> None:
        """Ends the session; steps can no longer be run, and its own variables are released.

        Steps of other threads that are waiting are cancelled: they raise CancelledError.

        Raises:
            nothing

        Example:
            >>> session = tf.Session()
            >>> session.close()
        """
        first, self._closed = not self._closed, True
        if first:
            self._master.close()
        tables = [mapping.steps for mapping in list(self._mappings.values())]
        self._mappings.clear()
        self._partial_runs.close()
        for table in tables:
            for step in list(table.values()):
                step.release()
            table.clear()
        return_freed_memory()

    def _stay_lost(self) -> None:
        """From now on every step of a task fails that another process has taken over, and not only the first."""
        self._master.stay_lost()

    def _leaving(self) -> frozenset[str]:
        """The names of the tasks that have said that they are about to leave."""
        return self._master.leaving()

    def as_default(self) -> contextlib.AbstractContextManager[Self]:
        """Makes this the default session of the current thread inside a `with` block; does not close it.

        Returns:
            A context manager, which gives the session.

        Raises:
            nothing

        Example:
            >>> session = tf.Session()
            >>> with session.as_default():
            ...     tf.constant(2.0).eval()
            np.float32(2.0)
        """
        result: contextlib.AbstractContextManager[Self] = default_sessions.enter(self)
        return result

    # ------------------------------------------------------------------ run
    @overload
    def run(
        self,
        fetches: Operation,
        feed_dict: FeedDict | None = ...,
        options: RunOptions | None = ...,
        run_metadata: RunMetadata | None = ...,
    ) -> None: ...
    @overload
    def run(
        self,
        fetches: list[Any],
        feed_dict: FeedDict | None = ...,
        options: RunOptions | None = ...,
        run_metadata: RunMetadata | None = ...,
    ) -> list[Any]: ...
    @overload
    def run(
        self,
        fetches: dict[_Key, Any],
        feed_dict: FeedDict | None = ...,
        options: RunOptions | None = ...,
        run_metadata: RunMetadata | None = ...,
    ) -> dict[_Key, Any]: ...
    @overload
    def run(
        self,
        fetches: nest.Structure,
        feed_dict: FeedDict | None = ...,
        options: RunOptions | None = ...,
        run_metadata: RunMetadata | None = ...,
    ) -> TensorValue: ...
    def run(
        self,
        fetches: nest.Structure,
        feed_dict: FeedDict | None = None,
        options: RunOptions | None = None,
        run_metadata: RunMetadata | None = None,
    ) -> TensorValue | nest.Structure:
        """Runs one step (§3.2).

        Args:
            fetches: a tensor, operation, variable, name, or a nested structure of these.
            feed_dict: values for tensors; any tensor of the graph can be fed.
            options: a `RunOptions`; its trace level asks for timings, `timeout_in_ms` limits how long operations may
                wait in the step.
            run_metadata: a `RunMetadata` that is filled in when timings are asked for.

        Returns:
            Values in the structure of `fetches`: NumPy arrays that no later step changes; None for operations.

        Raises:
            RuntimeError: the session is closed, or its graph empty.
            TypeError, ValueError: fetches or feeds that do not fit the graph.
            DeadlineExceededError: the step waited for too long; the message says who waited for what.
            CancelledError: the session was closed meanwhile.
            OpError: the step failed; variables are as they were before the failing operation.
            KeyboardInterrupt: the program was interrupted; the step is over, and the session can be used again.

        Example:
            >>> x = tf.placeholder(tf.float32, [2])
            >>> total = tf.reduce_sum(x)
            >>> sess.run({"total": total, "squares": x * x}, feed_dict={x: [1.0, 2.0]})
            {'total': np.float32(3.0), 'squares': array([1., 4.], dtype=float32)}
        """
        mapping = self._mapping(fetches)
        tensors, values = self._feeds(feed_dict) if feed_dict else ((), [])
        step = mapping.steps.get(tensors)
        if step is None:
            step = self._prepared_once(mapping, tensors)
        if run_metadata is not None:
            run_metadata.Clear()
        if options is None:
            return mapping.arrange(self._run(step, values, None, self._timeout))
        timeout = _seconds(options.timeout_in_ms) or self._timeout
        if wants_trace(options):
            record = StepRecord()
            with record.profiling(options):
                results = self._run(step, values, record, timeout)
            if run_metadata is not None:
                record.fill(run_metadata, self._graph, step, options)
            return mapping.arrange(results)
        return mapping.arrange(self._run(step, values, None, timeout))

    def _run(self, step: Step, values: Sequence[Any], record: StepRecord | None, timeout: float | None) -> list[Any]:
        """Runs a step; its errors name operations of the graph, where the step's nodes stand for some."""
        try:
            return step.run(values, record, timeout)
        except OpError as error:
            name_operation(error, self._graph)
            raise

    def _mapping(self, fetches: nest.Structure) -> FetchMapping:
        if self._closed:
            raise RuntimeError("Attempted to use a closed Session.")
        if self._structure_version != self._graph.structure_version:
            self._mappings.clear()
            self._structure_version = self._graph.structure_version
        try:
            key = (type(fetches), tuple(fetches)) if isinstance(fetches, list | tuple) else fetches
            mapping = self._mappings.get(key)
        except TypeError:  # a structure that cannot be a key: its tensors and operations can
            mapping = FetchMapping(self._graph, fetches, weakref.ref(self))
            flat = (FetchMapping, tuple(mapping.tensors), tuple(mapping.targets))
            mapping.steps = self._mappings.setdefault(flat, mapping).steps
            return mapping
        if mapping is None:
            if self._graph.version == 0:
                raise RuntimeError("The Session graph is empty. Add operations to the graph before calling run().")
            if len(self._mappings) >= _MAX_MAPPINGS:
                self._mappings.clear()
            mapping = self._mappings.setdefault(key, FetchMapping(self._graph, fetches, weakref.ref(self)))
        return mapping

    def _prepared_once(self, mapping: FetchMapping, feeds: tuple[Tensor, ...]) -> Step:
        """The step for these feeds. Of several threads that ask at once, as a queue runner's do, one prepares it."""
        with self._preparing:
            # again under the lock: another thread may have prepared it meanwhile
            step: Step | None = mapping.steps.get(feeds)
            if step is None:
                step = self._prepare(mapping, feeds)
                bound_partitions.add(mapping.steps, feeds, step)
        return step

    def _prepare(self, mapping: FetchMapping, feeds: Sequence[Tensor], kept: Mapping[int, str] | None = None) -> Step:
        for tensor in feeds:
            if not self._graph.is_feedable(tensor):
                raise ValueError(f"Tensor {tensor.name} may not be fed.")
        try:
            return self._master.prepare(mapping.tensors, mapping.targets, feeds, kept)
        except OpError as error:
            name_operation(error, self._graph)
            raise

    def _feeds(self, feed_dict: FeedDict) -> tuple[tuple[Tensor, ...], list[Any]]:
        tensors: list[Tensor] = []
        values: list[Any] = []
        for key, value in feed_dict.items():
            if type(key) is Tensor and key._op._graph is self._graph:
                tensors.append(key)
                values.append(feed_array(key, value, self._master.lend))
            else:
                for fed, part in self._feed_parts(key, value):
                    tensors.extend(fed)
                    values.extend(feed_array(tensor, part, self._master.lend) for tensor in fed)
        return tuple(tensors), values

    def _feed_parts(self, key: TensorLike, value: TensorLike) -> list[tuple[list[Tensor], Any]]:
        """A key taken apart: the tensors that take one value, and the value, for each part."""
        function = feed_function_for(key)
        if function is not None:
            return [part for k, v in function(key, value) for part in self._feed_parts(k, v)]
        if isinstance(key, tuple | list):
            if len(key) != len(value):
                raise ValueError(f"feed_dict gives {len(value)} values for the {len(key)} tensors of {key!r}")
            return [part for k, v in zip(key, value, strict=True) for part in self._feed_parts(k, v)]
        try:
            tensor = self._graph.as_graph_element(key, allow_tensor=True, allow_operation=False)
        except (TypeError, ValueError, KeyError) as error:
            raise TypeError(f"Cannot interpret feed_dict key as Tensor: {error}") from None
        assert isinstance(tensor, Tensor)
        return [(fed_tensors(key, tensor), value)]

    def measure_costs(
        self, fetches: nest.Structure, feed_dict: FeedDict | None = None, steps: int = 5, model: CostModel | None = None
    ) -> CostModel:
        """Measures what a kind of step costs, for the placer "greedy" of a placement policy (WP3.2.1).

        The step is run `steps` times and once more to compile it, with all its effects on variables.

        Args:
            fetches, feed_dict: as of `run`.
            model: what to add the measurements to; default: a new model.

        Returns:
            The model: what operations took on the devices that they ran on, and what transfers between the session's
            devices take. Save it with `CostModel.save`.

        Raises:
            TypeError, ValueError, OpError: as `run`.
        """
        model = model or CostModel()
        tensors, values = self._feeds(feed_dict or {})
        step = self._prepare(self._mapping(fetches), tensors)
        self._master.measure(model, step, values, steps)
        return model

    # ------------------------------------------------------------------ callables
    def make_callable(
        self, fetches: nest.Structure, feed_list: Sequence[TensorLike] | None = None, accept_options: bool = False
    ) -> Callable[..., nest.Structure]:
        """A function that runs one kind of step with as little overhead as possible.

        Args:
            feed_list: the tensors that the function's arguments feed, in order.
            accept_options: whether the function takes `options` and `run_metadata` as keywords.

        Raises:
            TypeError, ValueError: as `run`.
        """
        if feed_list is not None and not isinstance(feed_list, list | tuple):
            raise TypeError("`feed_list` must be a list or tuple.")
        mapping = self._mapping(fetches)
        parts = [fed for key in feed_list or () for fed, _ in self._feed_parts(key, None)]
        tensors = tuple(tensor for fed in parts for tensor in fed)
        step = self._prepared_once(mapping, tensors)
        version = self._graph.structure_version

        def run_step(
            *values: TensorLike, options: RunOptions | None = None, run_metadata: RunMetadata | None = None
        ) -> Any:
            nonlocal mapping, step, version
            if len(values) != len(parts):
                raise TypeError(
                    f"this callable takes {len(parts)} values ({[fed[0].name for fed in parts]}), got {len(values)}"
                )
            if len(tensors) != len(parts):  # a variable has several reads
                values = tuple(value for fed, value in zip(parts, values, strict=True) for _ in fed)
            if accept_options and options is not None:
                return self.run(fetches, dict(zip(tensors, values, strict=True)), options, run_metadata)
            if self._closed:
                raise RuntimeError("Attempted to use a closed Session.")
            if version != self._graph.structure_version:
                version = self._graph.structure_version
                mapping = self._mapping(fetches)
                step = self._prepared_once(mapping, tensors)
            arrays = [feed_array(t, v, self._master.lend) for t, v in zip(tensors, values, strict=True)]
            return mapping.arrange(self._run(step, arrays, None, self._timeout))

        return run_step

    def _make_callable_from_options(self, callable_options: CallableOptions) -> Callable[..., list[Any]]:
        """A function that runs one kind of step, described by a message, as TensorFlow's clients of this name ask.

        Args:
            callable_options: a `CallableOptions`: the names of what is fed and fetched, and of the operations to run.
                Its `fetch_devices` says whose memory the value of a fetch stays in: of an accelerator, for which the
                function gives an array of JAX that other libraries take by DLPack without a copy. Its `feed_devices`
                are not needed: a fed tensor says where it lies. Steps are always waited for (`fetch_skip_sync`).

        Returns:
            The function, of one value for each feed, and of `run_metadata`; it gives the list of what is fetched.

        Raises:
            InvalidArgumentError: there is no such device.
            UnimplementedError: `tensor_connection` is given, or `fetch_devices` on a cluster.
            TypeError, ValueError, KeyError: as `run`.
        """
        if callable_options.tensor_connection:
            raise UnimplementedError(
                None, None, "tensor_connection is not there; connect the tensors in the graph (tf.import_graph_def)"
            )
        fetches = list(callable_options.fetch)
        if unknown := sorted(set(callable_options.fetch_devices) - set(fetches)):
            raise ValueError(f"fetch_devices names {unknown}, which are not fetched; the fetches are {fetches}")
        # a mapping of its own: what stays on a device is another step than what `run` fetches
        mapping = FetchMapping(self._graph, [*fetches, *callable_options.target], weakref.ref(self))
        feeds = tuple(t for name in callable_options.feed for fed, _ in self._feed_parts(name, None) for t in fed)
        kept = {
            mapping.tensors.index(self._graph.get_tensor_by_name(name)): device
            for name, device in callable_options.fetch_devices.items()
        }
        step = self._prepare(mapping, feeds, kept)
        timeout = _seconds(callable_options.run_options.timeout_in_ms) or self._timeout

        def run_step(*values: TensorLike, run_metadata: RunMetadata | None = None) -> list[Any]:
            if len(values) != len(feeds):
                raise TypeError(f"this callable takes {len(feeds)} values, got {len(values)}")
            if self._closed:
                raise RuntimeError("Attempted to use a closed Session.")
            arrays = [feed_array(t, v, self._master.lend) for t, v in zip(feeds, values, strict=True)]
            record = StepRecord() if wants_trace(callable_options.run_options) else None
            results: list[Any] = mapping.arrange(self._run(step, arrays, record, timeout))
            if record is not None and run_metadata is not None:
                record.fill(run_metadata, self._graph, step, callable_options.run_options)
            return results[: len(fetches)]

        return run_step

    # ------------------------------------------------------------------ partial runs
    def partial_run_setup(self, fetches: nest.Structure, feeds: Sequence[TensorLike] | None = None) -> str:
        """Prepares a step that is run piece by piece with `partial_run`; returns its handle.

        Args:
            fetches: everything that any piece will fetch.
            feeds: everything that any piece will feed.

        The handle is good until everything was fed and fetched, a piece failed, or the session is closed.
        """
        mapping = FetchMapping(self._graph, fetches, weakref.ref(self))
        return self._partial_runs.set_up(
            mapping, [t for f in feeds or () for fed, _ in self._feed_parts(f, None) for t in fed]
        )

    def partial_run(self, handle: str, fetches: nest.Structure, feed_dict: FeedDict | None = None) -> nest.Structure:
        """Runs the next piece: what `fetches` need and has not run yet. Each operation runs at most once in all.

        Raises:
            InvalidArgumentError: something was not declared at set-up, was fed or fetched before, or is not fed yet;
                or the run is over, because everything was fetched, or a piece failed.
            OpError: the piece failed.
        """
        tensors, values = self._feeds(feed_dict or {})
        run = functools.partial(self._run, record=None, timeout=self._timeout)
        return self._partial_runs.advance(handle, self._mapping(fetches), tensors, values, run)


def _seconds(milliseconds: int) -> float | None:
    """A time limit of a message: zero means none."""
    return milliseconds / 1000 if milliseconds else None


# ---------------------------------------------------------------------- public classes
class Session(BaseSession):
    """A session that is used as a context: it becomes the default session and its graph the default graph.

    See `BaseSession` for the arguments. Leaving the context closes it.

    Args:
        target: "" for resources of the session's own; ``local://<name>`` to share variables with the other sessions of
            that name in this process; ``grpc://<host>:<port>``, a `tf.train.Server`'s `target`, to run on its cluster.
        graph: the graph to run; default: the default graph.
        config: a `ConfigProto`: how many devices there are, whether to say where operations run, and the like.
        placement: a `PlacementPolicy`, or the path of its file: where operations run, whatever the model says.

    Raises:
        InvalidArgumentError: the target, the configuration or the policy is wrong.
        TypeError: an argument is of the wrong type.

    Example:
        >>> x = tf.placeholder(tf.float32, [])
        >>> with tf.Session() as session:
        ...     session.run(x * 2.0, feed_dict={x: 3.0})
        np.float32(6.0)
    """

    def __init__(
        self,
        target: str | bytes = "",
        graph: Graph | None = None,
        config: ConfigProto | None = None,
        *,
        placement: PlacementPolicy | str | os.PathLike[str] | None = None,
    ) -> None:
        super().__init__(target, graph, config, placement=placement)
        self._contexts: list[Any] = []

    def __enter__(self) -> Self:
        graph_context = self._graph.as_default()
        session_context = self.as_default()
        graph_context.__enter__()
        session_context.__enter__()
        self._contexts.append((graph_context, session_context))
        return self

    def __exit__(self, exc_type: object, exc: object, traceback: object) -> None:
        graph_context, session_context = self._contexts.pop()
        session_context.__exit__(None, None, None)
        graph_context.__exit__(None, None, None)
        if not self._contexts:
            self.close()

    @staticmethod
    def reset(target: str, containers: Sequence[str] | None = None, config: ConfigProto | None = None) -> None:
        """Empties containers of a shared target: their variables become uninitialised (WP4.7).

        Raises:
            InvalidArgumentError: the target is not a shared one.
        """
        reset_containers(target, containers or ())


class InteractiveSession(BaseSession):
    """A session that is the default one from its construction until it is closed (for shells and notebooks).

    Args:
        target, graph, config, placement: as for `Session`.

    Raises:
        InvalidArgumentError: the target, the configuration or the policy is wrong.
        TypeError: an argument is of the wrong type.

    Example:
        >>> session = tf.InteractiveSession()
        >>> tf.constant(2.0).eval()
        np.float32(2.0)
        >>> session.close()
    """

    def __init__(
        self,
        target: str | bytes = "",
        graph: Graph | None = None,
        config: ConfigProto | None = None,
        *,
        placement: PlacementPolicy | str | os.PathLike[str] | None = None,
    ) -> None:
        super().__init__(target, graph, config, placement=placement)
        self._session_context = self.as_default()
        self._session_context.__enter__()
        self._graph_context = None if graph is None else graph.as_default()
        if self._graph_context is not None:
            self._graph_context.__enter__()

    def close(self) -> None:
        """Closes the session and stops being the default one."""
        if self._closed:
            return
        super().close()
        if self._graph_context is not None:
            self._graph_context.__exit__(None, None, None)
        default_sessions.leave(self)


class _DefaultSessions(threading.local):
    """The stack of default sessions of a thread."""

    def __init__(self) -> None:
        self.stack: list[BaseSession] = []

    def enter(self, session: BaseSession) -> Any:
        return _DefaultSession(session)

    def leave(self, session: BaseSession) -> None:
        if session in self.stack:
            # the innermost occurrence: a session may be entered more than once
            self.stack.reverse()
            self.stack.remove(session)
            self.stack.reverse()


class _DefaultSession:
    def __init__(self, session: BaseSession) -> None:
        self._session = session

    def __enter__(self) -> BaseSession:
        default_sessions.stack.append(self._session)
        return self._session

    def __exit__(self, *_: object) -> None:
        default_sessions.leave(self._session)


default_sessions = _DefaultSessions()


def get_default_session() -> BaseSession | None:
    """The innermost default session of the current thread, or None.

    Returns:
        A session, or None.

    Raises:
        nothing

    Example:
        >>> with tf.Session() as session:
        ...     tf.get_default_session() is session
        True
    """
    return default_sessions.stack[-1] if default_sessions.stack else None


def _session_for(graph: Graph, session: BaseSession | None, what: str) -> BaseSession:
    chosen = session or get_default_session()
    if chosen is None:
        raise ValueError(
            f"Cannot evaluate {what}: No default session is registered. Use `with sess.as_default()` or pass an "
            "explicit session to eval(session=sess)"
        )
    if chosen.graph is not graph:
        raise ValueError(
            f"Cannot use the {'given' if session else 'default'} session to evaluate {what}: it belongs to a graph "
            "different from the session's graph."
        )
    return chosen


def _evaluate(tensor: Tensor, feed_dict: FeedDict | None, session: BaseSession | None) -> Any:
    return _session_for(tensor.graph, session, "tensor").run(tensor, feed_dict)


def _run_operation(op: Operation, feed_dict: FeedDict | None, session: BaseSession | None) -> None:
    _session_for(op.graph, session, "operation").run(op, feed_dict)


Tensor.EVALUATE["eval"] = _evaluate
Tensor.EVALUATE["run"] = _run_operation
ImmediateGraph.SESSION["open"] = lambda graph: Session(graph=graph)
