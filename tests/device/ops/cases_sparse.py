"""Rows of the sparse operations, against dense NumPy arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.special

from anabranch.errors import InvalidArgumentError
from anabranch.testing.op_cases import OpCase

Array = np.ndarray[Any, Any]

#: a sparse 3 x 4 tensor with an empty row
INDICES = np.array([[0, 1], [0, 3], [2, 0], [2, 2]])
VALUES = np.array([1.5, -2.0, 3.0, 0.5])
SHAPE = np.array([3, 4])
SPARSE = (INDICES, VALUES, SHAPE)
#: another of the same shape, which shares two elements with it
OTHER = (np.array([[0, 3], [1, 1], [2, 2]]), np.array([2.0, 4.0, 7.0]), SHAPE)
WORDS = np.array([b"a", b"b", b"c", b"d"], np.object_)
RANDOM = np.random.default_rng(5)


def dense(indices: Any, values: Any, shape: Any, default: Any = 0) -> Array:
    result = np.full(tuple(shape), default, np.asarray(values).dtype)
    result[tuple(np.asarray(indices).T)] = values
    return result


def sparse(array: Array) -> tuple[Array, Array, Array]:
    indices = np.argwhere(array)
    return indices, array[tuple(indices.T)], np.array(array.shape)


def on_dense(function: Callable[..., Any]) -> Callable[..., Any]:
    """The oracle of an operation on one sparse tensor: `function` of its dense form, as a sparse tensor."""
    return lambda indices, values, shape, *rest: sparse(function(dense(indices, values, shape), *rest))


# ---------------------------------------------------------------------- form
SHUFFLED = np.array([2, 0, 3, 1])


def _form() -> list[OpCase]:
    unsorted = (INDICES[SHUFFLED], VALUES[SHUFFLED], SHAPE)
    far = (np.array([[0, 4]]), np.array([1.0]), SHAPE)
    return [
        OpCase("SparseReorder", unsorted, expected=(INDICES, VALUES)),
        OpCase("SparseReorder", (INDICES, WORDS, SHAPE), expected=(INDICES, WORDS), label="strings"),
        OpCase("SparseReorder", far, error=InvalidArgumentError, label="out of bounds"),
        OpCase(
            "SparseReshape",
            (INDICES, SHAPE, [2, -1]),
            expected=(sparse(dense(*SPARSE).reshape(2, 6))[0], np.array([2, 6])),
        ),
        OpCase("SparseReshape", (INDICES, SHAPE, [12]), expected=(np.array([[1], [3], [8], [10]]), np.array([12]))),
        OpCase("SparseReshape", (INDICES, SHAPE, [5, -1]), error=InvalidArgumentError, label="does not divide"),
        OpCase("SparseReshape", (INDICES, SHAPE, [5, 2]), error=InvalidArgumentError, label="another size"),
        OpCase("SparseReshape", (INDICES, SHAPE, [-1, -1]), error=InvalidArgumentError, label="two open"),
        *_parts(),
        *_fill(),
        *_to_dense(),
    ]


def _parts() -> list[OpCase]:
    both = ([INDICES, OTHER[0]], [VALUES, OTHER[1]], [SHAPE, SHAPE])
    split = [sparse(part) for part in np.array_split(dense(*SPARSE), 3, axis=1)]
    flat = [part[i] for i in range(3) for part in split]
    found = [
        OpCase(
            "SparseConcat",
            both,
            {"concat_dim": axis},
            expected=sparse(np.concatenate([dense(*SPARSE), dense(*OTHER)], axis)),
            label=f"axis {axis}",
        )
        for axis in (0, 1, -1)
    ]
    wrong = ([INDICES, INDICES], [VALUES, VALUES], [SHAPE, np.array([3, 5])])
    found += [
        OpCase("SparseConcat", wrong, {"concat_dim": 0}, error=InvalidArgumentError, label="shapes differ"),
        OpCase("SparseConcat", both, {"concat_dim": 2}, error=InvalidArgumentError, label="no such axis"),
        OpCase("SparseSplit", (1, *SPARSE), {"num_split": 3}, expected=flat),
        OpCase("SparseSplit", (-1, *SPARSE), {"num_split": 3}, expected=flat, label="negative axis"),
        OpCase("SparseSplit", (0, *SPARSE), {"num_split": 4}, error=InvalidArgumentError, label="too many"),
        *(
            OpCase(
                op,
                (np.array([[1, 2]]), np.array([1.0]), np.array([2**32, 2**31]), np.array([0], np.int32)),
                error=InvalidArgumentError,
                label="more elements than int64 counts",
            )
            for op in ("SparseReduceMax", "SparseReduceSumSparse")
        ),
        OpCase("SparseSlice", (*SPARSE, [0, 1], [3, 2]), oracle=on_dense(lambda x, *_: x[0:3, 1:3])),
        OpCase("SparseSlice", (*SPARSE, [2, 2], [5, 5]), oracle=on_dense(lambda x, *_: x[2:, 2:]), label="beyond"),
        OpCase("SparseSlice", (*SPARSE, [1, 0], [1, 4]), oracle=on_dense(lambda x, *_: x[1:2]), label="empty"),
        OpCase("SparseSlice", (*SPARSE, [-1, 0], [1, 4]), error=InvalidArgumentError, label="negative start"),
        OpCase(
            "SparseSliceGrad",
            (np.array([5.0, 6.0]), INDICES, [0, 1], np.array([[0, 0], [2, 1]])),
            expected=np.array([5.0, 0.0, 0.0, 6.0]),
        ),
    ]
    return found


def _fill() -> list[OpCase]:
    filled = (np.array([[0, 1], [0, 3], [1, 0], [2, 0], [2, 2]]), np.array([1.5, -2.0, 9.0, 3.0, 0.5]))
    empty = np.array([False, True, False])
    where = np.array([0, 1, 3, 4])
    words = np.array([b"a", b"b", b"", b"c", b"d"], np.object_)
    return [
        OpCase("SparseFillEmptyRows", (*SPARSE, np.float64(9)), expected=(*filled, empty, where)),
        OpCase(
            "SparseFillEmptyRows",
            (INDICES, WORDS, SHAPE, b""),
            expected=(filled[0], words, empty, where),
            label="strings",
        ),
        OpCase(
            "SparseFillEmptyRows",
            (np.zeros((0, 2), np.int64), np.zeros(0), [2, 5], np.float64(1)),
            expected=(np.array([[0, 0], [1, 0]]), np.ones(2), np.array([True, True]), np.zeros(0, np.int64)),
            label="all empty",
        ),
        OpCase("SparseFillEmptyRowsGrad", (where, np.arange(5.0)), expected=(np.array([0.0, 1, 3, 4]), np.float64(2))),
        *(
            OpCase("SparseFillEmptyRowsGrad", (np.int64(rows), values), error=InvalidArgumentError, label=label)
            for rows, values, label in (
                ([0, 5], np.arange(5.0), "row 5 of 5"),
                ([0, -1], np.arange(5.0), "row -1"),
                ([0, 1], np.ones((5, 1)), "a matrix"),
                ([[0, 1]], np.ones(5), "a matrix of rows"),
            )
        ),
    ]


def _to_dense() -> list[OpCase]:
    bad = InvalidArgumentError
    return [
        OpCase("SparseToDense", (INDICES, SHAPE, VALUES, np.float64(-1)), expected=dense(*SPARSE, -1)),
        OpCase("SparseToDense", ([1, 3], [5], np.float64(2), np.float64(0)), expected=np.array([0, 2.0, 0, 2, 0])),
        OpCase(
            "SparseToDense", (2, [4], np.array([7.0]), np.float64(0)), expected=np.array([0, 0, 7.0, 0]), label="scalar"
        ),
        OpCase(
            "SparseToDense",
            (np.array([1], np.int32), np.array([2], np.int32), np.array([b"x"], np.object_), b"-"),
            expected=np.array([b"-", b"x"], np.object_),
            label="strings",
        ),
        OpCase("SparseToDense", ([3, 1], [5], np.ones(2), np.float64(0)), error=bad, label="out of order"),
        OpCase("SparseToDense", ([1, 1], [5], np.ones(2), np.float64(0)), error=bad, label="repeated"),
        OpCase("SparseToDense", ([1, 5], [5], np.ones(2), np.float64(0)), error=bad, label="out of bounds"),
        OpCase(
            "SparseToDense",
            ([3, 1], [5], np.array([1.0, 2.0]), np.float64(0)),
            {"validate_indices": False},
            expected=np.array([0, 2.0, 0, 1, 0]),
            label="unchecked",
        ),
    ]


# ---------------------------------------------------------------------- arithmetic
def _products() -> list[OpCase]:
    found = []
    for dtype in (np.float32, np.float64, np.complex128):
        values = (VALUES * (1 + 0.5j)).astype(dtype) if dtype == np.complex128 else VALUES.astype(dtype)
        for adjoint_a in (False, True):
            for adjoint_b in (False, True):
                rows = 3 if adjoint_a else 4
                b = RANDOM.normal(size=(2, rows) if adjoint_b else (rows, 2)).astype(dtype)
                if dtype == np.complex128:
                    b = b + 1j * RANDOM.normal(size=b.shape)
                found.append(
                    OpCase(
                        "SparseTensorDenseMatMul",
                        (INDICES, values, SHAPE, b),
                        {"adjoint_a": adjoint_a, "adjoint_b": adjoint_b},
                        oracle=_product(adjoint_a, adjoint_b),
                        order=2 if dtype == np.float64 else 1,
                        label=f"{np.dtype(dtype).name} {adjoint_a} {adjoint_b}",
                    )
                )
    b, doubled = np.ones((4, 2)), np.concatenate([INDICES, INDICES[:1]])
    bad = InvalidArgumentError
    found += [
        OpCase(
            "SparseTensorDenseMatMul",
            (doubled, np.append(VALUES, 2.0), SHAPE, b),
            expected=dense(INDICES, VALUES + [2, 0, 0, 0], SHAPE) @ b,
            label="repeated element",
        ),
        OpCase("SparseTensorDenseMatMul", (INDICES + 2, VALUES, SHAPE, b), error=bad, label="out of bounds"),
        OpCase(
            "SparseTensorDenseMatMul", (INDICES, VALUES, SHAPE, np.ones((3, 2))), error=bad, label="inner dimension"
        ),
    ]
    far_apart = np.array([[70000, 1], [3, 0], [70000, 0], [0, 2], [3, 0]])
    transposed = far_apart[:, ::-1]
    for name, indices, shape in (("many rows", far_apart, [70001, 3]), ("many columns", transposed, [3, 70001])):
        found.append(
            OpCase(
                "SparseTensorDenseMatMul",
                (indices, np.arange(1.0, 6.0), np.array(shape), np.ones((3, 2)) * [1, 2]),
                {"adjoint_a": shape[0] == 3},
                expected=_summed_rows(far_apart[:, 0], np.arange(1.0, 6.0), 70001) * [1, 2],
                label=f"{name}, not in order",
            )
        )
    return found


def _summed_rows(rows: Array, values: Array, count: int) -> Array:
    total = np.zeros((count, 1))
    np.add.at(total, rows, values[:, None])
    return total


def _product(adjoint_a: bool, adjoint_b: bool) -> Callable[..., Array]:
    def oracle(indices: Array, values: Array, shape: Array, b: Array) -> Array:
        a = dense(indices, values, shape)
        return (a.conj().T if adjoint_a else a) @ (b.conj().T if adjoint_b else b)

    return oracle


def _elementwise() -> list[OpCase]:
    b = RANDOM.uniform(0.5, 2, (3, 4))
    found = []
    functions: dict[str, Any] = {"Add": np.add, "Mul": np.multiply, "Div": np.divide}
    for name, function in functions.items():
        for shape in ((3, 4), (4,), (3, 1), (1, 1), ()):
            other = RANDOM.uniform(0.5, 2, shape)
            at = np.broadcast_to(other, (3, 4))[tuple(INDICES.T)]
            expected = function(VALUES, at)
            found.append(OpCase(f"SparseDenseCwise{name}", (*SPARSE, other), expected=expected, label=str(shape)))
        wrong = RANDOM.normal(size=(2, 4))
        found.append(
            OpCase(f"SparseDenseCwise{name}", (*SPARSE, wrong), error=InvalidArgumentError, label="does not broadcast")
        )
    whole = np.array([7, -7, 9, 2], np.int32)
    found += [
        OpCase(
            "SparseDenseCwiseDiv",
            (INDICES, whole, SHAPE, np.full((4,), 2, np.int32)),
            expected=np.array([3, -3, 4, 1], np.int32),
            label="int32",
        ),
        OpCase(
            "SparseDenseCwiseDiv",
            (INDICES, whole, SHAPE, np.zeros(4, np.int32)),
            error=InvalidArgumentError,
            label="integers by zero",
        ),
        OpCase("SparseTensorDenseAdd", (*SPARSE, b), oracle=lambda i, v, s, d: dense(i, v, s) + d),
        OpCase("SparseTensorDenseAdd", (*SPARSE, b[:2]), error=InvalidArgumentError, label="shapes differ"),
        OpCase(
            "SparseTensorDenseAdd", (INDICES + 1, VALUES, SHAPE, b), error=InvalidArgumentError, label="out of bounds"
        ),
    ]
    return found


def _pairs() -> list[OpCase]:
    total = dense(*SPARSE) + dense(*OTHER)
    indices = np.argwhere((dense(*SPARSE) != 0) | (dense(*OTHER) != 0))
    values = total[tuple(indices.T)]
    summed = (dense(*SPARSE) != 0) & (dense(*OTHER) != 0)
    kept = (np.abs(values) >= 2.5) | ~summed[tuple(indices.T)]  # only sums are held against the threshold
    places = tuple(indices.T)
    other_shape = (*OTHER[:2], np.array([4, 4]))
    return [
        OpCase("SparseAdd", (*SPARSE, *OTHER, np.float64(0)), expected=(indices, values, SHAPE), differentiate=[1, 4]),
        OpCase(
            "SparseAdd",
            (*SPARSE, *OTHER, np.float64(2.5)),
            expected=(indices[kept], values[kept], SHAPE),
            differentiate=[1, 4],
            label="threshold",
        ),
        OpCase("SparseAdd", (*SPARSE, *other_shape, np.float64(0)), error=InvalidArgumentError, label="shapes differ"),
        OpCase(
            "SparseAddGrad",
            (np.arange(1.0, 6), INDICES, OTHER[0], indices),
            expected=(np.array([1.0, 2, 4, 5]), np.array([2.0, 3, 5])),
        ),
        OpCase(
            "SparseSparseMaximum",
            (*SPARSE, *OTHER),
            expected=(indices, np.maximum(dense(*SPARSE), dense(*OTHER))[places]),
        ),
        OpCase(
            "SparseSparseMinimum",
            (*SPARSE, *OTHER),
            expected=(indices, np.minimum(dense(*SPARSE), dense(*OTHER))[places]),
        ),
    ]


def _reductions() -> list[OpCase]:
    found = []
    present = dense(INDICES, np.ones(4, np.bool_), SHAPE)
    whole = dense(*SPARSE)
    for axes, numpy_axes in (([0], 0), ([1], 1), ([-1], -1), ([0, 1], (0, 1)), (np.zeros(0, np.int32), ())):
        for keep in (False, True):
            attrs, label = {"keep_dims": keep}, f"{numpy_axes} {keep} {len(axes)}"
            total = whole.sum(axis=numpy_axes, keepdims=keep)
            lowest = np.where(present, whole, -np.inf).max(axis=numpy_axes, keepdims=keep)
            stored = present.any(axis=numpy_axes, keepdims=keep)
            top = np.where(stored, lowest, 0.0)
            places = np.argwhere(stored) if stored.ndim else np.zeros((1, 0), np.int64)
            at = tuple(places.T)
            given = (*SPARSE, axes)
            found += [
                OpCase("SparseReduceSum", given, attrs, expected=total, label=label),
                OpCase("SparseReduceMax", given, attrs, expected=top, label=label),
                OpCase(
                    "SparseReduceSumSparse",
                    given,
                    attrs,
                    expected=(places, np.atleast_1d(total[at]), np.array(total.shape)),
                    label=label,
                ),
                OpCase(
                    "SparseReduceMaxSparse",
                    given,
                    attrs,
                    expected=(places, np.atleast_1d(top[at]), np.array(top.shape)),
                    label=label,
                ),
            ]
    found.append(OpCase("SparseReduceSum", (*SPARSE, [2]), error=InvalidArgumentError, label="no such axis"))
    return found


def _softmax() -> list[OpCase]:
    expected = np.concatenate([scipy.special.softmax(VALUES[:2]), scipy.special.softmax(VALUES[2:])])
    vector = (np.array([[0]]), np.array([1.0]), np.array([3]))
    return [
        OpCase("SparseSoftmax", SPARSE, expected=expected),
        OpCase("SparseSoftmax", (INDICES, VALUES.astype(np.float32), SHAPE), expected=expected, label="float32"),
        OpCase("SparseSoftmax", vector, error=InvalidArgumentError, label="vector"),
    ]


def _sets() -> list[OpCase]:
    a, b = np.array([[1, 2, 2], [3, 4, 5]]), np.array([[2, 0], [5, 9]])
    a_minus_b = (np.array([[0, 0], [1, 0], [1, 1]]), np.array([1, 3, 4]), np.array([2, 2]))
    b_minus_a = (np.array([[0, 0], [1, 0]]), np.array([0, 9]), np.array([2, 1]))
    common = (np.array([[0, 0], [1, 0]]), np.array([2, 5]), np.array([2, 1]))
    sparse_b = (np.array([[0, 0], [0, 1], [1, 0], [1, 1]]), np.array([2, 0, 5, 9]), np.array([2, 2]))
    swapped = (sparse_b[0][::-1], sparse_b[1], sparse_b[2])
    words = (np.array([[b"b", b"a"]], np.object_), np.array([[b"c", b"b"]], np.object_))
    both = (np.array([[0, 0], [0, 1], [0, 2]]), np.array([b"a", b"b", b"c"], np.object_), np.array([1, 3]))
    dense, sparse, pair = "DenseToDenseSetOperation", "DenseToSparseSetOperation", "SparseToSparseSetOperation"
    return [
        OpCase(dense, (a, b), {"set_operation": "a-b"}, expected=a_minus_b),
        OpCase(dense, (a, b), {"set_operation": "b-a"}, expected=b_minus_a, label="the other way"),
        OpCase(dense, words, {"set_operation": "union"}, expected=both, label="strings"),
        OpCase(dense, (a, b[:1]), {"set_operation": "union"}, error=InvalidArgumentError, label="other groups"),
        OpCase(dense, (a[0], b[0]), {"set_operation": "union"}, error=InvalidArgumentError, label="vectors"),
        OpCase(
            "SetSize",
            (np.array([[0], [1]]), np.array([7, 5]), np.array([2])),
            error=InvalidArgumentError,
            label="a sparse vector",
        ),
        OpCase(dense, (a, b), {"set_operation": "sum"}, error=InvalidArgumentError, label="no such operation"),
        OpCase(sparse, (a, *sparse_b), {"set_operation": "intersection"}, expected=common),
        OpCase(sparse, (a, *swapped), {"set_operation": "union"}, error=InvalidArgumentError, label="order"),
        OpCase(
            sparse,
            (a, *swapped),
            {"set_operation": "intersection", "validate_indices": False},
            expected=(np.zeros((0, 2), np.int64), np.zeros(0, np.int64), np.array([2, 0])),
            label="any order",
        ),
        OpCase(
            pair,
            (*sparse_b, *sparse_b),
            {"set_operation": "a-b"},
            expected=(np.zeros((0, 2), np.int64), np.zeros(0, np.int64), np.array([2, 0])),
        ),
        OpCase("SetSize", (sparse_b[0], np.array([7, 7, 5, 9]), sparse_b[2]), expected=np.array([1, 2], np.int32)),
    ]


def _crosses() -> list[OpCase]:
    """What TensorFlow gives for three columns, of which one is dense."""
    words = np.array([b"a", b"bb", b"c"], np.object_)
    places = (np.array([[0, 0], [0, 1], [1, 0]]), np.array([[0, 0], [1, 0], [1, 1]]))
    dense_words = np.array([[b"x", b"y"], [b"z", b""]], np.object_)
    given = (list(places), [words, np.array([3, -4, 5])], [np.array([2, 2])] * 2, [dense_words])
    hashed = {"hashed_output": True, "hash_key": 0xDECAFCAFFE, "out_type": "int64", "internal_type": "int64"}
    joined = {**hashed, "out_type": "string", "num_buckets": 0}
    of_strings = {**joined, "internal_type": "string"}
    at, shape = np.array([(row, i) for row in range(2) for i in range(4)]), np.array([2, 4])
    fingerprints = [
        *(8321422957646178926, 7327361521195565352, 8250855295844151589, 5419836943176075305),
        *(4465796773755896564, 3666051384007652828, 5410618872957272730, 1638513214555607113),
    ]
    texts = [b"a_X_3_X_x", b"a_X_3_X_y", b"bb_X_3_X_x", b"bb_X_3_X_y"]
    texts += [b"c_X_-4_X_z", b"c_X_-4_X_", b"c_X_5_X_z", b"c_X_5_X_"]
    uneven = (given[0], given[1], [np.array([2, 2]), np.array([3, 2])], [])
    return [
        OpCase("SparseCross", given, {**hashed, "num_buckets": 0}, expected=(at, np.array(fingerprints), shape)),
        OpCase(
            "SparseCross",
            given,
            {**hashed, "num_buckets": 10},
            expected=(at, np.array([3, 9, 9, 5, 4, 5, 0, 0]), shape),
            label="10 buckets",
        ),
        OpCase("SparseCross", given, joined, expected=(at, np.array(texts, np.object_), shape), label="strings"),
        # whatever `hashed_output` says, the type of the output decides
        OpCase(
            "SparseCross",
            ([], [], [], [dense_words]),
            {**of_strings, "hashed_output": False},
            expected=(at[[0, 1, 4, 5]], dense_words.reshape(-1), np.array([2, 2])),
            label="strings only",
        ),
        OpCase("SparseCross", given, of_strings, error=InvalidArgumentError, label="integers as strings"),
        OpCase("SparseCross", uneven, {**hashed, "num_buckets": 5}, error=InvalidArgumentError, label="rows differ"),
    ]


CASES = [*_sets(), *_crosses(), *_form(), *_products(), *_elementwise(), *_pairs(), *_reductions(), *_softmax()]
