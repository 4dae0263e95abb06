"""The simplest training loop that outlives lost sessions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from anabranch import errors
from anabranch.train.supervisor import Supervisor


def basic_train_loop(
    supervisor: Supervisor,
    train_step_fn: Callable[..., Any],
    args: Sequence[Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    master: str = "",
) -> None:
    """Calls a function again and again, until the supervisor should stop.

    A session that is lost (`AbortedError`) is replaced by a new one, which begins where the last checkpoint was.

    Args:
        supervisor: makes the sessions and says when to stop.
        train_step_fn: called as ``train_step_fn(session, *args, **kwargs)``.
        args, kwargs: passed on to it.
        master: where the sessions are.

    Raises:
        Exception: whatever `train_step_fn` raises, but for `AbortedError`.
    """
    lost = True
    while lost:
        lost = False
        try:
            with supervisor.managed_session(master) as session:
                while not supervisor.should_stop():
                    train_step_fn(session, *(args or ()), **(kwargs or {}))
        except errors.AbortedError:
            lost = True
