"""Why no gradient arrives: the operations at which differentiation ends."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from anabranch.autodiff.gradients import operations_between
from anabranch.core import dtypes
from anabranch.core.registry import find_gradient
from anabranch.graph.operation import Operation

_SHOWN = 3


def dead_ends(ys: Iterable[Any], xs: Iterable[Any]) -> list[Operation]:
    """The operations on paths from xs to ys through which no gradient flows, those nearest to the ys first."""
    return [op for op in operations_between(list(ys), list(xs)) if _ends_gradients(op)]


def explain_missing_gradients(ys: Iterable[Any], xs: Iterable[Any]) -> str:
    """A sentence that says why no y has a gradient with respect to any x, and what to do."""
    ys, xs = list(ys), list(xs)
    if not operations_between(ys, xs):
        return "None of these is used on the way there: pass the variables that are as var_list."
    ends = [f"{op.name!r} ({op.type}, created at {op.site})" for op in dead_ends(ys, xs)]
    if not ends:
        return "Their gradients were left out on purpose."
    more = "" if len(ends) <= _SHOWN else f" and {len(ends) - _SHOWN} more"
    return f"Differentiation ends at {', '.join(ends[:_SHOWN])}{more}: use operations that have a gradient."


def _ends_gradients(op: Operation) -> bool:
    override = op.attrs.get("_gradient_op_type")
    if find_gradient(override.decode() if override is not None else op.type) is None:
        return True
    smooth = any(t.dtype.is_floating or t.dtype.is_complex or t.dtype is dtypes.variant for t in op.outputs)
    return not smooth and any(t.dtype.is_floating or t.dtype.is_complex for t in op.inputs)
