"""What the operations on queues, tables, readers and the like have in common: handles, and the objects behind them.

An operation that makes such an object gives a handle out and makes the object the first time it runs; all others find
it in the containers of their task. A name that the user gives (`shared_name`) is found by every graph of the task; an
object without one belongs to its operation, in its session.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

from anabranch.core.pending import Pending
from anabranch.core.resources import ResourceHandle
from anabranch.core.values import TensorValue
from anabranch.errors import CancelledError, InvalidArgumentError, NotFoundError
from anabranch.graph.kernel_contexts import StepHostContext

#: what makes an object: (facts that all who share it must agree on, None: any; function that makes it)
Plan = tuple[dict[str, Any], Callable[[], Any]]


def open_object(
    ctx: StepHostContext, kind: str, plan: Callable[[ResourceHandle], Plan], by_node_name: bool = False
) -> ResourceHandle:
    """The handle of the object that the operation of `ctx` makes, which is made if it is not there yet.

    Args:
        kind: "queue", "table", ...
        plan: called with the handle when the operation has not opened this object in this step before.
        by_node_name: whether operations of one name in several graphs share an object that has no shared name.

    Raises:
        InvalidArgumentError: the object is there, but not as this operation wants it.
    """
    if ctx.opened is not None:
        opened: ResourceHandle
        opened, known = ctx.opened
        entry = ctx.containers.find_object(opened)
        if entry is not None and entry is known():
            return opened
    op = ctx.op
    name = op.attrs["shared_name"].decode() or (op.name if by_node_name else ctx.private_name)
    handle = ResourceHandle(op.attrs["container"].decode(), name, kind, task=ctx.task)
    facts, make = plan(handle)
    entry = ctx.containers.object(handle, lambda: _Entry(make(), facts))
    for what, wanted in facts.items():
        if wanted is not None and entry.facts.get(what) != wanted:
            raise InvalidArgumentError(
                None,
                op,
                f"Shared {kind} {name!r} has {what} {_shown(entry.facts.get(what))} but requested {what} was "
                f"{_shown(wanted)}; give it another shared_name",
            )
    ctx.opened = handle, weakref.ref(entry)
    return handle


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return "[" + ", ".join(_shown(v) for v in value) + "]"
    return str(getattr(value, "name", None) or value)


class _Entry:
    """An object in a container, and what those who share it agree on."""

    __slots__ = ("__weakref__", "facts", "object")

    def __init__(self, made: object, facts: dict[str, Any]) -> None:
        self.object = made
        self.facts = facts

    def close(self) -> None:
        """For the container that goes away."""
        closing = getattr(self.object, "close", None)
        if closing is not None:
            closing()


def named_handle(ctx: StepHostContext, kind: str) -> ResourceHandle:
    """The handle that the operation of `ctx` gives out of an object that another operation makes (`make_object`)."""
    attrs = ctx.op.attrs
    return ResourceHandle(
        attrs["container"].decode(), attrs["shared_name"].decode() or ctx.private_name, kind, task=ctx.task
    )


def make_object(ctx: StepHostContext, handle: TensorValue, kind: str, make: Callable[[], Any]) -> None:
    """Makes the object of a handle, if it is not there yet.

    Raises:
        InvalidArgumentError: the handle is of another kind.
    """
    ctx.containers.object(_checked(ctx, handle, kind), lambda: _Entry(make(), {}))


def is_made(ctx: StepHostContext, handle: TensorValue, kind: str) -> bool:
    """Whether there is an object behind a handle.

    Raises:
        InvalidArgumentError: the handle is of another kind.
    """
    return ctx.containers.find_object(_checked(ctx, handle, kind)) is not None


def _checked(ctx: StepHostContext, handle: TensorValue, kind: str) -> ResourceHandle:
    if not isinstance(handle, ResourceHandle) or handle.kind != kind:
        got = handle if isinstance(handle, ResourceHandle) else type(handle).__name__
        raise InvalidArgumentError(
            None, ctx.op, f"{ctx.op.type} {ctx.op.name!r} needs the handle of a {kind}, got {got}"
        )
    return handle


def object_behind(ctx: StepHostContext, handle: TensorValue, kind: str) -> Any:
    """The object behind a handle.

    Raises:
        InvalidArgumentError: the handle is of another kind.
        NotFoundError: there is none (any more).
        CancelledError: the session was closed meanwhile.
    """
    handle = _checked(ctx, handle, kind)
    entry = ctx.containers.find_object(handle)
    if entry is None and ctx.containers.is_gone(handle):
        raise CancelledError(None, ctx.op, f"{ctx.op.name!r} found the {handle} gone: the session was closed meanwhile")
    if entry is None:
        raise NotFoundError(
            None,
            ctx.op,
            f"Resource {handle.container or 'localhost'}/{handle.name}/{kind} does not exist: the container was reset, "
            "or the handle comes from another session; get a handle from the operation that makes it, in this step",
        )
    return entry.object


def outcome(pending: Pending) -> Pending | Sequence[Any]:
    """What an asynchronous kernel returns: the values if they are there, else the pending result.

    Raises:
        BaseException: what the result failed with.
    """
    if not pending.is_settled:
        return pending
    if pending.error is not None:
        raise pending.error
    return pending.values
