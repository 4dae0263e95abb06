"""Control edges hold, whatever the planner takes out of the graph between the operations that they connect (§3.2).

A random program makes operations that somebody notices (Python functions, queues, files, variables, assertions), under
random control dependencies, with constants, identities, shapes and groups in between, in conditionals and loops, on
several devices. What the graph says about their order must hold in the step; and nothing that comes after an operation
that fails may happen.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import anabranch as tf
from anabranch.graph.function_graph import FunctionGraph
from anabranch.graph.graph import Graph
from anabranch.graph.loop_structure import is_back_edge
from anabranch.graph.operation import Operation, Tensor
from anabranch.graph.step_nodes import StepNode, called_names
from anabranch.pipeline import Plan, plan_listeners
from anabranch.runtime.run_order import needs_executor

Log = list[tuple[str, str]]


class Program:
    """A random graph, and what its operations note while it runs.

    Attributes:
        log: ("begin" | "end", tag) of each call of a Python function.
        noticed: tag -> the operation whose effect it names.
        targets: what to run.
    """

    def __init__(self, seed: int, folder: Path, devices: int) -> None:
        self.rng, self.folder, self.devices = random.Random(seed), folder, devices
        self.log: Log = []
        self.noticed: dict[str, Operation] = {}
        self.files: dict[str, Path] = {}
        self.variables: dict[str, Any] = {}
        self.readings: dict[str, Tensor] = {}
        self.fails = self.rng.random() < 0.5
        self.failing: str | None = None
        self.queue = tf.FIFOQueue(1000, tf.float32, [[]])
        self.targets = self._block([], self.rng.randint(4, 14), 0)
        self.dequeue, self.size = self.queue.dequeue(), self.queue.size()

    # ---- blocks
    def _block(self, made: list[Any], count: int, depth: int) -> list[Any]:
        """Makes operations; returns those on which nothing is built, and those to run."""
        own: list[Any] = []
        for _ in range(count):
            waits = self.rng.sample([*made, *own], min(len(made) + len(own), self.rng.choice([0, 1, 1, 2, 5])))
            device = f"/cpu:{self.rng.randrange(self.devices)}"
            with tf.control_dependencies(waits), tf.device(device):
                own.append(self._make([*made, *own], depth))
        return own

    def _make(self, made: list[Any], depth: int) -> Any:
        tensors = [t for t in made if isinstance(t, Tensor) and t.dtype is tf.float32 and t.shape.ndims == 0]
        taken = self.rng.choice(tensors) if tensors and self.rng.random() < 0.4 else None
        outside = ["enqueue", "file", "assign", "read"] if depth == 0 else []
        nested = ["cond", "loop"] if depth < 2 else []
        kind = self.rng.choice(
            [
                "call",
                "call",
                "constant",
                "identity",
                "folded",
                "shape",
                "no_op",
                "compiled",
                "assert",
                *outside,
                *nested,
            ]
        )
        made_by: Callable[[Any, int], Any] = getattr(self, f"_{kind}")
        return made_by(tf.constant(1.0) if taken is None else taken, depth)

    # ---- what somebody notices
    def _call(self, tensor: Any, depth: int) -> Any:
        tag = f"call_{len(self.noticed)}"
        fails = self.fails and self.failing is None and depth == 0 and self.rng.random() < 0.3

        def function(value: Any) -> Any:
            self.log.append(("begin", tag))
            if fails:
                raise ValueError(tag)
            self.log.append(("end", tag))
            return np.float32(value)

        found = tf.py_func(function, [tensor], tf.float32)
        found.set_shape([])
        self.noticed[tag] = found.op
        if fails:
            self.failing = tag
        return found

    def _enqueue(self, tensor: Any, depth: int) -> Any:
        del tensor, depth
        number = len(self.noticed)
        self.noticed[f"enqueue_{number}"] = op = self.queue.enqueue(float(number))
        return op

    def _file(self, tensor: Any, depth: int) -> Any:
        del tensor, depth
        tag = f"file_{len(self.noticed)}"
        self.files[tag] = self.folder / tag
        self.noticed[tag] = op = tf.write_file(str(self.files[tag]), "text")
        return op

    def _assign(self, tensor: Any, depth: int) -> Any:
        del depth
        tag = f"assign_{len(self.noticed)}"
        with tf.control_dependencies(None):
            self.variables[tag] = variable = tf.Variable(0.0, use_resource=True, name=tag)
        value = variable.assign(tensor * 0.0 + 1.0 if self.rng.random() < 0.5 else tf.constant(1.0))
        self.noticed[tag] = found = value.op if self.rng.random() < 0.5 else tf.identity(value).op
        writes = [t for t in variable.handle.consumers() if t.type == "AssignVariableOp"]
        self.noticed[tag] = writes[-1]
        return found

    def _read(self, tensor: Any, depth: int) -> Any:
        if not self.variables:
            return self._constant(tensor, depth)
        tag = f"read_{len(self.noticed)}"
        of = self.rng.choice(list(self.variables))
        value = self.variables[of].read_value()
        self.readings[f"{tag} {of}"] = value
        read = value.op
        while read.type != "ReadVariableOp":
            read = read.inputs[0].op
        self.noticed[tag] = read
        return value

    def _assert(self, tensor: Any, depth: int) -> Any:
        fails = self.fails and self.failing is None and depth == 0 and self.rng.random() < 0.3
        tag = f"assert_{len(self.noticed)}"
        op = tf.Assert((tensor < 0.5) if fails else (tensor > 0.5), [tensor])
        if fails:
            self.failing = tag
            self.noticed[tag] = op
        return op

    # ---- what may be taken out of the step
    def _constant(self, tensor: Any, depth: int) -> Any:
        return tf.constant(1.0)

    def _identity(self, tensor: Any, depth: int) -> Any:
        return tf.identity(tensor)

    def _folded(self, tensor: Any, depth: int) -> Any:
        return tf.constant(0.5) + 0.5

    def _shape(self, tensor: Any, depth: int) -> Any:
        return tf.cast(tf.rank(tensor) + 1, tf.float32)

    def _no_op(self, tensor: Any, depth: int) -> Any:
        return tf.no_op()

    def _compiled(self, tensor: Any, depth: int) -> Any:
        return tf.sqrt(tensor)

    # ---- bodies
    def _body(self, tensor: Any, depth: int) -> Any:
        own = self._block([tensor] if isinstance(tensor, Tensor) else [], self.rng.randint(1, 4), depth + 1)
        with tf.control_dependencies(own):
            return tf.identity(tensor) if self.rng.random() < 0.5 else tf.constant(1.0)

    def _cond(self, tensor: Any, depth: int) -> Any:
        return tf.cond(tensor > 0.5, lambda: self._body(tensor, depth), lambda: tf.sqrt(tensor))

    def _loop(self, tensor: Any, depth: int) -> Any:
        def iterate(k: Any, value: Any, unchanged: Any) -> Any:
            return k + 1, self._body(value, depth), unchanged

        results = tf.while_loop(lambda k, _, __: k < 2, iterate, (0, tensor, tf.constant(1.0)))
        return self.rng.choice(results[1:])


# ---------------------------------------------------------------------- what the graph says
class Order:
    """Which operations come before which, in a graph and the bodies of its conditionals and loops."""

    def __init__(self, graph: Any) -> None:
        #: body -> the operations that call it
        self.callers: dict[Any, list[Operation]] = {}
        self._find_callers(graph)
        self._behind: dict[Operation, set[Operation]] = {}

    def _find_callers(self, graph: Any) -> None:
        for op in graph.get_operations():
            for body in (op.graph.get_function(name) for name in called_names(op.attrs, op.op_def)):
                self.callers.setdefault(body, []).append(op)
                self._find_callers(body)

    def path(self, op: Operation) -> list[Operation]:
        """An operation after the operations in whose bodies it stands, outermost first."""
        found = [op]
        while found[0].graph in self.callers:
            found.insert(0, self.callers[found[0].graph][0])
        return found

    def behind(self, op: Operation) -> set[Operation]:
        """All operations of its graph that one comes after."""
        if op not in self._behind:
            found: set[Operation] = set()
            stack = [op]
            while stack:
                for earlier in (*(t.op for t in stack[-1].inputs), *stack.pop().control_inputs):
                    if earlier not in found:
                        found.add(earlier)
                        stack.append(earlier)
            self._behind[op] = found
        return self._behind[op]

    def comes_before(self, one: Operation, other: Operation) -> bool:
        """Whether one operation has to end before another can begin."""
        for a, b in zip(self.path(one), self.path(other), strict=False):
            if a is not b:
                return a in self.behind(b)
        return False


def ordered_pairs(program: Program, order: Order) -> list[tuple[str, str]]:
    """The effects of which one has to come before the other."""
    return [
        (a, b)
        for a, b in itertools.permutations(program.noticed, 2)
        if order.comes_before(program.noticed[a], program.noticed[b])
    ]


def lost_edges(plan: Plan, program: Program, order: Order) -> list[str]:
    """The pairs that a plan leaves unordered, so that only chance puts them in order."""
    copies = {op.origin: op for op in plan.step.operations}
    item_of = {op: number for number, item in enumerate(plan.items) for op in item.operations}
    straight = not needs_executor(plan.partitions[0])
    lost = []
    for a, b in ordered_pairs(program, order):
        one, other = copies.get(origin(program.noticed[a])), copies.get(origin(program.noticed[b]))
        if one is None or other is None or item_of[one] == item_of[other]:
            continue
        within = plan.grouping.frames.of[one] is plan.grouping.frames.of[other]
        if one not in _behind(plan, other, within) and not (straight and item_of[one] < item_of[other]):
            lost.append(f"{b} does not wait for {a}")
    return lost


def origin(op: Operation) -> str:
    """How nodes of steps name the operation that they are copied from."""
    root = op.graph
    while isinstance(root, FunctionGraph):
        root = root.outer_graph
    # two functions that were built in different places may have been built under one name
    scope = [f"@{name}" for name, body in root.functions.items() if body is op.graph]
    return op.name + "".join(scope)


def _behind(plan: Plan, op: StepNode, within: bool) -> set[StepNode]:
    """What an operation of a plan comes after; in one iteration, or in earlier ones as well."""
    found: set[StepNode] = set()
    stack = [op]
    while stack:
        later = stack.pop()
        tensors, controls = plan.grouping.waits[later]
        before = [*(t.op for t in tensors), *controls, *plan.grouping.order.get(later, ())]
        if not within:
            before += [t.op for t in later.inputs if is_back_edge(later, t)]
        stack += [earlier for earlier in before if earlier not in found]
        found.update(before)
    return found


def broken_edges(program: Program, order: Order, found: dict[str, Any]) -> list[str]:
    """What the graph says, and did not happen.

    Args:
        found: tag of a reading -> its value; none where the step failed.
    """
    pairs = ordered_pairs(program, order)
    begins: dict[str, list[int]] = {}
    for at, (what, tag) in enumerate(program.log):
        begins.setdefault(f"{what} {tag}", []).append(at)
    queued = {f"enqueue_{int(v)}": at for at, v in enumerate(found["queue"])}
    happened = {*(tag for _, tag in program.log), *queued, *found["files"], *found["assigned"]}
    wrong = []
    for a, b in pairs:
        ended, began = begins.get(f"end {a}"), begins.get(f"begin {b}")
        shared = len(ended or ()) == len(began or ())
        in_turn = [x < y for x, y in zip(ended or (), began or (), strict=False)]
        if in_turn and not (all(in_turn) if shared else in_turn[0]):
            wrong.append(f"{b} began before {a} had ended")
        if a in queued and b in queued and queued[a] > queued[b]:
            wrong.append(f"{b} before {a}")
        if a == program.failing and b in happened:
            wrong.append(f"{b} happened although {a} failed")
    for tag, value in found["readings"].items():
        reading, of = tag.split()
        if (of, reading) in pairs and value != 1:
            wrong.append(f"{reading} came before {of}")
        if (reading, of) in pairs and value != 0:
            wrong.append(f"{reading} came after {of}")
    return wrong


def run_program(seed: int, folder: Path, devices: int = 1) -> list[str]:
    """Runs a random program; returns what was wrong."""
    plans: list[Plan] = []
    with Graph().as_default() as graph:
        program = Program(seed, folder, devices)
        order = Order(graph)
        with tf.Session(config=tf.ConfigProto(device_count={"CPU": devices})) as session:
            session.run(tf.variables_initializer(list(program.variables.values())))
            plan_listeners.append(plans.append)
            try:
                found = _step(program, session)
            finally:
                plan_listeners.remove(plans.append)
    lost = [pair for plan in plans for pair in lost_edges(plan, program, order)]
    return lost + broken_edges(program, order, found)


def _step(program: Program, session: Any) -> dict[str, Any]:
    program.log.clear()
    for path in program.files.values():
        path.unlink(missing_ok=True)
    readings: dict[str, Any] = {}
    try:
        _, readings = session.run([program.targets, program.readings])
        assert program.failing is None
    except tf.errors.OpError:
        assert program.failing is not None
    return {
        "readings": readings,
        "queue": [session.run(program.dequeue) for _ in range(session.run(program.size))],
        "files": [tag for tag, path in program.files.items() if path.exists()],
        "assigned": [tag for tag, variable in program.variables.items() if session.run(variable) != 0],
    }


@pytest.mark.parametrize("devices", [1, 2])
@settings(max_examples=20)
@given(seed=st.integers(0, 1 << 40))
def test_what_a_random_graph_says_about_the_order_holds(
    devices: int, seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    assert run_program(seed, tmp_path_factory.getbasetemp(), devices) == []


@pytest.mark.parametrize("taken", [False, True])
def test_what_waits_for_an_identity_behind_a_switch_is_as_dead_as_its_side(taken: bool) -> None:
    """The Identity has no node in the executor: what waits for it waits for the side of the Switch."""
    with tf.Graph().as_default(), tf.Session() as session:
        predicate = tf.placeholder(tf.bool, [])
        text = tf.placeholder(tf.string, [])
        false, true = tf.raw_ops.Switch(data=text, pred=predicate)
        with tf.control_dependencies([tf.identity(tf.identity(true))]):
            behind_true = tf.strings.join([text, "true"])
        with tf.control_dependencies([tf.identity(false)]):
            behind_false = tf.strings.join([text, "false"])
        merged, index = tf.raw_ops.Merge(inputs=[behind_false, behind_true])
        assert session.run([merged, index], {predicate: taken, text: "x"}) == [[b"xfalse", b"xtrue"][taken], taken]
        with pytest.raises(tf.errors.InvalidArgumentError, match="no value"):
            session.run([behind_true, behind_false], {predicate: taken, text: "x"})
