"""The training operations change variables: test_training.py tests them, against TensorFlow's own results."""

from __future__ import annotations

from anabranch.testing.op_cases import OpCase

_FILE = "tests/device/ops/test_training.py"
_BOTH = (
    *("Adadelta", "Adagrad", "AdagradDA", "AdagradV2", "CenteredRMSProp", "Ftrl", "FtrlV2", "KerasMomentum"),
    *("Momentum", "ProximalAdagrad", "ProximalGradientDescent", "RMSProp"),
)
_DENSE = ("AdaMax", "Adam", "AdamWithAmsgrad", "AddSign", "GradientDescent", "PowerSign")

CASES: list[OpCase] = []
TESTED_ELSEWHERE = {
    **{f"ResourceApply{name}": _FILE for name in (*_BOTH, *_DENSE)},
    **{f"ResourceSparseApply{name}": _FILE for name in _BOTH},
}
