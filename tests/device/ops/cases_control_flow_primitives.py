"""Operations on control flow of primitives: none has a value of its own, so that all are tested as graphs."""

from __future__ import annotations

from anabranch.testing.op_cases import OpCase

CASES: tuple[OpCase, ...] = ()

_PRIMITIVES = "tests/device/runtime/test_control_flow_primitives.py"
_ARRAYS = "tests/device/ops/test_tensor_arrays.py"

TESTED_ELSEWHERE = {
    **dict.fromkeys(
        (
            *("Switch", "Merge", "Enter", "Exit", "NextIteration", "LoopCond", "ControlTrigger", "Abort"),
            *("RefSwitch", "RefMerge", "RefEnter", "RefExit", "RefNextIteration"),
            *("_Gate", "_RecordStart", "_RecordAdd", "_RecordEnd"),
        ),
        _PRIMITIVES,
    ),
    **dict.fromkeys(
        (
            *("TensorArrayV3", "TensorArrayGradV3", "TensorArrayWriteV3", "TensorArrayReadV3", "TensorArrayGatherV3"),
            *("TensorArrayScatterV3", "TensorArrayConcatV3", "TensorArraySplitV3", "TensorArraySizeV3"),
            "TensorArrayCloseV3",
        ),
        _ARRAYS,
    ),
}
