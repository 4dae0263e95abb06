"""Ending a group of threads together, with the first exception of any of them."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any

from anabranch import errors
from anabranch.frontend.platform import logging

#: how long (s) `join` waits for threads that are to be started, while others run
_BEGIN_WITHIN = 1.0

ExceptionInfo = tuple[type[BaseException] | None, BaseException | None, TracebackType | None]


class Coordinator:
    """Tells threads when to stop, and waits for them.

    A thread loops ``while not coord.should_stop()``; any thread ends all with `request_stop`, and `join` in the main
    thread waits for them and raises what the first one to fail reported.

    Args:
        clean_stop_exception_types: exceptions that, given to `request_stop`, mean a regular end and are not raised by
            `join`; default `OutOfRangeError`.

    Raises:
        nothing

    Example:
        >>> import threading
        >>> coordinator = tf.train.Coordinator()
        >>> def work():
        ...     while not coordinator.should_stop():
        ...         coordinator.request_stop()
        >>> thread = threading.Thread(target=work)
        >>> thread.start()
        >>> coordinator.join([thread])
        >>> coordinator.should_stop()
        True
    """

    def __init__(self, clean_stop_exception_types: Sequence[type[BaseException]] | None = None) -> None:
        if clean_stop_exception_types is None:
            clean_stop_exception_types = (errors.OutOfRangeError,)
        self._clean_stop_exception_types = tuple(clean_stop_exception_types)
        self._lock = threading.Lock()
        self._stop_event = threading.Event()
        self._failure: BaseException | None = None  # guarded by _lock
        self._joined = False
        self._registered_threads: set[threading.Thread] = set()  # guarded by _lock

    def request_stop(self, ex: BaseException | ExceptionInfo | None = None) -> None:
        """Asks all threads to stop; calls after the first change nothing.

        Args:
            ex: the exception (or `sys.exc_info()`) that is the reason; `join` raises it.

        Raises:
            The exception itself, if it is given after `join` has returned: nobody else would learn of it.

        Example:
            >>> coordinator = tf.train.Coordinator()
            >>> coordinator.request_stop()
            >>> coordinator.should_stop()
            True
        """
        failure = ex[1] if isinstance(ex, tuple) else ex
        with self._lock:
            clean = isinstance(failure, self._clean_stop_exception_types)
            if self._joined and failure is not None and not clean:
                raise failure
            if self._stop_event.is_set():
                return
            if failure is not None and not clean:
                self._failure = failure
                logging.info("Error reported to Coordinator: %s, %s", type(failure), failure)
            self._stop_event.set()

    def clear_stop(self) -> None:
        """Forgets the request and its reason: `should_stop` is False again."""
        with self._lock:
            self._joined = False
            self._failure = None
            self._stop_event.clear()

    def should_stop(self) -> bool:
        """Whether a stop was requested.

        Returns:
            A bool.

        Raises:
            nothing

        Example:
            >>> coordinator = tf.train.Coordinator()
            >>> coordinator.should_stop()
            False
        """
        return self._stop_event.is_set()

    def wait_for_stop(self, timeout: float | None = None) -> bool:
        """Waits until a stop is requested, at most `timeout` seconds; returns whether one was."""
        return self._stop_event.wait(timeout)

    @contextlib.contextmanager
    def stop_on_exception(self) -> Iterator[None]:
        """Inside the block, an exception becomes a request to stop."""
        try:
            yield
        except BaseException as error:
            self.request_stop(ex=error)

    def register_thread(self, thread: threading.Thread) -> None:
        """Adds a thread to those that `join` waits for."""
        with self._lock:
            self._registered_threads.add(thread)

    def join(
        self,
        threads: Iterable[threading.Thread] | None = None,
        stop_grace_period_secs: float = 120,
        ignore_live_threads: bool = False,
    ) -> None:
        """Waits until a stop is requested or all threads have ended, then for the threads.

        As long as one of them runs, those that are not started yet have a second to begin: TensorFlow looks once in a
        second, and programs start some of their threads when `join` has begun.

        Args:
            threads: to wait for, beside those registered.
            stop_grace_period_secs: how long the threads may take after the request, in seconds.
            ignore_live_threads: whether to return although some run on after that time.

        Raises:
            The exception given to `request_stop`.
            RuntimeError: threads still run after the grace period.

        Example:
            >>> coordinator = tf.train.Coordinator()
            >>> try:
            ...     raise ValueError("no more input")
            ... except ValueError as error:
            ...     coordinator.request_stop(error)
            >>> try:
            ...     coordinator.join([])
            ... except ValueError as error:
            ...     print(error)
            no more input
        """
        with self._lock:
            waited_for = self._registered_threads | set(threads or ())
        self._wait_for_request_or_end(waited_for)
        deadline = time.monotonic() + stop_grace_period_secs
        for thread in waited_for:
            if thread.is_alive():  # a thread that was not started yet cannot be joined
                thread.join(max(0.0, deadline - time.monotonic()))
        stragglers = sorted(t.name for t in waited_for if t.is_alive())
        with self._lock:
            self._joined = True
            self._registered_threads.clear()
            failure = self._failure
        if failure is not None:
            raise failure
        if stragglers:
            if not ignore_live_threads:
                raise RuntimeError(f"Coordinator stopped with threads still running: {' '.join(stragglers)}")
            logging.info("Coordinator stopped with threads still running: %s", " ".join(stragglers))

    def _wait_for_request_or_end(self, threads: set[threading.Thread]) -> None:
        if not any(thread.is_alive() for thread in threads):
            return
        # A request wakes this wait at once; the end of a thread is looked for, at first often.
        begin_until = time.monotonic() + _BEGIN_WITHIN
        interval = 0.001
        while not self._stop_event.wait(interval):
            may_begin = time.monotonic() < begin_until
            if not any(thread.is_alive() or (may_begin and thread.ident is None) for thread in threads):
                return
            interval = min(2 * interval, 0.1)

    @property
    def joined(self) -> bool:
        """Whether `join` has returned."""
        return self._joined

    def raise_requested_exception(self) -> None:
        """Raises the exception given to `request_stop`, if there is one."""
        with self._lock:
            failure = self._failure
        if failure is not None:
            raise failure


class SessionCoordinator(Coordinator):
    """That of a monitored session: another session may follow it, and what both share must not end with the first.

    An exception in a queue's thread must reach the training loop, also the end of the input: nothing is a clean stop.

    Args:
        followed: the exceptions after which another session follows, if one of them is the reason to stop.
    """

    def __init__(self, followed: tuple[type[BaseException], ...]) -> None:
        super().__init__(clean_stop_exception_types=[])
        self._followed = followed
        self._decided = threading.Event()
        self._is_followed = False
        #: whether the process was told to end, so that nothing is to be waited for; a handler of signals sets it
        self.is_told_to_end = False
        self._has_begun = threading.Event()
        self._has_begun.set()

    @contextlib.contextmanager
    def begins(self) -> Iterator[None]:
        """Within, the session begins: what changes the model by itself waits, so that a hook can save it first."""
        self._has_begun.clear()
        try:
            yield
        finally:
            self._has_begun.set()

    def wait_until_begun(self, within: float) -> None:
        """Waits until the hooks have begun the session, at most so long (s)."""
        self._has_begun.wait(within)

    def ends(self, is_followed: bool) -> None:
        """Says that the session is about to be closed, and whether another follows, in this process or in another that
        takes its place; later calls change nothing.
        """
        with self._lock:
            if not self._decided.is_set():
                self._is_followed = is_followed
                self._decided.set()

    def is_followed(self, within: float) -> bool | None:
        """Whether another session follows, once a stop was requested; None: whoever runs steps has not said in time.

        Args:
            within: how long (s) to wait for that, where a task was lost; after any other reason nobody waits.
        """
        with self._lock:
            failure = self._failure
        if isinstance(failure, self._followed) and not self._decided.wait(within):
            return None
        return self._is_followed


def is_told_to_end(coord: Coordinator | None) -> bool:
    """Whether the process of a session was told to end: its training is to leave now, and not to wait for anything."""
    return isinstance(coord, SessionCoordinator) and coord.is_told_to_end


def is_followed(coord: Coordinator | None) -> bool:
    """Whether it has been said of a session that another one follows it, so that the training is not over."""
    return isinstance(coord, SessionCoordinator) and bool(coord.is_followed(0.0))


class LooperThread(threading.Thread):
    """A thread that calls a function again and again, until its coordinator stops.

    An exception in the function becomes a request to stop.

    Args:
        coord: the coordinator.
        timer_interval_secs: seconds between the beginnings of two calls; None: call without a pause.
        target: the function; a subclass may override `run_loop` instead.
        args: its arguments.
        kwargs: its keyword arguments.

    Raises:
        ValueError: `coord` is no `Coordinator`.
    """

    def __init__(
        self,
        coord: Coordinator,
        timer_interval_secs: float | None,
        target: Callable[..., Any] | None = None,
        args: Sequence[Any] | None = None,
        kwargs: dict[str, Any] | None = None,
    ) -> None:
        if not isinstance(coord, Coordinator):
            raise ValueError(f"'coord' argument must be a Coordinator: {coord}")
        super().__init__(daemon=True)
        self._coord = coord
        self._timer_interval_secs = timer_interval_secs
        self._looped = target
        self._loop_args = tuple(args or ())
        self._loop_kwargs = dict(kwargs or {})
        coord.register_thread(self)

    @staticmethod
    def loop(
        coord: Coordinator,
        timer_interval_secs: float | None,
        target: Callable[..., Any],
        args: Sequence[Any] | None = None,
        kwargs: dict[str, Any] | None = None,
    ) -> LooperThread:
        """Makes such a thread and starts it."""
        thread = LooperThread(coord, timer_interval_secs, target=target, args=args, kwargs=kwargs)
        thread.start()
        return thread

    def run(self) -> None:
        with self._coord.stop_on_exception():
            self.start_loop()
            if self._timer_interval_secs is None:
                while not self._coord.should_stop():
                    self.run_loop()
            else:
                self._run_with_timer(self._timer_interval_secs)
            self.stop_loop()

    def _run_with_timer(self, interval: float) -> None:
        due = time.monotonic()
        while not self._coord.wait_for_stop(max(0.0, due - time.monotonic())):
            due += interval
            self.run_loop()

    def start_loop(self) -> None:
        """Called once before the first call. Override to prepare."""

    def stop_loop(self) -> None:
        """Called once after the last call, unless one failed. Override to clean up."""

    def run_loop(self) -> None:
        """Calls the function."""
        if self._looped is not None:
            self._looped(*self._loop_args, **self._loop_kwargs)
