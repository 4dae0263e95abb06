"""Ragged tensors, against nested Python lists."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import anabranch as tf

Nested = list[Any]


def run(fetches: Any, feeds: Any = None) -> Any:
    with tf.Session() as session:
        return session.run(fetches, feeds)


def lists(fetches: Any) -> Any:
    value = run(fetches)
    return value.to_list() if isinstance(value, tf.ragged.RaggedTensorValue) else np.asarray(value).tolist()


def random_rows(seed: int, rows: int = 4, longest: int = 3) -> Nested:
    draw = np.random.default_rng(seed)
    return [draw.integers(-9, 9, draw.integers(0, longest + 1)).tolist() for _ in range(rows)]


ROWS = [[3, 1, 4], [], [1, 5], [9]]
DEEP = [[[1, 2], []], [], [[3]], [[4, 5, 6], [7], []]]


# ---------------------------------------------------------------------- making
@pytest.mark.parametrize(
    "make",
    [
        lambda v: tf.RaggedTensor.from_row_splits(v, [0, 3, 3, 5, 6]),
        lambda v: tf.RaggedTensor.from_row_lengths(v, [3, 0, 2, 1]),
        lambda v: tf.RaggedTensor.from_row_starts(v, [0, 3, 3, 5]),
        lambda v: tf.RaggedTensor.from_row_limits(v, [3, 3, 5, 6]),
        lambda v: tf.RaggedTensor.from_value_rowids(v, [0, 0, 0, 2, 2, 3]),
        lambda v: tf.RaggedTensor.from_nested_row_splits(v, [[0, 3, 3, 5, 6]]),
        lambda _: tf.ragged.constant(ROWS),
        lambda _: tf.RaggedTensor.from_tensor([[3, 1, 4], [0, 0, 0], [1, 5, 0], [9, 0, 0]], padding=0),
        lambda _: tf.RaggedTensor.from_tensor([[3, 1, 4], [7, 7, 7], [1, 5, 7], [9, 7, 7]], lengths=[3, 0, 2, 1]),
    ],
)
def test_each_way_to_say_where_rows_end(make: Callable[[Any], Any]) -> None:
    ragged = make([3, 1, 4, 1, 5, 9])
    assert lists(ragged) == ROWS
    assert lists(ragged.row_splits) == [0, 3, 3, 5, 6]
    assert lists(ragged.row_lengths()) == [3, 0, 2, 1]
    assert lists(ragged.row_starts()) == [0, 3, 3, 5]
    assert lists(ragged.row_limits()) == [3, 3, 5, 6]
    assert lists(ragged.value_rowids()) == [0, 0, 0, 2, 2, 3]
    assert (lists(ragged.nrows()), lists(ragged.bounding_shape())) == (4, [4, 3])
    assert lists(ragged.to_tensor(7)) == [[3, 1, 4], [7, 7, 7], [1, 5, 7], [9, 7, 7]]
    back = tf.RaggedTensor.from_sparse(ragged.to_sparse())
    assert lists(back) == ROWS


@pytest.mark.parametrize(
    ("make", "argument"),
    [
        (tf.RaggedTensor.from_row_splits, [0, 2]),
        (tf.RaggedTensor.from_row_splits, [1, 3]),
        (tf.RaggedTensor.from_row_splits, [0, 2, 1, 3]),
        (tf.RaggedTensor.from_row_lengths, [1, 1]),
        (tf.RaggedTensor.from_row_lengths, [4, -1]),
        (tf.RaggedTensor.from_row_starts, [1]),
        (tf.RaggedTensor.from_row_limits, [2]),
        (tf.RaggedTensor.from_value_rowids, [0, 2, 1]),
    ],
)
def test_a_partition_that_does_not_fit_fails_in_the_step(make: Callable[..., Any], argument: list[int]) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match="valid RaggedTensor"):
        run(make([1, 2, 3], argument))


def test_constants_say_what_is_wrong() -> None:
    with pytest.raises(ValueError, match="same nesting depth"):
        tf.ragged.constant([1, [2]])
    with pytest.raises(ValueError, match="incompatible with ragged_rank"):
        tf.ragged.constant([[1], [2]], ragged_rank=1, inner_shape=(1,))
    with pytest.raises(TypeError, match="may not be a RaggedTensor"):
        tf.ragged.constant(tf.ragged.constant([[1]]))
    assert tf.ragged.constant([[1, 2], [3]], row_splits_dtype=tf.int32).row_splits.dtype is tf.int32
    assert tf.ragged.constant([[[1, 2]], []], ragged_rank=1).shape.as_list() == [2, None, 2]


def test_feeds_and_fetches() -> None:
    placeholder = tf.ragged.placeholder(tf.int32, 2)
    value = tf.ragged.constant_value(DEEP, np.int32)
    assert run(placeholder + 1, {placeholder: value}).to_list() == [[[2, 3], []], [], [[4]], [[5, 6, 7], [8], []]]
    with pytest.raises(TypeError, match="ragged_rank 2"):
        run(placeholder, {placeholder: tf.ragged.constant_value(ROWS, np.int32)})


# ---------------------------------------------------------------------- parts
@pytest.mark.parametrize(
    "key",
    [
        0,
        -1,
        slice(1, 3),
        slice(None, None, 2),
        slice(None, -1),
        slice(3, 1),
        (0, 1),
        (3, 0, 2),
        (3, slice(0, 2)),
        (slice(1, None), slice(0, 0)),
    ],
)
def test_indices_are_those_of_lists(key: Any) -> None:
    expected: Any = DEEP
    keys = key if isinstance(key, tuple) else (key,)
    if len(keys) > 1 and isinstance(keys[0], slice):
        expected = [row[keys[1]] for row in DEEP[keys[0]]]
    else:
        for k in keys:
            expected = expected[k]
    assert lists(tf.ragged.constant(DEEP)[key]) == expected


@pytest.mark.parametrize(
    "inner",
    [
        slice(0, 2),
        slice(-1, None),
        slice(None, -1),
        slice(None, None, 2),
        slice(5, None),
        slice(None, None, -1),
        slice(5, 0, -1),
        slice(-1, -3, -1),
        slice(1, None, -2),
        slice(0, 5, -1),
    ],
)
def test_slices_within_rows(inner: slice) -> None:
    ragged = tf.ragged.constant(ROWS)
    assert lists(ragged[:, inner]) == [row[inner] for row in ROWS]
    start = None if inner.start is None else tf.constant(inner.start)
    assert lists(ragged[:, slice(start, inner.stop, inner.step)]) == [row[inner] for row in ROWS]


def test_new_axes_and_ellipses() -> None:
    ragged = tf.ragged.constant(ROWS)
    assert lists(ragged[tf.newaxis]) == [ROWS]
    assert lists(ragged[:, tf.newaxis]) == [[row] for row in ROWS]
    assert lists(ragged[..., tf.newaxis]) == [[[v] for v in row] for row in ROWS]
    assert lists(ragged[..., :1]) == [row[:1] for row in ROWS]
    with pytest.raises(ValueError, match="inner ragged dimension"):
        ragged[:, 0]
    with pytest.raises(TypeError):
        ragged["a"]


# ---------------------------------------------------------------------- elementwise
@pytest.mark.parametrize("seed", range(4))
def test_operators_broadcast(seed: int) -> None:
    rows = random_rows(seed)
    ragged, column = tf.ragged.constant(rows, tf.int32, ragged_rank=1), [[1], [2], [3], [4]]
    assert lists(ragged + 1) == [[v + 1 for v in row] for row in rows]
    assert lists(2 - ragged) == [[2 - v for v in row] for row in rows]
    assert lists(ragged * column) == [[v * c for v in row] for row, (c,) in zip(rows, column, strict=True)]
    assert lists(tf.constant(1) + ragged) == lists(np.array(1, np.int32) + ragged) == lists(ragged + 1)
    assert lists(tf.constant(1) < ragged) == [[v > 1 for v in row] for row in rows]
    assert lists(tf.add(y=ragged, x=1)) == lists(tf.add(1, ragged)) == lists(ragged + 1)
    assert lists(tf.cast(dtype=tf.int64, x=ragged)) == rows
    assert lists(ragged < ragged) == [[False] * len(row) for row in rows]
    assert lists(tf.abs(ragged)) == [[abs(v) for v in row] for row in rows]
    assert lists(tf.cast(-ragged, tf.int64)) == [[-v for v in row] for row in rows]
    assert lists(tf.add_n([ragged, ragged, ragged])) == [[3 * v for v in row] for row in rows]
    one = tf.ragged.constant([[10, 20]], tf.int32)
    with pytest.raises(tf.errors.InvalidArgumentError, match="Unable to broadcast"):
        run(tf.ragged.constant([[1, 2, 3]] * 2, tf.int32) + one)
    assert lists(tf.ragged.constant([[1, 2], [3, 4]], tf.int32) + one) == [[11, 22], [13, 24]]


def test_different_partitions_are_refused() -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match="identical ragged splits"):
        run(tf.ragged.map_flat_values(tf.add, tf.ragged.constant([[1], [2]]), tf.ragged.constant([[1, 2], []])))
    with pytest.raises(ValueError, match="with_row_splits_dtype"):
        tf.ragged.constant([[1]]) + tf.ragged.constant([[1]], row_splits_dtype=tf.int32)
    with pytest.raises(TypeError, match="Failed to convert"):
        tf.matmul(tf.ragged.constant([[1.0]]), [[1.0]])
    with pytest.raises(TypeError, match="RaggedTensor"):
        tf.clip_by_value(tf.constant([1.0]), tf.ragged.constant([[1.0]]), 2.0)
    with pytest.raises(TypeError, match="boolean"):
        bool(tf.ragged.constant([[1]]))


# ---------------------------------------------------------------------- joined, taken, repeated
def test_splits_whose_lengths_are_known_to_differ_are_refused() -> None:
    one, other = tf.ragged.constant([[1], []]), tf.ragged.constant([[1], [], [2]])
    with pytest.raises(ValueError, match=r"shapes \(4,\) and \(3,\)|shapes \(3,\) and \(4,\)"):
        tf.ragged.boolean_mask(one, tf.greater(other, 0))
    with pytest.raises(tf.errors.InvalidArgumentError, match="identical"):
        tf.ragged.boolean_mask(one, tf.ragged.constant([[], [True]]))


@pytest.mark.parametrize("seed", range(3))
def test_joining_and_taking(seed: int) -> None:
    a, b = random_rows(seed), random_rows(seed + 50)
    one, other = (tf.ragged.constant(rows, tf.int32, ragged_rank=1) for rows in (a, b))
    assert lists(tf.concat([one, other], 0)) == a + b
    assert lists(tf.concat([one, other], axis=1)) == [x + y for x, y in zip(a, b, strict=True)]
    assert lists(tf.stack([one, other])) == [a, b]
    assert lists(tf.ragged.stack([one, other], axis=1)) == [[x, y] for x, y in zip(a, b, strict=True)]
    assert lists(tf.gather(one, [3, 0, 0])) == [a[3], a[0], a[0]]
    assert lists(tf.tile(one, [2, 2])) == [row * 2 for row in a] * 2
    assert lists(tf.expand_dims(one, 0)) == [a]
    mask = [[v > 0 for v in row] for row in a]
    chosen = tf.ragged.boolean_mask(one, tf.ragged.constant(mask, tf.bool, ragged_rank=1))
    assert lists(chosen) == [[v for v in row if v > 0] for row in a]
    assert (lists(tf.size(one)), lists(tf.rank(one))) == (sum(map(len, a)), 2)
    assert lists(tf.where(one > 0)) == [[i, j] for i, row in enumerate(a) for j, v in enumerate(row) if v > 0]


def test_indices_within_rows() -> None:
    ragged = tf.ragged.constant(ROWS)
    assert lists(tf.batch_gather(ragged, tf.ragged.constant([[2, 0], [], [1], [0, 0]]))) == [[4, 3], [], [5], [9, 9]]
    assert lists(tf.gather_nd(ragged, [[0, 1], [3, 0]])) == [1, 9]
    assert lists(tf.one_hot(tf.ragged.constant([[0], []], tf.int32), 2)) == [[[1.0, 0.0]], []]
    assert lists(tf.squeeze(tf.ragged.constant([[[1], [2]], [[3]]]), axis=2)) == [[1, 2], [3]]
    assert lists(tf.ragged.stack_dynamic_partitions(["a", "b", "c"], [1, 0, 1], 2)) == [[b"b"], [b"a", b"c"]]


# ---------------------------------------------------------------------- reduced
@pytest.mark.parametrize("seed", range(3))
def test_reductions(seed: int) -> None:
    rows = [row or [1] for row in random_rows(seed)]
    ragged = tf.ragged.constant(rows, tf.int32)
    columns = [[row[j] for row in rows if j < len(row)] for j in range(max(map(len, rows)))]
    for reduce, python in ((tf.reduce_sum, sum), (tf.reduce_max, max), (tf.reduce_min, min)):
        assert lists(reduce(ragged, axis=1)) == [python(row) for row in rows]
        assert lists(reduce(ragged, axis=0)) == [python(column) for column in columns]
        assert lists(reduce(ragged)) == python(v for row in rows for v in row)
    assert lists(tf.reduce_mean(ragged, 1)) == [sum(row) / len(row) for row in rows]
    assert lists(tf.reduce_all(ragged > 0, 1)) == [all(v > 0 for v in row) for row in rows]
    assert lists(tf.reduce_any(ragged > 0, 1)) == [any(v > 0 for v in row) for row in rows]
    with pytest.raises(ValueError, match="keepdims"):
        tf.reduce_sum(ragged, 1, keepdims=True)


def test_no_elements() -> None:
    empty = tf.ragged.constant([[], [True]], tf.bool)
    assert lists(tf.reduce_all(empty, 1)) == [True, True]
    assert lists(tf.reduce_any(empty, 1)) == [False, True]
    assert lists(tf.concat([tf.ragged.constant([[], []], tf.int32)] * 2, 1)) == [[], []]
    assert lists(tf.ragged.constant([], tf.int32, ragged_rank=1).to_tensor()) == []


def test_segments() -> None:
    ragged = tf.ragged.constant(ROWS)
    assert lists(tf.math.unsorted_segment_sum(ragged, [0, 1, 0, 1], 3)) == [[4, 6, 4], [9], []]
    assert lists(tf.ragged.segment_ids_to_row_splits([0, 0, 2])) == [0, 2, 2, 3]
    assert lists(tf.ragged.row_splits_to_segment_ids([0, 2, 2, 3])) == [0, 0, 2]


# ---------------------------------------------------------------------- gradients, control flow
def test_gradients_flow_through_partitions() -> None:
    x = tf.constant([1.0, 2.0, 3.0])
    ragged = tf.RaggedTensor.from_row_splits(x, [0, 2, 3])
    assert lists(tf.gradients(tf.reduce_sum(ragged * ragged), x)[0]) == [2.0, 4.0, 6.0]
    assert lists(tf.gradients(tf.reduce_max(ragged, axis=1), x)[0]) == [0.0, 1.0, 1.0]
    assert lists(tf.gradients(ragged.to_tensor() * [[1.0, 2.0]], x)[0]) == [1.0, 2.0, 1.0]
    assert lists(tf.convert_to_tensor(tf.gradients(tf.gather(ragged, [0, 0]).flat_values, x)[0])) == [2.0, 2.0, 0.0]


def test_branches_loops_and_functions() -> None:
    ragged = tf.ragged.constant([[1], [2, 3]])
    assert lists(tf.cond(tf.constant(True), lambda: ragged + 1, lambda: ragged)) == [[2], [3, 4]]
    loop = tf.while_loop(lambda i, _: i < 2, lambda i, r: (i + 1, tf.concat([r, r], 1)), (0, ragged))
    assert lists(loop[1]) == [[1] * 4, [2, 3] * 4]
    assert lists(tf.function(lambda r: r * 2)(ragged)) == [[2], [4, 6]]


# ---------------------------------------------------------------------- text
def test_text_as_rows() -> None:
    assert lists(tf.strings.split(["a b", "", "c"], result_type="RaggedTensor")) == [[b"a", b"b"], [], [b"c"]]
    assert run(tf.strings.split([["a b"], ["c"]])).dense_shape.tolist() == [2, 1, 2]
    assert lists(tf.string_split(["a b", "c"], result_type="RaggedTensor")) == [[b"a", b"b"], [b"c"]]
    assert lists(tf.strings.bytes_split(["é", ""])) == [[b"\xc3", b"\xa9"], []]
    words = tf.ragged.constant([["ab", "é"], ["c"]])
    assert lists(tf.strings.unicode_decode(words, "UTF-8")) == [[[97, 98], [233]], [[99]]]
    assert lists(tf.strings.unicode_split(words, "UTF-8")) == [[[b"a", b"b"], ["é".encode()]], [[b"c"]]]
    points, offsets = tf.strings.unicode_decode_with_offsets("aé😊", "UTF-8")
    assert (lists(points), lists(offsets)) == ([97, 233, 0x1F60A], [0, 1, 3])
    assert lists(tf.strings.unicode_encode([[72, 105], [33, 33]], "UTF-8")) == [b"Hi", b"!!"]
    assert lists(tf.strings.unicode_script(tf.ragged.constant([[97], []], tf.int32))) == [[25], []]
    assert lists(tf.strings.reduce_join(words, axis=1, separator="-")) == ["ab-é".encode(), b"c"]
    assert lists(tf.strings.length(words)) == [[2, 2], [1]]
    assert lists(tf.strings.ngrams(words, 2, pad_values=("<", ">"))) == [
        [b"< ab", "ab é".encode(), "é >".encode()],
        [b"< c", b"c >"],
    ]
    with pytest.raises(ValueError, match="result_type"):
        tf.strings.split(["a"], result_type="list")
    with pytest.raises(ValueError, match="pad_values must be provided"):
        tf.strings.ngrams(words, 2, padding_width=1)


# ---------------------------------------------------------------------- specs, datasets
def elements(dataset: Any) -> list[Any]:
    following = tf.data.make_one_shot_iterator(dataset).get_next()
    found = []
    with tf.Session() as session:
        while True:
            try:
                value = session.run(following)
            except tf.errors.OutOfRangeError:
                return found
            found.append(value.to_list() if isinstance(value, tf.ragged.RaggedTensorValue) else value.tolist())


def test_datasets_of_ragged_tensors() -> None:
    ragged = tf.ragged.constant(DEEP)
    rows = tf.data.Dataset.from_tensor_slices(ragged)
    assert elements(rows) == DEEP
    assert elements(rows.batch(3)) == [DEEP[:3], DEEP[3:]]
    assert elements(tf.data.Dataset.from_tensors(ragged)) == [DEEP]
    assert elements(tf.data.Dataset.from_tensors(ragged).apply(tf.data.experimental.unbatch())) == DEEP
    assert elements(rows.unbatch().unbatch()) == [x for group in DEEP for row in group for x in row]
    assert elements(tf.data.Dataset.from_tensor_slices(tf.ragged.constant(ROWS))) == ROWS
    assert elements(rows.map(lambda r: r[:, :1])) == [[row[:1] for row in group] for group in DEEP]
    spec = tf.data.experimental.get_structure(rows)
    assert spec == tf.RaggedTensorSpec([None, None], tf.int32)
    again = tf.data.experimental.from_variant(tf.data.experimental.to_variant(rows), spec)
    assert elements(again) == DEEP


def test_specs() -> None:
    spec = tf.RaggedTensorSpec([None, None], tf.int32)
    assert spec.is_compatible_with(tf.ragged.constant(ROWS))
    assert not spec.is_compatible_with(tf.ragged.constant(DEEP))
    assert spec.value_type is tf.RaggedTensor
    longer = tf.RaggedTensorSpec([4, None], tf.int32)
    assert longer.most_specific_compatible_type(tf.RaggedTensorSpec([5, None], tf.int32)) == spec
    with pytest.raises(ValueError, match="less than rank"):
        tf.RaggedTensorSpec([2], ragged_rank=1)
    with pytest.raises(ValueError, match="No TypeSpec"):
        spec.most_specific_compatible_type(tf.TensorSpec([]))
    assert tf.SparseTensorSpec([2, None], tf.int64) == tf.data.experimental.SparseTensorStructure(tf.int64, [2, None])
    slices = tf.IndexedSlices(tf.constant([[1.0]]), tf.constant([0], tf.int64))
    assert tf.IndexedSlicesSpec().is_compatible_with(slices)
    assert tf.TensorArraySpec([], tf.int32).is_compatible_with(tf.TensorArray(tf.int32, 2, element_shape=[]))
    dataset = tf.data.Dataset.range(2)
    assert tf.data.DatasetSpec(tf.TensorSpec([], tf.int64)).is_compatible_with(dataset)
    optional = tf.data.experimental.Optional.none_from_structure(spec)
    assert tf.OptionalSpec(spec).is_compatible_with(optional)
    assert isinstance(spec, tf.data.experimental.Structure)
    assert len({spec, tf.RaggedTensorSpec([None, None], tf.int32), longer}) == 2


def test_crosses() -> None:
    crossed = tf.sparse.cross([[["a"]], tf.SparseTensor([[0, 0], [0, 1]], ["b", "c"], [1, 2])])
    assert sorted(run(crossed).values.tolist()) == [b"b_X_a", b"c_X_a"]
    assert (run(tf.sparse.cross_hashed([[["a"]], [[1, 2]]], num_buckets=10)).values < 10).all()
    with pytest.raises(TypeError, match="list"):
        tf.sparse.cross(tf.constant([["a"]]))


def test_version_2() -> None:
    assert lists(tf.compat.v2.strings.split(["a b", "c"])) == [[b"a", b"b"], [b"c"]]
    assert lists(tf.compat.v2.io.decode_raw(["ab", "c"], "uint8", fixed_length=3)) == [[97, 98, 0], [99, 0, 0]]
    assert lists(tf.compat.v2.io.decode_raw(["ab"], "uint8")) == [[97, 98]]
