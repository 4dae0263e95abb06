"""Updates of variables by reference, for `make_step_fixture.py`; `training_ops` has those of resources."""

from __future__ import annotations

import inspect
from typing import Any, Final

import numpy as np

from tests.oracles.step_cases import sample

#: inputs that are variables
_STATE: Final = (
    *("var", "accum", "accum_update", "m", "v", "ms", "mom", "mg", "linear"),
    *("gradient_accumulator", "gradient_squared_accumulator"),
)
_NUMBERS: Final = {
    "lr": 0.1,
    "alpha": 0.1,
    "rho": 0.9,
    "epsilon": 0.01,
    "momentum": 0.9,
    "beta1_power": 0.9,
    "beta2_power": 0.99,
    "beta1": 0.9,
    "beta2": 0.99,
    "l1": 0.01,
    "l2": 0.02,
    "l2_shrinkage": 0.03,
    "lr_power": -0.5,
    "logbase": 0.5,
    "sign_decay": 0.9,
    "beta": 0.8,
}
_DENSE: Final = (
    *(
        "AdaMax",
        "Adadelta",
        "Adagrad",
        "AdagradDA",
        "AdagradV2",
        "Adam",
        "AddSign",
        "CenteredRMSProp",
        "Ftrl",
        "FtrlV2",
    ),
    *("Momentum", "PowerSign", "ProximalAdagrad", "ProximalGradientDescent", "RMSProp"),
)
_SPARSE: Final = (
    *("Adadelta", "Adagrad", "AdagradDA", "AdagradV2", "CenteredRMSProp", "Ftrl", "FtrlV2", "Momentum"),
    *("ProximalAdagrad", "ProximalGradientDescent", "RMSProp"),
)


def updates_of_references(tf: Any) -> list[Any]:
    return _updates(tf, [f"Apply{name}" for name in _DENSE], sample(3, 2, seed=11), None)


def updates_of_rows_of_references(tf: Any) -> list[Any]:
    return _updates(tf, [f"SparseApply{name}" for name in _SPARSE], sample(2, 2, seed=12), np.int32([2, 0]))


def _updates(tf: Any, names: list[str], gradient: Any, indices: Any) -> list[Any]:
    """Each update twice; then all that it changes."""
    starts, first, second, ends = [], [], [], []
    for name in names:
        operation = getattr(tf.raw_ops, name)
        inputs = [p for p in inspect.signature(operation).parameters if p in _STATE]
        state = {p: tf.raw_ops.VariableV2(shape=[3, 2], dtype=tf.float32) for p in inputs}
        for i, ref in enumerate(state.values()):
            value = sample(3, 2, seed=i) if not i else np.abs(sample(3, 2, seed=i)) + 1.5
            starts.append(tf.raw_ops.Assign(ref=ref, value=tf.constant(value)))
        given: dict[str, Any] = {}
        for p in inspect.signature(operation).parameters:
            if p in _NUMBERS:
                given[p] = np.float32(_NUMBERS[p])
            elif p in ("grad", "delta"):
                given[p] = gradient
            elif p == "global_step":
                given[p] = np.int64(3)
            elif p == "indices":
                given[p] = indices
        made = [operation(**state, **given) for _ in range(2)]
        first.append(made[0])
        second.append(made[1])
        ends += list(state.values())
    return [tf.group(*starts), tf.group(*first), tf.group(*second), ends]
