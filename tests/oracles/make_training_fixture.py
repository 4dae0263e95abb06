"""Writes tests/fixtures/tensorflow/training_ops.npz: what TensorFlow's own training operations do to their variables.

Run in an environment that has TensorFlow (`make bench-env`). Entries are named ``<case>/before/<variable>``,
``<case>/input/<name>`` and ``<case>/after/<variable>``, a case ``<operation>[<attribute>]``.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

SHAPE = (5, 3)
ROWS = np.array([3, 0, 4], np.int32)
STATE = frozenset(
    ("var", "accum", "accum_update", "linear", "m", "v", "vhat", "ms", "mg", "mom")
    + ("gradient_accumulator", "gradient_squared_accumulator")
)
SCALARS = {
    "lr": 0.1,
    "alpha": 0.2,
    "l1": 0.05,
    "l2": 0.3,
    "l2_shrinkage": 0.15,
    "lr_power": -0.5,
    "rho": 0.9,
    "momentum": 0.8,
    "epsilon": 0.01,
    "beta": 0.7,
    "beta1": 0.9,
    "beta2": 0.99,
    "beta1_power": 0.81,
    "beta2_power": 0.97,
    "logbase": 1.1,
    "sign_decay": 0.6,
}
FLAGS = ("use_nesterov", "update_slots", "multiply_linear_by_lr")
NAMES = (
    *("GradientDescent", "ProximalGradientDescent", "Momentum", "KerasMomentum", "Adagrad", "AdagradV2"),
    *("ProximalAdagrad", "AdagradDA", "Adadelta", "RMSProp", "CenteredRMSProp", "Adam", "AdamWithAmsgrad", "AdaMax"),
    *("Ftrl", "FtrlV2", "AddSign", "PowerSign"),
)


def cases() -> Any:
    for name in NAMES:
        for operation in (f"ResourceApply{name}", f"ResourceSparseApply{name}"):
            function = getattr(tf.raw_ops, operation, None)
            if function is None:
                continue
            parameters = [p for p in inspect.signature(function).parameters if p not in ("name", "use_locking")]
            flag = next((p for p in parameters if p in FLAGS), None)
            for value in (None,) if flag is None else (False, True):
                label = operation if flag is None else f"{operation}[{flag}={value}]"
                yield label, function, [p for p in parameters if p != flag], {} if flag is None else {flag: value}
            if "lr_power" in parameters:
                yield f"{operation}[lr_power=-0.7]", function, [p for p in parameters if p not in FLAGS], {}


def run(label: str, function: Any, parameters: list[str], flags: dict[str, bool], random: Any) -> dict[str, np.ndarray]:
    found: dict[str, np.ndarray] = {}
    given: dict[str, Any] = {}
    variables: dict[str, tf.Variable] = {}
    rows = len(ROWS) if "indices" in parameters else SHAPE[0]
    for name in parameters:
        if name in STATE:
            value = (
                random.normal(size=SHAPE) if name in ("var", "m", "mom", "linear") else random.uniform(0.5, 2, SHAPE)
            )
            # the variance that a centred RMSProp sees must be positive
            value = value * 0.1 if name == "mg" else value
            variables[name] = tf.Variable(value.astype(np.float32))
            found[f"{label}/before/{name}"] = variables[name].numpy()
            given[name] = variables[name].handle
            continue
        if name in ("grad", "delta"):
            value = random.normal(size=(rows, *SHAPE[1:])).astype(np.float32)
        elif name == "indices":
            value = ROWS
        elif name == "global_step":
            value = np.int64(7)
        else:
            value = np.float32(-0.7 if "lr_power=-0.7" in label and name == "lr_power" else SCALARS[name])
        found[f"{label}/input/{name}"] = np.asarray(value)
        given[name] = tf.constant(value)
    function(**given, **flags)
    for name, variable in variables.items():
        found[f"{label}/after/{name}"] = variable.numpy()
    return found


def main() -> None:
    random = np.random.default_rng(11)
    found: dict[str, np.ndarray] = {}
    for label, function, parameters, flags in cases():
        found.update(run(label, function, parameters, flags, random))
    path = Path(__file__).resolve().parents[1] / "fixtures" / "tensorflow" / "training_ops.npz"
    np.savez_compressed(path, **found)
    print(path, len(found), path.stat().st_size)


if __name__ == "__main__":
    main()
