"""The sparse functions, against dense NumPy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from anabranch.autodiff.gradients import gradients
from anabranch.errors import InvalidArgumentError
from anabranch.frontend.sparse import arithmetic as sparse_math, form as sparse
from anabranch.graph.composite import IndexedSlices, SparseTensor, SparseTensorValue
from anabranch.graph.conversion import convert_to_tensor
from anabranch.ops import raw
from anabranch.ops.sparse import arithmetic as sparse_arithmetic
from anabranch.session import Session

Array = np.ndarray[Any, Any]
DENSE = np.array([[0, 1.5, 0, -2], [0, 0, 0, 0], [3, 0, 0.5, 0]], np.float32)
OTHER = np.array([[0, 1, 0, 2], [4, 0, 0, 0], [0, 0, 7, 0]], np.float32)


def run(fetches: Any, feeds: Any = None) -> Any:
    with Session() as session:
        return session.run(fetches, feeds)


def sparse_of(dense: Array) -> SparseTensor:
    indices = np.argwhere(dense != 0)
    return SparseTensor(indices, dense[tuple(indices.T)], np.array(dense.shape, np.int64))


def dense_of(value: SparseTensorValue) -> Array:
    result = np.zeros(tuple(value.dense_shape), np.asarray(value.values).dtype)
    for index, element in zip(np.asarray(value.indices).tolist(), value.values, strict=True):
        result[tuple(index)] = element
    return result


def assert_sparse(tensor: SparseTensor, expected: Array, in_order: bool = True) -> None:
    value = run(tensor)
    np.testing.assert_allclose(dense_of(value), expected, rtol=1e-6)
    if in_order:
        assert np.asarray(value.indices).tolist() == sorted(np.asarray(value.indices).tolist())


# ---------------------------------------------------------------------- making
def test_a_placeholder_is_fed_with_a_value_or_a_triple() -> None:
    holder = sparse.sparse_placeholder("float32", [None, 4], name="x")
    assert holder.values.op.name == "x/values"
    assert holder.indices.shape.as_list() == [None, 2]
    value = SparseTensorValue(np.array([[0, 1]]), np.array([2.0], np.float32), np.array([1, 4]))
    doubled = sparse.sparse_tensor_to_dense(holder)
    np.testing.assert_array_equal(run(doubled, {holder: value}), [[0, 2, 0, 0]])
    np.testing.assert_array_equal(run(doubled, {holder: tuple(value)}), [[0, 2, 0, 0]])


def test_the_shape_of_a_placeholder() -> None:
    assert sparse.sparse_placeholder("int32", [3, 4]).shape.as_list() == [3, 4]
    assert sparse.sparse_placeholder("int32").shape.ndims is None
    assert sparse.sparse_placeholder("int32", [None, 4]).shape.ndims == 2


def test_from_dense_and_back() -> None:
    assert_sparse(sparse.sparse_from_dense(DENSE), DENSE)
    np.testing.assert_array_equal(run(sparse.sparse_tensor_to_dense(sparse_of(DENSE))), DENSE)
    filled = run(sparse.sparse_tensor_to_dense(sparse_of(DENSE), default_value=9))
    np.testing.assert_array_equal(filled, np.where(DENSE == 0, 9, DENSE))
    words = SparseTensor([[1]], ["a"], [3])
    assert run(sparse.sparse_tensor_to_dense(words)).tolist() == [b"", b"a", b""]


def test_eye() -> None:
    assert_sparse(sparse.sparse_eye(3), np.eye(3))
    assert_sparse(sparse.sparse_eye(2, 3, "int32"), np.eye(2, 3))


def test_only_sparse_tensors_are_taken() -> None:
    with pytest.raises(TypeError, match="Input must be a SparseTensor"):
        sparse.sparse_reorder(DENSE)


# ---------------------------------------------------------------------- order and shape
def test_reorder_reshape_transpose() -> None:
    mixed = SparseTensor([[2, 0], [0, 3], [0, 1], [2, 2]], [3, -2, 1.5, 0.5], [3, 4])
    assert_sparse(sparse.sparse_reorder(mixed), DENSE)
    assert_sparse(sparse.sparse_reshape(sparse_of(DENSE), [2, -1]), DENSE.reshape(2, 6))
    assert_sparse(sparse.sparse_transpose(sparse_of(DENSE)), DENSE.T)
    cube = DENSE.reshape(3, 2, 2)
    assert_sparse(sparse.sparse_transpose(sparse_of(cube), [1, 0, 2]), cube.transpose(1, 0, 2))


def test_reshape_knows_the_new_shape_where_the_old_one_is_known() -> None:
    for shape in ([2, -1], np.array([2, 6], np.int32), [4, 3]):
        reshaped = sparse.sparse_reshape(sparse_of(DENSE), shape)
        assert reshaped.shape.as_list() == ([4, 3] if list(shape) == [4, 3] else [2, 6])
        assert_sparse(reshaped, DENSE.reshape(shape))


def test_reshape_to_the_shape_of_another_tensor() -> None:
    like = raw.Placeholder(dtype="float32")
    reshaped = sparse.sparse_tensor_to_dense(sparse.sparse_reshape(sparse_of(DENSE), raw.Shape(like)))
    np.testing.assert_array_equal(run(reshaped, {like: np.zeros((6, 2))}), DENSE.reshape(6, 2))


@pytest.mark.parametrize(
    ("shape", "reason"), [([5, 2], "12 elements"), ([5, -1], "12 elem"), ([-1, -1], "At most one")]
)
def test_reshape_refuses_what_is_known_not_to_fit(shape: list[int], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        sparse.sparse_reshape(sparse_of(DENSE), shape)


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -3, None])
def test_expand_dims(axis: int | None) -> None:
    assert_sparse(
        sparse.sparse_expand_dims(sparse_of(DENSE), axis), np.expand_dims(DENSE, -1 if axis is None else axis)
    )


@pytest.mark.parametrize("axis", [0, 2, -2])
def test_expand_dims_at_an_axis_that_is_a_tensor(axis: int) -> None:
    wanted = np.expand_dims(DENSE, axis)
    assert_sparse(sparse.sparse_expand_dims(sparse_of(DENSE), convert_to_tensor(np.int32(axis))), wanted)
    fed = raw.Placeholder(dtype="int32", shape=[])
    expanded = sparse.sparse_expand_dims(sparse_of(DENSE), fed)
    np.testing.assert_array_equal(run(sparse.sparse_tensor_to_dense(expanded), {fed: axis}), wanted)


def test_expand_dims_refuses_an_axis_outside() -> None:
    with pytest.raises(ValueError, match="axis = 3"):
        sparse.sparse_expand_dims(sparse_of(DENSE), 3)


def test_reset_shape() -> None:
    small = sparse_of(DENSE[:, :3])
    assert_sparse(sparse.sparse_reset_shape(small, [4, 5]), np.pad(DENSE[:, :3], ((0, 1), (0, 2))))
    assert_sparse(sparse.sparse_reset_shape(SparseTensor([[0, 1]], [2.0], [9, 9])), np.array([[0, 2.0]]))
    with pytest.raises(ValueError, match="should have dimension sizes"):
        sparse.sparse_reset_shape(small, [2, 3])
    shape = raw.Placeholder(dtype="int64", shape=[2])
    with pytest.raises(InvalidArgumentError, match="smaller"):
        run(sparse.sparse_reset_shape(small, shape), {shape: [2, 3]})


# ---------------------------------------------------------------------- parts
def test_concat() -> None:
    both = [sparse_of(DENSE), sparse_of(OTHER)]
    for axis in (0, 1, -1):
        assert_sparse(sparse.sparse_concat(axis, both), np.concatenate([DENSE, OTHER], axis))
    assert_sparse(sparse.sparse_concat(concat_dim=0, sp_inputs=both), np.concatenate([DENSE, OTHER]))
    uneven = [sparse_of(DENSE), sparse_of(OTHER[:, :3])]
    widened = np.pad(OTHER[:, :3], ((0, 0), (0, 1)))
    assert_sparse(sparse.sparse_concat(0, uneven, expand_nonconcat_dim=True), np.concatenate([DENSE, widened]))


def test_the_shape_of_joined_sparse_tensors_is_known_where_theirs_are() -> None:
    both = [sparse_of(DENSE), sparse_of(OTHER)]
    for axis in (0, 1, -1):
        joined = sparse.sparse_concat(axis, both)
        assert joined.shape.as_list() == list(np.concatenate([DENSE, OTHER], axis).shape)
        assert joined.indices.shape.as_list() == [np.count_nonzero(DENSE) + np.count_nonzero(OTHER), 2]
    uneven = sparse.sparse_concat(0, [both[0], sparse_of(OTHER[:, :3])])
    assert uneven.shape.as_list() == [None, None]
    with pytest.raises(InvalidArgumentError, match="Input shapes must match outside of dimension 0"):
        run(uneven)


def test_split_and_slice() -> None:
    parts = sparse.sparse_split(sp_input=sparse_of(DENSE), num_split=3, axis=1)
    for part, expected in zip(parts, np.array_split(DENSE, 3, axis=1), strict=True):
        assert_sparse(part, expected)
    assert_sparse(sparse.sparse_slice(sparse_of(DENSE), [0, 1], [3, 2]), DENSE[:, 1:3])
    with pytest.raises(ValueError, match="Keyword arguments are required"):
        sparse.sparse_split(1, sparse_of(DENSE), 2)


def test_retain_and_fill() -> None:
    assert_sparse(
        sparse.sparse_retain(sparse_of(DENSE), [True, False, False, True]), np.where(abs(DENSE - 1) <= 0.5, DENSE, 0)
    )
    filled, empty = sparse.sparse_fill_empty_rows(sparse_of(DENSE), 8)
    expected = DENSE.copy()
    expected[1, 0] = 8
    assert_sparse(filled, expected)
    assert run(empty).tolist() == [False, True, False]


def test_mask_leaves_slices_out() -> None:
    slices = IndexedSlices(raw.Const(value=DENSE, dtype="float32"), raw.Const(value=np.array([5, 2, 7]), dtype="int64"))
    masked = run(sparse.sparse_mask(slices, np.array([2])))
    np.testing.assert_array_equal(masked.indices, [5, 7])
    np.testing.assert_array_equal(masked.values, DENSE[[0, 2]])


def test_merge_and_indicator() -> None:
    places, shape = [[0, 0], [0, 1], [1, 0]], [2, 2]
    ids = SparseTensor(places, np.array([4, 1, 3]), shape)
    values = SparseTensor(places, [0.5, 0.25, 2.0], shape)
    assert_sparse(sparse.sparse_merge(ids, values, 5), np.array([[0, 0.25, 0, 0, 0.5], [0, 0, 0, 2, 0]]))
    merged = run(sparse.sparse_merge([ids, ids], values, [5, 6]))
    assert merged.indices.tolist() == [[0, 1, 1], [0, 4, 4], [1, 3, 3]]
    assert merged.dense_shape.tolist() == [2, 5, 6]
    indicator = run(sparse.sparse_to_indicator(ids, 5))
    np.testing.assert_array_equal(indicator, [[False, True, False, False, True], [False, False, False, True, False]])


def test_to_dense() -> None:
    np.testing.assert_array_equal(run(sparse.sparse_to_dense([1, 3], [5], 1)), [0, 1, 0, 1, 0])
    one_hot = run(sparse.sparse_to_dense([[0, 2], [1, 0]], [2, 3], 1.0, 0.0))
    np.testing.assert_array_equal(one_hot, [[0, 0, 1], [1, 0, 0]])
    with pytest.raises(InvalidArgumentError, match="is repeated"):
        run(sparse.sparse_to_dense([1, 1], [5], 1))


# ---------------------------------------------------------------------- arithmetic
@pytest.mark.parametrize("adjoint_a", [False, True])
@pytest.mark.parametrize("adjoint_b", [False, True])
@pytest.mark.parametrize("dense_first", [False, True])
def test_products_with_dense_matrices(adjoint_a: bool, adjoint_b: bool, dense_first: bool) -> None:
    def plain(matrix: Array, adjoint: bool) -> Array:
        return matrix.T if adjoint else matrix

    inner = plain(DENSE, adjoint_b).shape[0] if dense_first else plain(DENSE, adjoint_a).shape[1]
    shape = (2, inner) if dense_first else (inner, 2)
    free = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    given = plain(free, adjoint_a if dense_first else adjoint_b)
    if dense_first:
        found = sparse_math.sparse_tensor_dense_matmul(given, sparse_of(DENSE), adjoint_a, adjoint_b)
        expected = free @ plain(DENSE, adjoint_b)
    else:
        found = sparse_math.sparse_tensor_dense_matmul(sparse_of(DENSE), given, adjoint_a, adjoint_b)
        expected = plain(DENSE, adjoint_a) @ free
    np.testing.assert_allclose(run(found), expected, rtol=1e-5)


def test_sums() -> None:
    assert_sparse(sparse_math.sparse_add(sparse_of(DENSE), sparse_of(OTHER)), DENSE + OTHER)
    assert sparse_math.sparse_add(sparse_of(DENSE), sparse_of(OTHER)).shape == DENSE.shape
    close = sparse_math.sparse_add(sparse_of(DENSE), sparse_of(OTHER), threshold=2.6)
    assert_sparse(close, np.where(abs(DENSE + OTHER) >= 2.6, DENSE + OTHER, 0))
    for a, b in ((sparse_of(DENSE), OTHER), (DENSE, sparse_of(OTHER))):
        np.testing.assert_array_equal(run(sparse_math.sparse_add(a, b)), DENSE + OTHER)
    with pytest.raises(TypeError, match=r"tf\.add"):
        sparse_math.sparse_add(DENSE, OTHER)


def test_extrema_and_softmax() -> None:
    a, b = sparse_of(DENSE), sparse_of(OTHER)
    assert_sparse(sparse_math.sparse_maximum(a, b), np.maximum(DENSE, OTHER))
    assert_sparse(sparse_math.sparse_minimum(a, b), np.minimum(DENSE, OTHER))
    powers = np.where(DENSE != 0, np.exp(DENSE), 0)
    total = powers.sum(axis=1, keepdims=True)
    assert_sparse(sparse_math.sparse_softmax(a), np.divide(powers, total, where=total > 0, out=np.zeros_like(powers)))


@pytest.mark.parametrize("axis", [None, 0, 1, -1, [0, 1]])
@pytest.mark.parametrize("keep", [False, True])
def test_reductions(axis: Any, keep: bool) -> None:
    numpy_axis = tuple(axis) if isinstance(axis, list) else axis
    value = sparse_of(DENSE)
    total = DENSE.sum(axis=numpy_axis, keepdims=keep)
    np.testing.assert_allclose(run(sparse_math.sparse_reduce_sum(value, axis, keep)), total)
    np.testing.assert_allclose(run(sparse_math.sparse_reduce_sum(value, reduction_axes=axis, keep_dims=keep)), total)
    top = np.where(DENSE != 0, DENSE, -np.inf).max(axis=numpy_axis, keepdims=keep)
    top = np.where(np.isinf(top), 0, top)
    np.testing.assert_allclose(run(sparse_math.sparse_reduce_max(value, axis, keep)), top)
    assert_sparse(sparse_math.sparse_reduce_sum_sparse(value, axis, keep), total)
    assert_sparse(sparse_math.sparse_reduce_max_sparse(value, axis, keep), top)


def test_operators() -> None:
    factor = np.array([2, 4, 5, 8], np.float32)
    assert_sparse(sparse_of(DENSE) * factor, DENSE * factor)
    assert_sparse(sparse_of(DENSE) / factor, DENSE / factor)
    whole = sparse_of(np.array([[0, 7]], np.int32)) / np.array([[2]], np.int32)
    assert whole.dtype.name == "float64"
    assert_sparse(whole, np.array([[0, 3.5]]))


def test_gradients_reach_the_values() -> None:
    values = raw.Const(value=np.array([1.5, -2, 3, 0.5], np.float32), dtype="float32")
    value = SparseTensor(np.argwhere(DENSE), values, [3, 4])
    weights = np.random.default_rng(1).normal(size=(4, 2)).astype(np.float32)
    product = sparse_math.sparse_tensor_dense_matmul(value * 2.0, weights)
    (grad,) = gradients(raw.Mul(product, product), [values])
    matrix = DENSE * 2
    expected = (2 * (matrix @ weights) @ weights.T * 2)[DENSE != 0]
    np.testing.assert_allclose(run(grad), expected, rtol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "int32", "float16"])
@pytest.mark.parametrize("order", ["rows", "columns", "none"])
@pytest.mark.parametrize("direct", [True, False], ids=["direct", "by a matrix of SciPy's"])
def test_large_products_of_fed_matrices(dtype: str, order: str, direct: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever order the elements stand in, repeated ones among them, and however the coordinates lie in memory."""
    if not direct:
        monkeypatch.setattr(sparse_arithmetic, "_dense_product", lambda: None)
    rng = np.random.default_rng(3)
    rows, inner = rng.integers(0, 40, 300), rng.integers(0, 30, 300)
    sequence = {"rows": np.lexsort((inner, rows)), "columns": np.lexsort((rows, inner)), "none": np.arange(300)}[order]
    coordinates = np.stack([rows, inner])[:, sequence].T  # column by column, as SciPy's are
    values = rng.integers(-9, 10, 300).astype(dtype)
    matrix = np.zeros((40, 30), dtype)
    np.add.at(matrix, tuple(coordinates.T), values)
    given = sparse.sparse_placeholder(dtype)
    for adjoint_a in (False, True):
        right = rng.integers(-4, 5, (40 if adjoint_a else 30, 20)).astype(dtype)
        product = sparse_math.sparse_tensor_dense_matmul(given, right, adjoint_a=adjoint_a)
        found = run(product, {given: SparseTensorValue(coordinates, values, [40, 30])})
        assert found.dtype == dtype
        np.testing.assert_array_equal(found, (matrix.T if adjoint_a else matrix) @ right)


@pytest.mark.parametrize("bad", [-1, 30])
def test_an_index_outside_of_a_large_fed_matrix_is_refused(bad: int) -> None:
    coordinates = np.zeros((300, 2), np.int64)
    coordinates[7] = 3, bad
    given = sparse.sparse_placeholder("float32")
    product = sparse_math.sparse_tensor_dense_matmul(given, np.ones((30, 20), np.float32))
    with pytest.raises(InvalidArgumentError, match=rf"a_indices\[7\] = \[ *3 +{bad}\]"):
        run(product, {given: SparseTensorValue(coordinates, np.ones(300, np.float32), [40, 30])})


@pytest.mark.parametrize("bad", [-1, 30])
def test_a_bad_index_of_rows_that_are_gathered_on_the_host_is_refused(bad: int) -> None:
    kept = raw.Placeholder(dtype="int32", shape=(None,))
    # text, so that the rows are gathered on the host
    taken = raw.GatherV2(raw.Const(value=np.array([b"row"] * 30, np.object_), dtype="string"), kept, 0)
    assert run(taken, {kept: np.array([0, 29], np.int32)}).tolist() == [b"row", b"row"]
    with pytest.raises(InvalidArgumentError, match=rf"indices\[1\] = {bad} is not in \[0, 30\)"):
        run(taken, {kept: np.array([4, bad, 31], np.int32)})


def test_rows_of_what_lies_column_by_column() -> None:
    columns = np.asfortranarray(np.arange(24).reshape(12, 2))
    matrix = raw.Placeholder(dtype="int64", shape=(None, 2))
    kept = raw.Reshape(raw.Where(raw.Greater(raw.Sum(matrix, [1]), np.int64(20))), [-1])
    taken = raw.GatherV2(matrix, kept, 0)
    assert run(taken, {matrix: columns}).tolist() == columns[columns.sum(axis=1) > 20].tolist()
    assert run([raw.Mul(taken, taken)], {matrix: columns})[0].tolist() == (columns[5:] ** 2).tolist()
