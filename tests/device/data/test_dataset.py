"""`tf.data` as programs use it."""

from __future__ import annotations

import collections
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anabranch as tf

Dataset = tf.data.Dataset
experimental = tf.data.experimental


def plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return tuple(plain(item) for item in value)
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def elements(dataset: Any, most: int = 40) -> list[Any]:
    following = dataset.make_one_shot_iterator().get_next()
    found = []
    with tf.Session() as session:
        for _ in range(most):
            try:
                found.append(plain(session.run(following)))
            except tf.errors.OutOfRangeError:
                break
    return found


# ------------------------------------------------------------------------------------------------ structures
def test_structures_of_elements() -> None:
    Pair = collections.namedtuple("Pair", "left right")  # noqa: PYI024 (what programs of that time use)
    value = {"b": np.arange(3.0), "a": (np.arange(6).reshape(3, 2), ["x", "y", "z"]), "c": Pair([1, 2, 3], np.ones(3))}
    dataset = Dataset.from_tensor_slices(value)
    assert dataset.output_types["b"] is tf.float64
    assert dataset.output_types["a"] == (tf.int64, tf.string)
    assert dataset.output_shapes["a"][0].as_list() == [2]
    assert dataset.output_classes["c"].left is tf.Tensor
    first = elements(dataset)[0]
    assert first["a"] == ([0, 1], b"x")
    assert (first["b"], first["c"]) == (0.0, (1, 1.0))
    swapped = dataset.map(lambda d: Pair(d["c"].right, {"n": d["a"][0]}))
    assert elements(swapped)[2] == (1.0, {"n": [4, 5]})


def test_a_list_is_a_tensor_but_a_returned_list_is_a_tuple() -> None:
    assert elements(Dataset.from_tensors([1, 2])) == [[1, 2]]
    assert elements(Dataset.from_tensors(([1, 2], 3))) == [([1, 2], 3)]
    assert elements(Dataset.range(2).map(lambda x: [x, -x])) == [(0, 0), (1, -1)]


def test_a_tuple_arrives_as_arguments_and_a_dict_whole() -> None:
    pairs = Dataset.zip((Dataset.range(3), (Dataset.range(3, 6), Dataset.range(6, 9))))
    assert elements(pairs.map(lambda a, b: a + b[0] * b[1])) == [18, 29, 42]
    assert elements(Dataset.zip({"k": Dataset.range(2)}).map(lambda d: d["k"] + 1)) == [1, 2]


def test_sparse_tensors_in_elements() -> None:
    sparse = tf.SparseTensor([[0, 0], [1, 2], [2, 1]], [1, 2, 3], [3, 3])
    dataset = Dataset.from_tensor_slices({"s": sparse, "n": [10, 20, 30]})
    assert dataset.output_classes["s"] is tf.SparseTensor
    dense = dataset.map(lambda d: tf.sparse.to_dense(d["s"]) + d["n"])
    assert elements(dense) == [[11, 10, 10], [20, 20, 22], [30, 33, 30]]
    batched = dataset.batch(2).map(lambda d: tf.sparse.to_dense(d["s"]))
    assert elements(batched) == [[[1, 0, 0], [0, 0, 2]], [[0, 3, 0]]]
    again = dataset.batch(3).unbatch().map(lambda d: tf.sparse.to_dense(d["s"]))
    assert elements(again) == [[1, 0, 0], [0, 0, 2], [0, 3, 0]]
    rows = Dataset.from_sparse_tensor_slices(sparse).map(lambda i, v, s: v)
    assert elements(rows) == [[1], [2], [3]]


def test_static_shapes() -> None:
    numbers = Dataset.from_tensor_slices(np.zeros((10, 4)))
    assert numbers.batch(3).output_shapes.as_list() == [None, 4]
    assert numbers.batch(3, drop_remainder=True).output_shapes.as_list() == [3, 4]
    assert numbers.padded_batch(3, [None]).output_shapes.as_list() == [None, None]
    assert numbers.padded_batch(3, [6], drop_remainder=True).output_shapes.as_list() == [3, 6]
    assert numbers.concatenate(Dataset.from_tensors(np.zeros(5))).output_shapes.as_list() == [None]
    assert numbers.repeat().shuffle(3).make_one_shot_iterator().get_next().shape.as_list() == [4]
    assert tf.data.get_output_shapes(numbers).as_list() == [4]
    assert tf.data.get_output_types(numbers) is tf.float64
    assert tf.data.get_output_classes(numbers) is tf.Tensor


# ------------------------------------------------------------------------------------------------ transformations
def test_a_chain() -> None:
    dataset = Dataset.range(20).filter(lambda x: tf.equal(x % 2, 0)).map(lambda x: x * 10).skip(1).take(7)
    assert elements(dataset.batch(3)) == [[20, 40, 60], [80, 100, 120], [140]]
    assert elements(dataset.enumerate(5).take(2)) == [(5, 20), (6, 40)]
    assert elements(dataset.shard(3, 1)) == [40, 100]
    assert elements(dataset.concatenate(Dataset.range(2))) == [20, 40, 60, 80, 100, 120, 140, 0, 1]
    assert elements(dataset.repeat(2).take(9))[6:] == [140, 20, 40]


def test_windows_are_datasets() -> None:
    windows = Dataset.range(7).window(3, shift=2)
    assert windows.output_types is tf.int64
    assert windows.output_classes is Dataset
    assert elements(windows.flat_map(lambda w: w.batch(3))) == [[0, 1, 2], [2, 3, 4], [4, 5, 6], [6]]
    kept = Dataset.range(7).window(3, shift=1, stride=2, drop_remainder=True)
    assert elements(kept.flat_map(lambda w: w.batch(3))) == [[0, 2, 4], [1, 3, 5], [2, 4, 6]]
    pairs = Dataset.zip((Dataset.range(4), Dataset.range(4, 8))).window(2)
    assert elements(pairs.flat_map(lambda a, b: Dataset.zip((b.batch(2), a)))) == [([4, 5], 0), ([6, 7], 2)]
    sums = Dataset.range(6).window(2).map(lambda w: w.reduce(np.int64(0), lambda a, b: a + b))
    assert elements(sums) == [1, 5, 9]


def test_interleaved_as_the_documents_say() -> None:
    def six(x: Any) -> Any:
        return Dataset.from_tensors(x).repeat(6)

    dataset = Dataset.range(1, 6).interleave(six, cycle_length=2, block_length=4)
    expected = [1] * 4 + [2] * 4 + [1] * 2 + [2] * 2 + [3] * 4 + [4] * 4 + [3] * 2 + [4] * 2 + [5] * 4 + [5] * 2
    assert elements(dataset) == expected
    parallel = Dataset.range(1, 6).interleave(six, cycle_length=2, block_length=4, num_parallel_calls=2)
    assert elements(parallel) == expected


def test_reduce() -> None:
    with tf.Session() as session:
        assert session.run(Dataset.range(5).reduce(np.int64(0), lambda s, x: s + x)) == 10
        count, total = session.run(Dataset.range(5).reduce((0, np.int64(1)), lambda s, x: (s[0] + 1, s[1] * (x + 1))))
        assert (count, total) == (5, 120)
        grown = Dataset.range(3).reduce(np.zeros(1), lambda s, _: tf.concat([s, s], 0))
        assert grown.shape.as_list() == [None]
        assert session.run(grown).shape == (8,)


def test_seeds() -> None:
    def order(seed: int | None, graph_seed: int | None) -> list[int]:
        with tf.Graph().as_default():
            tf.set_random_seed(graph_seed)
            return elements(Dataset.range(20).shuffle(20, seed=seed))

    assert order(1, None) == order(1, None) != order(2, None)
    assert order(None, 7) == order(None, 7) != order(None, 8)
    assert order(None, None) != order(None, None)
    fixed = elements(Dataset.range(9).shuffle(9, 3, reshuffle_each_iteration=False).repeat(2))
    assert fixed[:9] == fixed[9:]


def test_a_cache_is_filled_once(tmp_path: Path) -> None:
    calls: list[int] = []

    def counted(x: Any) -> Any:
        calls.append(int(x))
        return x

    source = Dataset.range(3).map(lambda x: tf.py_func(counted, [x], tf.int64))
    for cached in (source.cache(), source.cache(str(tmp_path / "cache"))):
        calls.clear()
        assert elements(cached.repeat(3)) == [0, 1, 2] * 3
        assert calls == [0, 1, 2]


# ------------------------------------------------------------------------------------------------ functions
def test_functions_use_what_is_outside() -> None:
    variable = tf.Variable(10, dtype=tf.int64)
    fed = tf.placeholder(tf.int64, [])
    large = tf.constant(np.arange(1000))
    dataset = Dataset.range(3).map(lambda x: x + variable + fed + large[500])
    iterator = dataset.make_initializable_iterator()
    following = iterator.get_next()
    with tf.Session() as session:
        session.run(variable.initializer)
        session.run(iterator.initializer, {fed: 1000})
        assert session.run(following) == 1510
        session.run(variable.assign(20))
        assert session.run(following) == 1521


def test_functions_change_variables() -> None:
    count = tf.Variable(0)

    def counted(x: Any) -> Any:
        with tf.control_dependencies([count.assign_add(1)]):
            return tf.identity(x)

    iterator = Dataset.range(5).map(counted).make_initializable_iterator()
    following = iterator.get_next()
    with tf.Session() as session:
        session.run([count.initializer, iterator.initializer])
        session.run(following)
        session.run(following)
        assert session.run(count) == 2


def test_control_flow_products_and_random_numbers_in_functions() -> None:
    def function(x: Any) -> Any:
        y = tf.cond(x > 1, lambda: x * 100, lambda: -x)
        z = tf.while_loop(lambda i, _: i < x, lambda i, s: (i + 1, s + i), (tf.constant(0, tf.int64), y))[1]
        return z, tf.reduce_sum(tf.matmul(tf.ones([2, 3]), tf.ones([3, 2]))), tf.random_uniform([3])

    found = elements(Dataset.range(4).map(function))
    assert [f[:2] for f in found] == [(0, 12.0), (-1, 12.0), (201, 12.0), (303, 12.0)]
    assert found[0][2] != found[1][2]


def test_functions_of_texts() -> None:
    lines = Dataset.from_tensor_slices(["a b", "c d e", ""])
    words = lines.flat_map(lambda s: Dataset.from_tensor_slices(tf.string_split([s]).values))
    assert elements(words) == [b"a", b"b", b"c", b"d", b"e"]
    assert elements(words.map(lambda w: w + "!").batch(2)) == [[b"a!", b"b!"], [b"c!", b"d!"], [b"e!"]]


def test_datasets_within_functions() -> None:
    outer = Dataset.range(3)
    dataset = Dataset.range(2).flat_map(lambda x: outer.map(lambda y: x * 10 + y).batch(3))
    assert elements(dataset) == [[0, 1, 2], [10, 11, 12]]


def test_a_function_that_is_out_of_range_ends_the_dataset() -> None:
    def stop(x: Any) -> Any:
        if x == 3:
            raise StopIteration
        return x

    for calls in (None, 2):
        mapped = Dataset.range(9).map(lambda x: tf.py_func(stop, [x], tf.int64), calls)
        assert elements(mapped.map(lambda x: x))[:3] == [0, 1, 2]


def test_large_elements_are_computed_by_one_compiled_program() -> None:
    images = Dataset.from_tensors(np.full((300, 300), 2.0, np.float32)).repeat(3)
    assert elements(images.map(lambda x: tf.reduce_sum(tf.exp(x) - tf.exp(x) + x))) == [180000.0] * 3


# ------------------------------------------------------------------------------------------------ generators
def test_generators() -> None:
    def pairs(count: Any, scale: Any) -> Any:
        for i in range(count):
            yield {"n": i, "v": np.full(i, scale)}

    types, shapes = {"n": tf.int32, "v": tf.float64}, {"n": [], "v": [None]}
    dataset = Dataset.from_generator(pairs, types, shapes, args=(3, tf.constant(2.5, tf.float64)))
    assert dataset.output_shapes["v"].as_list() == [None]
    assert elements(dataset) == [{"n": 0, "v": []}, {"n": 1, "v": [2.5]}, {"n": 2, "v": [2.5, 2.5]}]
    assert elements(dataset.map(lambda d: d["n"]).repeat(2)) == [0, 1, 2, 0, 1, 2]


def test_a_generator_of_ranges() -> None:
    assert elements(Dataset.from_generator(lambda: iter([range(2), range(3)]), tf.int64)) == [[0, 1], [0, 1, 2]]


def test_generators_are_closed() -> None:
    closed = threading.Event()

    def endless() -> Any:
        try:
            while True:
                yield 1
        finally:
            closed.set()

    assert elements(Dataset.from_generator(endless, tf.int32, []).take(2)) == [1, 1]
    assert closed.is_set()


# ------------------------------------------------------------------------------------------------ files
def test_files(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{name}.txt").write_text(f"{name}1\n{name}2\n")
        with tf.python_io.TFRecordWriter(str(tmp_path / f"{name}.rec"), "GZIP") as writer:
            for i in range(3):
                writer.write(f"{name}{i}".encode())
    names = Dataset.list_files(str(tmp_path / "*.txt"), shuffle=False)
    assert elements(names) == [str(tmp_path / "a.txt").encode(), str(tmp_path / "b.txt").encode()]
    assert sorted(elements(Dataset.list_files(str(tmp_path / "*.txt")))) == elements(names)
    assert elements(names.flat_map(tf.data.TextLineDataset)) == [b"a1", b"a2", b"b1", b"b2"]
    records = [str(tmp_path / "a.rec"), str(tmp_path / "b.rec")]
    assert elements(tf.data.TFRecordDataset(records, "GZIP")) == [b"a0", b"a1", b"a2", b"b0", b"b1", b"b2"]
    turns = tf.data.TFRecordDataset(records, "GZIP", num_parallel_reads=2)
    assert elements(turns) == [b"a0", b"b0", b"a1", b"b1", b"a2", b"b2"]
    (tmp_path / "fixed").write_bytes(b"H1122F")
    fixed = tf.data.FixedLengthRecordDataset(str(tmp_path / "fixed"), 2, 1, 1)
    assert elements(fixed.map(lambda r: tf.decode_raw(r, tf.uint8))) == [[49, 49], [50, 50]]


def test_examples_from_records(tmp_path: Path) -> None:
    path = str(tmp_path / "examples")
    with tf.python_io.TFRecordWriter(path) as writer:
        for i in range(5):
            feature = {"n": tf.train.Feature(int64_list=tf.train.Int64List(value=[i]))}
            writer.write(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())
    spec = {"n": tf.FixedLenFeature([], tf.int64)}
    one = tf.data.TFRecordDataset(path).map(lambda s: tf.parse_single_example(s, spec)["n"])
    assert elements(one) == [0, 1, 2, 3, 4]
    many = tf.data.TFRecordDataset(path).batch(2).apply(experimental.parse_example_dataset(spec))
    assert elements(many) == [{"n": [0, 1]}, {"n": [2, 3]}, {"n": [4]}]


def test_rows_shorter_than_the_columns_are_refused_where_types_are_inferred(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match="has a row of 2 fields, fewer than there are columns"):
        experimental.make_csv_dataset(str(path), 1, column_names=["a", "b", "c"])


@pytest.mark.parametrize("name", ["take", "skip", "repeat"])
def test_a_count_is_one_number(name: str) -> None:
    with pytest.raises(ValueError, match="Shape must be rank 0 but is rank 1: argument 'count'"):
        getattr(Dataset.range(3), name)([1, 2])


def test_fields_in_quotes_may_hold_line_ends(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b'id,text\r\n1,"two\nlines"\r\n2,"a ""word"""\r\n3,"one, two"\r\n')
    rows = experimental.CsvDataset(str(path), [tf.int32, ""], header=True)
    assert elements(rows) == [(1, b"two\nlines"), (2, b'a "word"'), (3, b"one, two")]
    (batch,) = elements(experimental.make_csv_dataset(str(path), 3, num_epochs=1, shuffle=False))
    assert batch["text"] == [b"two\nlines", b'a "word"', b"one, two"]


def test_rows_of_csv_files(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("id,name,score\n1,ann,0.5\n2,,1.5\n3,carl,\n")
    rows = experimental.CsvDataset([str(path)], [tf.int32, "nobody", 9.0], header=True)
    assert elements(rows) == [(1, b"ann", 0.5), (2, b"nobody", 1.5), (3, b"carl", 9.0)]
    some = experimental.CsvDataset([str(path)], [tf.int32, 9.0], header=True, select_cols=[0, 2])
    assert elements(some) == [(1, 0.5), (2, 1.5), (3, 9.0)]
    batches = experimental.make_csv_dataset(str(path), 2, label_name="id", num_epochs=1, shuffle=False)
    first, second = elements(batches)
    assert first == ({"name": [b"ann", b""], "score": [0.5, 1.5]}, [1, 2])
    assert second == ({"name": [b"carl"], "score": [0.0]}, [3])
    with pytest.raises(ValueError, match="one of the columns"):
        experimental.make_csv_dataset(str(path), 2, label_name="none")


# ------------------------------------------------------------------------------------------------ iterators
def test_one_iterator_for_several_datasets() -> None:
    train, test = Dataset.range(3), Dataset.range(100, 102)
    iterator = tf.data.Iterator.from_structure(train.output_types, train.output_shapes)
    following = iterator.get_next()
    start_training, start_testing = iterator.make_initializer(train), iterator.make_initializer(test)
    with tf.Session() as session:
        for _ in range(2):
            session.run(start_training)
            assert [session.run(following) for _ in range(3)] == [0, 1, 2]
            session.run(start_testing)
            assert [session.run(following) for _ in range(2)] == [100, 101]


def test_a_fed_handle_chooses_the_iterator() -> None:
    train, test = Dataset.range(9).make_one_shot_iterator(), Dataset.range(50, 52).make_initializable_iterator()
    handle = tf.placeholder(tf.string, [])
    following = tf.data.Iterator.from_string_handle(handle, tf.int64, []).get_next()
    with tf.Session() as session:
        training, testing = session.run([train.string_handle(), test.string_handle()])
        session.run(test.initializer)
        assert session.run(following, {handle: training}) == 0
        assert session.run(following, {handle: testing}) == 50
        assert session.run(following, {handle: training}) == 1
        assert session.run(following, {handle: testing}) == 51
        with pytest.raises(tf.errors.OutOfRangeError, match="End of sequence"):
            session.run(following, {handle: testing})


def test_an_element_is_taken_once_in_a_step() -> None:
    one = Dataset.range(9).make_one_shot_iterator()
    value, other = one.get_next(), one.get_next()
    with tf.Session() as session:
        a, b, c = session.run([value, value * 2, value + 0])
        assert (a, b, c) == (0, 0, 0)
        assert sorted(session.run([value, other])) == [1, 2]


def test_sessions_have_iterators_of_their_own() -> None:
    following = Dataset.range(9).make_one_shot_iterator().get_next()
    with tf.Session() as first, tf.Session() as second:
        assert [first.run(following), first.run(following), second.run(following)] == [0, 1, 0]


def test_many_threads_share_an_iterator() -> None:
    following = Dataset.range(200).map(lambda x: x + 1, 2).prefetch(4).make_one_shot_iterator().get_next()
    found: list[int] = []
    with tf.Session() as session:

        def work() -> None:
            for _ in range(50):
                found.append(int(session.run(following)))  # noqa: PERF401 (a list may grow in several threads)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert sorted(found) == list(range(1, 201))


def test_training_from_a_pipeline() -> None:
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(200, 3)).astype(np.float32)
    labels = inputs @ np.array([[1], [-2], [3]], np.float32)
    dataset = Dataset.from_tensor_slices((inputs, labels)).shuffle(200, seed=1).repeat().batch(20).prefetch(1)
    x, y = dataset.make_one_shot_iterator().get_next()
    weights = tf.get_variable("w", [3, 1])
    loss = tf.reduce_mean(tf.square(tf.matmul(x, weights) - y))
    train = tf.train.GradientDescentOptimizer(0.2).minimize(loss)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for _ in range(60):
            _, value = session.run([train, loss])
        assert value < 1e-4
        np.testing.assert_allclose(session.run(weights)[:, 0], [1, -2, 3], atol=0.02)


# ------------------------------------------------------------------------------------------------ experimental
def test_transformations_to_apply() -> None:
    numbers = Dataset.range(6)
    assert elements(numbers.apply(experimental.map_and_batch(lambda x: x * 2, 4))) == [[0, 2, 4, 6], [8, 10]]
    assert elements(numbers.batch(4).apply(experimental.unbatch())) == [0, 1, 2, 3, 4, 5]
    assert elements(numbers.apply(experimental.enumerate_dataset())) == [(i, i) for i in range(6)]
    assert elements(numbers.map(lambda x: x % 3).apply(experimental.unique())) == [0, 1, 2]
    assert elements(numbers.apply(experimental.take_while(lambda x: x < 3))) == [0, 1, 2]
    assert sorted(elements(numbers.apply(experimental.shuffle_and_repeat(9, 2, 1)))) == [
        0,
        0,
        1,
        1,
        2,
        2,
        3,
        3,
        4,
        4,
        5,
        5,
    ]
    assert elements(numbers.apply(experimental.scan(np.int64(0), lambda s, x: (s + x, s + x)))) == [0, 1, 3, 6, 10, 15]
    assert elements(experimental.Counter(5, -2).take(3)) == [5, 3, 1]
    assert elements(numbers.apply(experimental.prefetch_to_device("/cpu:0"))) == [0, 1, 2, 3, 4, 5]
    twice = experimental.parallel_interleave(lambda x: Dataset.from_tensors(x).repeat(2), cycle_length=2)
    assert elements(Dataset.range(4).apply(twice)) == [0, 1, 0, 1, 2, 3, 2, 3]


def test_what_map_and_batch_does_with_errors() -> None:
    def fails(x: Any) -> Any:
        if x == 1:
            raise StopIteration
        return x

    apply = experimental.map_and_batch(lambda x: tf.py_func(fails, [x], tf.int64), 2, num_parallel_calls=2)
    following = Dataset.range(5).apply(apply).make_one_shot_iterator().get_next()
    with tf.Session() as session:
        with pytest.raises(tf.errors.InvalidArgumentError, match="produced OutOfRangeError"):
            session.run(following)
        assert [session.run(following).tolist() for _ in range(2)] == [[2, 3], [4]]


def test_groups_and_buckets() -> None:
    by_parity = experimental.group_by_window(lambda x: x % 2, lambda key, group: group.batch(3), 3)
    assert elements(Dataset.range(8).apply(by_parity)) == [[0, 2, 4], [1, 3, 5], [6], [7]]
    reducer = experimental.Reducer(lambda _: np.int64(0), lambda s, x: s + x, lambda s: s)
    assert elements(Dataset.range(6).apply(experimental.group_by_reducer(lambda x: x % 2, reducer))) == [6, 9]
    ragged = Dataset.from_generator(lambda: iter([[1], [1, 2, 3, 4], [5], [6, 7], [8, 9, 10]]), tf.int32, [None])
    buckets = experimental.bucket_by_sequence_length(lambda s: tf.shape(s)[0], [3], [2, 2])
    assert elements(ragged.apply(buckets)) == [[[1], [5]], [[1, 2, 3, 4], [8, 9, 10, 0]], [[6, 7]]]
    bounded = experimental.bucket_by_sequence_length(
        lambda s: tf.shape(s)[0], [3, 6], [2, 2, 2], pad_to_bucket_boundary=True
    )
    assert elements(ragged.take(3).apply(bounded)) == [[[1, 0], [5, 0]], [[1, 2, 3, 4, 0]]]


def test_several_datasets() -> None:
    one, two = Dataset.range(3), Dataset.range(10, 13)
    choices = Dataset.from_tensor_slices(np.array([0, 1, 1, 0]))
    assert elements(experimental.choose_from_datasets([one, two], choices)) == [0, 10, 11, 1]
    drawn = elements(experimental.sample_from_datasets([one.repeat(), two.repeat()], [0.9, 0.1], seed=3), 40)
    assert 1 <= sum(x >= 10 for x in drawn) <= 12
    assert sorted(elements(experimental.sample_from_datasets([one, two]))) == [0, 1, 2, 10, 11, 12]


def test_questions() -> None:
    counts = {
        3: Dataset.range(3),
        experimental.INFINITE_CARDINALITY: Dataset.range(3).repeat(),
        experimental.UNKNOWN_CARDINALITY: Dataset.range(3).filter(lambda x: x > 1),
        2: Dataset.range(7).batch(4),
        6: Dataset.range(3).repeat(2).map(lambda x: x).prefetch(1),
    }
    with tf.Session() as session:
        for count, dataset in counts.items():
            assert session.run(experimental.cardinality(dataset)) == count
        assert session.run(experimental.get_single_element(Dataset.range(4).batch(4))).tolist() == [0, 1, 2, 3]


def test_optionals() -> None:
    iterator = Dataset.range(2).make_initializable_iterator()
    optional = experimental.get_next_as_optional(iterator)
    has, value = optional.has_value(), optional.get_value()
    with tf.Session() as session:
        session.run(iterator.initializer)
        assert session.run([has, value]) == [True, 0]
        assert session.run([has, value]) == [True, 1]
        assert not session.run(has)
        made = experimental.Optional.from_value({"a": 3})
        assert session.run(made.get_value()) == {"a": 3}
        none = experimental.Optional.none_from_structure(made.value_structure)
        assert not session.run(none.has_value())


def test_options() -> None:
    options = tf.data.Options()
    options.experimental_deterministic = False
    options.experimental_optimization.map_fusion = True
    dataset = Dataset.range(3).with_options(options)
    assert dataset.options().experimental_optimization.map_fusion
    assert elements(dataset.map(lambda x: x)) == [0, 1, 2]
    with pytest.raises(AttributeError, match="no option 'nonsense'"):
        options.nonsense = 1


def test_names_of_old_programs() -> None:
    data = tf.contrib.data
    assert elements(Dataset.range(7).apply(data.batch_and_drop_remainder(3))) == [[0, 1, 2], [3, 4, 5]]
    assert elements(data.Dataset.range(2)) == [0, 1]


def test_a_graph_with_a_pipeline_can_be_written_and_read() -> None:
    dataset = Dataset.range(5).map(lambda x: x * 3).batch(2)
    tf.identity(dataset.make_one_shot_iterator().get_next(), name="batch")
    message = tf.get_default_graph().as_graph_def()
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(message, name="")
        with tf.Session() as session:
            following = graph.get_tensor_by_name("batch:0")
            assert [session.run(following).tolist() for _ in range(3)] == [[0, 3], [6, 9], [12]]
