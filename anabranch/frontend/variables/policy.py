"""How replicas of a variable are kept together, and the hooks that may replace its creation  (§3.1)."""

from __future__ import annotations

import contextlib
import enum
import threading
from collections.abc import Callable, Iterator
from typing import Any

from anabranch.core.values import PassedOn
from anabranch.graph.graph import Graph, get_default_graph


class VariableSynchronization(enum.Enum):
    """When the copies of a variable on several devices are brought together."""

    AUTO = 0
    NONE = 1
    ON_WRITE = 2
    ON_READ = 3


class VariableAggregation(enum.Enum):
    """How the copies of a variable on several devices, or updates from several replicas, become one value."""

    NONE = 0
    SUM = 1
    MEAN = 2
    ONLY_FIRST_REPLICA = 3
    ONLY_FIRST_TOWER = ONLY_FIRST_REPLICA  # the older name


Creator = Callable[..., Any]


class _Creators(threading.local):
    """The `variable_creator_scope` blocks that are open in this thread, outermost first."""

    def __init__(self) -> None:
        self.open: list[tuple[Graph, Creator]] = []


_creators = _Creators()


def outermost_graph(graph: Graph | None = None) -> Graph:
    """The graph that holds the variables of `graph` (default: the default graph): function graphs have none."""
    outermost = graph or get_default_graph()
    while outermost.building_function and outermost.outer_graph is not None:
        outermost = outermost.outer_graph
    return outermost


@contextlib.contextmanager
def variable_creator_scope(variable_creator: Creator) -> Iterator[None]:
    """Lets a function take part in the creation of every variable inside the block.

    Args:
        variable_creator: called as ``variable_creator(next_creator, **kwargs)`` with the arguments of `tf.Variable` by
            name; returns a variable, usually what ``next_creator(**kwargs)`` returns with changed arguments. Inner
            blocks are called first; an outer block sees what the inner one passes on.
    """
    old = _creators.open
    _creators.open = [*old, (outermost_graph(), variable_creator)]
    try:
        yield
    finally:
        _creators.open = old


def create_through_hooks(default_creator: Creator, kwargs: dict[str, Any]) -> Any:
    """Calls the open creator scopes of the default graph around `default_creator`."""
    graph = outermost_graph()
    creator = default_creator
    for owner, hook in _creators.open:
        if owner is graph:
            creator = _linked(hook, creator)
    return creator(**kwargs)


def _linked(hook: Creator, next_creator: Creator) -> Creator:
    def create(**kwargs: PassedOn) -> Any:
        return hook(next_creator, **kwargs)

    return create


def checked_policy(
    synchronization: VariableSynchronization | None,
    aggregation: VariableAggregation | None,
    trainable: bool | None,
    name: str | None,
) -> tuple[VariableSynchronization, VariableAggregation, bool]:
    """The three settings with their defaults filled in.

    Raises:
        ValueError: one is not of its enumeration.
    """
    aggregation = VariableAggregation.NONE if aggregation is None else aggregation
    if not isinstance(aggregation, VariableAggregation):
        raise ValueError(f"variable {name!r}: aggregation must be a tf.VariableAggregation, got {aggregation!r}")
    synchronization = VariableSynchronization.AUTO if synchronization is None else synchronization
    if not isinstance(synchronization, VariableSynchronization):
        raise ValueError(
            f"variable {name!r}: synchronization must be a tf.VariableSynchronization, got {synchronization!r}"
        )
    on_read = synchronization is VariableSynchronization.ON_READ
    return synchronization, aggregation, (not on_read if trainable is None else bool(trainable))
