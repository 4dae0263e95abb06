"""What becomes of the shards of a model when a task comes back that held one: events in, instructions out (§4.3).

A *shard* is what one task holds of the shared variables. A *commit* is a checkpoint whose manifest is in
place. Nothing here knows a session, a file or a clock.

Each shard has a mark, a variable that no checkpoint holds: it says for which training the shard has its values. A task
that comes back has none, or one that it was given with the values of the last commit. Who prepares a session asks each
shard for its mark and for variables without values, and does what `next_action` says:

| shards that are lost | commit | training in rounds | instruction |
|---|---|---|---|
| none | | | `Continue` |
| all | there is one | | `Restore` all |
| all | none | | `Initialize` all |
| some | there is one | yes | `Restore` all: what comes after the commit is lost together |
| some | there is one | no | `Restore` the lost ones: the others keep what they have learned since |
| some | none | yes | `Initialize` all: the training begins anew |
| some | none | no | `Initialize` the lost ones |

A lost shard whose mirrors on another task have a mark gets their values over those of the commit, which has what is not
mirrored; then mirrors that are lost get those of their shards. In rounds there are no mirrors.

Marks are set after that, so that whoever waits for all marks sees either no rollback or a whole one. Doing it again, by
the same chief or by its successor, is harmless: a shard counts as lost until its mark is set.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

#: environment variable that names the directory of a cluster's checkpoints
DIRECTORY_VARIABLE: Final = "ANABRANCH_CHECKPOINT"
#: of the file that says which variables of a checkpoint belong to which task
FORMAT: Final = 1


# ---------------------------------------------------------------------- what to do
@dataclass(frozen=True, slots=True)
class ShardState:
    """What a shard says of itself.

    Attributes:
        task: the full name of its task; "" for variables that ask for none.
        mark: the training whose values it has; None: it has none.
        missing: the names of its variables without a value.
        mirror_mark: the training whose values its mirrors have, on another task; None: they have none.
        is_mirrored: whether it has mirrors.
    """

    task: str
    mark: int | None
    missing: tuple[str, ...] = ()
    mirror_mark: int | None = None
    is_mirrored: bool = False

    def is_lost(self, mark: int) -> bool:
        """Whether its values are not those of the training with this mark."""
        # a mark says that values were given, and not that each variable of this graph has got one
        return self.mark != mark or bool(self.missing)


@dataclass(frozen=True, slots=True)
class Continue:
    """All shards have their values."""


@dataclass(frozen=True, slots=True)
class Restore:
    """Give the shards of these tasks the values of a commit."""

    commit: str
    tasks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Initialize:
    """Give the shards of these tasks initial values.

    Attributes:
        everything: whether these are all shards.
    """

    tasks: tuple[str, ...]
    everything: bool


RecoveryAction: TypeAlias = Continue | Restore | Initialize


def next_action(shards: Sequence[ShardState], mark: int, commit: str | None, in_rounds: bool) -> RecoveryAction:
    """What makes the shards one model again.

    Args:
        shards: all of them.
        mark: of this training.
        commit: the prefix of the latest checkpoint, if there is one.
        in_rounds: whether the replicas train in rounds, so that all shards must be of one round.

    Example:
        >>> next_action([ShardState("ps/0", 7), ShardState("ps/1", None)], mark=7, commit="model-5", in_rounds=False)
        Restore(commit='model-5', tasks=('ps/1',))
    """
    everywhere = tuple(shard.task for shard in shards)
    lost = tuple(shard.task for shard in shards if shard.is_lost(mark))
    if not lost:
        return Continue()
    # in rounds all shards must be of one round, and only a commit has that round for those that are lost
    chosen = everywhere if in_rounds else lost
    if commit is not None:
        return Restore(commit, chosen)
    # both in the order of `shards`, so that equal sets are equal tuples
    return Initialize(chosen, chosen == everywhere)


def shards_given_back(shards: Sequence[ShardState], mark: int, action: RecoveryAction) -> tuple[str, ...]:
    """The tasks whose lost shards get the values of their mirrors, over what the action gives them.

    Example:
        >>> states = [ShardState("ps/0", 7, (), 7, True), ShardState("ps/1", None, (), 7, True)]
        >>> shards_given_back(states, 7, next_action(states, 7, "model-5", in_rounds=False))
        ('ps/1',)
    """
    if isinstance(action, Continue):
        return ()
    return tuple(s.task for s in shards if s.task in action.tasks and s.is_mirrored and s.mirror_mark == mark)


def mirrors_to_make(shards: Sequence[ShardState], mark: int, action: RecoveryAction) -> tuple[str, ...]:
    """The tasks whose mirrors are lost, or have values that their shards have not.

    Example:
        >>> states = [ShardState("ps/0", 7, (), None, True), ShardState("ps/1", None, (), 7, True)]
        >>> mirrors_to_make(states, 7, next_action(states, 7, "model-5", in_rounds=False))
        ('ps/0', 'ps/1')
    """
    given = () if isinstance(action, Continue) else action.tasks
    return tuple(s.task for s in shards if s.is_mirrored and (s.task in given or s.mirror_mark != mark))


# ---------------------------------------------------------------------- which variables a task has
@dataclass(frozen=True, slots=True)
class SavedVariable:
    """A variable of a task, and where a checkpoint has its value.

    Attributes:
        name: in the checkpoint.
        slice_spec: which part of the stored tensor it is, as `SaveSliceInfo.spec`; "" for the whole.
        container, resource: of the variable, as its handle names it.
    """

    name: str
    slice_spec: str
    container: str
    resource: str


@dataclass(frozen=True, slots=True)
class TaskShard:
    """What a task has of a model.

    Attributes:
        mark: the resource name of the shard's mark.
        variables: in any order.
    """

    mark: str
    variables: tuple[SavedVariable, ...]


@dataclass(frozen=True, slots=True)
class ShardMap:
    """Which variables of a training's checkpoints belong to which task; a value that is kept beside them.

    Attributes:
        mark: of the training.
        in_rounds: whether the replicas train in rounds. Then no task takes values by itself: all go back together.
        shards: by the full names of tasks.
        is_mirrored: whether other tasks have newer values than any checkpoint. Then no task takes those by itself.
    """

    mark: int
    in_rounds: bool
    shards: Mapping[str, TaskShard]
    is_mirrored: bool = False

    def shard_of(self, task: str, tasks: Sequence[str]) -> TaskShard | None:
        """What a task should load when it comes back, by itself; None: nothing.

        Args:
            task: its full name.
            tasks: the full names of all tasks of its cluster. In a cluster that lacks a task with a shard the model
                lies differently, and only its graph says how.
        """
        # in rounds the chief takes all shards back together
        if self.in_rounds or self.is_mirrored or not set(self.shards) <= set(tasks):
            return None
        return self.shards.get(task)

    def to_json(self) -> str:
        """The map as text."""
        shards = {
            task: {
                "mark": shard.mark,
                "variables": [[v.name, v.slice_spec, v.container, v.resource] for v in shard.variables],
            }
            # sorted, so that equal maps are equal files
            for task, shard in sorted(self.shards.items())
        }
        return json.dumps(
            {
                "format": FORMAT,
                "mark": self.mark,
                "in_rounds": self.in_rounds,
                "is_mirrored": self.is_mirrored,
                "shards": shards,
            },
            indent=1,
        )

    @staticmethod
    def from_json(text: str) -> ShardMap:
        """What `to_json` wrote.

        Raises:
            ValueError: it is no such text, or of another format.
        """
        try:
            said: dict[str, Any] = json.loads(text)
            if said["format"] != FORMAT:
                raise ValueError(f"format {said['format']!r}, where {FORMAT} was expected")
            shards = {str(task): _shard(one) for task, one in said["shards"].items()}
            return ShardMap(int(said["mark"]), bool(said["in_rounds"]), shards, bool(said.get("is_mirrored")))
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ValueError(f"this is no map of shards: {type(error).__name__}: {error}") from error


def _shard(said: Mapping[str, Any]) -> TaskShard:
    variables = [tuple(map(str, row)) for row in said["variables"]]
    if any(len(row) != 4 for row in variables):
        raise ValueError("a variable has a name, a slice, a container and a resource")
    return TaskShard(str(said["mark"]), tuple(SavedVariable(*row) for row in variables))
