"""Gradients of the op table's rows against central differences.

`run_gradients` builds rows and their gradients in one graph and runs all gradients in one step; `GradientRun.check`
compares the gradient's product with a random direction against what the values do along it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from anabranch.autodiff.gradients import gradients
from anabranch.core import dtypes
from anabranch.core.dtypes import DType, DTypeLike, as_dtype
from anabranch.core.op_def import ArgDef, OpDef
from anabranch.core.shapes import TensorShape
from anabranch.core.values import TensorValue
from anabranch.graph.composite import Gradient, IndexedSlices, IndexedSlicesValue
from anabranch.graph.graph import Graph
from anabranch.graph.operation import StepRunner, Tensor
from anabranch.ops import raw
from anabranch.session import Session
from anabranch.testing.op_cases import (
    Array,
    BuiltRow,
    Feeds,
    OpCase,
    flat_arrays,
    has_portable_kernel,
    input_arrays,
    op_function,
    run_portable,
)

Kernel = Callable[[Feeds], list[Array]]

_DOUBLE = {
    dtypes.float32: dtypes.float64,
    dtypes.float16: dtypes.float64,
    dtypes.bfloat16: dtypes.float64,
    dtypes.complex64: dtypes.complex128,
}


def wants_gradient(case: OpCase) -> bool:
    """Whether a row has a gradient to be checked."""
    if case.error is not None or case.gradient is not None:
        return case.error is None and bool(case.gradient)
    op = op_function(case.op)
    return op.differentiable is True and any(_inexact(v.dtype) for v in flat_arrays(input_arrays(op, case.inputs)))


def run_gradients(cases: Sequence[OpCase]) -> list[GradientRun]:
    """Builds rows for which `wants_gradient`, and their gradients, in one graph, and runs those in one step.

    What is differentiated is a part of that step, which is run at the points that differences need, too: all rows at
    once for each of their points. A step of its own would compile most of it once more.
    """
    graph = Graph()
    with graph.as_default(), Session(graph=graph) as session:
        runs = [GradientRun(case, graph, session) for case in cases]
        comparisons = [comparison for run in runs for comparison in run.comparisons]
        feeds = {tensor: value for comparison in comparisons for tensor, value in comparison.feeds.items()}
        fetches = [(comparison.present, comparison.stepped) for comparison in comparisons]
        for comparison, (values, _) in zip(comparisons, session.run(fetches, feeds), strict=True):
            comparison.values = values
        stepping = [comparison for comparison in comparisons if comparison.kernel is None]
        for i in range(max((len(comparison.points) for comparison in stepping), default=0)):
            # one order after the other: a point of the second also moves what the first is differentiated by
            for order in ("first", "second"):
                moving = [c for c in stepping if c.order == order and i < len(c.points)]
                if moving:
                    moved = {tensor: value for c in moving for tensor, value in c.points[i].items()}
                    results = dict(zip(map(id, comparisons), session.run(fetches, {**feeds, **moved}), strict=True))
                    for comparison in moving:
                        comparison.ys_at_points.append(results[id(comparison)][1])
    return runs


@dataclass
class Comparison:
    """Gradients of some tensors, and where differences need the values of what is differentiated.

    Attributes:
        kernel: gives the values of `ys` for feeds; None: a session gives them, as `ys_at_points`.
        weights: placeholders of the gradients that are given for `ys`.
        along: a random direction for each of `xs`.
        points: two for each of `xs`, at either side of where it is.
        values: those of the gradients that are not None.
    """

    order: str
    ys: list[Tensor]
    kernel: Kernel | None
    weights: list[Tensor]
    xs: list[Tensor]
    grads: list[Any]
    feeds: Feeds
    along: list[Array]
    points: list[Feeds]
    values: list[Any] = field(default_factory=list)
    ys_at_points: list[list[Array]] = field(default_factory=list)

    @property
    def present(self) -> list[Any]:
        return [grad for grad in self.grads if grad is not None]

    @property
    def stepped(self) -> list[Tensor]:
        """What a session runs at the points."""
        return self.ys if self.kernel is None else []

    def loss(self, point: int) -> float:
        """The scalar at a point."""
        if self.kernel is None:
            values = self.ys_at_points[point]
        else:
            values = self.kernel({**self.feeds, **self.points[point]})
        terms = [np.sum(np.conj(self.feeds[w]) * np.asarray(v)).real for w, v in zip(self.weights, values, strict=True)]
        return float(np.sum(terms, dtype=np.float64))


class GradientRun:
    """<w, y(x)> for a random w: the graph's gradient along a random direction against central differences.

    For complex values the scalar is Re(sum(conj(w) y)), so that its change along d is Re(sum(conj(grad) d)). The
    portable kernel, where there is one, gives y(x): `check_row` has found it to give what a session gives, which would
    compile the operation once more for the double precision that differences need.
    """

    def __init__(self, case: OpCase, graph: Graph, session: StepRunner) -> None:
        op = op_function(case.op)
        self.case = case
        self.random = np.random.default_rng(7)
        wide = input_arrays(op, case.inputs)
        if not _fixes_types(op, case.attrs):
            wide = [_widened(op, arg, value) for arg, value in zip(op.inputs, wide, strict=True)]
        self.built = BuiltRow(case, wide, known=True, graph=graph)
        self.arguments = flat_arrays(wide)
        self.lengths = [len(value) if isinstance(value, list) else None for value in wide]
        chosen = range(len(self.built.inputs)) if case.differentiate is None else case.differentiate
        tensors = [self.built.inputs[i] for i in chosen]
        self.xs = [t for t in tensors if t in self.built.feeds and _inexact(t.dtype)]
        ys = [t for t in self.built.outputs if _inexact(t.dtype)]
        assert ys, f"{case}: no output has a gradient; say gradient=False"
        double = not any(t.dtype in _DOUBLE for t in [*self.built.inputs, *ys])
        self.delta, self.tolerance = (1e-5, 2e-6) if double else (1e-2, 3e-2)
        is_portable = has_portable_kernel(op) and self.built.outputs == list(self.built.operation.outputs)
        self.comparisons = [self._first(ys, self._run_kernel if is_portable else None, session)]
        if case.order >= 2:
            self.comparisons.append(self._second(self.comparisons[0]))

    def check(self) -> None:
        """Compares; raises AssertionError where a gradient is wrong."""
        for comparison in self.comparisons:
            self._compare(comparison)

    def _first(self, ys: list[Tensor], kernel: Kernel | None, session: StepRunner) -> Comparison:
        feeds = dict(self.built.feeds)
        if all(y.shape.is_fully_defined() for y in ys):
            shapes = [tuple(y.shape.sizes()) for y in ys]
        else:
            shapes = [np.shape(value) for value in (kernel(feeds) if kernel is not None else session.run(ys, feeds))]
        weights = [self._placeholder(y, shape, feeds) for y, shape in zip(ys, shapes, strict=True)]
        grads = gradients(ys, self.xs, grad_ys=weights)
        return self._comparison("first", ys, kernel, weights, self.xs, grads, feeds)

    def _second(self, first: Comparison) -> Comparison:
        feeds = dict(first.feeds)
        xs = [x for grad, x in zip(first.grads, first.xs, strict=True) if grad is not None]
        grads = [_dense(grad) for grad in first.present]
        directions = [self._placeholder(x, feeds[x].shape, feeds) for x in xs]
        sources = [*first.xs, *first.weights]
        second = gradients(grads, sources, grad_ys=directions)
        return self._comparison("second", grads, None, directions, sources, second, feeds)

    def _comparison(
        self,
        order: str,
        ys: list[Tensor],
        kernel: Kernel | None,
        weights: list[Tensor],
        xs: list[Tensor],
        grads: list[Any],
        feeds: Feeds,
    ) -> Comparison:
        along = [self._direction(x, feeds[x]) for x in xs]
        points = [{x: feeds[x] + self._step(d, s)} for x, d in zip(xs, along, strict=True) for s in (1, -1)]
        return Comparison(order, ys, kernel, weights, xs, grads, feeds, along, points)

    def _run_kernel(self, feeds: Feeds) -> list[Array]:
        """The values of all floating and complex outputs by the portable kernel."""
        flat = (feeds.get(tensor, value) for tensor, value in zip(self.built.inputs, self.arguments, strict=True))
        arguments = [next(flat) if n is None else list(itertools.islice(flat, n)) for n in self.lengths]
        outputs = run_portable(self.built.operation, arguments)
        return [value for tensor, value in zip(self.built.outputs, outputs, strict=True) if _inexact(tensor.dtype)]

    def _placeholder(self, like: Tensor, shape: Sequence[int], feeds: Feeds) -> Tensor:
        """A placeholder for a random tensor like `like`, whose value is entered into `feeds`."""
        tensor: Tensor = raw.Placeholder(dtype=like.dtype, shape=TensorShape(shape))
        feeds[tensor] = self._noise(like.dtype, shape)
        return tensor

    def _noise(self, dtype: DType, shape: Sequence[int]) -> Array:
        noise = self.random.normal(size=shape)
        if dtype.is_complex:
            noise = noise + 1j * self.random.normal(size=shape)
        return np.asarray(noise, dtype.as_numpy_dtype)

    def _direction(self, x: Tensor, value: Array) -> Array:
        along = self._noise(x.dtype, value.shape)
        if self.case.project is None or x not in self.xs:
            return along
        return self.case.project(along).astype(along.dtype)

    def _step(self, along: Array, sign: int) -> Array:
        return (sign * self.delta * along).astype(along.dtype)

    def _compare(self, run: Comparison) -> None:
        what = f"the {run.order}-order gradient for"
        given = iter(run.values)
        for i, (x, grad, along) in enumerate(zip(run.xs, run.grads, run.along, strict=True)):
            shape = run.feeds[x].shape
            got = np.zeros(shape) if grad is None else _dense_value(next(given), shape)
            assert got.shape == shape, f"{self.case}: {what} {x.name} has shape {got.shape}, the tensor itself {shape}"
            analytic = float(np.sum(np.conj(got) * along).real)
            sides = [run.loss(2 * i), run.loss(2 * i + 1)]
            np.testing.assert_allclose(
                analytic,
                (sides[0] - sides[1]) / (2 * self.delta),
                rtol=self.tolerance,
                atol=self.tolerance * max(1.0, abs(sides[0])),
                err_msg=f"{self.case}: {what} {x.name}, against central differences",
            )


def _fixes_types(op: OpDef, attrs: dict[str, Any]) -> bool:
    return any(op.attrs[name].kind in {"type", "list(type)"} for name in attrs)


def _widened(op: OpDef, arg: ArgDef, value: TensorValue) -> Any:
    if isinstance(value, list):
        return [_widened(op, arg, v) for v in value]
    wide = _DOUBLE.get(as_dtype(value.dtype))
    attr = op.attrs.get(arg.type_attr or arg.type_list_attr or "")
    if wide is None or attr is None or (attr.allowed is not None and wide not in attr.allowed):
        return value
    return value.astype(wide.as_numpy_dtype)


def _dense(grad: Gradient) -> Tensor:
    if isinstance(grad, IndexedSlices):
        rows = raw.StridedSlice(grad.dense_shape, [0], [1], [1], shrink_axis_mask=1)
        return raw.UnsortedSegmentSum(grad.values, grad.indices, rows)  # type: ignore[no-any-return]
    tensor: Tensor = grad
    return tensor


def _dense_value(value: TensorValue, shape: Sequence[int]) -> Array:
    if not isinstance(value, IndexedSlicesValue):
        return np.asarray(value)
    dense = np.zeros(shape, np.asarray(value.values).dtype)
    np.add.at(dense, value.indices, value.values)
    return dense


def _inexact(dtype: DTypeLike) -> bool:
    as_type = as_dtype(dtype)
    return as_type.is_floating or as_type.is_complex
