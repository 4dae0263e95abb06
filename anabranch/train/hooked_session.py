"""The layers around a session of which a monitored session is made: hooks, threads, recovery.

Each layer is itself a session: `run`, `run_step_fn`, `should_stop`, `close`. From the inside out: `HookedSession` calls
the hooks around each run, `CoordinatedSession` ends the threads with the session, `RecoverableSession` makes a new one
when a task of the cluster is lost.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from anabranch import errors
from anabranch.core.nest import Structure
from anabranch.core.pauses import Pauses
from anabranch.core.values import PassedOn
from anabranch.frontend.platform import logging
from anabranch.graph.graph import Graph
from anabranch.graph.operation import FeedDict, StepRunner
from anabranch.proto.config_pb2 import RunMetadata, RunOptions
from anabranch.train.coordinator import Coordinator, SessionCoordinator
from anabranch.train.session_run_hook import SessionRunArgs, SessionRunContext, SessionRunHook, SessionRunValues

#: what a lost task looks like to a client: worth a new session
PREEMPTION_ERRORS = (errors.AbortedError, errors.UnavailableError)


class Creator(Protocol):
    """Makes a session."""

    def create_session(self) -> Any:
        """A session whose model is ready."""


class StepContext:
    """What the function given to `run_step_fn` gets."""

    def __init__(self, session: StepRunner, run_with_hooks_fn: Callable[..., Any]) -> None:
        self._session = session
        self._run_with_hooks_fn = run_with_hooks_fn

    @property
    def session(self) -> Any:
        """The session without hooks."""
        return self._session

    def run_with_hooks(self, *args: PassedOn, **kwargs: PassedOn) -> Any:
        """Does what `MonitoredSession.run` does; a hook may call it at most once per step."""
        return self._run_with_hooks_fn(*args, **kwargs)

    def request_stop(self) -> None:
        """Ends the function with StopIteration, a regular end for the block of a monitored session."""
        raise StopIteration("step_fn has requested the iterations to stop.")


class WrappedSession:
    """A session around another.

    Args:
        session: the inner one.
    """

    def __init__(self, session: StepRunner) -> None:
        self._sess: Any = session
        self._wraps_a_layer = isinstance(session, WrappedSession)

    @property
    def graph(self) -> Graph:
        graph: Graph = self._sess.graph
        return graph

    def should_stop(self) -> bool:
        """Whether the training loop should end: always, once this is closed."""
        if self._check_stop():
            return True
        if self._sess is None:
            return True
        return self._wraps_a_layer and self._sess.should_stop()

    def _check_stop(self) -> bool:
        """What this layer has to say."""
        return False

    def close(self) -> None:
        """Closes the inner session. A task that is lost already needs no closing."""
        if self._sess is None:
            return
        try:
            self._sess.close()
        except PREEMPTION_ERRORS as error:
            logging.warning("An error occurred when attempting to close the session: %s", error)
        finally:
            self._sess = None

    def run(self, *args: PassedOn, **kwargs: PassedOn) -> Any:
        """Runs a step."""
        return self._sess.run(*args, **kwargs)

    def run_step_fn(self, step_fn: Callable[[StepContext], Any], raw_session: Callable[[], Any]) -> Any:
        """Calls a step that is a Python function; `raw_session` gives the session without hooks."""
        return step_fn(StepContext(raw_session(), self.run))


class RecoverableSession(WrappedSession):
    """Makes a new session after `PREEMPTION_ERRORS`, and runs the step in that.

    It does so at once after a step that went well, and with pauses between attempts of which none did (`Pauses`).

    Args:
        creator: makes the sessions.
    """

    def __init__(self, creator: Creator) -> None:
        self._creator = creator
        self._pauses = Pauses()
        self._is_new = False  # whether no step of this session has ended well
        super().__init__(self._create_session())

    def _create_session(self) -> Any:
        while True:
            if self._is_new:
                time.sleep(self._pauses.next())
            self._is_new = True
            try:
                return self._creator.create_session()
            except PREEMPTION_ERRORS as error:
                logging.info("An error was raised while a session was being created, which is tried again: %s", error)

    def _check_stop(self) -> bool:
        try:
            return self._sess is not None and self._sess._check_stop()
        except PREEMPTION_ERRORS as error:
            logging.info("An error was raised while considering whether the session is complete: %s", error)
            self._recreate()
            return False
        except Exception:  # it ends the loop; `close` raises it when the hooks have ended
            return True

    def run(
        self,
        fetches: Structure,
        feed_dict: FeedDict | None = None,
        options: RunOptions | None = None,
        run_metadata: RunMetadata | None = None,
    ) -> Any:
        return self._recovering(
            lambda: self._sess.run(fetches, feed_dict=feed_dict, options=options, run_metadata=run_metadata)
        )

    def run_step_fn(self, step_fn: Callable[[StepContext], Any], raw_session: Callable[[], Any]) -> Any:
        return self._recovering(lambda: self._sess.run_step_fn(step_fn, raw_session))

    def _recovering(self, step: Callable[[], Any]) -> Any:
        while True:
            try:
                if self._sess is None:
                    self._sess = self._create_session()
                results = step()
            except PREEMPTION_ERRORS as error:
                logging.info("An error was raised. The session will be closed and a new session created: %s", error)
                self._recreate()
            else:
                self._is_new = False
                self._pauses.reset()
                return results

    def _recreate(self) -> None:
        if isinstance(self._sess, CoordinatedSession):
            self._sess.is_followed()
        self.close()
        self._sess = self._create_session()


class CoordinatedSession(WrappedSession):
    """Ends with its threads: an exception in one of them is raised by the next `run`.

    Args:
        session: the inner session.
        coord: ends the threads.
        stop_grace_period_secs: how long they may take, in seconds.
    """

    def __init__(self, session: StepRunner, coord: Coordinator, stop_grace_period_secs: float) -> None:
        super().__init__(session)
        self._coord = coord
        self._stop_grace_period_secs = stop_grace_period_secs

    def _check_stop(self) -> bool:
        # An exception in a thread that was not caught in a run is raised here.
        self._coord.raise_requested_exception()
        return self._coord.should_stop()

    def is_followed(self) -> None:
        """Says, before it is closed, that another session of the same model follows."""
        if isinstance(self._coord, SessionCoordinator):
            self._coord.ends(is_followed=True)

    def close(self) -> None:
        if isinstance(self._coord, SessionCoordinator):
            self._coord.ends(is_followed=False)
        self._coord.request_stop()
        try:
            self._coord.join(stop_grace_period_secs=self._stop_grace_period_secs, ignore_live_threads=True)
        finally:
            super().close()

    def run(self, *args: PassedOn, **kwargs: PassedOn) -> Any:
        with self._tells_the_reason():
            return self._sess.run(*args, **kwargs)

    def run_step_fn(self, step_fn: Callable[[StepContext], Any], raw_session: Callable[[], Any]) -> Any:
        # Also what it runs without hooks may find the session closed, by a thread that wants another one made.
        with self._tells_the_reason():
            return super().run_step_fn(step_fn, raw_session)

    @contextlib.contextmanager
    def _tells_the_reason(self) -> Iterator[None]:
        """The reason why a thread stopped is what the caller should see, not what followed from it."""
        try:
            yield
        except (*PREEMPTION_ERRORS, StopIteration):
            raise
        except Exception as error:
            try:
                self._coord.raise_requested_exception()
            except PREEMPTION_ERRORS:
                raise
            except Exception as first:
                if first is error:
                    raise
                raise first from error
            raise


class HookedSession(WrappedSession):
    """Calls hooks around each run.

    Args:
        session: the inner session.
        hooks: called in this order.
    """

    def __init__(self, session: StepRunner, hooks: Sequence[SessionRunHook]) -> None:
        super().__init__(session)
        self._hooks = hooks
        self._should_stop = False

    def _check_stop(self) -> bool:
        return self._should_stop

    def run(
        self,
        fetches: Structure,
        feed_dict: FeedDict | None = None,
        options: RunOptions | None = None,
        run_metadata: RunMetadata | None = None,
    ) -> Any:
        if self.should_stop():
            raise RuntimeError("Run called even after should_stop requested.")
        context = SessionRunContext(SessionRunArgs(fetches, feed_dict, options), self._sess)
        merged = RunOptions()
        if options is not None:
            merged.CopyFrom(options)
        feeds = dict(feed_dict or {})
        asked = self._ask_hooks(context, feeds, merged)
        metadata = run_metadata if run_metadata is not None else RunMetadata()
        wanted = merged if options is not None or merged.ByteSize() else None
        everything: dict[Any, Any] = {"caller": fetches}
        everything.update((hook, args.fetches) for hook, args in asked.items() if args.fetches is not None)
        results = self._sess.run(everything, feed_dict=feeds or None, options=wanted, run_metadata=metadata)
        for hook in self._hooks:
            hook.after_run(context, SessionRunValues(results.get(hook), merged, metadata))
        self._should_stop = self._should_stop or context.stop_requested
        return results["caller"]

    def _ask_hooks(
        self, context: SessionRunContext, feeds: dict[Any, Any], options: RunOptions
    ) -> dict[SessionRunHook, SessionRunArgs]:
        """What the hooks add; their feeds and options go into `feeds` and `options`."""
        asked: dict[SessionRunHook, SessionRunArgs] = {}
        fed_by_hooks: set[Any] = set()
        for hook in self._hooks:
            args = hook.before_run(context)
            if args is None:
                continue
            asked[hook] = args
            for key, value in (args.feed_dict or {}).items():
                if key in fed_by_hooks:
                    raise RuntimeError("Same tensor is fed by two hooks.")
                if key in feeds:
                    raise RuntimeError("Same tensor is fed by a SessionRunHook and user.")
                feeds[key] = value
            fed_by_hooks.update(args.feed_dict or {})
            if args.options is not None:
                _merge_options(options, args.options)
        return asked


def _merge_options(into: RunOptions, options: RunOptions) -> None:
    """The more detailed of two options: the higher trace level, the longer timeout, what either of them asks for."""
    into.trace_level = max(into.trace_level, options.trace_level)
    into.timeout_in_ms = max(into.timeout_in_ms, options.timeout_in_ms)
    into.inter_op_thread_pool = max(into.inter_op_thread_pool, options.inter_op_thread_pool)
    into.output_partition_graphs = max(into.output_partition_graphs, options.output_partition_graphs)
    into.report_tensor_allocations_upon_oom = max(
        into.report_tensor_allocations_upon_oom, options.report_tensor_allocations_upon_oom
    )
    into.debug_options.debug_tensor_watch_opts.extend(options.debug_options.debug_tensor_watch_opts)
