"""Parts of a graph are cut off, connected, and passed by."""

from __future__ import annotations

from typing import TypeAlias

from anabranch.frontend.arrays.constants import placeholder
from anabranch.frontend.graph_editor.elements import (
    ControlOutputs,
    check_graphs,
    make_placeholder_from_tensor,
    placeholder_name,
)
from anabranch.frontend.graph_editor.rerouting import (
    remove_control_inputs,
    reroute_inputs,
    reroute_ts,
    swap_inputs,
    swap_outputs,
)
from anabranch.frontend.graph_editor.selection import Selector, check_cios
from anabranch.frontend.graph_editor.views import SubGraphView, make_view
from anabranch.graph.graph import Graph
from anabranch.graph.operation import Tensor

_ViewLike: TypeAlias = Selector | SubGraphView


def detach_control_inputs(sgv: _ViewLike) -> None:
    """The operations of a part of a graph wait for none outside of it any more."""
    view = make_view(sgv)
    members = set(view.ops)
    for op in view.ops:
        remove_control_inputs(op, [control for control in op.control_inputs if control not in members])


def detach_control_outputs(sgv: _ViewLike, control_outputs: ControlOutputs) -> None:
    """No operation outside of a part of a graph waits for one in it any more.

    Args:
        control_outputs: which operations wait for which.

    Raises:
        TypeError: it is no `ControlOutputs`.
    """
    if not isinstance(control_outputs, ControlOutputs):
        raise TypeError(f"Expected a util.ControlOutputs, got: {type(control_outputs)}")
    control_outputs.update()
    view = make_view(sgv)
    members = set(view.ops)
    for op in view.ops:
        for waiting in control_outputs.get(op):
            if waiting not in members:
                remove_control_inputs(waiting, op)


def detach_inputs(sgv: _ViewLike, control_inputs: bool = False) -> tuple[SubGraphView, list[Tensor]]:
    """A part of a graph takes placeholders instead of what it took.

    Args:
        sgv: a view, which is brought up to date, or what `make_view` takes.
        control_inputs: whether its operations wait for none outside of it any more, either.

    Returns:
        `(sgv, input_placeholders)`: the view, and the placeholders, of unknown shape.

    Raises:
        TypeError, ValueError, RuntimeError: as `swap_ts`.
    """
    view = make_view(sgv)
    with _graph_of(view).as_default():
        placeholders = [placeholder(tensor.dtype, name=placeholder_name(tensor)) for tensor in view.inputs]
    swap_inputs(view, placeholders)
    if control_inputs:
        detach_control_inputs(view)
    return view, placeholders


def detach_outputs(sgv: _ViewLike, control_outputs: ControlOutputs | None = None) -> tuple[SubGraphView, list[Tensor]]:
    """Who took what a part of a graph gives takes placeholders instead.

    Args:
        sgv: a view, or what `make_view` takes.
        control_outputs: which operations wait for which, where none outside is to wait for one in it any more.

    Returns:
        `(sgv, output_placeholders)`: a view with the outputs that somebody took, and the placeholders.

    Raises:
        TypeError, ValueError, RuntimeError: as `swap_ts`.
    """
    view = make_view(sgv)
    taken = view.remap_outputs([number for number, tensor in enumerate(view.outputs) if tensor.consumers()])
    with _graph_of(view).as_default():
        placeholders = [make_placeholder_from_tensor(tensor) for tensor in taken.outputs]
    swap_outputs(taken, placeholders)
    if control_outputs is not None:
        detach_control_outputs(taken, control_outputs)
    return taken, placeholders


def detach(
    sgv: _ViewLike,
    control_inputs: bool = False,
    control_outputs: ControlOutputs | None = None,
    control_ios: ControlOutputs | None = None,
) -> tuple[SubGraphView, list[Tensor], list[Tensor]]:
    """`detach_inputs` and `detach_outputs`.

    Args:
        control_inputs, control_outputs, control_ios: see `check_cios`.

    Returns:
        `(sgv, detached_inputs, detached_outputs)`: the view, and the placeholders.
    """
    inward, outward = check_cios(control_inputs, control_outputs, control_ios)
    view = make_view(sgv)
    _, inputs = detach_inputs(view, inward)
    _, outputs = detach_outputs(view, outward)
    return view, inputs, outputs


def connect(sgv0: _ViewLike, sgv1: _ViewLike, disconnect_first: bool = False) -> tuple[SubGraphView, SubGraphView]:
    """The second part of a graph takes what the first gives, in place of its inputs, one by one.

    Args:
        disconnect_first: whether nothing else takes what the first gives afterwards (`detach_outputs`).

    Returns:
        The views.

    Raises:
        TypeError, ValueError, RuntimeError: as `swap_ts`.
    """
    view0, view1 = make_view(sgv0), make_view(sgv1)
    check_graphs(view0, view1)
    if disconnect_first:
        detach_outputs(view0)
    reroute_inputs(SubGraphView(passthrough_ts=view0.outputs), view1)
    return view0, view1


def bypass(sgv: _ViewLike) -> tuple[SubGraphView, list[Tensor]]:
    """Who takes what a part of a graph gives takes what that took instead, one by one.

    Returns:
        `(sgv, detached_inputs)`: the view, and the placeholders that it takes now.

    Raises:
        TypeError, ValueError, RuntimeError: as `swap_ts`.
    """
    view = make_view(sgv)
    taken = list(view.inputs)
    view, placeholders = detach_inputs(view)
    reroute_ts(taken, view.outputs)
    return view, placeholders


def _graph_of(view: SubGraphView) -> Graph:
    if view.graph is None:
        raise ValueError("the view is of no operations and no tensors")
    return view.graph
