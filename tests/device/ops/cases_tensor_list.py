"""Rows for lists of tensors; lists of both forms, and what loops make of them, are in test_tensor_list.py."""

from __future__ import annotations

from typing import Any

import numpy as np

from anabranch.errors import InvalidArgumentError
from anabranch.testing.op_cases import OpCase

X = np.array([[1.0, 2.0], [3.0, -1.0], [0.5, 4.0]])
ROW = np.array([-1.0, 7.0])
PAIR = np.array([[9.0, 8.0], [7.0, 6.0]])
SHAPE = np.array([2], np.int32)
F64 = {"element_dtype": np.float64}


def with_row(x: Any, index: Any, item: Any) -> Any:
    changed = np.array(x)
    changed[index] = item
    return changed


def with_sum(x: Any, indices: Any, values: Any) -> Any:
    changed = np.array(x)
    np.add.at(changed, indices, values)
    return changed


CASES = [
    # new lists
    OpCase("TensorListReserve", (SHAPE, 3), F64, oracle=lambda shape, n: np.zeros((3, 2)), element_shape=[2]),
    OpCase("TensorListReserve", (SHAPE, -1), F64, error=InvalidArgumentError, label="negative"),
    OpCase(
        "EmptyTensorList",
        (SHAPE, 4),
        F64,
        oracle=lambda shape, n: np.zeros((0, 2)),
        element_shape=[2],
        label="has no elements",
    ),
    OpCase("TensorListFromTensor", (X, SHAPE), oracle=lambda x, shape: x, order=2),
    OpCase("TensorListFromTensor", (X.astype(np.float32)[:, :, None], [2, 1]), oracle=lambda x, shape: x),
    # sizes
    OpCase("TensorListLength", (X,), oracle=lambda x: np.int32(3)),
    OpCase("TensorListElementShape", (X,), {"shape_type": "int32"}, expected=SHAPE, static_shape=False),
    OpCase("TensorListResize", (X, 2), oracle=lambda x, n: x[:2]),
    OpCase("TensorListResize", (X, 4), oracle=lambda x, n: np.concatenate([x, np.zeros((1, 2))]), label="longer"),
    # one element
    OpCase("TensorListGetItem", (X, 1, SHAPE), F64, oracle=lambda x, i, shape: x[i], static_shape=False, order=2),
    OpCase("TensorListGetItem", (X, 3, SHAPE), F64, error=InvalidArgumentError, label="outside"),
    OpCase("TensorListSetItem", (X, 1, ROW), oracle=with_row, order=2),
    OpCase("TensorListSetItem", (X, -1, ROW), error=InvalidArgumentError, label="outside"),
    OpCase("TensorListPushBack", (X, ROW), oracle=lambda x, row: np.concatenate([x, row[None]]), order=2),
    OpCase("TensorListPopBack", (X, SHAPE), F64, oracle=lambda x, shape: [x[:-1], x[-1]], static_shape=False, order=2),
    # many elements
    OpCase(
        "TensorListStack", (X, SHAPE), F64 | {"num_elements": 3}, oracle=lambda x, shape: x, order=2, static_shape=False
    ),
    OpCase(
        "TensorListStack", (X, SHAPE), F64 | {"num_elements": 4}, error=InvalidArgumentError, label="another number"
    ),
    OpCase(
        "TensorListGather", (X, [2, 0, 2], SHAPE), F64, oracle=lambda x, i, shape: x[i], static_shape=False, order=2
    ),
    OpCase("TensorListGather", (X, [2, 5], SHAPE), F64, error=InvalidArgumentError, label="outside"),
    OpCase("TensorListScatterIntoExistingList", (X, PAIR, [2, 0]), oracle=lambda x, v, i: with_row(x, i, v), order=2),
    OpCase("TensorListScatterIntoExistingList", (X, PAIR, [2, -1]), error=InvalidArgumentError, label="outside"),
    OpCase(
        "TensorListScatterV2",
        (PAIR, [2, 0], SHAPE, 4),
        oracle=lambda v, i, s, n: with_row(np.zeros((4, 2)), i, v),
        order=2,
    ),
    OpCase(
        "TensorListScatterV2",
        (PAIR, [2, 0], SHAPE, -1),
        oracle=lambda v, i, s, n: with_row(np.zeros((3, 2)), i, v),
        label="as long as needed",
    ),
    OpCase(
        "TensorListScatter",
        (PAIR, [2, 0], SHAPE),
        oracle=lambda v, i, s: with_row(np.zeros((3, 2)), i, v),
        order=2,
    ),
    OpCase("TensorListScatter", (PAIR, [2, -1], SHAPE), error=InvalidArgumentError, label="negative"),
    OpCase(
        "TensorListConcat",
        (X,),
        F64,
        oracle=lambda x: [x.reshape(-1), np.array([2, 2, 2])],
        static_shape=False,
        order=2,
    ),
    OpCase("TensorListConcat", (X[:, 0],), F64, error=InvalidArgumentError, label="scalars"),
    OpCase("TensorListConcatLists", (X, PAIR), F64, oracle=lambda a, b: np.concatenate([a, b])),
    OpCase(
        "TensorListConcatLists", (X, PAIR), {"element_dtype": np.int32}, error=InvalidArgumentError, label="other dtype"
    ),
    OpCase("TensorListSplit", (X, [1, 2], np.array([1, 1, 1])), oracle=lambda x, s, n: x[:, None], order=2),
    OpCase("TensorListSplit", (X, [-1, 2], np.array([1, 1])), error=InvalidArgumentError, label="rows left over"),
    OpCase(
        "TensorListConcatV2",
        (X, SHAPE, np.zeros(0, np.int64)),
        F64,
        oracle=lambda x, s, n: [x.reshape(-1), np.array([2, 2, 2])],
        static_shape=False,
        order=2,
    ),
    OpCase(
        "TensorListConcatV2",
        (X[:, 0], np.zeros(0, np.int32), np.zeros(0, np.int64)),
        F64,
        error=InvalidArgumentError,
        label="scalars",
    ),
    # sums
    OpCase("_TensorListAdd", (X, 2 * X), oracle=lambda a, b: a + b, order=2),
    OpCase("_TensorListAddItems", (X, [1, 1], PAIR), oracle=with_sum, order=2),
    OpCase("_TensorListZeros", (X,), oracle=np.zeros_like, element_shape=[2]),
    OpCase("_TensorListZerosLike", (X,), oracle=np.zeros_like),
]
