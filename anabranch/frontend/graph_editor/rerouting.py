"""Edges of a graph are moved: who takes one tensor takes another.

Each function makes all its changes or, if one cannot be made, none (`graph.rewiring`). Who takes what is seen as it was
before the call, so that a swap is one also for an operation that takes both tensors.
"""

from __future__ import annotations

import enum
from typing import TypeAlias

from anabranch.frontend.graph_editor.elements import (
    OperationsLike,
    TensorsLike,
    check_graphs,
    get_consuming_ops,
    make_list_of_op,
    make_list_of_t,
)
from anabranch.frontend.graph_editor.selection import Selector
from anabranch.frontend.graph_editor.views import SubGraphView, make_view, move_inputs
from anabranch.graph import rewiring
from anabranch.graph.operation import Operation, Tensor
from anabranch.graph.rewiring import NewInput, rewire


class _Direction(enum.Enum):
    """Whose consumers move: those of the second tensor of a pair to the first, or both."""

    TO_FIRST = enum.auto()
    SWAP = enum.auto()


def _reroute(
    ts0: TensorsLike,
    ts1: TensorsLike,
    direction: _Direction,
    can_modify: OperationsLike | None,
    cannot_modify: OperationsLike | None,
) -> int:
    pairs = list(zip(*_checked_pairs(make_list_of_t(ts0), make_list_of_t(ts1)), strict=True))
    allowed = None if can_modify is None else set(make_list_of_op(can_modify))
    forbidden = set(() if cannot_modify is None else make_list_of_op(cannot_modify))
    changes: list[NewInput] = []
    for first, second in pairs:
        moves = [(second, first)] if direction is _Direction.TO_FIRST else [(second, first), (first, second)]
        for old, new in moves:
            for op in dict.fromkeys(old.consumers()):
                if old is not new and op not in forbidden and (allowed is None or op in allowed):
                    changes += [NewInput(op, i, new) for i, tensor in enumerate(op.inputs) if tensor is old]
    return rewire(changes)


def _checked_pairs(first: list[Tensor], second: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    if len(first) != len(second):
        raise ValueError(f"ts0 and ts1 have different sizes: {len(first)} != {len(second)}")
    for t0, t1 in zip(first, second, strict=True):
        if not t0.dtype.is_compatible_with(t1.dtype):
            raise ValueError(f"Dtypes {t0.dtype} of {t0.name} and {t1.dtype} of {t1.name} are not compatible.")
        if not t0.shape.is_compatible_with(t1.shape):
            raise ValueError(f"Shapes {t0.shape} of {t0.name} and {t1.shape} of {t1.name} are not compatible.")
    return first, second


def swap_ts(
    ts0: TensorsLike,
    ts1: TensorsLike,
    can_modify: OperationsLike | None = None,
    cannot_modify: OperationsLike | None = None,
) -> int:
    """For each pair of tensors: who takes one takes the other afterwards.

    Args:
        ts0, ts1: tensors, as many.
        can_modify: the operations that may be changed; default: all.
        cannot_modify: operations that may not.

    Returns:
        How many inputs of operations were changed.

    Raises:
        TypeError: they are no tensors and operations.
        ValueError: types or shapes do not fit, or the graph would have a cycle.
        RuntimeError: the graph is finalized.
    """
    return _reroute(ts0, ts1, _Direction.SWAP, can_modify, cannot_modify)


def reroute_ts(
    ts0: TensorsLike,
    ts1: TensorsLike,
    can_modify: OperationsLike | None = None,
    cannot_modify: OperationsLike | None = None,
) -> int:
    """For each pair of tensors: who takes that of `ts1` takes that of `ts0` afterwards.

    Args:
        ts0, ts1: tensors, as many.
        can_modify: the operations that may be changed; default: all.
        cannot_modify: operations that may not.

    Returns:
        How many inputs of operations were changed.

    Raises:
        TypeError: they are no tensors and operations.
        ValueError: types or shapes do not fit, or the graph would have a cycle.
        RuntimeError: the graph is finalized.

    Example:
        >>> a, b = tf.constant(2.0), tf.constant(5.0)
        >>> y = a * 10.0
        >>> tf.contrib.graph_editor.reroute_ts(b, a)
        1
        >>> sess.run(y)
        np.float32(50.0)
    """
    return _reroute(ts0, ts1, _Direction.TO_FIRST, can_modify, cannot_modify)


# ---------------------------------------------------------------------- views
_ViewLike: TypeAlias = Selector | SubGraphView


def _reroute_inputs(sgv0: _ViewLike, sgv1: _ViewLike, direction: _Direction) -> tuple[SubGraphView, SubGraphView]:
    view0, view1 = make_view(sgv0), make_view(sgv1)
    check_graphs(view0, view1)
    behind = get_consuming_ops([*view0.passthroughs, *view1.passthroughs])
    _reroute(view0.inputs, view1.inputs, direction, [*view0.ops, *view1.ops, *behind], None)
    move_inputs(view0, view1, swap=direction is _Direction.SWAP)
    return view0, view1


def _reroute_outputs(sgv0: _ViewLike, sgv1: _ViewLike, direction: _Direction) -> tuple[SubGraphView, SubGraphView]:
    view0, view1 = make_view(sgv0), make_view(sgv1)
    check_graphs(view0, view1)
    _reroute(view0.outputs, view1.outputs, direction, None, [*view0.ops, *view1.ops])
    return view0, view1


def swap_inputs(sgv0: _ViewLike, sgv1: _ViewLike) -> tuple[SubGraphView, SubGraphView]:
    """Two parts of a graph take each other's inputs.

    Args:
        sgv0, sgv1: views, or what `make_view` takes. Views are brought up to date.

    Returns:
        The views.

    Raises:
        TypeError, ValueError, RuntimeError: as `swap_ts`.
    """
    return _reroute_inputs(sgv0, sgv1, _Direction.SWAP)


def reroute_inputs(sgv0: _ViewLike, sgv1: _ViewLike) -> tuple[SubGraphView, SubGraphView]:
    """The second part of a graph takes the inputs of the first; arguments, result and errors of `swap_inputs`."""
    return _reroute_inputs(sgv0, sgv1, _Direction.TO_FIRST)


def swap_outputs(sgv0: _ViewLike, sgv1: _ViewLike) -> tuple[SubGraphView, SubGraphView]:
    """Who takes what one part of a graph gives takes that of the other; arguments and errors of `swap_inputs`."""
    return _reroute_outputs(sgv0, sgv1, _Direction.SWAP)


def reroute_outputs(sgv0: _ViewLike, sgv1: _ViewLike) -> tuple[SubGraphView, SubGraphView]:
    """Who takes what the second part gives takes what the first gives; arguments and errors of `swap_inputs`."""
    return _reroute_outputs(sgv0, sgv1, _Direction.TO_FIRST)


def swap_ios(sgv0: _ViewLike, sgv1: _ViewLike) -> tuple[SubGraphView, SubGraphView]:
    """`swap_outputs` and `swap_inputs`."""
    view0, view1 = _reroute_outputs(sgv0, sgv1, _Direction.SWAP)
    return _reroute_inputs(view0, view1, _Direction.SWAP)


def reroute_ios(sgv0: _ViewLike, sgv1: _ViewLike) -> tuple[SubGraphView, SubGraphView]:
    """`reroute_outputs` and `reroute_inputs`."""
    view0, view1 = _reroute_outputs(sgv0, sgv1, _Direction.TO_FIRST)
    return _reroute_inputs(view0, view1, _Direction.TO_FIRST)


# ---------------------------------------------------------------------- control edges
def add_control_inputs(op: Operation, cops: OperationsLike) -> None:
    """Lets an operation wait for others.

    Raises:
        TypeError: they are no operations.
        ValueError: it waits for one of them already, or one of them for it.
        RuntimeError: the graph is finalized.
    """
    controls = _controls(op, cops)
    for control in controls:
        if control in op.control_inputs:
            raise ValueError(f"{control.name} is already a control input of {op.name}")
    rewiring.add_control_inputs(op, controls)


def remove_control_inputs(op: Operation, cops: OperationsLike) -> None:
    """Lets an operation wait for others no more.

    Raises:
        TypeError: they are no operations.
        ValueError: it does not wait for one of them.
        RuntimeError: the graph is finalized.
    """
    rewiring.remove_control_inputs(op, _controls(op, cops))


def _controls(op: Operation, cops: OperationsLike) -> list[Operation]:
    if not isinstance(op, Operation):
        raise TypeError(f"Expected a tf.Operation, got: {type(op)}")
    return make_list_of_op(cops, allow_graph=False)
