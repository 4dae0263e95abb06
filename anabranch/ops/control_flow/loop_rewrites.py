"""Matrix products of a compiled loop that need not be computed once per iteration  (§3.4).

Three rewrites, made while a loop is compiled. They change the order of additions, hence the rounding, and nothing else.
``ANABRANCH_LOOP_REWRITES=0`` turns them off; `anabranch explain` tells what was rewritten.

**Sums after the loop.** The gradient of a weight that all iterations use is a sum over them: ``s[k+1] = s[k] +
matmul(a[k], g[k])``, with one product of few rows and one addition to a large matrix per iteration. Where nothing in
the loop looks at the sum (no other operation of the body, no record, not the condition), only its last value matters,
which is ``s[0] + sum over k of matmul(a[k], g[k])``. So the loop keeps ``a[k]`` and ``g[k]`` instead, in lists of
zeros, and one product contracts them over the iterations as well as over the dimension that each of the products
contracts. Iterations that do not take place leave zeros, which contribute zeros. A bias's gradient is such a sum of
sums. Worth it if an iteration's factors are not larger than their product, and the lists have bounded size.

**Rows before the loop.** In ``matmul(x, w)`` let ``w`` be fixed, and ``x`` a row ``X[i]`` of a fixed list at a counter
of the loop (or ``concat([X[i], h], 1)``, which is ``matmul(X[i], w1) + matmul(h, w2)`` with the rows of ``w`` split
accordingly). ``matmul(X[i], w1)`` is row ``i`` of ``P = matmul(X, w1)``, whatever ``i`` is, so one product before the
loop computes the products of all rows. A counter takes each value once, so that ``P`` has no more rows than are used,
except where the loop stops early. An index outside of the list fails the same check as before: the row is still read.
Worth it for many rows of one or two examples, where each iteration would read all of ``w`` for little work.

**Lists as they were.** The gradient of writing an element of a list reads that element of the list's gradient, and puts
zeros in its place. Where each iteration does so at another index, and the list is not used after the loop, nobody reads
what is put there. So the list is not carried: a list that is read and written in one iteration would be copied whole.

**Matrices as they are read.** In ``matmul(x, w)`` with a fixed ``w``, transposed or not, ``w`` is prepared before the
loop where a kernel for loops is quicker so: `kernels.loop_products` transposes it, `kernels.native_products` lays it
out as a library reads it, in half precision, as which the body may take it from a wider one.

A parameter is fixed if the body returns it unchanged (`graph.loop_bodies`): its value is that with which the loop
starts.

Example: ``dynamic_rnn`` of an LSTM computes ``matmul(concat([x[t], h], 1), kernel)``. Its gradient adds one [rows,
columns] matrix per time step to the kernel's gradient; rewritten, it is one product over all time steps.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from anabranch.core import dtypes
from anabranch.core.arrays import Array
from anabranch.core.kernels import alternates
from anabranch.graph.kernel_contexts import StepTracingContext
from anabranch.graph.loop_bodies import (
    behind_identities,
    operations_behind,
    parameters_behind,
)
from anabranch.graph.step_nodes import StepFunction, StepNode, StepTensor
from anabranch.ops.control_flow.counters import constant_integer, counter_steps
from anabranch.ops.lists.values import TensorList

#: set to 0, this variable turns the rewrites off
REWRITES_VARIABLE = "ANABRANCH_LOOP_REWRITES"
#: what one loop may keep for sums after it, or compute before it (bytes)
MAX_BYTES = 1 << 28
#: rows of more examples than this are multiplied in the loop: the product is as fast there
MAX_EXAMPLES = 2
#: rows are multiplied before the loop if there are so many for each of the examples: splitting the matrix is a copy
MIN_ROWS = 32

_ADDITIONS = frozenset({"Add", "AddV2", "AddN"})
_FLOATS = (np.dtype(np.float32), np.dtype(np.float64))
_HALVES = tuple(np.dtype(half.as_numpy_dtype) for half in (dtypes.float16, dtypes.bfloat16))

#: reads the value of a tensor of the body, in the iteration that is traced
ValueOf = Callable[[StepTensor], Any]


def enabled() -> bool:
    """Whether loops are rewritten."""
    return os.environ.get(REWRITES_VARIABLE, "1") != "0"


# ---------------------------------------------------------------------- lists as they were
def unread_lists(cond: StepFunction, body: StepFunction, used: Sequence[bool]) -> set[int]:
    """The loop variables that are lists of which an iteration sets one element, which nobody reads afterwards.

    Args:
        used: for each loop variable, whether something needs its last value.
    """
    in_condition = parameters_behind(cond, cond.outputs)
    steps = dict(zip(body.inputs, counter_steps(body), strict=True))
    return {
        position
        for position, output in enumerate(body.outputs[: len(body.inputs)])
        if not used[position] and position not in in_condition and _is_unread(body, position, output, steps)
    }


def _is_unread(body: StepFunction, position: int, output: StepTensor, steps: dict[StepTensor, int | None]) -> bool:
    before, after = body.inputs[position], behind_identities(output)
    writing = after.op
    if writing.type != "TensorListSetItem" or writing.attrs["resize_if_index_out_of_bounds"]:
        return False
    index = behind_identities(writing.inputs[1])
    if behind_identities(writing.inputs[0]) is not before or not _slope(index, steps):
        return False
    seen = {before, after}
    if sum(behind_identities(result) in seen for result in body.outputs) > 1:
        return False
    takers = [op for op in body.operations if any(behind_identities(t) in seen for t in op.inputs)]
    return all(op is writing or _reads_there(op, before, index) or _only_copies(op) for op in takers)


def _reads_there(op: StepNode, before: StepTensor, index: StepTensor) -> bool:
    """Whether an operation reads the element of a list that is written, before that."""
    if op.type != "TensorListGetItem":
        return False
    return behind_identities(op.inputs[0]) is before and behind_identities(op.inputs[1]) is index


def _only_copies(op: StepNode) -> bool:
    return all(behind_identities(out) is not out for out in op.outputs)


def _slope(index: StepTensor, steps: dict[StepTensor, int | None]) -> int | None:
    """By how much an index changes from one iteration to the next; None where it is not always as much."""
    index = behind_identities(index)
    if index in steps:
        return steps[index]
    if index.op.type == "Const":
        return 0
    if index.op.type not in {"Add", "AddV2", "Sub", "Mul"} or index.op.control_inputs:
        return None
    one, other = (_slope(t, steps) for t in index.op.inputs)
    if one is None or other is None:
        return None
    if index.op.type != "Mul":
        return one - other if index.op.type == "Sub" else one + other
    factors = [constant_integer(t) for t in index.op.inputs]
    known = next((i for i, factor in enumerate(factors) if factor is not None), None)
    return None if known is None else (factors[known] or 0) * (other, one)[known]


# ---------------------------------------------------------------------- sums after the loop
@dataclass(slots=True)
class LaterSum:
    """A loop variable that only collects terms."""

    position: int
    terms: list[StepNode]

    @property
    def factors(self) -> list[StepTensor]:
        return [t for op in self.terms for t in op.inputs]

    def total(self, start: Array, all_of: dict[StepTensor, Any]) -> Any:
        """The last value, from the first one and the factors of all iterations."""
        total = jnp.asarray(start)
        for op in self.terms:
            total = total + _SUMS[op.type](op, *(all_of[t] for t in op.inputs))
        return total.astype(start.dtype)


def _sum_of_products(op: StepNode, a: Array, b: Array) -> Any:
    inner_a, inner_b = 1 if op.attrs["transpose_a"] else 2, 2 if op.attrs["transpose_b"] else 1
    return lax.dot_general(a, b, (((0, inner_a), (0, inner_b)), ((), ())), preferred_element_type=_wide(a))


def _sum_of_bias_gradients(op: StepNode, rows: Array) -> Any:
    return jnp.sum(rows, axis=tuple(range(rows.ndim - 1)), dtype=_wide(rows))


def _wide(factor: Array) -> np.dtype[Any]:
    """The dtype in which products are summed up: never half precision, as which factors may be kept."""
    return np.dtype(np.float32) if factor.dtype in _HALVES else np.dtype(factor.dtype)


_SUMS: dict[str, Callable[..., Any]] = {"MatMul": _sum_of_products, "BiasAddGrad": _sum_of_bias_gradients}


def later_sums(cond: StepFunction, body: StepFunction, positions: Sequence[int]) -> list[LaterSum]:
    """The loop variables among `positions` of which only the last value matters, and that only collect terms."""
    needed = operations_behind(body.outputs)
    uses: dict[StepTensor, int] = {}
    for tensor in (*body.outputs, *(t for op in needed for t in op.inputs)):
        uses[tensor] = uses.get(tensor, 0) + 1
    in_condition = parameters_behind(cond, cond.outputs)
    sums = []
    for position in positions:
        terms = None if position in in_condition else _terms(body, position, uses)
        if terms:
            sums.append(LaterSum(position, terms))
    return sums


def _terms(body: StepFunction, position: int, uses: dict[StepTensor, int]) -> list[StepNode] | None:
    """The terms of `parameter + term + ...`, in any order; None if a result is anything else."""
    parameter, pending = body.inputs[position], [body.outputs[position]]
    terms: list[StepNode] = []
    starts = 0
    while pending:
        tensor = pending.pop()
        op = tensor.op
        if op.type in _SUMS and _is_summable(op):
            terms.append(op)
        elif uses[tensor] > 1 or op.control_inputs:
            return None  # somebody else sees the sum
        elif tensor is parameter:
            starts += 1
        elif op.type in _ADDITIONS or op.type == "Identity" or _widens(op):
            pending.extend(op.inputs)
        else:
            return None
    return terms if starts == 1 else None


def _widens(op: StepNode) -> bool:
    """Whether an operation casts half precision to float32."""
    return op.type == "Cast" and op.attrs["DstT"] is dtypes.float32 and op.inputs[0].dtype.as_numpy_dtype in _HALVES


def _is_summable(op: StepNode) -> bool:
    return op.outputs[0].dtype.as_numpy_dtype in (*_FLOATS, *_HALVES) and op.attrs.get("data_format") != b"NCHW"


def worth_keeping(sums: Sequence[LaterSum], types: dict[StepTensor, Any], bound: int) -> list[LaterSum]:
    """Those sums that are cheaper after the loop.

    Args:
        types: shapes and dtypes of all factors.
        bound: the loop makes at most so many iterations.
    """
    chosen, kept, room = [], set(), MAX_BYTES
    for later in sorted(sums, key=lambda s: all(op.type != "MatMul" for op in s.terms)):
        new = {t for t in later.factors if t not in kept}
        cost = sum(types[t].size * types[t].dtype.itemsize for t in new) * bound
        if cost <= room and all(_is_smaller(op, types) or not new for op in later.terms):
            chosen.append(later)
            kept |= new
            room -= cost
    return chosen


def _is_smaller(op: StepNode, types: dict[StepTensor, Any]) -> bool:
    """Whether the factors of a product take less room than it does."""
    if op.type != "MatMul":
        return False
    a, b = (types[t] for t in op.inputs)
    inner = a.shape[0 if op.attrs["transpose_a"] else 1]
    return bool(inner * (a.size + b.size) * inner <= a.size * b.size)


# ---------------------------------------------------------------------- products before the loop
def products(
    ctx: StepTracingContext, body: StepFunction, inputs: list[Any], fixed: list[bool]
) -> tuple[dict[StepNode, Callable[[ValueOf], Any]], int]:
    """Other ways to compute products of the body with a fixed matrix; what these need is computed here.

    Args:
        ctx: the loop's.
        inputs: the loop variables' first values.
        fixed: for each, whether the body returns it unchanged.

    Returns:
        For each of the products, how it is computed; and how many of them are multiplied before the loop.
    """
    given = {p: v for p, v, same in zip(body.inputs, inputs, fixed, strict=False) if same}
    makers = _Products(ctx, body, given)
    kernels, before = {}, 0
    for op in operations_behind(body.outputs):
        if op.type == "MatMul" and not op.attrs["transpose_a"] and not op.control_inputs:
            by_rows = None if op.attrs["transpose_b"] else makers.by_rows(op)
            before += by_rows is not None
            kernel = by_rows or makers.prepared(op)
            if kernel is not None:
                kernels[op] = kernel
    return kernels, before


class _Products:
    """What is computed before one loop."""

    def __init__(self, ctx: StepTracingContext, body: StepFunction, given: dict[StepTensor, Any]) -> None:
        self.ctx, self.body, self.given = ctx, body, given
        #: those that take each value once, without leaving one out
        self.counters = {p for p, step in zip(body.inputs, counter_steps(body), strict=True) if step in (1, -1)}
        self.room = MAX_BYTES
        #: fixed matrix -> name of a kernel -> what it makes of it
        self._prepared: dict[StepTensor, dict[str, Any]] = {}

    def _matrix(self, tensor: StepTensor) -> Any:
        """The value of a fixed matrix, else None."""
        value = self.given.get(behind_identities(tensor))
        if value is None or isinstance(value, TensorList) or getattr(value, "ndim", 0) != 2:
            return None
        return value if value.dtype in _FLOATS else None

    def _narrowed(self, tensor: StepTensor) -> Any:
        """The value of a fixed matrix that the loop's body takes in half precision, else None."""
        op = tensor.op
        if tensor.dtype.as_numpy_dtype not in _HALVES:
            return None
        if op.type == "Cast" and not op.control_inputs and op.inputs[0].dtype.is_floating:
            value = self.given.get(behind_identities(op.inputs[0]))
        else:
            value = self.given.get(tensor)
        if value is None or isinstance(value, TensorList) or getattr(value, "ndim", 0) != 2:
            return None
        return jnp.asarray(value, tensor.dtype.as_numpy_dtype)

    def prepared(self, op: StepNode) -> Callable[[ValueOf], Any] | None:
        """A product by the quickest of the kernels for loops."""
        source = behind_identities(op.inputs[1])
        kernels = [one for one in alternates(op.type, op.attrs) if one.prepares and one.accepts(op.attrs)]
        if not kernels or behind_identities(op.inputs[0]) in self.given:
            return None
        matrix = self._matrix(source)
        if matrix is None:
            matrix = self._narrowed(source)
        if matrix is None:
            return None
        if source not in self._prepared:
            # which kernel it will be is settled when the body is traced, and shapes are known; what the others would
            # have taken, nothing reads, and the compiler drops it
            self._prepared[source] = {kernel.name: kernel.prepares[1](matrix) for kernel in kernels}
        made = {name: {1: value} for name, value in self._prepared[source].items()}
        return lambda value_of: self.ctx.compute_in_loop(op, [value_of(op.inputs[0]), matrix], made)

    def by_rows(self, op: StepNode) -> Callable[[ValueOf], Any] | None:
        matrix = self._matrix(op.inputs[1])
        if matrix is None:
            return None
        parts = _joined(op.inputs[0])
        sizes = [_columns(part) for part in parts]
        if min(sizes) < 0 or sum(sizes) != matrix.shape[0]:
            return None
        at = np.cumsum([0, *sizes]).tolist()
        pieces = [jnp.asarray(matrix)[start:stop] for start, stop in itertools.pairwise(at)]
        before = [self._rows(part, piece) for part, piece in zip(parts, pieces, strict=True)]
        if all(b is None for b in before):
            return None

        def kernel(value_of: ValueOf) -> Any:
            terms = []
            for part, piece, rows in zip(parts, pieces, before, strict=True):
                if rows is None:
                    terms.append(jnp.matmul(value_of(part), piece))
                else:
                    terms.append(lax.dynamic_index_in_dim(rows[0], value_of(rows[1]), keepdims=False))
            return sum(terms[1:], start=terms[0])

        return kernel

    def _rows(self, part: StepTensor, piece: Array) -> tuple[Any, StepTensor] | None:
        """The products of all rows of the list that `part` is read from, and the tensor that tells which row it is."""
        op = behind_identities(part).op
        if op.type != "TensorListGetItem" or not self._counts(op.inputs[1]):
            return None
        rows = self.given.get(behind_identities(op.inputs[0]))
        if not isinstance(rows, TensorList) or rows.on_host or getattr(rows.elements, "ndim", 0) != 3:
            return None
        count, examples, _ = rows.elements.shape
        cost = count * examples * piece.shape[1] * piece.dtype.itemsize
        pays = examples <= MAX_EXAMPLES and count >= MIN_ROWS * examples
        if rows.dtype not in _FLOATS or not pays or cost > self.room:
            return None
        self.room -= cost
        return jnp.matmul(jnp.asarray(rows.elements), piece), op.inputs[1]

    def _counts(self, index: StepTensor) -> bool:
        """Whether an index takes another value in each iteration: a counter, or a fixed number minus it."""
        tensor = behind_identities(index)
        if tensor in self.counters:
            return True
        if tensor.op.type not in {"Sub", "Add", "AddV2"}:
            return False
        changing = [t for t in map(behind_identities, tensor.op.inputs) if not self._stays(t)]
        return len(changing) == 1 and self._counts(changing[0])

    def _stays(self, tensor: StepTensor) -> bool:
        return tensor in self.given or tensor.op.type == "Const"


def _columns(matrix: StepTensor) -> int:
    """How many columns a matrix has; -1 where that is not known while the graph is built."""
    dims = matrix.shape.dims_tuple
    return -1 if dims is None or len(dims) != 2 or dims[1] is None else dims[1]


def _joined(tensor: StepTensor) -> list[StepTensor]:
    """The matrices that a matrix is joined from along its columns."""
    op = behind_identities(tensor).op
    if op.type != "ConcatV2" or op.control_inputs:
        return [tensor]
    axis = behind_identities(op.inputs[-1])
    if axis.op.type != "Const" or int(axis.op.attrs["value"]) not in (1, -1):
        return [tensor]
    return list(op.inputs[:-1])
