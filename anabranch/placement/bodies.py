"""Conditionals and loops that belong on several devices (§3.4, WP4.4).

A functional `If` or `While` is one operation, so that it runs on one device, its bodies with it. That is wanted where
what is asked for in the bodies is one device: it is then asked for the whole. Where they ask for several, or touch
variables of several devices, the planner has to lower the operation to primitives before the step is placed; then each
operation of a body is placed like any other, and Send and Recv operations stand inside of the branches and loops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from anabranch.core.device import DeviceSpec
from anabranch.graph.loop_bodies import bodies_of
from anabranch.graph.step_nodes import StepNode
from anabranch.placement.constraints import PROGRAM, PlacementRequest


def spans_devices(op: StepNode, request: Callable[[StepNode], PlacementRequest]) -> bool:
    """Whether an operation's bodies ask for several devices, or touch variables that do.

    Args:
        request: what is asked for an operation, by the program or the session's policy.
    """
    merged = DeviceSpec()
    for name in _asked(op, request):
        spec = DeviceSpec.from_string(name)
        # whoever comes second prevails in a merge, so that the two differ exactly where both state a part, and
        # not the same
        if merged.make_merged_spec(spec) != spec.make_merged_spec(merged):
            return True
        merged.merge_from(spec)
    return False


def request_of_whole(op: StepNode, request: Callable[[StepNode], PlacementRequest]) -> PlacementRequest:
    """What is asked for an operation together with its bodies, if these do not span devices.

    Args:
        request: what is asked for an operation alone.
    """
    parts = [request(inner) for inner in _with_bodies(op)]
    # what a rule of the policy says of any of them overrides what the program says of all, as within a group
    stated = [part for part in parts if part.device]
    ruled = [part for part in stated if part.source != PROGRAM]
    # without bodies, or without anything asked for in them, the operation's own request and its source
    if len(parts) == 1 or not stated:
        return parts[0]
    merged = DeviceSpec()
    for part in reversed(ruled or stated):  # what is said of the operation itself comes last, and counts
        merged.merge_from(DeviceSpec.from_string(part.device))
    return PlacementRequest(merged.to_string(), (ruled or stated)[0].source)


def _with_bodies(op: StepNode) -> Iterator[StepNode]:
    # no recursion: bodies may be nested deeper than Python's own stack allows
    stack = [op]
    while stack:
        op = stack.pop()
        yield op
        stack.extend(inner for body in reversed(bodies_of(op)) for inner in reversed(body.operations))


def _asked(op: StepNode, request: Callable[[StepNode], PlacementRequest]) -> Iterator[str]:
    for inner in _with_bodies(op):
        yield request(inner).device
        # a variable that a body takes as a parameter has its request at the call, where the handle comes from
        for tensor in inner.inputs:
            if tensor.dtype.name == "resource":
                yield request(tensor.op).device
