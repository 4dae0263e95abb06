"""Threads that fill queues  (§3.2: concurrent steps)."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from typing import Any

from anabranch import errors
from anabranch.frontend.platform import logging
from anabranch.frontend.resources.queues import QueueBase
from anabranch.graph.collections import GraphKeys
from anabranch.graph.graph import get_default_graph
from anabranch.graph.operation import Operation, Tensor
from anabranch.proto.training_pb2 import QueueRunnerDef
from anabranch.session import BaseSession, get_default_session
from anabranch.train.coordinator import Coordinator
from anabranch.train.meta_graph import register_proto_function


class QueueRunner:
    """Runs the enqueue operations of a queue, each again and again in a thread of its own.

    A thread ends when its operation says that the input is used up; the last one closes the queue. When the coordinator
    stops, one more thread cancels what waits at the queue.

    Args:
        queue: the queue.
        enqueue_ops: one operation for each thread.
        close_op: closes the queue; default: `queue.close()`.
        cancel_op: closes the queue and cancels what waits for room; default: that.
        queue_closed_exception_types: which errors of an enqueue operation mean that the input is used up; default:
            `OutOfRangeError`.
        queue_runner_def: a message that describes the queue runner, in place of the arguments before.
        import_scope: the scope into which its graph was imported.

    Raises:
        ValueError: the arguments contradict one another, or are not enough.
        TypeError: the exception types are none of `tf.errors`.

    Example:
        >>> queue = tf.FIFOQueue(10, tf.int32, shapes=[[]])
        >>> tf.train.add_queue_runner(tf.train.QueueRunner(queue, [queue.enqueue(7)]))
        >>> threads = tf.train.start_queue_runners(sess)
        >>> sess.run(queue.dequeue())
        np.int32(7)
    """

    #: whether the operations wait for more than the queue, so that only closing the session ends their threads, and
    #: a coordinator does not wait for these
    _ends_with_session = False

    def __init__(
        self,
        queue: QueueBase | None = None,
        enqueue_ops: Sequence[Any] | None = None,
        close_op: Operation | None = None,
        cancel_op: Operation | None = None,
        queue_closed_exception_types: tuple[type[BaseException], ...] | None = None,
        queue_runner_def: QueueRunnerDef | None = None,
        import_scope: str | None = None,
    ) -> None:
        if queue_runner_def is not None:
            if queue is not None or enqueue_ops:
                raise ValueError("queue_runner_def and queue are mutually exclusive.")
            self._read(queue_runner_def, import_scope)
        else:
            self._take(queue, enqueue_ops, close_op, cancel_op, queue_closed_exception_types)
        self._lock = threading.Lock()
        #: how many threads each session still has; guarded by _lock
        self._runs: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._exceptions_raised: list[BaseException] = []

    def _take(
        self,
        queue: QueueBase | None,
        enqueue_ops: Sequence[Operation | Tensor] | None,
        close_op: Operation | None,
        cancel_op: Operation | None,
        closed_types: tuple[type[BaseException], ...] | None,
    ) -> None:
        if not queue or not enqueue_ops:
            raise ValueError("Must provide queue and enqueue_ops.")
        self._queue: QueueBase = queue
        self._enqueue_ops = list(enqueue_ops)
        self._close_op: Operation = queue.close() if close_op is None else close_op
        self._cancel_op: Operation = queue.close(cancel_pending_enqueues=True) if cancel_op is None else cancel_op
        if closed_types is not None and not (
            isinstance(closed_types, tuple)
            and closed_types
            and all(isinstance(t, type) and issubclass(t, errors.OpError) for t in closed_types)
        ):
            raise TypeError(
                "queue_closed_exception_types, when provided, must be a tuple of tf.error types, but saw: "
                f"{closed_types}"
            )
        self._closed_types: tuple[type[BaseException], ...] = closed_types or (errors.OutOfRangeError,)

    def _read(self, message: QueueRunnerDef, import_scope: str | None) -> None:
        if not isinstance(message, QueueRunnerDef):
            raise TypeError(f"queue_runner_def must be a QueueRunnerDef, got {type(message).__name__}")
        graph = get_default_graph()

        def element(name: str) -> Any:
            return graph.as_graph_element(f"{import_scope}/{name}" if import_scope else name)

        self._queue = element(message.queue_name)
        self._enqueue_ops = [element(name) for name in message.enqueue_op_name]
        self._close_op = element(message.close_op_name)
        self._cancel_op = element(message.cancel_op_name)
        kinds = tuple(errors.exception_type_from_error_code(code) for code in message.queue_closed_exception_types)
        self._closed_types = kinds or (errors.OutOfRangeError,)

    # ------------------------------------------------------------------ what it is
    @property
    def queue(self) -> QueueBase:
        """The queue."""
        return self._queue

    @property
    def enqueue_ops(self) -> list[Any]:
        """One operation for each thread."""
        return self._enqueue_ops

    @property
    def close_op(self) -> Operation:
        """Closes the queue."""
        return self._close_op

    @property
    def cancel_op(self) -> Operation:
        """Closes the queue and cancels what waits for room."""
        return self._cancel_op

    @property
    def queue_closed_exception_types(self) -> tuple[type[BaseException], ...]:
        """The errors that mean that the input is used up."""
        return self._closed_types

    @property
    def exceptions_raised(self) -> list[BaseException]:
        """What the threads of the last `create_threads` failed with, beside those."""
        return self._exceptions_raised

    @property
    def name(self) -> str:
        """The name of the queue."""
        name: str = self._queue.name
        return name

    # ------------------------------------------------------------------ threads
    def create_threads(
        self, sess: BaseSession, coord: Coordinator | None = None, daemon: bool = False, start: bool = False
    ) -> list[threading.Thread]:
        """Makes the threads for a session; none if it has some that still run.

        Args:
            sess: runs the operations.
            coord: receives exceptions, and says when to stop.
            daemon: whether the process may end before the threads.
            start: whether to start them.

        Returns:
            The threads; of those that were started and end with the session only, none.
        """
        with self._lock:
            if self._runs.get(sess, 0) > 0:
                return []
            self._runs[sess] = len(self._enqueue_ops)
            self._exceptions_raised = []
        threads = [
            threading.Thread(target=self._run, args=(sess, op, coord), name=f"QueueRunnerThread-{self.name}-{op.name}")
            for op in self._enqueue_ops
        ]
        stopper = None
        if coord is not None:
            stopper = threading.Thread(
                target=self._cancel_on_stop, args=(sess, coord), name=f"QueueRunnerThread-{self.name}-close_on_stop"
            )
            threads.append(stopper)
        waited_for = [stopper] if stopper is not None and self._ends_with_session else threads
        for thread in threads:
            if coord is not None and thread in waited_for:
                coord.register_thread(thread)
            thread.daemon = daemon
            if start:
                thread.start()
        return waited_for if start else threads

    def _run(self, sess: BaseSession, enqueue_op: Operation | Tensor, coord: Coordinator | None) -> None:
        counted = False
        try:
            enqueue = sess.make_callable(enqueue_op)
            while coord is None or not coord.should_stop():
                try:
                    enqueue()
                    if not self._enqueued():
                        return
                except self._closed_types:
                    counted = True
                    if self._one_less(sess) == 0:
                        self._close(sess)
                    return
        except Exception as error:
            self._failed()
            if self._ends_with_session and coord is not None and coord.should_stop():
                return  # the session was closed, which cancelled the operation
            if coord is not None:
                coord.request_stop(error)
            else:
                logging.error("Exception in QueueRunner: %s", error)
            with self._lock:
                self._exceptions_raised.append(error)
        finally:
            if not counted:
                self._one_less(sess)

    def _enqueued(self) -> bool:
        """Called by a thread after each time that its operation has run; whether it goes on."""
        return True

    def _failed(self) -> None:
        """Called by a thread whose operation failed, or was cancelled, as that of a session that was closed."""

    def _one_less(self, sess: BaseSession) -> int:
        with self._lock:
            self._runs[sess] -= 1
            return self._runs[sess]

    def _close(self, sess: BaseSession) -> None:
        try:
            sess.run(self._close_op)
        except Exception as error:  # whoever closed it first is right as well
            logging.vlog(1, "Ignored exception: %s", error)

    def _cancel_on_stop(self, sess: BaseSession, coord: Coordinator) -> None:
        coord.wait_for_stop()
        try:
            sess.run(self._cancel_op)
        except Exception as error:  # a closed session has cancelled everything already
            logging.vlog(1, "Ignored exception: %s", error)

    # ------------------------------------------------------------------ as a message
    def to_proto(self, export_scope: str | None = None) -> QueueRunnerDef | None:
        """The message that describes the queue runner; None if the queue is outside `export_scope`."""
        prefix = f"{export_scope}/" if export_scope else ""
        if not self.queue.name.startswith(prefix):
            return None

        def name(item: Operation | Tensor | QueueBase) -> str:
            return str(item.name).removeprefix(prefix)

        return QueueRunnerDef(
            queue_name=name(self.queue),
            enqueue_op_name=[name(op) for op in self._enqueue_ops],
            close_op_name=name(self._close_op),
            cancel_op_name=name(self._cancel_op),
            queue_closed_exception_types=[_code(kind) for kind in self._closed_types],
        )

    @staticmethod
    def from_proto(queue_runner_def: QueueRunnerDef, import_scope: str | None = None) -> QueueRunner:
        """The queue runner whose nodes a message names in the default graph.

        Raises:
            KeyError: a node is not in the graph.
        """
        return QueueRunner(queue_runner_def=queue_runner_def, import_scope=import_scope)


def _code(kind: type[BaseException]) -> Any:
    return errors.error_code_from_exception_type(kind) if issubclass(kind, errors.OpError) else errors.UNKNOWN


register_proto_function(GraphKeys.QUEUE_RUNNERS, QueueRunnerDef, QueueRunner.to_proto, QueueRunner.from_proto)


def add_queue_runner(qr: QueueRunner, collection: str = GraphKeys.QUEUE_RUNNERS) -> None:
    """Adds a queue runner to a collection of the default graph, for `start_queue_runners`."""
    get_default_graph().add_to_collection(collection, qr)


def start_queue_runners(
    sess: BaseSession | None = None,
    coord: Coordinator | None = None,
    daemon: bool = True,
    start: bool = True,
    collection: str = GraphKeys.QUEUE_RUNNERS,
) -> list[threading.Thread]:
    """Makes the threads of all queue runners of the graph, and starts them.

    Args:
        sess: runs the operations; default: the default session.
        coord: receives exceptions, and says when to stop.
        daemon: whether the process may end before the threads.
        start: whether to start them.
        collection: which queue runners.

    Returns:
        The threads.

    Raises:
        ValueError: there is no session.
        TypeError: `sess` is none.

    Example:
        >>> queue = tf.train.string_input_producer(["a"], shuffle=False)
        >>> coordinator = tf.train.Coordinator()
        >>> threads = tf.train.start_queue_runners(sess, coordinator)
        >>> sess.run(queue.dequeue())
        b'a'
        >>> coordinator.request_stop()
        >>> coordinator.join(threads)
    """
    if sess is None:
        sess = get_default_session()
        if sess is None:
            raise ValueError(
                "Cannot start queue runners: No default session is registered. Use `with sess.as_default()` or pass an "
                "explicit session to tf.start_queue_runners(sess=sess)"
            )
    if not isinstance(sess, BaseSession):
        if type(sess).__name__ in {"MonitoredSession", "SingularMonitoredSession"}:
            return []  # they have started theirs
        raise TypeError(f"sess must be a `tf.Session` object. Given class: {type(sess)}")
    runners = sess.graph.get_collection(collection)
    if not runners:
        logging.warning("`tf.train.start_queue_runners()` was called when no queue runners were defined.")
    with sess.graph.as_default():
        return [
            thread
            for runner in runners
            for thread in runner.create_threads(sess, coord=coord, daemon=daemon, start=start)
        ]
