"""Rows for loops and lists of tensors: values that no session returns, so most are tested through `TensorArray`."""

from __future__ import annotations

from anabranch.testing.op_cases import OpCase

_LISTS = "tests/device/ops/test_tensor_list.py"
TESTED_ELSEWHERE = {
    "While": "tests/device/ops/test_tensor_list.py",
    "StatelessWhile": _LISTS,
    "_RecordingWhile": _LISTS,
    "_LoopBound": _LISTS,
    "_DeviceLoopBound": _LISTS,
    **dict.fromkeys(
        (
            *("TensorListReserve", "EmptyTensorList", "TensorListFromTensor", "TensorListLength"),
            *("TensorListElementShape", "TensorListResize", "TensorListGetItem", "TensorListSetItem"),
            *("TensorListPushBack", "TensorListPopBack", "TensorListStack", "TensorListGather"),
            *("TensorListScatterIntoExistingList", "TensorListScatterV2", "TensorListSplit", "TensorListConcatV2"),
            *("_TensorListAdd", "_TensorListAddItems", "_TensorListZeros", "_TensorListZerosLike"),
        ),
        _LISTS,
    ),
}

CASES: list[OpCase] = []
