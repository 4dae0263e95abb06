"""Control loops: what makes a loop go round on tasks that do not compute its condition (§3.4, WP4.4).

On a task, what is received in a loop has to be asked for in each iteration, and something has to begin the iterations.
Where a loop has operations on several tasks, each of these gets a loop variable of its own, which carries nothing::

    Enter -> Merge -> Switch on the loop's condition -> NextIteration -> Merge
               |
               +-> every Recv from another task in this loop

The Switch takes the condition from whichever task computes it, so that this is sent to every task of the loop once in
each iteration. In the last iteration the condition is false, and the Recvs there get the dead values that the other
tasks' Sends send. A loop on a branch that is not taken is entered all the same, and gets a dead condition.
"""

from __future__ import annotations

import numpy as np

from anabranch.core import dtypes
from anabranch.core.attrs import AttributeValue
from anabranch.core.devices import task_of
from anabranch.core.roles import Role
from anabranch.core.shapes import TensorShape
from anabranch.errors import InvalidArgumentError
from anabranch.graph.step_nodes import StepNode, StepTensor
from anabranch.passes.added_nodes import added_node
from anabranch.passes.dependencies import Dependencies
from anabranch.passes.frames import Frame, Frames, find_frames
from anabranch.passes.rewriting import Rewriting
from anabranch.passes.step_graph import StepGraph

#: (position of the frame, task) -> the Merge that is alive in each iteration there
Triggers = dict[tuple[int, str], StepNode]


def add_control_loops(step: StepGraph) -> tuple[StepGraph, Triggers]:
    """Adds control loops to a placed step, for each loop that has operations on several tasks."""
    # few steps have several tasks, and fewer loops
    if len({task_of(device) for device in {op.placed_on for op in step.operations}}) == 1:
        return step, {}
    dependencies = Dependencies(step)
    frames = find_frames(dependencies)
    return _ControlLoops(step, frames).run() if len(frames.all) > 1 else (step, {})


class _ControlLoops(Rewriting):
    def __init__(self, step: StepGraph, frames: Frames) -> None:
        super().__init__(step)
        self._frames = frames
        #: (position of a frame, task) -> the device of the first operation there
        self._devices: dict[tuple[int, str], str] = {}
        self._conditions: dict[int, StepNode] = {}
        for op in step.operations:
            # an Enter or Exit belongs to the loop as well: it is a value of the loop that it makes or takes
            for frame in {frames.of[op].position, frames.home(op).position}:
                self._devices.setdefault((frame, task_of(op.placed_on)), op.placed_on)
            if op.op_def.role is Role.LOOP_CONDITION:
                self._conditions.setdefault(frames.of[op].position, op)
        # whoever enters a loop in each iteration of another goes round in that one as well
        for (position, task), device in list(self._devices.items()):
            outer = frames.all[position].parent
            # up to the root, which nobody has to enter
            while outer is not None and outer.parent is not None:
                self._devices.setdefault((outer.position, task), device)
                outer = outer.parent
        self._triggers: Triggers = {}
        #: what goes behind each condition
        self._turns: dict[StepNode, list[StepNode]] = {}

    def run(self) -> tuple[StepGraph, Triggers]:
        begun = {0}
        for op in self.step.operations:
            frame = self._frames.home(op)
            # before its first operation, which is an Enter: the control loop's nodes come before all Recvs that
            # wait for its Merge
            if frame.position not in begun:
                begun.add(frame.position)
                self._begin(frame, op)
            self.keep(op)
            for node in self._turns.get(op, ()):
                # the condition may have been copied when it was kept
                node.inputs = [self.tensor(t) for t in node.inputs]
                self.add(node)
        return self.result(), self._triggers

    def _begin(self, frame: Frame, first: StepNode) -> None:
        # a loop on one task needs none: whatever is received in it comes from the same executor
        tasks = [task for position, task in self._devices if position == frame.position]
        if len(tasks) == 1:
            return
        condition = self._conditions.get(frame.position)
        if condition is None:
            raise InvalidArgumentError(
                None,
                first,
                f"the loop {frame.name!r} has operations on {len(tasks)} tasks, and no LoopCond that tells all of them "
                "when it ends; put it on one device, or let its Switches take a LoopCond",
            )
        # in an order that does not depend on that of the operations, for the label numbers the loops
        for task in sorted(tasks):
            self._add_loop(frame, task, condition, first)

    def _add_loop(self, frame: Frame, task: str, condition: StepNode, first: StepNode) -> None:
        device = self._devices[frame.position, task]
        kind = (dtypes.bool, TensorShape([]))
        nothing = added_node("Const", first, "control", outputs=[kind], value=np.False_, dtype=dtypes.bool).outputs[0]
        # known, and so everywhere: it is not sent, and does not run; the value is never looked at
        nothing.known = np.False_
        assert frame.parent is not None
        outer = self._triggers.get((frame.parent.position, task))
        label = f"control_loop_{task.rpartition(':')[2]}_{len(self._triggers)}"

        def added(
            what: str, beside: StepNode, inputs: list[StepTensor], outputs: int, **attrs: AttributeValue
        ) -> StepNode:
            node = added_node(what, beside, f"{label}/{what}", inputs, outputs=[kind] * outputs, T=dtypes.bool, **attrs)
            node.placed_on = device
            return node

        enter = added(
            "Enter",
            first,
            [nothing],
            1,
            frame_name=frame.name.encode(),
            is_constant=False,
            parallel_iterations=frame.parallel_iterations,
        )
        if outer is not None:
            # what it takes is known, and has no frame: this is what makes it enter in each iteration of the loop around
            enter.control_inputs = (outer,)
        merge = added("Merge", first, [], 1, N=2)
        # a Merge also says which of its inputs came
        merge.outputs.append(StepTensor(merge, 1, dtypes.int32, TensorShape([])))
        switch = added("Switch", condition, [merge.outputs[0], condition.outputs[0]], 2)
        following = added("NextIteration", condition, [switch.outputs[1]], 1)
        # only now, since the two take each other's values
        merge.inputs = [enter.outputs[0], following.outputs[0]]
        self.add(enter)
        self.add(merge)
        # they take the condition, and have to come after it in the order of the step
        self._turns.setdefault(condition, []).extend((switch, following))
        self._triggers[frame.position, task] = merge
