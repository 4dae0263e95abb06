"""The executor by itself: its transitions, and random programs beside a plain Python interpreter of them."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from anabranch.errors import CancelledError, InternalError, InvalidArgumentError
from anabranch.runtime.executor import Executor
from anabranch.runtime.executor_graph import ExecutorGraph, FrameSpec, Kind, Known, NodeSpec, Output


def run(graph: ExecutorGraph, feeds: Sequence[Any] = (), choose: Callable[[int], int] = lambda n: n - 1) -> Executor:
    """Runs a graph; `choose` says which of n ready instances goes next."""
    executor = Executor(graph, feeds)
    ready = executor.start()
    while ready or executor.paused:
        if not ready:
            ready = executor.resume()
            continue
        node, iteration = instance = ready.pop(choose(len(ready)))
        if node.payload is not None:
            node.payload(iteration.values)
        ready += executor.finished(instance)
    if executor.error is not None:
        raise executor.error
    assert executor.done
    assert executor.running == 0
    check_nothing_is_left(executor)
    return executor


def check_nothing_is_left(executor: Executor) -> None:
    """Every frame has ended, and every node of the root has run."""
    root = executor.root
    assert not root.children
    assert root.outstanding == 0
    assert list(executor.iterations()) == [root]
    assert all(left == -1 for node, left in zip(root.nodes, root.missing, strict=True) if node.kind != Kind.FEED)


class Builder:
    """Puts graphs together; `compute` nodes are functions of their inputs."""

    def __init__(self) -> None:
        self.frames = [FrameSpec("")]
        self.specs: list[NodeSpec] = []
        self.computed: list[tuple[int, Callable[..., Any], Sequence[Output]]] = []
        self.ran: list[str] = []

    def add(self, name: str, kind: Kind, frame: int = 0, inputs: Sequence[Any] = (), **rest: Any) -> int:
        self.specs.append(NodeSpec(name, kind, frame, list(inputs), **rest))
        return len(self.specs) - 1

    def compute(
        self, name: str, function: Callable[..., Any], inputs: Sequence[Output], frame: int = 0, **rest: Any
    ) -> Output:
        node = self.add(name, Kind.WORK, frame, inputs, **rest)
        self.computed.append((node, function, inputs))
        return node, 0

    def frame(self, name: str, parent: int, window: int = 10) -> int:
        self.frames.append(FrameSpec(name, parent, window))
        return len(self.frames) - 1

    def graph(self, fetches: Sequence[Output] = ()) -> ExecutorGraph:
        graph = ExecutorGraph(self.specs, fetches, self.frames)
        for node, function, inputs in self.computed:
            graph.nodes[node].payload = self._payload(graph, node, function, inputs)
        return graph

    def _payload(self, graph: ExecutorGraph, node: int, function: Any, inputs: Sequence[Output]) -> Any:
        sources, target = [graph.slot(i) for i in inputs], graph.slot((node, 0))
        name = self.specs[node].name

        def payload(values: list[Any]) -> None:
            arguments = [values[s] for s in sources]
            assert all(a is not None for a in arguments), f"{name} runs with a dead input"
            self.ran.append(name)
            values[target] = function(*arguments)

        return payload

    def loop(
        self, name: str, start: Output | Known, frame: int = 0, window: int = 10, limit: int = 5
    ) -> tuple[Output, dict[str, int]]:
        """A loop that counts to `limit`; returns its result and its nodes."""
        inner = self.frame(name, frame, window)
        enter = self.add(f"{name}/enter", Kind.ENTER, frame, [start], child=inner)
        merge = self.add(f"{name}/merge", Kind.MERGE, inner)
        less = self.compute(f"{name}/less", lambda v: v < limit, [(merge, 0)], inner)
        cond = self.add(f"{name}/cond", Kind.PASS, inner, [less])
        switch = self.add(f"{name}/switch", Kind.SWITCH, inner, [(merge, 0), (cond, 0)])
        more = self.compute(f"{name}/add", lambda v: v + 1, [(switch, 1)], inner)
        following = self.add(f"{name}/next", Kind.NEXT_ITERATION, inner, [more])
        self.specs[merge].inputs = [(enter, 0), (following, 0)]
        leave = self.add(f"{name}/exit", Kind.EXIT, inner, [(switch, 0)])
        return (leave, 0), {"switch": switch, "add": more[0], "frame": inner, "next": following, "merge": merge}


# ---------------------------------------------------------------------- the transition table
def test_nodes_run_after_their_inputs_and_controls() -> None:
    b = Builder()
    one = b.compute("one", lambda: 1, [])
    two = b.compute("two", lambda x: x + 1, [one])
    b.compute("last", lambda x: x, [one], controls=[two[0]])
    assert run(b.graph([two])).fetches() == [2]
    assert b.ran == ["one", "two", "last"]


def test_values_go_when_their_last_reader_has_run() -> None:
    """What is fetched, what a primitive passes on, and what a dead node would have read stay."""
    names = ["read", "fetched", "passed"]
    nodes = [
        NodeSpec(name, payload=lambda values, slot=slot: values.__setitem__(slot, slot))
        for slot, name in enumerate(names)
    ]
    nodes.append(NodeSpec("pass", Kind.PASS, inputs=[(2, 0)]))
    reads = [(0, 0), (1, 0), (2, 0)]
    readers = ("first", "second")
    nodes += [NodeSpec(name, inputs=reads, reads=reads, payload=lambda values: None) for name in readers]
    executor = Executor(ExecutorGraph(nodes, [(1, 0)]))
    ready, seen = executor.start(), []
    while ready:
        node, iteration = ready.pop(0)
        node.payload(iteration.values)
        ready += executor.finished((node, iteration))
        seen.append((node.name, iteration.values[0]))
    assert seen == [("read", 0), ("fetched", 0), ("passed", 0), ("first", 0), ("second", None)]
    assert executor.fetches() == [1]
    assert executor.root.values[2] == 2


def test_a_feed_is_there_from_the_start() -> None:
    b = Builder()
    x = b.add("x", Kind.FEED), 0
    assert run(b.graph([b.compute("double", lambda v: 2 * v, [x])]), [21]).fetches() == [42]


@pytest.mark.parametrize("taken", [False, True])
def test_a_switch_lets_its_value_to_one_side(taken: bool) -> None:
    b = Builder()
    switch = b.add("switch", Kind.SWITCH, inputs=[Known("v"), Known(taken)])
    sides = [b.compute(f"side{i}", lambda v, i=i: f"{v}{i}", [(switch, i)]) for i in (0, 1)]
    after = [b.compute(f"after{i}", lambda v: v, [sides[i]]) for i in (0, 1)]
    b.compute("beside", lambda: 0, [], controls=[switch])
    merge = b.add("merge", Kind.MERGE, inputs=after)
    executor = run(b.graph([(merge, 0), (merge, 1)]))
    assert executor.fetches() == [f"v{int(taken)}", int(taken)]
    assert sorted(b.ran) == sorted([f"side{int(taken)}", f"after{int(taken)}", "beside"])


def test_deadness_passes_along_data_and_control_edges_but_not_order_edges() -> None:
    b = Builder()
    switch = b.add("switch", Kind.SWITCH, inputs=[Known("v"), Known(True)])
    dead = b.compute("dead", lambda v: v, [(switch, 0)])
    b.compute("controlled", lambda: 0, [], controls=[dead[0]])
    b.compute("ordered", lambda: 0, [], after=[dead[0]])
    trigger = b.add("trigger", Kind.TRIGGER, controls=[dead[0]], outputs=0)
    b.compute("triggered", lambda: 0, [], controls=[trigger])
    run(b.graph())
    assert sorted(b.ran) == ["ordered", "triggered"]


@pytest.mark.parametrize("taken", [False, True])
def test_what_is_sent_to_another_task_is_handed_out_dead_or_alive(taken: bool) -> None:
    b = Builder()
    switch = b.add("switch", Kind.SWITCH, inputs=[Known("v"), Known(taken)])
    value = b.compute("value", lambda v: v, [(switch, 1)])
    send = b.add("send", Kind.SEND, inputs=[value], outputs=0)
    b.compute("behind", lambda: 0, [], controls=[send])
    executor = Executor(b.graph())
    ready, handed_out = executor.start(), []
    while ready:
        node, iteration = instance = ready.pop()
        handed_out.append((node.name, bool(iteration.marks[node.index])))
        assert [running for running, _ in executor.running_instances()] == [node]
        if node.payload is not None:
            node.payload(iteration.values)
        ready += executor.finished(instance)
    check_nothing_is_left(executor)
    assert handed_out == ([("value", False), ("send", False), ("behind", False)] if taken else [("send", True)])


@pytest.mark.parametrize("dead", [False, True])
def test_what_another_task_sent_may_be_dead(dead: bool) -> None:
    b = Builder()
    recv = b.add("recv", Kind.WORK)
    b.compute("taker", lambda v: v, [(recv, 0)])
    b.compute("ordered", lambda: 0, [], after=[recv])
    merge = b.add("merge", Kind.MERGE, inputs=[(recv, 0), b.compute("other", lambda: "other", [])])
    executor = Executor(b.graph([(merge, 0)]))
    ready = executor.start()
    received = next(instance for instance in ready if instance[0].name == "recv")
    ready.remove(received)
    if not dead:
        received[1].values[received[0].slots[0]] = "sent"
    ready = executor.finished(received, dead) + ready
    while ready:
        node, iteration = instance = ready.pop(0)
        node.payload(iteration.values)
        ready += executor.finished(instance)
    check_nothing_is_left(executor)
    assert executor.fetches() == ["other" if dead else "sent"]
    assert sorted(b.ran) == sorted(["ordered", "other", *([] if dead else ["taker"])])


def test_a_merge_waits_for_its_control_inputs_and_takes_the_first_value() -> None:
    b = Builder()
    one, other = (b.compute(n, lambda n=n: n, []) for n in ("one", "other"))
    merge = b.add("merge", Kind.MERGE, inputs=[one, other], controls=[b.compute("slow", lambda: 0, [])[0]])
    b.compute("after", lambda v: v, [(merge, 0)])
    executor = run(b.graph([(merge, 0), (merge, 1)]), choose=lambda _: 0)
    assert executor.fetches() == ["one", 0]
    assert b.ran == ["one", "other", "slow", "after"]


def test_a_merge_of_dead_values_is_dead_and_so_is_its_fetch() -> None:
    b = Builder()
    switch = b.add("switch", Kind.SWITCH, inputs=[Known("v"), Known(True)])
    dead = [b.compute(f"dead{i}", lambda v: v, [(switch, 0)]) for i in (0, 1)]
    merge = b.add("merge", Kind.MERGE, inputs=dead)
    executor = run(b.graph([(merge, 0)]))
    with pytest.raises(InvalidArgumentError, match="merge:0 has no value"):
        executor.fetches()


@pytest.mark.parametrize("window", [1, 2, 10])
def test_a_loop(window: int) -> None:
    b = Builder()
    result, _ = b.loop("loop", Known(0), window=window)
    after = b.compute("after", lambda v: v * 10, [result])
    assert run(b.graph([after])).fetches() == [50]
    assert b.ran.count("loop/add") == 5


def test_a_loop_on_the_branch_not_taken_is_passed_over() -> None:
    b = Builder()
    switch = b.add("switch", Kind.SWITCH, inputs=[Known(0), Known(False)])
    result, _ = b.loop("loop", (switch, 1))
    other = b.compute("other", lambda v: v - 1, [(switch, 0)])
    merge = b.add("merge", Kind.MERGE, inputs=[result, other])
    assert run(b.graph([(merge, 0)])).fetches() == [-1]
    assert b.ran == ["other"]


def test_a_constant_reaches_every_iteration_also_when_it_comes_late() -> None:
    b = Builder()
    result, nodes = b.loop("loop", Known(0))
    slow = b.compute("slow", lambda: 7, [])
    constant = b.add("constant", Kind.ENTER, inputs=[slow], child=nodes["frame"], constant=True)
    seen: list[Any] = []
    body = b.compute(
        "sees", lambda v, c: seen.append((v, c)) or v + 1, [(nodes["switch"], 1), (constant, 0)], nodes["frame"]
    )
    b.specs[nodes["next"]].inputs = [body]
    run(b.graph([result]), choose=lambda n: n - 1)
    assert seen == [(i, 7) for i in range(5)]
    seen.clear()
    run(b.graph([result]), choose=lambda n: 0)
    assert seen == [(i, 7) for i in range(5)]


def test_iterations_overlap_within_the_window_only() -> None:
    b = Builder()
    result, nodes = b.loop("loop", Known(0), window=3)
    b.compute("slow", lambda v: v, [(nodes["switch"], 1)], nodes["frame"])
    executor = Executor(b.graph([result]))
    ready, held = executor.start(), []
    while ready:
        instance = ready.pop()
        if instance[0].name == "slow":
            held.append(instance)
            continue
        instance[0].payload(instance[1].values)
        ready += executor.finished(instance)
    assert sorted(iteration.number for _, iteration in held) == [0, 1, 2]
    assert not executor.done
    while held:
        ready = executor.finished(held.pop(0))
        while ready:
            instance = ready.pop()
            if instance[0].name == "slow":
                held.append(instance)
            else:
                instance[0].payload(instance[1].values)
                ready += executor.finished(instance)
    assert executor.done
    assert executor.fetches() == [5]
    check_nothing_is_left(executor)


def test_abort_names_every_running_instance_and_ends_the_step() -> None:
    b = Builder()
    b.loop("loop", Known(0))
    for i in range(3):
        b.compute(f"wait{i}", lambda: 0, [])
    executor = Executor(b.graph())
    ready = executor.start()
    error = CancelledError(None, None, "enough")
    assert {id(n) for n, _ in executor.abort(error)} == {id(n) for n, _ in ready}
    assert executor.error is error
    assert executor.abort(error) == []
    assert [executor.finished(instance) for instance in ready] == [[]] * 4
    assert not executor.done


def test_a_loop_that_is_nothing_but_primitives_lets_its_caller_go_on() -> None:
    b = Builder()
    inner = b.frame("loop", 0)
    enter = b.add("enter", Kind.ENTER, 0, [Known(1)], child=inner)
    merge = b.add("merge", Kind.MERGE, inner)
    switch = b.add("switch", Kind.SWITCH, inner, [(merge, 0), Known(True)])
    following = b.add("next", Kind.NEXT_ITERATION, inner, [(switch, 1)])
    b.specs[merge].inputs = [(enter, 0), (following, 0)]
    b.add("exit", Kind.EXIT, inner, [(switch, 0)])
    executor = Executor(b.graph())
    assert executor.start() == []
    for _ in range(3):
        assert executor.paused
        assert executor.resume() == []
    assert executor.error is None
    assert not executor.done
    error = CancelledError(None, None, "enough")
    executor.abort(error)
    assert executor.error is error


@pytest.mark.parametrize("pause", [1, 2, 3])
@pytest.mark.parametrize("window", [1, 2, 10])
def test_loops_give_the_same_whenever_they_pause(pause: int, window: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anabranch.runtime.executor.PAUSE", pause)
    b = Builder()
    one, nodes = b.loop("outer", Known(0), window=window, limit=7)
    other, _ = b.loop("inner", (nodes["switch"], 1), nodes["frame"], window, limit=9)
    rest, _ = b.loop("rest", one, limit=20)
    outcome = b.compute("sum", lambda v, w: v + w, [one, rest])
    assert run(b.graph([one, rest, outcome])).fetches() == [7, 20, 27]
    assert b.ran.count("inner/add") == sum(9 - i for i in range(7))
    assert other


def test_a_step_that_cannot_go_on_tells_who_waits() -> None:
    b = Builder()
    inner = b.frame("loop", 0)
    enter = b.add("enter", Kind.ENTER, 0, [Known(0)], child=inner)
    merge = b.add("merge", Kind.MERGE, inner, [(enter, 0)])
    leave = b.add("exit", Kind.EXIT, inner, [(merge, 0)])
    b.add("stuck", Kind.MERGE, 0, [(leave, 0)], controls=[])
    b.specs[-1].controls = [len(b.specs) - 1]  # it waits for itself
    with pytest.raises(InternalError, match="'stuck' waits for 1 inputs"):
        run(b.graph())


def test_a_value_leaves_a_loop_once() -> None:
    b = Builder()
    _, nodes = b.loop("loop", Known(0))
    b.add("wrong", Kind.EXIT, nodes["frame"], [(nodes["merge"], 0)])
    with pytest.raises(InvalidArgumentError, match="'wrong' in iteration 1 of 'loop' is left a second time"):
        run(b.graph())


# ---------------------------------------------------------------------- random programs
#: ("add", i, j): a new value from two in scope; ("new", v): a constant; ("cond", i, picks, else block, then block);
#: ("loop", i, fixed, rounds, window, block): i is the loop variable. A block's result is the last value of its scope.
Statement = tuple[Any, ...]


def random_block(rng: random.Random, size: int, depth: int = 0) -> list[Statement]:
    """Statements for a scope of `size` values."""
    block: list[Statement] = []
    for _ in range(rng.randint(1, 4)):
        kinds = ["add", "new"] if depth > 2 else ["add", "new", "cond", "loop", "cond", "loop"]
        kind = rng.choice(kinds)
        i, j = rng.randrange(size), rng.randrange(size)
        if kind == "add":
            block.append(("add", i, j))
        elif kind == "new":
            block.append(("new", rng.randint(0, 50)))
        elif kind == "cond":
            block.append(("cond", i, (i, j), random_block(rng, 2, depth + 1), random_block(rng, 2, depth + 1)))
        else:
            inner = random_block(rng, 3, depth + 1)
            block.append(("loop", i, j, rng.randint(0, 3), rng.randint(1, 3), inner))
        size += 1
    return block


def mixed(x: int, y: int) -> int:
    return (x + 3 * y) % 97


def interpret(block: list[Statement], scope: list[int], ran: list[str], path: str = "") -> int:
    """What Python makes of a block; notes each computation that runs."""
    for number, statement in enumerate(block):
        name = f"{path}/{number}"
        match statement:
            case "add", i, j:
                scope.append(mixed(scope[i], scope[j]))
                ran.append(name)
            case "new", value:
                scope.append(value)
                ran.append(name)
            case "cond", i, picks, *sides:
                ran.append(name)
                taken = scope[i] % 2
                scope.append(interpret(sides[taken], [scope[p] for p in picks], ran, f"{name}/{taken}"))
            case "loop", i, j, rounds, _, body:
                value = scope[i]
                for k in range(rounds):
                    value = interpret(body, [value, scope[j], k], ran, f"{name}/body")
                ran.extend([f"{name}/less"] * (rounds + 1) + [f"{name}/more"] * rounds)
                scope.append(value)
    return scope[-1]


class Compiler:
    """Writes blocks down as a graph."""

    def __init__(self) -> None:
        self.b = Builder()

    def block(
        self, block: list[Statement], scope: list[Output], frame: int = 0, pivot: Sequence[int] = (), path: str = ""
    ) -> Output:
        for number, statement in enumerate(block):
            name = f"{path}/{number}"
            match statement:
                case "add", i, j:
                    found = self.b.compute(name, mixed, [scope[i], scope[j]], frame, controls=pivot)
                case "new", value:
                    found = self.b.compute(name, lambda value=value: value, [], frame, controls=pivot)
                case "cond", *_:
                    found = self.conditional(statement, scope, frame, pivot, name)
                case _:
                    found = self.loop(statement, scope, frame, pivot, name)
            scope.append(found)
        return scope[-1]

    def conditional(
        self, statement: Statement, scope: list[Output], frame: int, pivot: Sequence[int], name: str
    ) -> Output:
        b, (_, i, picks, *sides) = self.b, statement
        predicate = b.compute(name, lambda v: v % 2 == 1, [scope[i]], frame, controls=pivot)
        switches = [b.add(f"{name}/switch", Kind.SWITCH, frame, [scope[p], predicate]) for p in picks]
        results = []
        for side, block in enumerate(sides):
            at = b.add(f"{name}/pivot", Kind.PASS, frame, [(switches[0], side)])
            results.append(self.block(block, [(s, side) for s in switches], frame, [at], f"{name}/{side}"))
        return b.add(f"{name}/merge", Kind.MERGE, frame, results), 0

    def loop(self, statement: Statement, scope: list[Output], frame: int, pivot: Sequence[int], name: str) -> Output:
        b, (_, i, j, rounds, window, body) = self.b, statement
        inner = b.frame(name, frame, window)
        starts = [scope[i], Known(0)]
        enters = [b.add(f"{name}/enter", Kind.ENTER, frame, [s], child=inner, controls=pivot) for s in starts]
        fixed = b.add(f"{name}/fixed", Kind.ENTER, frame, [scope[j]], child=inner, constant=True)
        merges = [b.add(f"{name}/merge", Kind.MERGE, inner) for _ in starts]
        less = b.compute(f"{name}/less", lambda k: k < rounds, [(merges[1], 0)], inner)
        switches = [b.add(f"{name}/switch", Kind.SWITCH, inner, [(m, 0), less]) for m in merges]
        at = b.add(f"{name}/pivot", Kind.PASS, inner, [(switches[0], 1)])
        values = [(switches[0], 1), (fixed, 0), (switches[1], 1)]
        results = [
            self.block(body, values, inner, [at], f"{name}/body"),
            b.compute(f"{name}/more", lambda k: k + 1, [(switches[1], 1)], inner),
        ]
        for enter, merge, result in zip(enters, merges, results, strict=True):
            b.specs[merge].inputs = [(enter, 0), (b.add(f"{name}/next", Kind.NEXT_ITERATION, inner, [result]), 0)]
        return b.add(f"{name}/exit", Kind.EXIT, inner, [(switches[0], 0)]), 0


@settings(max_examples=300)
@given(st.integers(0, 1 << 40))
def test_random_programs_compute_what_python_does_in_any_order(seed: int) -> None:
    rng = random.Random(seed)
    program, feeds = random_block(rng, 2), [rng.randint(0, 50), rng.randint(0, 50)]
    ran: list[str] = []
    expected = interpret(program, list(feeds), ran)
    compiler = Compiler()
    inputs = [(compiler.b.add(f"x{i}", Kind.FEED), 0) for i in range(2)]
    result = compiler.block(program, list(inputs))
    executor = run(compiler.b.graph([result]), feeds, choose=rng.randrange)
    assert executor.fetches() == [expected]
    assert sorted(compiler.b.ran) == sorted(ran)


@given(st.integers(0, 1 << 40))
def test_a_random_program_that_is_aborted_leaves_nobody_waiting(seed: int) -> None:
    rng = random.Random(seed)
    compiler = Compiler()
    inputs = [(compiler.b.add(f"x{i}", Kind.FEED), 0) for i in range(2)]
    result = compiler.block(random_block(rng, 2), list(inputs))
    executor = Executor(compiler.b.graph([result]), [1, 2])
    ready = executor.start()
    for _ in range(rng.randrange(10)):
        if ready:
            node, iteration = instance = ready.pop(rng.randrange(len(ready)))
            node.payload(iteration.values)
            ready += executor.finished(instance)
    cancelled = executor.abort(CancelledError(None, None, "enough"))
    assert {(id(n), id(i)) for n, i in cancelled} == {(id(n), id(i)) for n, i in ready}
    assert all(executor.finished(instance) == [] for instance in ready)
