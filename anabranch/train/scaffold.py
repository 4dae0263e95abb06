"""The operations around a model that a training session needs, with defaults for those not given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from anabranch.frontend.arrays.joining import concat
from anabranch.frontend.control_flow.grouping import group
from anabranch.frontend.platform import logging
from anabranch.frontend.resources.made_objects import (
    MadeObject,
    local_objects,
    report_missing_objects,
    shared_objects,
)
from anabranch.frontend.storage.summary import merge_all
from anabranch.frontend.variables.functions import (
    global_variables,
    global_variables_initializer,
    local_variables_initializer,
    report_uninitialized_variables,
)
from anabranch.graph.collections import GraphKeys
from anabranch.graph.graph import get_default_graph
from anabranch.graph.operation import Operation, Tensor
from anabranch.train.saver import Saver

_Member = TypeVar("_Member")


class Scaffold:
    """What is needed to initialize, check, summarize and save a model; `finalize` fills in what was not given.

    A member that was not given is taken from the graph's collection of that name, or else made.

    Args:
        init_op: initializes the model; default: all global variables, and the objects that belong to the model.
        init_feed_dict: feeds for it.
        init_fn: called with this scaffold and the session after it.
        ready_op: its value is the list of what is not initialized; default: global and local variables.
        ready_for_local_init_op: the same before `local_init_op`; default: global variables.
        local_init_op: run in each new session; default: local variables, tables and local objects.
        summary_op: serialized summaries; default: all of the graph's merged.
        saver: a `Saver`; default: of all variables.
        copy_from_scaffold: what is not given is taken from this one.
        local_init_feed_dict: feeds for `local_init_op`.

    Raises:
        TypeError: `copy_from_scaffold` is no Scaffold.

    Example:
        >>> step = tf.train.get_or_create_global_step()
        >>> scaffold = tf.train.Scaffold(init_fn=lambda scaffold, session: print("initialized"))
        >>> with tf.train.MonitoredTrainingSession(scaffold=scaffold) as session:
        ...     print(session.run(step))
        initialized
        0
    """

    def __init__(
        self,
        init_op: Operation | Tensor | None = None,
        init_feed_dict: dict[Any, Any] | None = None,
        init_fn: Callable[[Scaffold, Any], Any] | None = None,
        ready_op: Tensor | None = None,
        ready_for_local_init_op: Tensor | None = None,
        local_init_op: Operation | Tensor | None = None,
        summary_op: Tensor | str | Sequence[Tensor | str] | None = None,
        saver: Saver | None = None,
        copy_from_scaffold: Scaffold | None = None,
        local_init_feed_dict: dict[Any, Any] | None = None,
    ) -> None:
        if copy_from_scaffold is not None and not isinstance(copy_from_scaffold, Scaffold):
            raise TypeError("copy_from_scaffold is not a Scaffold instance.")
        given = {
            "init_op": init_op,
            "init_feed_dict": init_feed_dict,
            "ready_op": ready_op,
            "ready_for_local_init_op": ready_for_local_init_op,
            "local_init_op": local_init_op,
            "local_init_feed_dict": local_init_feed_dict,
            "summary_op": summary_op,
            "saver": saver,
        }
        for name, value in given.items():
            copied = getattr(copy_from_scaffold, name, None) if value is None else value
            setattr(self, "_" + name, copied)
        self._init_fn: Callable[[Any], Any] | None = None
        if init_fn is not None:
            self._init_fn = lambda session: init_fn(self, session)
        elif copy_from_scaffold is not None:
            self._init_fn = copy_from_scaffold.init_fn

    _init_op: Operation
    _init_feed_dict: dict[Any, Any] | None
    _ready_op: Tensor | None
    _ready_for_local_init_op: Tensor | None
    _local_init_op: Operation
    _local_init_feed_dict: dict[Any, Any] | None
    _summary_op: Tensor | None
    _saver: Saver

    def finalize(self) -> Scaffold:
        """Makes what is missing, and finalizes the graph."""
        if self._init_op is None:
            self._init_op = self.get_or_default("init_op", GraphKeys.INIT_OP, _default_init_op)
        if self._ready_op is None:
            self._ready_op = self.get_or_default("ready_op", GraphKeys.READY_OP, _default_ready_op)
        if self._ready_for_local_init_op is None:
            self._ready_for_local_init_op = self.get_or_default(
                "ready_for_local_init_op",
                GraphKeys.READY_FOR_LOCAL_INIT_OP,
                _default_ready_for_local_init_op,
            )
        if self._local_init_op is None:
            self._local_init_op = self.get_or_default(
                "local_init_op", GraphKeys.LOCAL_INIT_OP, self.default_local_init_op
            )
        if self._summary_op is None:
            self._summary_op = self.get_or_default("summary_op", GraphKeys.SUMMARY_OP, merge_all)
        if self._saver is None:
            self._saver = self.get_or_default("saver", GraphKeys.SAVERS, lambda: Saver(sharded=True, allow_empty=True))
        self._saver.build()
        get_default_graph().finalize()
        logging.info("Graph was finalized.")
        return self

    @staticmethod
    def get_or_default(arg_name: str, collection_key: str, default_constructor: Callable[[], _Member]) -> _Member:
        """The one member of a collection; where it is empty, what the constructor makes, which joins it.

        Raises:
            RuntimeError: the collection has several members.
        """
        graph = get_default_graph()
        members: list[_Member] = graph.get_collection(collection_key)
        if len(members) > 1:
            raise RuntimeError(
                f'More than one item in the collection "{collection_key}". Please indicate which one to use by passing '
                f"it to the tf.Scaffold constructor as:  tf.Scaffold({arg_name}=item to use)"
            )
        if members:
            return members[0]
        made = default_constructor()
        if made is not None:
            graph.add_to_collection(collection_key, made)
        return made

    @staticmethod
    def default_local_init_op() -> Operation:
        """An operation that initializes local variables and tables, and makes local objects."""
        tables = get_default_graph().get_collection(GraphKeys.TABLE_INITIALIZERS)
        return group(local_variables_initializer(), *tables, *(made.make for made in local_objects()))

    @property
    def init_op(self) -> Operation:
        return self._init_op

    @property
    def init_feed_dict(self) -> dict[Any, Any] | None:
        return self._init_feed_dict

    @property
    def init_fn(self) -> Callable[[Any], Any] | None:
        return self._init_fn

    @property
    def given_ready_op(self) -> Tensor | None:
        """What says that the model is ready, where it was given or `finalize` has run."""
        return self._ready_op

    @property
    def given_saver(self) -> Saver | None:
        """The saver, likewise."""
        return self._saver

    @property
    def ready_op(self) -> Tensor | None:
        return self._ready_op

    @property
    def ready_for_local_init_op(self) -> Tensor | None:
        return self._ready_for_local_init_op

    @property
    def local_init_op(self) -> Operation:
        return self._local_init_op

    @property
    def local_init_feed_dict(self) -> dict[Any, Any] | None:
        return self._local_init_feed_dict

    @property
    def summary_op(self) -> Tensor | None:
        return self._summary_op

    @property
    def saver(self) -> Saver:
        return self._saver


def _default_init_op() -> Any:
    initialized, objects = global_variables_initializer(), shared_objects()
    return group(initialized, *(made.make for made in objects)) if objects else initialized


def _default_ready_op() -> Tensor:
    return _with_objects(report_uninitialized_variables(), [*shared_objects(), *local_objects()])


def _default_ready_for_local_init_op() -> Tensor:
    variables = report_uninitialized_variables(global_variables(), name="report_uninitialized_variables_for_local_init")
    return _with_objects(variables, shared_objects())


def _with_objects(variables: Tensor, objects: list[MadeObject]) -> Tensor:
    """The names of the variables that have no value, with those of objects that are not there."""
    return concat([variables, report_missing_objects(objects)], 0) if objects else variables
