"""tf.train.Checkpoint: checkpoints of objects, in TensorFlow's format  (§4.3; docs/decisions/0084)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

from anabranch.core.arrays import Array
from anabranch.core.compat import as_text
from anabranch.core.trackables import OBJECT_GRAPH_PROTO_KEY, AutoTrackable, NoDependency, is_tracked
from anabranch.core.values import PassedOn
from anabranch.frontend.control_flow.grouping import group
from anabranch.frontend.framework import init_scope, name_scope
from anabranch.frontend.variables.variables import Variable
from anabranch.graph.graph import Graph, get_default_graph
from anabranch.graph.operation import Operation, StepRunner, Tensor
from anabranch.io import checkpoint_store
from anabranch.io.checkpoint_state import write_checkpoint_state
from anabranch.ops import raw
from anabranch.train import restoring
from anabranch.train.load_status import (
    CheckpointLoadStatus,
    InitializationOnlyStatus,
    LoadStatus,
    NameBasedSaverStatus,
    graph_of,
    session_or_default,
)
from anabranch.train.object_graph import ObjectGraph, ObjectGraphView, StoredValue
from anabranch.train.object_restoration import ObjectRestoration, next_number
from anabranch.train.object_saveables import NoRestoreSaveable, PythonStateSaveable, saveables_of_value
from anabranch.train.saveables import SaveableObject
from anabranch.train.saver_builder import BaseSaverBuilder
from anabranch.train.stored_objects import read_stored_objects

_COUNTER = "save_counter"


class _BundleBuilder(BaseSaverBuilder):
    """Adds operations that save in TensorFlow's format."""

    def save_op(self, filename_tensor: Tensor, saveables: Sequence[SaveableObject]) -> Operation:
        specs = [spec for saveable in saveables for spec in saveable.specs]
        operation: Operation = raw._SaveTensorBundle(
            filename_tensor,
            [spec.name for spec in specs],
            [spec.slice_spec for spec in specs],
            [spec.tensor for spec in specs],
            name="SaveV2",
        )
        return operation


class TrackableSaver:
    """Saves the objects below a root, and restores them.

    The operations of a save and of a restore are kept: doing the same again adds none to the graph.

    Args:
        graph_view: the objects.
    """

    def __init__(self, graph_view: ObjectGraphView) -> None:
        self._view = graph_view
        self._builder = _BundleBuilder()
        self._prefixes: dict[Graph, Tensor] = {}
        self._descriptions: dict[Graph, Tensor] = {}
        #: what a value is saved as, with its owner, which so is not forgotten while its number stands for it
        self._saveables: dict[tuple[Graph, int, str, str], tuple[Any, list[SaveableObject]]] = {}
        self._operations: dict[tuple[Any, ...], Operation] = {}
        #: which goes on with what is attached later, whether or not somebody keeps its status
        self._latest: ObjectRestoration | None = None

    def save(self, file_prefix: str, checkpoint_number: int | None = None, session: StepRunner | None = None) -> str:
        """Writes a checkpoint, in the place of one that may be there.

        Args:
            file_prefix: its name.
            checkpoint_number: is appended to the name, after a "-".
            session: default: the default session.

        Returns:
            The name.

        Raises:
            ValueError: there is no session; or an object cannot be saved.
            OpError: the checkpoint cannot be written; one that was there is as it was.
        """
        session = session_or_default(session)
        prefix = as_text(os.fsdecode(file_prefix))
        if checkpoint_number is not None:
            prefix = f"{prefix}-{checkpoint_number}"
        with graph_of(session).as_default() as graph, init_scope():
            objects = ObjectGraph(self._view)
            values = [value for _, value in objects.values()]
            feeds: dict[Any, Any] = {}
            for saveable in (saveable for value in values for saveable in self._saveables_of(graph, value)):
                if isinstance(saveable, PythonStateSaveable):
                    feeds.update(saveable.feed_dict_additions())
            save = self._operation("save", graph, values)
            feeds[self._prefix_of(graph)] = prefix
            feeds[self._description_of(graph)] = objects.message().SerializeToString(deterministic=True)
        session.run(save, feeds)
        return prefix

    def restore(self, save_path: str | None) -> CheckpointLoadStatus | InitializationOnlyStatus | NameBasedSaverStatus:
        """Finds what a checkpoint has of the objects. States of Python's are taken over at once.

        Args:
            save_path: its name; None: nothing is restored.

        Raises:
            NotFoundError: there is no such checkpoint.
            DataLossError: it is damaged.
        """
        if save_path is None:
            return InitializationOnlyStatus(self._view, next_number())
        prefix = as_text(os.fsdecode(save_path))
        with checkpoint_store.open_checkpoint(prefix) as reader:
            stored = read_stored_objects(reader)
            dtypes = reader.get_variable_to_dtype_map()
        if stored is None:
            return NameBasedSaverStatus(self._view, prefix, next_number())
        with init_scope():
            restoration = ObjectRestoration(
                stored, dtypes, self._view, lambda value: self._take_over_state(prefix, value)
            )
            self._latest = restoration
            restoration.look()
            graph = get_default_graph()
            # a graph may be finished after this, and is restored then
            if not graph.finalized and all(getattr(v.owner, "graph", graph) is graph for v in restoration.values):
                self._operation("restore", graph, restoration.values)
        return CheckpointLoadStatus(restoration, self)

    def run_restore(self, session: StepRunner, prefix: str, values: Iterable[StoredValue]) -> None:
        """Gives objects the values of a checkpoint.

        Raises:
            NotFoundError, InvalidArgumentError: it lacks some, or has them in another shape or dtype; the message
                lists all.
        """
        values = list(values)
        if not values:
            return
        with init_scope():
            graph = get_default_graph()
            restore = self._operation("restore", graph, values)
        with checkpoint_store.open_checkpoint(prefix) as reader:
            restoring.check_fits(graph, restore.name, reader)
        session.run(restore, {self._prefix_of(graph): prefix})

    # ------------------------------------------------------------------ operations
    def _saveables_of(self, graph: Graph, value: StoredValue) -> list[SaveableObject]:
        key = (graph, id(value.owner), value.name, value.key)
        if key not in self._saveables:
            with name_scope(None, "checkpoint"), graph.control_dependencies(None):
                self._saveables[key] = (value.owner, saveables_of_value(value.value, value.key))
        return self._saveables[key][1]

    def _take_over_state(self, prefix: str, value: StoredValue) -> bool:
        """Whether a value is a state of Python's, which is then taken over."""
        states = [s for s in self._saveables_of(get_default_graph(), value) if isinstance(s, PythonStateSaveable)]
        if states:
            with checkpoint_store.open_checkpoint(prefix) as reader:
                for state in states:
                    state.python_restore([_item(reader.read_tensor(spec.name)) for spec in state.specs])
        return bool(states)

    def _operation(self, kind: str, graph: Graph, values: Sequence[StoredValue]) -> Operation:
        """The operation that saves or restores values: the one that was made for them before."""
        key = (kind, graph, *((id(value.owner), value.name, value.key) for value in values))
        if key not in self._operations:
            saveables = [saveable for value in values for saveable in self._saveables_of(graph, value)]
            with name_scope(None, kind), graph.control_dependencies(None):
                make = self._save if kind == "save" else self._restore
                self._operations[key] = make(graph, saveables)
        return self._operations[key]

    def _save(self, graph: Graph, saveables: Sequence[SaveableObject]) -> Operation:
        description = NoRestoreSaveable(self._description_of(graph), OBJECT_GRAPH_PROTO_KEY)
        return self._builder.save_op(self._prefix_of(graph), [*saveables, description])

    def _restore(self, graph: Graph, saveables: Sequence[SaveableObject]) -> Operation:
        if not saveables:
            return group(name="restore_all")
        tensors = self._builder.bulk_restore(self._prefix_of(graph), saveables, -1, False)
        restored, at = list[Operation](), 0
        for saveable in saveables:
            mine = tensors[at : at + len(saveable.specs)]
            at += len(saveable.specs)
            restored.append(saveable.restore(mine, None))
        return group(*restored, name="restore_all")

    def _prefix_of(self, graph: Graph) -> Tensor:
        return self._fed(self._prefixes, graph, "checkpoint_prefix")

    def _description_of(self, graph: Graph) -> Tensor:
        return self._fed(self._descriptions, graph, "checkpoint_objects")

    def _fed(self, kept: dict[Graph, Tensor], graph: Graph, name: str) -> Tensor:
        """A string that every run is fed."""
        if graph not in kept:
            with graph.as_default(), graph.control_dependencies(None), graph.device("/device:CPU:0"):
                kept[graph] = raw.Placeholder(dtype="string", shape=[], name=name)
        return kept[graph]


def _item(array: Array) -> Any:
    """The string that a scalar of a checkpoint is."""
    return array.item() if hasattr(array, "item") else array


class Checkpoint(AutoTrackable):
    """Saves and restores objects, as a graph of them: what holds what, by which name.

    A value is stored under the names on the way to it, ``model/layers/0/w/.ATTRIBUTES/VARIABLE_VALUE``, and found again
    by the objects that hold it, whatever variables are called in the graph. Objects are variables, `tf.Module`s,
    layers, optimizers (with their slots), lookup tables, iterators, and all that derives from these or from
    `tf.train.experimental.PythonState`; and lists, tuples and dictionaries of them. The files are TensorFlow's.

    Args:
        kwargs: the objects, by name. They can be read as attributes, and more can be set.

    Raises:
        ValueError: one is nothing that checkpoints hold.

    Example:
        >>> v = tf.Variable(3.0)
        >>> checkpoint = tf.train.Checkpoint(v=v)
        >>> sess.run(v.initializer)
        >>> path = checkpoint.save("runs/objects", session=sess)
        >>> path
        'runs/objects-1'
    """

    def __init__(self, **kwargs: PassedOn) -> None:
        for name, value in sorted(kwargs.items()):
            if not is_tracked(value) and not isinstance(value, list | tuple | dict):
                raise ValueError(
                    "`Checkpoint` was expecting a trackable object (an object derived from `TrackableBase`), got "
                    f"{value!r} as {name!r}: hold variables in a tf.Module, a layer, a list or a dictionary"
                )
            setattr(self, name, value)
        self._save_counter: Any = None
        self._saver: Any = NoDependency(TrackableSaver(ObjectGraphView(self)))

    @property
    def save_counter(self) -> Variable:
        """How many checkpoints `save` has written: an int64 variable, made when it is first needed."""
        self._maybe_create_save_counter()
        counter: Variable = self._save_counter
        return counter

    def _maybe_create_save_counter(self) -> None:
        if self._save_counter is not None:
            return
        with init_scope(), get_default_graph().device("/device:CPU:0"), get_default_graph().control_dependencies(None):
            counter = Variable(0, trainable=False, name=_COUNTER, dtype="int64")
            self._is_counting, self._increment = counter.is_initialized(), counter.assign_add(1).op
        self._save_counter = NoDependency(self._track_trackable(counter, _COUNTER))

    def write(self, file_prefix: str, session: StepRunner | None = None) -> str:
        """Writes a checkpoint under exactly this name; one that is there gives way.

        Args:
            file_prefix: its name.
            session: default: the default session.

        Returns:
            `file_prefix`.

        Raises:
            ValueError: there is no session; or an object cannot be saved.
            FailedPreconditionError: a variable is not initialized.
        """
        session = session_or_default(session)
        if self._save_counter is not None:
            self._begin_to_count(session)
        path: str = self._saver.save(file_prefix, session=session)
        return path

    def save(self, file_prefix: str, session: StepRunner | None = None) -> str:
        """Writes a checkpoint whose name ends with a number, one more each time, and that `latest_checkpoint` finds.

        Args:
            file_prefix: its name without "-" and number.
            session: default: the default session. `save_counter`, the number, begins in it at 0 unless it has a value.

        Returns:
            The name: the prefix, "-", and the number.

        Raises:
            ValueError, FailedPreconditionError: as `write`.
        """
        session = session_or_default(session)
        number = self._count(session)
        path = self.write(f"{os.fsdecode(file_prefix)}-{number}", session)
        write_checkpoint_state(os.path.dirname(path) or ".", path, save_relative_paths=True)
        return path

    def save_as(self, path: str, session: StepRunner | None = None) -> str:
        """Writes a checkpoint of exactly this name, and counts it as `save` does."""
        self._count(session_or_default(session))
        return self.write(path, session)

    def _count(self, session: StepRunner) -> int:
        """The number of the next checkpoint, which the session then holds."""
        with graph_of(session).as_default():
            counter = self.save_counter
        self._begin_to_count(session)
        session.run(self._increment)
        return int(session.run(counter))

    def _begin_to_count(self, session: StepRunner) -> None:
        """Gives the counter its initial value in a session where it has none."""
        if not session.run(self._is_counting):
            session.run(self._save_counter.initializer)

    def restore(self, save_path: str | None) -> LoadStatus:
        """Finds what a checkpoint has of the objects; `run_restore_ops` of the result gives them their values.

        Objects that are made or attached later are found when `run_restore_ops` or an assertion of the result is
        called. Of a checkpoint that `tf.train.Saver` wrote, variables are found by their names.

        Args:
            save_path: as `save` returned it; None: nothing is restored, and the result gives initial values.

        Returns:
            A status, with `assert_consumed`, `assert_existing_objects_matched`, `assert_nontrivial_match`,
            `expect_partial`, `run_restore_ops` and `initialize_or_restore`.

        Raises:
            NotFoundError: there is no such checkpoint.
            DataLossError: it is damaged.
        """
        status: CheckpointLoadStatus | InitializationOnlyStatus | NameBasedSaverStatus = self._saver.restore(save_path)
        self._maybe_create_save_counter()
        if not isinstance(status, InitializationOnlyStatus):
            status.do_without(self._save_counter)  # which `write` does not count, and savers of names do not know
        return status
