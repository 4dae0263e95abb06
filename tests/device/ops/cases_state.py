"""Operations on variables have no value semantics of their own: test_state.py tests them."""

from __future__ import annotations

from anabranch.testing.op_cases import OpCase

_FILE = "tests/device/ops/test_state.py"

CASES: list[OpCase] = []
TESTED_ELSEWHERE = dict.fromkeys(
    (
        *("VarHandleOp", "ReadVariableOp", "AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp"),
        *("VarIsInitializedOp", "VariableShape", "DestroyResourceOp", "ResourceCountUpTo"),
        *("ResourceGather", "ResourceGatherNd"),
        *("ResourceScatterUpdate", "ResourceScatterAdd", "ResourceScatterSub", "ResourceScatterMul"),
        *("ResourceScatterDiv", "ResourceScatterMin", "ResourceScatterMax"),
        *("ResourceScatterNdUpdate", "ResourceScatterNdAdd", "ResourceScatterNdSub"),
        *("ResourceScatterNdMin", "ResourceScatterNdMax"),
    ),
    _FILE,
)
