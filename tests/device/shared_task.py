"""A task that a test's sessions share with the test, which may look into its containers."""

from __future__ import annotations

import itertools
from typing import Any

import anabranch as tf
from anabranch.runtime.containers import Containers, VariableState
from anabranch.runtime.local_worker import LocalTask

_numbers = itertools.count()


class SharedTask:
    """A task of its own.

    Attributes:
        target: for the sessions that are to work on it.
        containers: their variables and other objects, and the rendezvous of their steps.
    """

    def __init__(self) -> None:
        name = f"looked into by test {next(_numbers)}"
        self.target = f"local://{name}"
        self.containers: Containers = LocalTask.named(name).containers

    def session(self, **options: Any) -> Any:
        """A session on this task."""
        return tf.Session(self.target, **options)

    def variables(self, session: Any, *variables: Any) -> list[VariableState]:
        """The states of variables."""
        return [self.containers.variable(session.run(variable.handle)) for variable in variables]
