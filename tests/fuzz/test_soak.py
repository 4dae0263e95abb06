"""The soaking of trainings: what it looks for is found where it is, and it hits what it is to hit."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np
import pytest

from tests.cluster.training_worker import undisturbed
from tests.fuzz.soak.disturbed import Blows
from tests.fuzz.soak.estimators import Estimators
from tests.fuzz.soak.ways import COLUMNS, EVERY, EXAMPLES, PS, RANGE, WAYS, WORKERS, End


class Model(dict[str, Any]):
    """A checkpoint."""

    def get_tensor(self, name: str) -> Any:
        return self[name]


def counted(*rows: float, step: int) -> Model:
    """A model in which each worker's steps count so often."""
    values = np.repeat(np.array(rows, np.float32)[:, np.newaxis], COLUMNS, 1)
    return Model({f"counts{shard}": values for shard in range(PS)}, global_step=step)


def end(model: Model, *steps: int, shocks: int = 0, killed: int = 0, **lost: int) -> End:
    notes = {worker: ["1"] * count for worker, count in enumerate(steps)}
    results = dict.fromkeys(("evaluated", "wanted"), int(model.get("global_step", 0)))
    return End(model, notes, results, shocks, Counter(lost), killed)


@pytest.mark.parametrize("way", ["asynchronous", "mirrored", "downpour"])
def test_a_step_that_is_lost_or_done_twice_is_found(way: str) -> None:
    check = WAYS[way](0).check
    check(end(counted(4, 8, 4, step=16), 4, 8, 4))
    for wrong in (counted(4, 8, 3, step=16), counted(4, 8, 5, step=16)):
        with pytest.raises(AssertionError, match="worker 2"):
            check(end(wrong, 4, 8, 4))
    if way == "mirrored":
        with pytest.raises(AssertionError, match="of 8 steps of worker 1 7"):
            check(end(counted(4, 7, 4, step=15), 4, 8, 4, shocks=1, ps=1))
    else:
        check(end(counted(4, 1, 4, step=9), 4, 8, 4, shocks=1, ps=1))


def test_an_update_that_is_there_by_half_is_found() -> None:
    model = counted(4, 8, 4, step=16)
    model["counts1"][1, 2] = 7
    with pytest.raises(AssertionError, match="by half"):
        WAYS["asynchronous"](0).check(end(model, 4, 8, 4))


@pytest.mark.parametrize("way", ["synchronous", "backups", "older"])
def test_rounds_are_compared_with_undisturbed_ones(way: str) -> None:
    check = WAYS[way](0).check
    rounds = 60
    model = counted(*[rounds / WORKERS] * WORKERS, step=rounds)
    model |= {f"weights{shard}": undisturbed(shard, rounds) for shard in range(PS)}
    check(end(model, rounds, rounds, rounds))
    with pytest.raises(AssertionError, match="60 rounds made 61"):
        check(end(Model(model, counts1=model["counts1"] + 1 / WORKERS), rounds, rounds, rounds))
    with pytest.raises(AssertionError, match="step 60 on ps/1"):
        check(end(Model(model, weights1=undisturbed(1, rounds + 1)), rounds, rounds, rounds))
    if way != "older":
        with pytest.raises(AssertionError, match="worker 2 took 61 of 60"):
            check(end(model, rounds, rounds, rounds + 1))


def test_a_mean_that_lacks_steps_is_found() -> None:
    check = WAYS["averaging"](0).check
    check(end(counted(EVERY, EVERY, EVERY, step=WORKERS), 12, 12, 12))
    with pytest.raises(AssertionError, match="3 means"):
        check(end(counted(EVERY, EVERY, EVERY - 1, step=WORKERS), 12, 12, 12))


def test_an_example_that_is_left_out_or_used_again_is_found() -> None:
    check = WAYS["ranges"](0).check
    used = np.full(EXAMPLES, 2, np.int32)
    used[: 3 * RANGE] += 1
    used[RANGE : 2 * RANGE] -= 1
    positions = np.array([EXAMPLES, RANGE, 2, 3 * RANGE, RANGE])
    model = Model(used=used, input_ranges=positions)
    check(end(model))
    used[5] += 1
    check(end(model, killed=1))
    with pytest.raises(AssertionError, match="used once more"):
        check(end(model))
    used[[5, 7]] -= [1, 1]
    with pytest.raises(AssertionError, match="in epoch 2"):
        check(end(model, killed=3, shocks=3, ps=1))


def test_the_last_evaluation_is_of_the_last_checkpoint() -> None:
    check = Estimators(0).check
    model = counted(5, 5, 5, step=15)
    check(end(model, 5, 5, 5))
    with pytest.raises(AssertionError, match="steps are in the checkpoint of step 30"):
        check(end(Model(model, global_step=30), 5, 5, 5))
    with pytest.raises(AssertionError):
        check(end(model, 5, 5, 5)._replace(results={"evaluated": 14, "wanted": 15}))


class Noted:
    """A run that notes what is done to it."""

    def __init__(self) -> None:
        self.hit = Counter[str]()
        self.processes = Counter[str]()

    def process(self, task: str) -> int:
        return self.processes[task]

    def _hits(self, task: str) -> None:
        self.hit[task] += 1
        self.processes[task] += 1

    kill = restart = _hits

    def stop(self, task: str, seconds: float) -> None:
        self.hit[task] += 1

    def scale(self, workers: int) -> None:
        self.hit["scale"] += 1
        assert 1 <= workers <= WORKERS

    def until(self, condition: Any, what: str) -> None:
        assert condition()

    def goes_on(self, steps: int) -> None:
        self.hit["waits"] += 1


@pytest.mark.parametrize("hits", ["all", "ps", "worker"])
def test_blows_hit_what_they_are_to_hit(monkeypatch: pytest.MonkeyPatch, hits: str) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    run: Any = Noted()
    tasks = WAYS["mirrored"].tasks
    blows = Blows(run, random.Random(3), tasks, hits, one_ps_at_a_time=True)
    kinds = {blows.next() for _ in range(200)}
    assert {"single", "two_at_once", "in_recovery", "rolling"} <= kinds
    wanted = {task for task in tasks if hits in ("all", task.partition("/")[0])}
    assert set(run.hit) - {"scale", "waits"} == wanted
    assert ("scaled" in kinds) == (hits != "ps")
