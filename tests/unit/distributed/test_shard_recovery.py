"""What becomes of lost shards: the whole table, histories of losses, and the map beside the checkpoints."""

from __future__ import annotations

import itertools
import json

import pytest

from anabranch.distributed.shard_recovery import (
    Continue,
    Initialize,
    RecoveryAction,
    Restore,
    SavedVariable,
    ShardMap,
    ShardState,
    TaskShard,
    mirrors_to_make,
    next_action,
    shards_given_back,
)

MARK = 7
TASKS = ("ps/0", "ps/1", "ps/2")


def states(*lost: int) -> list[ShardState]:
    return [ShardState(task, None if i in lost else MARK) for i, task in enumerate(TASKS)]


@pytest.mark.parametrize("in_rounds", [True, False])
@pytest.mark.parametrize("commit", ["model-5", None])
@pytest.mark.parametrize("lost", [lost for n in range(4) for lost in itertools.combinations(range(3), n)])
def test_the_table(lost: tuple[int, ...], commit: str | None, in_rounds: bool) -> None:
    chosen = TASKS if in_rounds else tuple(TASKS[i] for i in lost)
    expected: RecoveryAction = Continue()
    if lost:
        expected = Restore(commit, chosen) if commit else Initialize(chosen, everything=chosen == TASKS)
    assert next_action(states(*lost), MARK, commit, in_rounds) == expected


@pytest.mark.parametrize(
    ("state", "is_lost"),
    [
        (ShardState("ps/0", MARK), False),
        (ShardState("ps/0", None), True),
        (ShardState("ps/0", MARK + 1), True),  # of another training on the same tasks
        (ShardState("ps/0", MARK, ("w",)), True),
    ],
)
def test_a_shard_is_lost_without_its_mark_or_a_value(state: ShardState, is_lost: bool) -> None:
    assert state.is_lost(MARK) == is_lost


@pytest.mark.parametrize("in_rounds", [True, False])
def test_after_any_history_of_losses_all_shards_have_their_values(in_rounds: bool) -> None:
    """Shards are lost at every place, also between what a chief does and its marks, and a successor does it again."""
    for losses in itertools.product(range(-1, 3), repeat=4):
        marks: dict[str, int | None] = dict.fromkeys(TASKS, MARK)
        steps = dict.fromkeys(TASKS, 9)
        for lost in losses:
            if lost >= 0:
                marks[TASKS[lost]], steps[TASKS[lost]] = None, 0
            action = next_action([ShardState(t, marks[t]) for t in TASKS], MARK, "model-5", in_rounds)
            assert not isinstance(action, Initialize)
            if isinstance(action, Restore):
                steps.update(dict.fromkeys(action.tasks, 5))
                if lost != 1:  # else this chief dies before it sets the marks
                    marks.update(dict.fromkeys(action.tasks, MARK))
        last = next_action([ShardState(t, marks[t]) for t in TASKS], MARK, "model-5", in_rounds)
        if isinstance(last, Restore):
            steps.update(dict.fromkeys(last.tasks, 5))
        assert set(steps.values()) <= {5, 9}
        if in_rounds:
            assert len(set(steps.values())) == 1


def shard_map(in_rounds: bool = False) -> ShardMap:
    variables = (SavedVariable("w", "4 2 0,2:-", "", "w/part_0"), SavedVariable("b", "", "kept", "b"))
    return ShardMap(MARK, in_rounds, {TASKS[0]: TaskShard("mark_0", variables), TASKS[1]: TaskShard("mark_1", ())})


def test_the_map_survives_writing() -> None:
    assert ShardMap.from_json(shard_map().to_json()) == shard_map()


def test_a_task_takes_what_it_had_and_nothing_where_the_model_may_lie_otherwise() -> None:
    assert shard_map().shard_of(TASKS[0], TASKS) == shard_map().shards[TASKS[0]]
    assert shard_map().shard_of(TASKS[2], TASKS) is None
    # with fewer parameter servers
    assert shard_map().shard_of(TASKS[0], TASKS[:1]) is None
    assert shard_map(in_rounds=True).shard_of(TASKS[0], TASKS) is None


GOOD = json.loads(shard_map().to_json())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "null",
        json.dumps(GOOD | {"format": 2}),
        json.dumps(GOOD | {"shards": []}),
        json.dumps(GOOD | {"shards": {"ps/0": {"mark": "m", "variables": [["w"]]}}}),
        json.dumps(GOOD | {"mark": "x"}),
        shard_map().to_json()[:-3],
    ],
)
def test_what_is_no_map_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no map of shards"):
        ShardMap.from_json(text)


# ---------------------------------------------------------------------- mirrors
def test_lost_shards_get_what_their_mirrors_have_and_lost_mirrors_are_made() -> None:
    """All losses of four tasks in a ring, of which each has the mirrors of the one before it."""
    for lost in itertools.product([False, True], repeat=4):
        shards = [
            ShardState(f"ps/{i}", None if lost[i] else MARK, (), None if lost[(i + 1) % 4] else MARK, True)
            for i in range(4)
        ]
        action = next_action(shards, MARK, "model-5", in_rounds=False)
        given_back = shards_given_back(shards, MARK, action)
        assert given_back == tuple(f"ps/{i}" for i in range(4) if lost[i] and not lost[(i + 1) % 4])
        made = mirrors_to_make(shards, MARK, action)
        assert made == tuple(f"ps/{i}" for i in range(4) if lost[i] or lost[(i + 1) % 4])


def test_mirrors_of_another_training_are_of_no_use() -> None:
    shards = [ShardState("ps/0", None, (), MARK + 1, True), ShardState("ps/1", MARK, (), None, False)]
    action = next_action(shards, MARK, None, in_rounds=False)
    assert shards_given_back(shards, MARK, action) == ()
    assert mirrors_to_make(shards, MARK, action) == ("ps/0",)


def test_a_map_says_that_there_are_mirrors() -> None:
    shards = {"ps/0": TaskShard("mark", (SavedVariable("w", "", "", "w"),))}
    mirrored = ShardMap(MARK, False, shards, is_mirrored=True)
    assert ShardMap.from_json(mirrored.to_json()) == mirrored
    assert mirrored.shard_of("ps/0", ["ps/0"]) is None
    # maps of before said nothing of mirrors
    old = json.loads(ShardMap(MARK, False, shards).to_json())
    del old["is_mirrored"]
    assert ShardMap.from_json(json.dumps(old)).shard_of("ps/0", ["ps/0"]) == shards["ps/0"]
