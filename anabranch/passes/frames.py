"""Frames: which loop every operation of a step stands in, and whether its loops are well formed (§3.4, WP4.4).

An Enter leads into the frame that it names, an Exit out of it; every other operation stands where its inputs come from.
An operation without inputs stands outside of all loops. What is wrong is told before anything runs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import NoReturn

from anabranch.core.roles import Role
from anabranch.errors import InvalidArgumentError
from anabranch.graph.loop_structure import is_back_edge
from anabranch.graph.step_nodes import StepNode, StepTensor
from anabranch.passes.dependencies import Dependencies


# compared by identity: two loops that look alike are two loops
@dataclass(slots=True, eq=False)
class Frame:
    """A loop, or what is outside of all loops (`parent` is None)."""

    name: str
    parent: Frame | None
    parallel_iterations: int
    position: int
    first: StepNode | None = None

    def __str__(self) -> str:
        return "outside of all loops" if self.parent is None else f"in the loop {self.name!r}"


@dataclass(slots=True)
class Frames:
    """The frames of a step, each after the one around it, and where its operations run."""

    all: list[Frame] = field(default_factory=lambda: [Frame("", None, 1, 0)])
    of: dict[StepNode, Frame] = field(default_factory=dict)
    # a name means a loop only together with the frame around it: two loops may hold an inner one of the same name
    _children: dict[tuple[int, str], Frame] = field(default_factory=dict)

    @property
    def root(self) -> Frame:
        return self.all[0]

    def home(self, op: StepNode) -> Frame:
        """The frame in which the outputs of an operation live."""
        frame = self.of[op]
        if op.op_def.role is Role.ENTER:
            return self.entered(op)
        # the root has no frame around it: an Exit there is refused later (`_check_place`)
        return frame.parent or frame if op.op_def.role is Role.EXIT else frame

    def entered(self, op: StepNode) -> Frame:
        """The frame that an Enter leads into."""
        parent, name = self.of[op], op.attrs["frame_name"].decode(errors="replace")
        frame = self._children.get((parent.position, name))
        if frame is None:
            frame = Frame(name, parent, op.attrs["parallel_iterations"], len(self.all), op)
            self.add(frame)
        return frame

    def of_part(self, operations: Iterable[StepNode]) -> Frames:
        """All frames, and where these operations run; nothing of the others."""
        # `first` is an operation of the whole step, which one task's part must not hold; it is for errors found
        # before the cut
        frames = [replace(f, first=None) for f in self.all]
        part = Frames([])
        for frame, own in zip(self.all, frames, strict=True):
            own.parent = None if frame.parent is None else frames[frame.parent.position]
            part.add(own)
        part.of = {op: frames[self.of[op].position] for op in operations}
        return part

    def add(self, frame: Frame) -> None:
        """Adds a frame, whose position is the next."""
        self.all.append(frame)
        if frame.parent is not None:
            self._children[frame.parent.position, frame.name] = frame


def find_frames(dependencies: Dependencies) -> Frames:
    """Finds the frames of a step.

    Raises:
        InvalidArgumentError: a loop is malformed; the error names an operation of it.
    """
    frames = Frames()
    step = dependencies.step
    # without primitives there are no loops, and nothing to check
    if not dependencies.dynamic:
        frames.of = dict.fromkeys(step.operations, frames.root)
        return frames
    for op in step.operations:
        tensors, controls = dependencies.of(op)
        # step order, without back edges: what an operation takes has its frame already
        frames.of[op] = _common_frame(op, [*(t.op for t in tensors), *controls], frames)
        _check_place(op, frames)
    # only now have the NextIterations their frames: each comes after the Merge that takes its value
    _check_back_edges(dependencies, frames)
    _check_ends(dependencies, frames)
    return frames


def _common_frame(op: StepNode, sources: Iterable[StepNode], frames: Frames) -> Frame:
    common: Frame | None = None
    first: StepNode | None = None
    for source in sources:
        # a Merge keeps its constants (`fold` leaves them, to learn whether they are dead), so that their frame
        # counts there
        if source.type == "Const" and not source.control_inputs and op.op_def.role is not Role.MERGE:
            continue  # it will be folded; what is the same everywhere stands in no frame
        frame = frames.home(source)
        if common is None:
            common, first = frame, source
        elif frame is not common:
            assert first is not None
            _refuse(
                op,
                f"has inputs from different frames: of {first.name!r}, {common}, and of {source.name!r}, {frame}",
                "a value enters a loop through an Enter and leaves it through an Exit",
            )
    return common or frames.root


def _check_place(op: StepNode, frames: Frames) -> None:
    frame = frames.of[op]
    if op.op_def.role is Role.ENTER:
        entered = frames.entered(op)
        if entered.parallel_iterations != op.attrs["parallel_iterations"]:
            assert entered.first is not None
            _refuse(
                op,
                f"says that the loop {entered.name!r} has {op.attrs['parallel_iterations']} parallel iterations, and "
                f"{entered.first.name!r} says {entered.parallel_iterations}",
                "give all Enters of a loop the same number",
            )
    elif frame.parent is None and op.op_def.role in (Role.EXIT, Role.NEXT_ITERATION):
        _refuse(op, "is outside of all loops: no Enter leads to it", "connect it to the Enters of its loop")


def _check_back_edges(dependencies: Dependencies, frames: Frames) -> None:
    step = dependencies.step
    for op in step.operations:
        inputs = op.inputs
        back = [t for t in inputs if t.op.op_def.role is Role.NEXT_ITERATION]
        if any(not is_back_edge(op, t) for t in back):
            _refuse(op, f"takes the value of {back[0].name!r}", "only a Merge takes the value of a NextIteration")
        # its value belongs to the next iteration, and who waits for it here to this one
        if any(c.op_def.role is Role.NEXT_ITERATION for c in op.control_inputs):
            _refuse(op, "waits for a NextIteration", "let it wait for what the NextIteration takes")
        if back:
            _check_loop_merge(op, inputs, frames)


def _check_loop_merge(op: StepNode, inputs: list[StepTensor], frames: Frames) -> None:
    way_out = "such a Merge takes two values: one of an Enter and one of a NextIteration"
    kinds = [t.op.type for t in inputs]
    entering = [t for t in inputs if t.op.op_def.role is Role.ENTER]
    if len(inputs) != 2 or len(entering) != 1:
        _refuse(op, f"begins an iteration, but merges {len(inputs)} values, of {', '.join(kinds)}", way_out)
    for tensor in inputs:
        if frames.home(tensor.op) is not frames.of[op]:
            _refuse(
                op,
                f"stands {frames.of[op]}, but takes the value of {tensor.op.name!r}, which is {frames.home(tensor.op)}",
                way_out,
            )


def _check_ends(dependencies: Dependencies, frames: Frames) -> None:
    step = dependencies.step
    fed = set(step.feeds)
    for tensor in step.fetches:
        if tensor.op in frames.of and not tensor.is_known:
            _check_outside(tensor.op, frames.home(tensor.op), "fetched")
    for op in step.targets:
        if op in frames.of:
            _check_outside(op, frames.of[op], "run as a target")
    # a feed has one value in a step, and an operation in a loop takes one in each iteration
    for op in step.operations:
        if frames.of[op].parent is not None:
            for tensor in op.inputs:
                if tensor in fed:
                    _refuse(
                        op,
                        f"stands {frames.of[op]} and takes {tensor.name!r}, which is fed",
                        "feed what enters the loop, the input of an Enter",
                    )


def _check_outside(op: StepNode, frame: Frame, what: str) -> None:
    if frame.parent is not None:
        _refuse(
            op, f"stands {frame} and cannot be {what}: it has a value in each iteration", "fetch what leaves the loop"
        )


def _refuse(op: StepNode, what: str, way_out: str) -> NoReturn:
    raise InvalidArgumentError(None, op, f"operation {op.name!r} ({op.type}) {what}; {way_out}")
