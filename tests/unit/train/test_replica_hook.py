"""What the chief's hook does: when those who wait for the end of a round are given tokens once more, and at the end."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.train import replica_hook
from anabranch.train.coordinator import SessionCoordinator
from anabranch.train.replica_hook import ReplicaHook
from anabranch.train.replica_rounds import AwaitedRound

SECONDS = 8.0


def test_a_round_is_overdue_when_it_was_waited_for_so_long_and_again_after_as_long() -> None:
    awaited = AwaitedRound(SECONDS)
    overdue = [now for now in range(40) if awaited.is_overdue(3, True, float(now))]
    assert overdue == [8, 16, 24, 32]


def test_the_time_counts_from_when_somebody_waits_and_from_each_round_anew() -> None:
    awaited = AwaitedRound(SECONDS)
    assert not any(awaited.is_overdue(3, False, float(now)) for now in range(100))
    assert not any(awaited.is_overdue(3, True, 100.0 + now) for now in range(7))
    assert not any(awaited.is_overdue(4, True, 107.0 + now) for now in range(8))
    assert awaited.is_overdue(4, True, 115.0)


class Stage:
    """The session and the coordinator of a chief, for whose hook a quarter of `SECONDS` passes between two looks.

    Args:
        looks: what each look sees: the number of the round, and whether it is waited for.
    """

    def __init__(self, looks: list[tuple[int, bool]], monkeypatch: pytest.MonkeyPatch) -> None:
        self._looks, self._seen = looks, 0
        self.reissued: list[int] = []
        monkeypatch.setattr(replica_hook.time, "monotonic", lambda: 1000 + self._seen * SECONDS / 4)

    _global_step, _is_awaited, reissue_op, _reissue_after = "number", "awaited", "reissue", SECONDS

    def wait_for_stop(self, timeout: float) -> bool:
        assert timeout == SECONDS / 4
        return self._seen == len(self._looks)

    def run(self, fetches: Any) -> Any:
        if fetches == "reissue":
            self.reissued.append(self._seen)
            return None
        assert fetches == ["number", "awaited"]
        self._seen += 1
        return self._looks[self._seen - 1]


@pytest.mark.parametrize(
    ("looks", "reissued"),
    [
        pytest.param([(0, False)] * 20 + [(0, True), (1, False)], [], id="a training that has rested"),
        pytest.param([(0, True)] * 9, [5, 9], id="nobody ends it"),
        pytest.param([(0, True)] * 4 + [(1, True)] * 4 + [(2, True)] * 4, [], id="slow rounds"),
        pytest.param([(7, False)] * 20 + [(7, True)] * 5, [25], id="rested and hangs"),
    ],
)
def test_the_chief_hands_tokens_out_once_more_where_workers_have_waited(
    looks: list[tuple[int, bool]], reissued: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    stage: Any = Stage(looks, monkeypatch)
    ReplicaHook(stage, True)._watch(stage, stage)
    assert stage.reissued == reissued


class Optimizer:
    """What the hook needs of one, as its session ends; `done` says what it did."""

    _built, _worker_init, _chief_init, _count, finish_op = True, (), None, None, "no round follows"

    def __init__(self) -> None:
        self.done: list[object] = []
        self._presence = self._chief_runner = self
        self.lease = None

    def _at_end(self, count: int) -> list[Any]:
        return []

    def leave(self, session: Any) -> None:
        self.done.append("left")

    def run(self, operation: object) -> None:
        self.done.append(operation)


@pytest.mark.parametrize("told_to_end", [False, True])
def test_a_chief_tells_the_others_that_no_round_follows_unless_it_comes_back(told_to_end: bool) -> None:
    optimizer: Any = Optimizer()
    hook, coord = ReplicaHook(optimizer, True), SessionCoordinator(())
    hook._coord = coord
    coord.ends(is_followed=told_to_end)
    hook.end(optimizer)
    assert optimizer.done == (["left"] if told_to_end else ["no round follows"])
