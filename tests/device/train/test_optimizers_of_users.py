"""Optimizers that users write, from nothing or from one of ours."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from anabranch.frontend.variables.variables import Variable
from anabranch.graph.composite import IndexedSlices
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.graph import get_default_graph
from anabranch.ops import raw
from anabranch.train.optimizer import Optimizer
from anabranch.train.optimizers.momentum import MomentumOptimizer
from tests.device.train.one_update import run_once


class OldStyle(Optimizer):
    """Overrides the methods for reference variables only, as programs of the time do."""

    def __init__(self) -> None:
        super().__init__(False, "OldStyle")
        self.seen_rows: Any = None

    def _create_slots(self, var_list: Any) -> None:
        for v in var_list:
            self._zeros_slot(v, "count", self._name)

    def _prepare(self) -> None:
        self._rate = convert_to_tensor(0.5)

    def _apply_dense(self, grad: Any, var: Any) -> Any:
        counted = self.get_slot(var, "count").assign_add(raw.OnesLike(grad))
        with get_default_graph().control_dependencies([counted]):
            return var.assign_sub(raw.Mul(self._rate, grad))

    def _apply_sparse(self, grad: Any, var: Any) -> Any:
        self.seen_rows = grad.indices
        return var.scatter_sub(IndexedSlices(raw.Mul(self._rate, grad.values), grad.indices))


def test_an_optimizer_with_the_methods_for_reference_variables_works() -> None:
    w = Variable(np.ones(2, np.float32), name="w")
    optimizer = OldStyle()
    train = optimizer.minimize(raw.Sum(w.value(), [0]))
    got = run_once(train, [w, optimizer.get_slot(w, "count")])
    assert got[0].tolist() == [0.5, 0.5]
    assert got[1].tolist() == [1.0, 1.0]


def test_an_overridden_sparse_method_sees_no_row_twice() -> None:
    w = Variable(np.ones((4, 1), np.float32), name="w")
    loss = raw.Sum(raw.ResourceGather(w.handle, [2, 2, 0], dtype="float32"), [0, 1])
    optimizer = OldStyle()
    train = optimizer.minimize(loss)
    got = run_once([train, optimizer.seen_rows], w)
    assert got.tolist() == [[0.5], [1.0], [0.0], [1.0]]


class Halved(MomentumOptimizer):
    """Changes the gradient on its way to the built-in update."""

    def _resource_apply_dense(self, grad: Any, handle: Any) -> Any:
        return super()._resource_apply_dense(raw.Mul(grad, 0.5), handle)

    def _resource_apply_sparse(self, grad: Any, handle: Any, indices: Any) -> Any:
        return super()._resource_apply_sparse(raw.Mul(grad, 0.5), handle, indices)


class HalvedOldStyle(MomentumOptimizer):
    """The same in the other form."""

    def _apply_dense(self, grad: Any, var: Any) -> Any:
        return super()._apply_dense(raw.Mul(grad, 0.5), var)

    def _apply_sparse(self, grad: Any, var: Any) -> Any:
        return super()._apply_sparse(IndexedSlices(raw.Mul(grad.values, 0.5), grad.indices, None), var)


class HalvedAndRefusing(HalvedOldStyle):
    """As some programs do: one form is there only to say no."""

    def _apply_dense(self, grad: Any, var: Any) -> Any:
        return super()._apply_dense(grad, var)

    def _resource_apply_dense(self, grad: Any, handle: Any) -> Any:
        raise NotImplementedError


@pytest.mark.parametrize("cls", [Halved, HalvedOldStyle, HalvedAndRefusing])
def test_a_subclass_of_a_built_in_optimizer_may_override_either_form(cls: Any) -> None:
    w = Variable(np.ones((3, 1), np.float32), name="w")
    dense = cls(1.0, 0.9).minimize(raw.Sum(w.value(), [0, 1]))
    assert run_once(dense, w).tolist() == [[0.5], [0.5], [0.5]]
    sparse = cls(1.0, 0.9).minimize(raw.Sum(raw.ResourceGather(w.handle, [1, 1], dtype="float32"), [0, 1]))
    assert run_once(sparse, w).tolist() == [[1.0], [0.0], [1.0]]


def test_an_optimizer_that_cannot_apply_a_gradient_says_so() -> None:
    w = Variable(1.0)
    with pytest.raises(NotImplementedError, match="does not say how to apply a dense gradient"):
        Optimizer(False, "Nothing").minimize(raw.Mul(w.value(), 2.0))
