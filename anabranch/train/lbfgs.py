"""Limited-memory BFGS, built from variables and primitive operations  (§4.1: optimizers are user-level code).

One run of the update operation evaluates loss and gradient once, at the *trial point* that the variables hold:

* If the loss fell enough below that of the *base point* (Armijo's condition), the trial point becomes the base point,
  the pair (step, change of the gradient) joins the history, and the two-loop recursion (Nocedal, 1980) over the history
  gives the next direction.
* Otherwise the step along the same direction is made shorter, and the variables go to that point.

So a line search takes as many steps as it has trials, and the whole method needs no control flow: both outcomes are
computed and one is selected. The history stands in two matrices, one pair per row, the newest last; a pair that does
not exist yet has the factor ``1 / (s · y)`` = 0 and drops out of both loops.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from anabranch.core import dtypes
from anabranch.core.dtypes import DType
from anabranch.core.nest import Structure
from anabranch.core.values import TensorLike
from anabranch.frontend.control_flow.grouping import group
from anabranch.frontend.variables.variables import Variable
from anabranch.graph.composite import Gradient
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw
from anabranch.train.optimizer import GradientsAndVariables, HyperParameter, Optimizer

#: pairs with s · y below this fraction of y · y say nothing about the curvature and are left out
_MIN_CURVATURE = 1e-10


class _LossPoint(NamedTuple):
    """A point, its loss and its gradient, flat."""

    x: Any
    loss: Any
    grad: Any


class _History(NamedTuple):
    """The last pairs s = change of x, y = change of the gradient: [m, n]; and 1 / (s · y): [m]."""

    s: Any
    y: Any
    rho: Any


class LBFGSOptimizer(Optimizer):
    """Limited-memory BFGS for losses that are the same function in each step (no mini-batches, no dropout).

    After a step the variables hold a trial point; the loss that the next step computes is the loss there.

    Args:
        learning_rate: length of the first trial along each direction, as a multiple of the quasi-Newton step; a number,
            tensor or function that returns one.
        history_size: pairs kept, >= 1.
        sufficient_decrease: the part of the decrease predicted by the slope that a trial must reach, in (0, 1).
        max_backtracks: trials along one direction before it is given up and the history forgotten, >= 1.
        use_locking: see `Optimizer`.
        name: see `Optimizer`.

    Raises:
        ValueError: a number is out of its range.
    """

    def __init__(
        self,
        learning_rate: HyperParameter = 1.0,
        history_size: int = 10,
        sufficient_decrease: float = 1e-4,
        max_backtracks: int = 20,
        use_locking: bool = False,
        name: str = "LBFGS",
    ) -> None:
        if history_size < 1 or max_backtracks < 1:
            raise ValueError(f"history_size ({history_size}) and max_backtracks ({max_backtracks}) must be at least 1")
        if not 0.0 < sufficient_decrease < 1.0:
            raise ValueError(f"sufficient_decrease must lie between 0 and 1, got {sufficient_decrease}")
        super().__init__(use_locking, name)
        self._learning_rate = learning_rate
        self._history_size = history_size
        self._sufficient_decrease = sufficient_decrease
        self._max_backtracks = max_backtracks
        self._loss: Any = None

    def compute_gradients(
        self,
        loss: TensorLike,
        var_list: Structure | None = None,
        gate_gradients: int = Optimizer.GATE_OP,
        aggregation_method: int | None = None,
        colocate_gradients_with_ops: bool = False,
        grad_loss: TensorLike | None = None,
    ) -> GradientsAndVariables:
        """Like `Optimizer.compute_gradients`; remembers the loss, which `apply_gradients` compares between steps."""
        self._loss = loss() if callable(loss) else loss
        return super().compute_gradients(
            self._loss, var_list, gate_gradients, aggregation_method, colocate_gradients_with_ops, grad_loss
        )

    def apply_gradients(
        self, grads_and_vars: Iterable[tuple[Any, Any]], global_step: Variable | None = None, name: str | None = None
    ) -> Operation:
        """Like `Optimizer.apply_gradients`; the gradients must be those of the loss given to `compute_gradients`.

        Raises:
            ValueError: no loss is known, or the variables differ in dtype or have shapes that are not fully known.
        """
        if self._loss is None:
            raise ValueError("LBFGSOptimizer compares losses: call compute_gradients(loss), or minimize, first")
        return super().apply_gradients(grads_and_vars, global_step, name)

    def _valid_dtypes(self) -> set[DType]:
        return {dtypes.float32, dtypes.float64}

    def _create_slots(self, var_list: Sequence[Any]) -> None:
        self._pairs: list[tuple[Tensor, Any]] = []
        first = var_list[0]
        for var in var_list:
            if var.dtype.base_dtype is not first.dtype.base_dtype:
                raise ValueError(
                    f"LBFGSOptimizer needs variables of one dtype: {first.name} has {first.dtype.name}, "
                    f"{var.name} has {var.dtype.name}; minimize with one optimizer per dtype"
                )
            if not var.shape.is_fully_defined():
                raise ValueError(f"LBFGSOptimizer needs fully known shapes; {var.name} has {var.shape}")
        size = sum(var.shape.num_elements() for var in var_list)
        dtype = first.dtype.base_dtype.as_numpy_dtype
        vector, matrix = np.zeros(size, dtype), np.zeros((self._history_size, size), dtype)
        scalar = np.zeros((), dtype)
        for state, value in (
            *(("base_point", vector), ("base_loss", scalar), ("base_gradient", vector), ("direction", vector)),
            *(("step_length", scalar), ("s_history", matrix), ("y_history", matrix)),
            ("rho_history", matrix[:, 0]),
            ("backtracks", np.array(-1, np.int32)),
        ):
            self._create_non_slot_variable(_zeros_of(value), f"{self._name}_{state}", first)

    def _state(self, name: str) -> Any:
        return self._get_non_slot_variable(f"{self._name}_{name}")

    def _update(self, grad: Gradient, var: Variable) -> Any:
        """Only collects: the update couples all variables and is built in `_finish`."""
        self._pairs.append((convert_to_tensor(grad), var))
        return None

    def _finish(self, update_ops: list[Any], name_scope: str) -> Any:
        updates = _StepBuilder(self, self._pairs).updates()
        return group(*updates, name=name_scope)


def _zeros_of(value: np.ndarray[Any, Any]) -> Any:
    if value.ndim == 0:
        return value

    def fill() -> Tensor:
        zeros: Tensor = raw.Fill(list(value.shape), convert_to_tensor(0, value.dtype))
        return zeros

    return fill


class _StepBuilder:
    """The operations of one step."""

    def __init__(self, optimizer: LBFGSOptimizer, pairs: list[tuple[Tensor, Any]]) -> None:
        self.optimizer = optimizer
        self.variables = [var for _, var in pairs]
        self.dtype = self.variables[0].dtype.base_dtype
        loss = convert_to_tensor(optimizer._loss)
        # Everything that is read is read here, once, before anything is written.
        self.trial = _LossPoint(
            _flat([var.value() for var in self.variables]), self.cast(loss), _flat([g for g, _ in pairs])
        )
        state = {name: optimizer._state(name).value() for name in _STATE}
        self.base = _LossPoint(state["base_point"], state["base_loss"], state["base_gradient"])
        self.direction = state["direction"]
        self.length = state["step_length"]
        self.history = _History(state["s_history"], state["y_history"], state["rho_history"])
        self.backtracks = state["backtracks"]

    def cast(self, value: Tensor) -> Any:
        tensor = convert_to_tensor(value)
        return tensor if tensor.dtype.base_dtype is self.dtype else raw.Cast(tensor, DstT=self.dtype)

    def number(self, value: float) -> Tensor:
        return convert_to_tensor(value, self.dtype)

    def updates(self) -> list[Any]:
        """The assignments."""
        started = raw.GreaterEqual(self.backtracks, 0)
        slope = _dot(self.base.grad, self.direction)
        change = self.trial.loss - self.base.loss
        fell = raw.LessEqual(change, self.number(self.optimizer._sufficient_decrease) * self.length * slope)
        exhausted = raw.GreaterEqual(self.backtracks, self.optimizer._max_backtracks)
        gives_up = raw.LogicalAnd(raw.LogicalAnd(started, exhausted), raw.LogicalNot(fell))
        accepts = raw.LogicalOr(raw.LogicalOr(raw.LogicalNot(started), fell), exhausted)

        # A direction that is given up ends where it is, unless the loss has no value there.
        stays = raw.LogicalAnd(gives_up, raw.LogicalNot(raw.IsFinite(self.trial.loss)))
        base = _LossPoint(*(_select(stays, old, new) for old, new in zip(self.base, self.trial, strict=True)))
        history = self._extended(raw.LogicalAnd(started, fell), gives_up)
        direction, length, rho = self._next_direction(base, history)
        shorter = self._shorter(change, slope)

        onwards = base.x + length * direction
        backwards = self.base.x + shorter * self.direction
        new = {
            "base_point": _select(accepts, base.x, self.base.x),
            "base_loss": _select(accepts, base.loss, self.base.loss),
            "base_gradient": _select(accepts, base.grad, self.base.grad),
            "direction": _select(accepts, direction, self.direction),
            "step_length": _select(accepts, length, shorter),
            "s_history": _select(accepts, history.s, self.history.s),
            "y_history": _select(accepts, history.y, self.history.y),
            "rho_history": _select(accepts, rho, self.history.rho),
            "backtracks": _select(accepts, convert_to_tensor(0), self.backtracks + 1),
        }
        moved = self._move_to(_select(accepts, onwards, backwards))
        # What others read of the variables in this step is read before the first of them moves.
        return [*moved, *(self.optimizer._state(k).assign(v, read_value=False) for k, v in new.items())]

    def _extended(self, adds: Tensor, forgets: Tensor) -> _History:
        """The history with the last step's pair, if its curvature is positive."""
        s, y = self.trial.x - self.base.x, self.trial.grad - self.base.grad
        curvature = _dot(s, y)
        curved = raw.Greater(curvature, self.number(_MIN_CURVATURE) * _dot(y, y))
        adds = raw.LogicalAnd(adds, curved)
        # both branches are computed: keep the one that is not selected free of a division by zero
        rho = raw.Reciprocal(_select(adds, curvature, self.number(1.0)))
        kept = _History(
            *(_select(adds, _pushed(rows, row), rows) for rows, row in zip(self.history, (s, y, rho), strict=True))
        )
        return kept._replace(rho=_select(forgets, raw.ZerosLike(kept.rho), kept.rho))

    def _next_direction(self, base: _LossPoint, history: _History) -> tuple[Any, Any, Any]:
        """The direction at a new base point, the first step length along it, and the factors of the history."""
        newton = raw.Neg(_two_loops(base.grad, history, self.optimizer._history_size))
        descends = raw.Less(_dot(newton, base.grad), self.number(0.0))
        direction = _select(descends, newton, raw.Neg(base.grad))
        rho = _select(descends, history.rho, raw.ZerosLike(history.rho))
        rate = self.cast(self.optimizer._call_if_callable(self.optimizer._learning_rate))
        # Without any history the gradient's scale says nothing about the distance to go.
        magnitude = raw.Sum(raw.Abs(base.grad), [0])
        modest = raw.Minimum(self.number(1.0), raw.Reciprocal(raw.Maximum(magnitude, self.number(1e-30))))
        known = raw.Greater(raw.Max(rho, [0]), self.number(0.0))
        return direction, _select(known, rate, rate * modest), rho

    def _shorter(self, change: Tensor, slope: Tensor) -> Any:
        """The minimum of the parabola through the losses and the slope, within bounds."""
        overshoot = change - self.length * slope
        usable = raw.LogicalAnd(raw.IsFinite(overshoot), raw.Greater(overshoot, self.number(0.0)))
        safe = _select(usable, overshoot, self.number(1.0))
        parabola = raw.Neg(slope) * self.length * self.length / (2.0 * safe)
        low, high = 0.1 * self.length, 0.5 * self.length
        return _select(usable, raw.Minimum(raw.Maximum(parabola, low), high), low)

    def _move_to(self, point: _LossPoint) -> list[Any]:
        sizes = [var.shape.num_elements() for var in self.variables]
        parts = raw.SplitV(point, np.array(sizes, np.int64), 0, num_split=len(sizes))
        return [
            var.assign(raw.Reshape(part, np.array(var.shape.as_list(), np.int32)), read_value=False)
            for var, part in zip(self.variables, parts, strict=True)
        ]


_STATE = (
    *("base_point", "base_loss", "base_gradient", "direction", "step_length", "s_history", "y_history"),
    *("rho_history", "backtracks"),
)


def _two_loops(grad: Tensor, history: _History, size: int) -> Any:
    """The inverse Hessian that the history describes, times `grad`."""
    s, y, rho = (raw.Unpack(rows, num=size) for rows in history)
    rest, alphas = grad, [None] * size
    for i in reversed(range(size)):
        alphas[i] = rho[i] * _dot(s[i], rest)
        rest = rest - alphas[i] * y[i]
    result = _newest_scale(s[-1], y[-1], rho[-1]) * rest
    for i in range(size):
        beta = rho[i] * _dot(y[i], result)
        result = result + (alphas[i] - beta) * s[i]
    return result


def _newest_scale(s: Tensor, y: Tensor, rho: Tensor) -> Any:
    """(s · y) / (y · y) of the newest pair: the curvature where the recursion begins; 1 without any pair."""
    exists = raw.Greater(rho, convert_to_tensor(0.0, rho.dtype))
    one = convert_to_tensor(1.0, rho.dtype)
    return _select(exists, _dot(s, y), one) / _select(exists, _dot(y, y), one)


def _pushed(rows: Tensor, row: Tensor) -> Any:
    """The rows moved up by one, with `row` as the last."""
    return raw.ConcatV2([raw.StridedSlice(rows, [1], [0], [1], end_mask=1), raw.ExpandDims(row, 0)], 0)


def _flat(tensors: list[Any]) -> Any:
    return (
        raw.ConcatV2([raw.Reshape(t, [-1]) for t in tensors], 0) if len(tensors) > 1 else raw.Reshape(tensors[0], [-1])
    )


def _dot(a: Tensor, b: Tensor) -> Any:
    return raw.Sum(raw.Mul(a, b), [0])


def _select(condition: Tensor, chosen: Tensor, other: Tensor) -> Any:
    return raw.SelectV2(condition, chosen, other)
