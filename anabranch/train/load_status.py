"""What `tf.train.Checkpoint.restore` returns: assertions about a restore, and the operations that do it  (§4.3)."""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Iterable
from typing import Any, Final, Protocol, Self

from anabranch.core.trackables import Trackable, Tracked, held_by, values_of
from anabranch.frontend.variables.partitioned import PartitionedVariable
from anabranch.frontend.variables.variables import Variable
from anabranch.graph.graph import Graph, get_default_graph
from anabranch.graph.operation import Operation, StepRunner, Tensor
from anabranch.session import get_default_session
from anabranch.train.object_graph import ObjectGraphView, StoredValue
from anabranch.train.object_restoration import ObjectRestoration, latest_restoration, note_restoration
from anabranch.train.object_saveables import full_name_of
from anabranch.train.saver import Saver

_MAX_SHOWN: Final = 10


class Restorer(Protocol):
    """What runs the operations of a restore."""

    def run_restore(self, session: StepRunner, prefix: str, values: Iterable[StoredValue]) -> None:
        """Gives objects the values of a checkpoint."""


def session_or_default(session: StepRunner | None) -> StepRunner:
    """The session, or the default one.

    Raises:
        ValueError: there is neither.
    """
    session = session or get_default_session()
    if session is None:
        raise ValueError("a checkpoint is written and read in a session: pass one, or use `with tf.Session():`")
    return session


def graph_of(session: StepRunner) -> Graph:
    """The graph that a session runs."""
    graph = getattr(session, "graph", None)
    return graph if isinstance(graph, Graph) else get_default_graph()


class LoadStatus(abc.ABC):
    """What a checkpoint had for the objects of a program. All but the last four methods return the status itself."""

    @abc.abstractmethod
    def assert_consumed(self) -> Self:
        """Raises AssertionError unless the checkpoint and the program have the same objects and values."""

    @abc.abstractmethod
    def assert_existing_objects_matched(self) -> Self:
        """Raises AssertionError unless the checkpoint has all objects that the program has by now."""

    @abc.abstractmethod
    def assert_nontrivial_match(self) -> Self:
        """Raises AssertionError unless the checkpoint has some object of the program beside the root."""

    @abc.abstractmethod
    def run_restore_ops(self, session: StepRunner | None = None) -> None:
        """Gives objects the values of the checkpoint; `session`: default: the default session."""

    @abc.abstractmethod
    def initialize_or_restore(self, session: StepRunner | None = None) -> None:
        """As `run_restore_ops`; what the checkpoint does not have gets its initial value."""

    def expect_partial(self) -> Self:
        """Itself: nothing is said in the log of what found no object."""
        return self


class CheckpointLoadStatus(LoadStatus):
    """The status of a restore from a checkpoint of objects.

    Example:
        >>> v = tf.Variable(3.0)
        >>> checkpoint = tf.train.Checkpoint(v=v)
        >>> sess.run(v.initializer)
        >>> path = checkpoint.save("runs/stored", session=sess)
        >>> with tf.Session() as later:
        ...     checkpoint.restore(path).assert_consumed().run_restore_ops()
        ...     later.run(v)
        np.float32(3.0)
    """

    def __init__(self, restoration: ObjectRestoration, restorer: Restorer) -> None:
        self._restoration, self._restorer = restoration, restorer
        #: what need not be in the checkpoint
        self._optional: list[Any] = []
        #: the values that `restore_new` gave, by owner and name
        self._restored: set[tuple[int, str]] = set()

    def do_without(self, obj: Tracked) -> None:
        """Says that assertions do not mind where the checkpoint lacks an object."""
        self._optional.append(obj)

    def assert_consumed(self) -> Self:
        self.assert_existing_objects_matched()
        stored, unmatched = self._restoration.stored, self._restoration.unmatched
        if unmatched.objects:
            names = [stored.name_of(number) for number in sorted(unmatched.objects)]
            raise AssertionError(f"Unresolved object in checkpoint {stored.prefix!r}: {_shown(names)}")
        if unmatched.values:
            values = [
                f"{stored.name_of(number)} ({self._restoration.objects[number]}): {names}"
                for number, names in sorted(unmatched.values.items())
            ]
            raise AssertionError(
                "Unused attributes in these objects (the attributes exist in the checkpoint "
                f"{stored.prefix!r} but were not restored): {_shown(values)}"
            )
        return self

    def assert_existing_objects_matched(self) -> Self:
        unmatched = self._unmatched_objects()
        if unmatched:
            raise AssertionError(
                f"Some Python objects were not bound to checkpointed values of {self._restoration.stored.prefix!r}, "
                f"likely due to changes in the Python program: {_shown(unmatched)}"
            )
        return self

    def assert_nontrivial_match(self) -> Self:
        self._restoration.look()
        if len(self._restoration.objects) > 1:
            return self
        unmatched = self._unmatched_objects()
        if not unmatched:
            root = self._restoration.view.root
            raise AssertionError(f"Nothing to load. No dependencies have been added to {root} yet.")
        raise AssertionError(
            "Nothing except the root object matched a checkpointed value. Typically this means that the checkpoint "
            "does not match the Python program. The following objects have no matching checkpointed value: "
            f"{_shown(unmatched)}"
        )

    def _unmatched_objects(self) -> list[str]:
        """The objects of the program that the checkpoint lacks; lists and dictionaries for what is in them."""
        self._restoration.look()
        found = {id(obj) for obj in (*self._restoration.objects.values(), *self._optional)}
        return [
            f"{obj} ({path or 'the root'})"
            for obj, path in self._restoration.view.objects_and_paths()
            if id(obj) not in found and isinstance(obj, Trackable) and not _is_empty_container(obj)
        ]

    def run_restore_ops(self, session: StepRunner | None = None) -> None:
        session = session_or_default(session)
        with graph_of(session).as_default():
            self._restoration.look()
            self._restorer.run_restore(session, self._restoration.stored.prefix, self._restoration.values)

    def restore_new(self, session: StepRunner | None = None) -> None:
        """Gives their values to objects that were found since the last call, and leaves the others what they are.

        What takes the place of an object that had been found gets nothing.
        """
        session = session_or_default(session)
        self._restoration.keep_bindings()
        with graph_of(session).as_default():
            self._restoration.look()
            new = [value for value in self._restoration.values if (id(value.owner), value.name) not in self._restored]
            self._restorer.run_restore(session, self._restoration.stored.prefix, new)
            self._restored |= {(id(value.owner), value.name) for value in new}

    def initialize_or_restore(self, session: StepRunner | None = None) -> None:
        session = session_or_default(session)
        with graph_of(session).as_default():
            self.run_restore_ops(session)
            restored = {id(value.owner) for value in self._restoration.values}
            rest = [
                obj
                for obj in self._restoration.view.list_objects()
                if id(obj) not in restored and latest_restoration(obj) <= self._restoration.number
            ]
            _run_initializers(session, rest)

    def expect_partial(self) -> Self:
        self._restoration.unmatched.is_expected = True
        return self


class InitializationOnlyStatus(LoadStatus):
    """What restoring from no checkpoint gives: it initialises, and every assertion fails."""

    def __init__(self, view: ObjectGraphView, number: int) -> None:
        self._view, self._number = view, number

    def assert_consumed(self) -> Self:
        raise AssertionError("No checkpoint specified (save_path=None); nothing is being restored.")

    assert_existing_objects_matched = assert_consumed
    assert_nontrivial_match = assert_consumed

    def run_restore_ops(self, session: StepRunner | None = None) -> None:
        raise AssertionError(
            "No checkpoint specified, so no restore ops are available (save_path=None to restore). "
            "initialize_or_restore() gives initial values then"
        )

    def initialize_or_restore(self, session: StepRunner | None = None) -> None:
        session = session_or_default(session)
        with graph_of(session).as_default():
            rest = [obj for obj in self._view.list_objects() if latest_restoration(obj) < self._number]
            _run_initializers(session, rest)


class NameBasedSaverStatus(LoadStatus):
    """The status of a restore from a checkpoint of `tf.train.Saver`: values are found by the names of variables.

    Whether it has them all is only known once they are restored: the assertions fail before.
    """

    def __init__(self, view: ObjectGraphView, prefix: str, number: int) -> None:
        self._view, self._prefix, self._number = view, prefix, number
        self._optional: list[Any] = []

    def do_without(self, obj: Tracked) -> None:
        """Says that an object is not looked for in the checkpoint unless it is there."""
        self._optional.append(obj)

    def assert_consumed(self) -> Self:
        left = [
            f"{obj} ({path})"
            for obj, path in self._view.objects_and_paths()
            if values_of(obj) and latest_restoration(obj) < self._number and not self._is_optional(obj)
        ]
        if left:
            raise AssertionError(f"Object not restored by name from {self._prefix!r}: {_shown(left)}")
        return self

    assert_existing_objects_matched = assert_consumed
    assert_nontrivial_match = assert_consumed

    def _is_optional(self, obj: Tracked) -> bool:
        return any(obj is one for one in self._optional)

    def run_restore_ops(self, session: StepRunner | None = None) -> None:
        session = session_or_default(session)
        with graph_of(session).as_default():
            named: dict[str, Any] = {}
            found = []
            for obj in self._view.list_objects():
                if latest_restoration(obj) > self._number or self._is_optional(obj):
                    continue
                for value in values_of(obj).values():
                    if isinstance(value, Variable | PartitionedVariable):
                        named[full_name_of(value)] = value
                        found.append(obj)
            saver = Saver(named, max_to_keep=0, allow_empty=True)
            saver.restore(session, self._prefix)
            _run_initializers(session, self._optional)
        for obj in found:
            note_restoration(obj, self._number)

    def initialize_or_restore(self, session: StepRunner | None = None) -> None:
        self.run_restore_ops(session)


def _is_empty_container(obj: Tracked) -> bool:
    """Whether an object is there only for what it holds, and holds nothing."""
    return bool(getattr(obj, "_is_container", False)) and not held_by(obj)


def _run_initializers(session: StepRunner, objects: Iterable[Any]) -> None:
    """Gives objects their initial values, all those that have any."""
    initializers = []
    for obj in objects:
        for part in obj if isinstance(obj, PartitionedVariable) else [obj]:
            with contextlib.suppress(ValueError):  # of an iterator that needs none
                initializers.append(getattr(part, "initializer", None))
    operations = [one for one in initializers if isinstance(one, Operation | Tensor)]
    if operations:
        session.run(operations)


def _shown(items: list[str]) -> str:
    more = f" and {len(items) - _MAX_SHOWN} more" if len(items) > _MAX_SHOWN else ""
    return ", ".join(items[:_MAX_SHOWN]) + more
