"""Loops that run straight through: which ones do, and that they compute what the executor does."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from anabranch.errors import InvalidArgumentError
from anabranch.runtime import loop_work
from anabranch.runtime.dispatcher import Mode
from anabranch.runtime.executor import Executor
from anabranch.runtime.executor_graph import ExecutorGraph, FrameSpec, Kind, Known, NodeSpec, Output
from anabranch.runtime.loop_work import TURN, LoopWork
from anabranch.runtime.step_frame import StepFrame
from anabranch.runtime.straight_loops import straighten


class Calculation:
    """Work: a function of values in slots."""

    mode = Mode.HERE
    op: Any = None

    def __init__(self, function: Callable[..., Any], sources: Sequence[int], target: int, arithmetic: bool) -> None:
        self._function, self._sources, self._target = function, sources, target
        self._arithmetic = arithmetic

    def run(self, frame: StepFrame, record: Any = None) -> bool:
        self._compute(frame.values)
        return False

    def arithmetic(self) -> Callable[[list[Any]], None] | None:
        return self._compute if self._arithmetic else None

    def _compute(self, values: list[Any]) -> None:
        arguments = [values[slot] for slot in self._sources]
        assert all(argument is not None for argument in arguments)
        values[self._target] = self._function(*arguments)


class Loops:
    """A graph of loops, one after the other, each of which counts and calculates with numbers below 97.

    Args:
        arithmetic: whether a loop knows its work to be nothing but arithmetic.
    """

    def __init__(self, arithmetic: bool = False) -> None:
        self.arithmetic = arithmetic
        self.specs: list[NodeSpec] = []
        self.frames = [FrameSpec("")]
        self.functions: dict[int, Callable[..., Any]] = {}
        #: of a node of work, what its function takes
        self.taken: dict[int, list[Output]] = {}

    def add(self, kind: Kind, frame: int, inputs: Sequence[Any] = (), **more: Any) -> int:
        self.specs.append(NodeSpec(f"{kind.name}_{len(self.specs)}", kind, frame, list(inputs), **more))
        return len(self.specs) - 1

    def work(self, function: Callable[..., Any], inputs: list[Output], frame: int = 0, **more: Any) -> Output:
        reads = inputs if frame == 0 else ()
        number = self.add(Kind.WORK, frame, inputs, reads=reads, **more)
        self.functions[number], self.taken[number] = function, inputs
        return number, 0

    def loop(self, starts: list[Output | Known], constants: list[Output | Known], rng: random.Random) -> list[Output]:
        """A loop of up to ten iterations over a counter and further variables; what leaves it."""
        frame = len(self.frames)
        self.frames.append(FrameSpec(f"loop_{frame}", 0, rng.choice([1, 2, 10])))
        limit = rng.randrange(10)
        given = [(self.add(Kind.ENTER, 0, [value], child=frame, constant=True), 0) for value in constants]
        enters = [self.add(Kind.ENTER, 0, [value], child=frame) for value in [Known(0), *starts]]
        merges = [self.add(Kind.MERGE, frame) for _ in enters]
        before: list[Output] = [*given, *((merge, 0) for merge in merges)]
        # of what the test computes the body takes some
        for _ in range(rng.randrange(3)):
            before.append(self.work(add, rng.choices(before, k=2), frame))
        less = self.work(lambda count: count < limit, [(merges[0], 0)], frame)
        condition = self.add(Kind.PASS, frame, [less])
        switches = [self.add(Kind.SWITCH, frame, [(merge, 0), (condition, 0)]) for merge in merges]
        pivot = self.add(Kind.PASS, frame, [(switches[0], 1)])
        inside: list[Output] = [(switch, 1) for switch in switches]
        for _ in range(rng.randrange(5)):
            controls = [pivot] if rng.random() < 0.3 else []
            after = (
                [rng.choice(inside[len(switches) :])[0]] if len(inside) > len(switches) and rng.random() < 0.3 else []
            )
            taken = [rng.choice(inside), rng.choice([*before, *inside])]
            inside.append(self.work(add, taken, frame, controls=controls, after=after))
        more = self.work(lambda count: count + 1, [inside[0]], frame)
        # also the value of another variable, or one that is the same for ever
        results: list[Any] = [more, *(rng.choice([*inside, *given, Known(7)]) for _ in starts)]
        for merge, enter, result in zip(merges, enters, results, strict=True):
            following = self.add(Kind.NEXT_ITERATION, frame, [result], controls=[pivot])
            self.specs[merge].inputs = [(enter, 0), (following, 0)]
        return [(self.add(Kind.EXIT, frame, [(switch, 0)]), 0) for switch in switches]

    def fetch(self, fetches: list[Output], straight: bool) -> tuple[list[Any], int]:
        """Runs the graph; what is fetched, and how many loops ran straight through."""
        replaced = straighten(self.specs, self.frames, set(self.functions) if straight else set())
        outputs = [replaced.output(output) for output in fetches]
        graph = ExecutorGraph(replaced.specs, outputs, replaced.frames, bool(replaced.loops))
        inner = {output: slot for loop in replaced.loops.values() for output, slot in loop.slots.items()}

        def slot(output: Output) -> int:
            return inner[output] if output in inner else graph.slot(replaced.output(output))

        works: dict[int, Any] = {}
        for number, function in self.functions.items():
            works[number] = Calculation(
                function, [slot(s) for s in self.taken[number]], slot((number, 0)), self.arithmetic
            )
            if number in replaced.numbers:
                graph.nodes[replaced.numbers[number]].payload = works[number]
        for number, loop in replaced.loops.items():
            node = graph.nodes[number]
            node.payload = LoopWork(loop, works, [slot(source) for source, _ in loop.entering], node.slots)
        return run(graph), len(replaced.loops)


def run(graph: ExecutorGraph) -> list[Any]:
    executor = Executor(graph)
    ready = executor.start()
    while ready or executor.paused:
        if not ready:
            ready = executor.resume()
            continue
        # in the order in which they became ready, as the dispatcher takes them
        node, iteration = instance = ready.pop(0)
        if not node.payload.run(iteration, None):
            ready += executor.finished(instance)
        else:
            ready.append(instance)
    assert executor.error is None
    assert executor.done
    return list(executor.fetches())


def add(x: int, y: int) -> int:
    return (x + 3 * y + 1) % 97


@settings(max_examples=300)
@given(seed=st.integers(0, 1 << 40))
def test_loops_compute_what_they_do_in_the_executor(seed: int) -> None:
    rng = random.Random(seed)
    loops = Loops(arithmetic=rng.random() < 0.5)
    values: list[Any] = [loops.work(functools.partial(int, number), []) for number in (5, 11)]
    count = rng.randint(1, 3)
    for _ in range(count):
        starts = [rng.choice([*values, Known(3)]) for _ in range(rng.randrange(4))]
        constants = [rng.choice([*values, Known(4)]) for _ in range(rng.randrange(3))]
        values += loops.loop(starts, constants, rng)
        values.append(loops.work(add, rng.choices(values, k=2)))
    expected, none = loops.fetch(values, straight=False)
    got, replaced = loops.fetch(values, straight=True)
    assert got == expected
    assert (none, replaced) == (0, count)


def simple(arithmetic: bool = False) -> tuple[Loops, list[Output], dict[str, int]]:
    """A loop that counts to five, and multiplies."""
    loops = Loops(arithmetic)
    start = loops.work(lambda: 2, [])
    loops.frames.append(FrameSpec("loop", 0))
    enter = loops.add(Kind.ENTER, 0, [start], child=1)
    merge = loops.add(Kind.MERGE, 1)
    less = loops.work(lambda v: v < 50, [(merge, 0)], 1)
    condition = loops.add(Kind.PASS, 1, [less])
    switch = loops.add(Kind.SWITCH, 1, [(merge, 0), (condition, 0)])
    more = loops.work(lambda v: v * 3, [(switch, 1)], 1)
    following = loops.add(Kind.NEXT_ITERATION, 1, [more])
    loops.specs[merge].inputs = [(enter, 0), (following, 0)]
    leave = loops.add(Kind.EXIT, 1, [(switch, 0)])
    names = {"enter": enter, "merge": merge, "less": less[0], "condition": condition, "switch": switch}
    return loops, [(leave, 0)], {**names, "more": more[0], "next": following, "leave": leave}


@pytest.mark.parametrize("arithmetic", [False, True])
def test_a_simple_loop(arithmetic: bool) -> None:
    loops, fetches, _ = simple(arithmetic)
    assert loops.fetch(fetches, straight=True) == ([54], 1)


def after_one_turn(loops: Loops, ran: list[int]) -> Output:
    """Work that counts how much has run when its turn comes: its input is there before the loop begins."""
    before = loops.work(lambda: 0, [])
    return loops.work(lambda _: len(ran), [before])


@pytest.mark.parametrize("arithmetic", [False, True])
def test_a_loop_gives_its_turn_away(monkeypatch: pytest.MonkeyPatch, arithmetic: bool) -> None:
    monkeypatch.setattr(loop_work, "TURN_SECONDS", 1000.0)
    loops, fetches, at = simple(arithmetic)
    turns: list[int] = []

    def counted(value: int) -> int:
        turns.append(value)
        return value + 1

    loops.functions[at["less"]] = lambda v: v < 3 * TURN
    loops.functions[at["more"]] = counted
    (last, seen), _ = loops.fetch([*fetches, after_one_turn(loops, turns)], straight=True)
    assert last == 3 * TURN
    assert seen == TURN


@pytest.mark.parametrize("arithmetic", [False, True])
def test_a_turn_of_long_iterations_has_few_of_them(monkeypatch: pytest.MonkeyPatch, arithmetic: bool) -> None:
    clock = iter(range(1000))
    monkeypatch.setattr(loop_work, "monotonic", lambda: next(clock) * 1e-3)
    loops, fetches, at = simple(arithmetic)
    ran: list[int] = []

    def counted(value: int) -> int:
        ran.append(value)
        return value + 1

    loops.functions[at["more"]] = counted
    (last, seen), _ = loops.fetch([*fetches, after_one_turn(loops, ran)], straight=True)
    assert last == 50
    assert seen == 3


@pytest.mark.parametrize("arithmetic", [False, True])
def test_a_condition_must_be_a_scalar(arithmetic: bool) -> None:
    loops, fetches, at = simple(arithmetic)
    loops.functions[at["less"]] = lambda v: np.array([True])
    with pytest.raises(InvalidArgumentError, match=r"condition of the loop 'loop' must be a scalar.*\(1,\)"):
        loops.fetch(fetches, straight=True)


# ---------------------------------------------------------------------- what is left to the executor
def side_taken(loops: Loops, at: dict[str, int]) -> None:
    """Something but an Exit is alive only where the loop ends."""
    loops.work(lambda v: v, [(at["switch"], 0)], 1)


def first_only(loops: Loops, at: dict[str, int]) -> None:
    """Something is alive in the first iteration only."""
    loops.work(lambda v: v, [(at["enter"], 0)], 1)


def conditional(loops: Loops, at: dict[str, int]) -> None:
    test = loops.work(lambda v: v > 9, [(at["switch"], 1)], 1)
    sides = loops.add(Kind.SWITCH, 1, [(at["switch"], 1), test])
    loops.add(Kind.MERGE, 1, [(sides, 0), (sides, 1)])


def trigger(loops: Loops, at: dict[str, int]) -> None:
    loops.add(Kind.TRIGGER, 1, [], controls=[at["more"]])


def inner(loops: Loops, at: dict[str, int]) -> None:
    loops.frames.append(FrameSpec("inner", 1))
    loops.add(Kind.ENTER, 1, [(at["switch"], 1)], child=2)


def index(loops: Loops, at: dict[str, int]) -> None:
    """Which input a Merge took."""
    loops.work(lambda v: v, [(at["merge"], 1)], 1)


def enters_again(loops: Loops, at: dict[str, int]) -> None:
    """What leaves the loop goes into it as well."""
    loops.add(Kind.ENTER, 0, [(at["leave"], 0)], child=1, constant=True)


def waits_behind(loops: Loops, at: dict[str, int]) -> None:
    """What runs in the last test, too, comes after what does not."""
    loops.work(lambda v: v, [(at["merge"], 0)], 1, after=[at["more"]])


def twice(loops: Loops, at: dict[str, int]) -> None:
    """Two variables begin with one Enter."""
    loops.add(Kind.MERGE, 1, [(at["enter"], 0), (at["next"], 0)])


@pytest.mark.parametrize(
    "change", [side_taken, first_only, conditional, trigger, inner, index, enters_again, waits_behind, twice]
)
def test_loops_that_the_executor_looks_after(change: Callable[[Loops, dict[str, int]], None]) -> None:
    loops, _, at = simple()
    change(loops, at)
    assert not straighten(loops.specs, loops.frames, set(loops.functions)).loops


def test_work_that_is_not_quick_is_left_to_the_executor() -> None:
    loops, _, at = simple()
    assert not straighten(loops.specs, loops.frames, set(loops.functions) - {at["more"]}).loops
