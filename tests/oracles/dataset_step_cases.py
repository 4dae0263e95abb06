"""Datasets and iterators by their operation types, for `make_step_fixture.py`."""

from __future__ import annotations

import gzip
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np

from tests.oracles.step_cases import Drained, function_of, written


def _types(tf: Any, *dtypes: Any, shapes: Any = None) -> dict[str, Any]:
    types = list(dtypes) or [tf.int64]
    return {"output_types": types, "output_shapes": [[]] * len(types) if shapes is None else shapes}


def _numbers(tf: Any, stop: int = 7) -> Any:
    return tf.raw_ops.RangeDataset(start=np.int64(0), stop=np.int64(stop), step=np.int64(1), **_types(tf))


def _slices(tf: Any, *values: Any) -> Any:
    arrays = [np.asarray(value) for value in values]
    return tf.raw_ops.TensorSliceDataset(components=arrays, output_shapes=[a.shape[1:] for a in arrays])


def _batched(tf: Any, dataset: Any, size: int, types: dict[str, Any]) -> Any:
    return tf.raw_ops.BatchDatasetV2(input_dataset=dataset, batch_size=np.int64(size), drop_remainder=False, **types)


def _elements(tf: Any, dataset: Any, types: Any = None) -> list[Any]:
    """The steps that give all elements."""
    R, types = tf.raw_ops, types or _types(tf)
    iterator = R.IteratorV2(shared_name="", container="", **types)
    made = R.MakeIterator(dataset=dataset, iterator=iterator)
    return [made, Drained(list(R.IteratorGetNextSync(iterator=iterator, **types)))]


def _both(tf: Any, name: str, **arguments: Any) -> list[Any]:
    """The type under its name of today and, with `Experimental` before it, that of version 1."""
    return [getattr(tf.raw_ops, prefix + name)(**arguments) for prefix in ("", "Experimental")]


def _each(tf: Any, datasets: list[Any], types: Any = None) -> list[Any]:
    return [step for dataset in datasets for step in _elements(tf, dataset, types)]


def datasets_that_pass_elements_on(tf: Any) -> list[Any]:
    R, types, given = tf.raw_ops, _types(tf), _numbers(tf, 4)
    one = {"input_dataset": given, **types}
    datasets = [
        *_both(tf, "BytesProducedStatsDataset", tag="t", **one),
        *_both(tf, "LatencyStatsDataset", tag="t", **one),
        *_both(tf, "MaxIntraOpParallelismDataset", max_intra_op_parallelism=np.int64(1), **one),
        *_both(tf, "PrivateThreadPoolDataset", num_threads=np.int64(1), **one),
        *_both(tf, "NonSerializableDataset", **one),
        *_both(tf, "SleepDataset", sleep_microseconds=np.int64(10), **one),
        *_both(tf, "IgnoreErrorsDataset", **one),
        R.ThreadPoolDataset(thread_pool=R.ThreadPoolHandle(num_threads=1, display_name="p", shared_name="p"), **one),
        R.ExperimentalThreadPoolDataset(
            thread_pool=R.ExperimentalThreadPoolHandle(num_threads=1, display_name="q", shared_name="q"), **one
        ),
        R.CacheDataset(filename="", **one),
        R.ModelDataset(**one),
        R.OptimizeDataset(optimizations=np.array([], object), **one),
        R.UnwrapDatasetVariant(input_handle=R.WrapDatasetVariant(input_handle=given)),
        *_both(tf, "AssertNextDataset", transformations=np.array([], object), **one),
        *_both(tf, "ChooseFastestDataset", input_datasets=[given, given], num_experiments=2, **types),
    ]
    return _each(tf, datasets)


def datasets_with_statistics(tf: Any) -> list[Any]:
    R, types, steps = tf.raw_ops, _types(tf), []
    for prefix, version in (("", "V2"), ("Experimental", "")):
        handle = getattr(R, f"{prefix}StatsAggregatorHandle{version}")(shared_name=f"s{version}")
        steps += _elements(
            tf,
            getattr(R, f"{prefix}SetStatsAggregatorDataset")(
                input_dataset=_numbers(tf, 3), stats_aggregator=handle, tag="t", counter_prefix="c", **types
            ),
        )
    return steps


def datasets_in_groups(tf: Any) -> list[Any]:
    R = tf.raw_ops
    rows = _types(tf, shapes=[[None]])
    given = _numbers(tf)
    batched = [
        _batched(tf, given, 3, rows),
        _batched(tf, _numbers(tf, 0), 3, rows),
    ]
    two = _slices(tf, np.float32([[1, np.nan], [2, 3], [4, 5]]), np.array(["a", "", "c"]))
    two_types = _types(tf, tf.float32, tf.string, shapes=[[None, 2], [None]])
    ragged = _batched(tf, given, 3, rows)
    padded = R.PaddedBatchDataset(
        input_dataset=ragged,
        batch_size=np.int64(3),
        padded_shapes=[np.int64([-1])],
        padding_values=[np.int64(-9)],
        output_shapes=[[None, None]],
    )
    narrow = R.PaddedBatchDataset(
        input_dataset=ragged,
        batch_size=np.int64(3),
        padded_shapes=[np.int64([2])],
        padding_values=[np.int64(-9)],
        output_shapes=[[None, 2]],
    )
    whole = _batched(tf, _numbers(tf, 8), 4, rows)
    sliding = _both(
        tf,
        "SlidingWindowDataset",
        input_dataset=given,
        window_size=np.int64(3),
        window_shift=np.int64(2),
        window_stride=np.int64(1),
        **rows,
    )
    old = R.BatchDataset(input_dataset=given, batch_size=np.int64(9), **rows)
    return [
        *_each(tf, [*batched, *sliding], rows),
        *_elements(tf, _batched(tf, two, 2, two_types), two_types),
        *_each(tf, _both(tf, "UnbatchDataset", input_dataset=ragged, **_types(tf))),
        *(
            list(R.DatasetToSingleElement(dataset=each, **_types(tf, shapes=[[None, None]])))
            for each in (padded, narrow)
        ),
        list(R.DatasetToSingleElement(dataset=old, **rows)),
        *_each(tf, _both(tf, "RebatchDataset", input_dataset=whole, num_replicas=np.int64(2), **rows), rows),
        *_elements(tf, _batched(tf, given, 0, rows), rows),
    ]


def datasets_of_sparse_rows(tf: Any) -> list[Any]:
    R, steps = tf.raw_ops, []
    ragged = _batched(tf, _numbers(tf, 5), 2, _types(tf, shapes=[[None]]))
    types = _types(tf, tf.variant, shapes=[[None, None]])
    for dataset in _both(
        tf, "DenseToSparseBatchDataset", input_dataset=ragged, batch_size=np.int64(2), row_shape=np.int64([-1]), **types
    ):
        iterator = R.IteratorV2(shared_name="", container="", **types)
        value = R.IteratorGetNext(iterator=iterator, **types)[0]
        steps += [
            R.MakeIterator(dataset=dataset, iterator=iterator),
            Drained(R.DeserializeSparse(serialized_sparse=value, dtype=tf.int64)),
        ]
    sparse = R.SparseTensorSliceDataset(
        indices=np.int64([[0, 1], [2, 0], [2, 3]]), values=np.float32([1, np.nan, 3]), dense_shape=np.int64([3, 4])
    )
    three = _types(tf, tf.int64, tf.float32, tf.int64, shapes=[[None, 1], [None], [1]])
    return [*steps, *_elements(tf, sparse, three)]


def datasets_of_functions(tf: Any) -> list[Any]:
    R, types, n = tf.raw_ops, _types(tf), np.int64
    given = _numbers(tf, 5)

    @function_of(tf, tf.int64)
    def squared(x: Any) -> Any:
        return x * x

    @function_of(tf, tf.int64)
    def small(x: Any) -> Any:
        return x < 3

    @function_of(tf, tf.int64)
    def repeated(x: Any) -> Any:
        return R.TensorSliceDataset(components=[tf.fill([2], x)], output_shapes=[[]])

    @function_of(tf, tf.int64, tf.int64)
    def summed(state: Any, x: Any) -> Any:
        return state + x, state * 2

    @function_of(tf, tf.int64, tf.int64)
    def added(state: Any, x: Any) -> Any:
        return state + x

    plain = {"input_dataset": given, "other_arguments": [], **types}
    workers = {"num_parallel_calls": n(2)}
    spread = {"f": repeated, "cycle_length": n(2), "block_length": n(1)}
    old = {"sloppy": False, "buffer_output_elements": n(2), "prefetch_input_elements": n(0)}
    rows = _types(tf, shapes=[[None]])
    in_batches = {"other_arguments": [], "batch_size": n(2), "drop_remainder": False, "f": squared, **workers, **rows}
    reduced = R.ReduceDataset(input_dataset=given, initial_state=[n(10)], other_arguments=[], f=added, **types)
    of_none = R.ReduceDataset(
        input_dataset=_numbers(tf, 0), initial_state=[n(10)], other_arguments=[], f=added, **types
    )
    return [
        *_elements(tf, R.ParallelMapDataset(f=squared, num_parallel_calls=2, **plain)),
        *_each(tf, _both(tf, "ScanDataset", f=summed, initial_state=[n(1)], **plain)),
        *_each(tf, _both(tf, "TakeWhileDataset", predicate=small, **plain)),
        *_each(tf, _both(tf, "ParallelInterleaveDataset", **spread, **old, **plain)),
        *_elements(tf, R.ParallelInterleaveDatasetV2(**spread, **workers, **plain)),
        *_each(tf, _both(tf, "MapAndBatchDataset", input_dataset=given, **in_batches), rows),
        list(reduced),
        list(of_none),
    ]


def datasets_by_key(tf: Any) -> list[Any]:
    _R, types, n = tf.raw_ops, _types(tf), np.int64

    @function_of(tf, tf.int64)
    def parity(x: Any) -> Any:
        return x % 2

    @function_of(tf, tf.int64)
    def started(key: Any) -> Any:
        return key * 100

    @function_of(tf, tf.int64, tf.int64)
    def added(state: Any, x: Any) -> Any:
        return state + x

    @function_of(tf, tf.int64)
    def negated(state: Any) -> Any:
        return -state

    @function_of(tf, tf.int64, tf.variant)
    def batched(key: Any, window: Any) -> Any:
        return _batched(tf, window, 9, _types(tf, shapes=[[None]]))

    @function_of(tf, tf.int64)
    def two(key: Any) -> Any:
        return tf.constant(n(2))

    rest = {f"{which}_func_other_arguments": [] for which in ("key", "init", "reduce", "finalize")}
    functions = {"key_func": parity, "init_func": started, "reduce_func": added, "finalize_func": negated}
    by_reducer = _both(tf, "GroupByReducerDataset", input_dataset=_numbers(tf), **rest, **functions, **types)
    rows = _types(tf, shapes=[[None]])
    windows = {f"{which}_func_other_arguments": [] for which in ("key", "reduce", "window_size")}
    functions = {"key_func": parity, "reduce_func": batched, "window_size_func": two}
    by_window = _both(tf, "GroupByWindowDataset", input_dataset=_numbers(tf), **windows, **functions, **rows)
    return [*_each(tf, by_reducer), *_each(tf, by_window, rows)]


def datasets_of_choices(tf: Any) -> list[Any]:
    R, n = tf.raw_ops, np.int64
    types = _types(tf)
    chosen = {
        "selector_input_dataset": _slices(tf, n([0, 1, 1, 0, 1, 1])),
        "data_input_datasets": [_numbers(tf, 2), _numbers(tf, 9)],
    }
    shards = [R.ShardDataset(input_dataset=_numbers(tf), num_shards=n(3), index=n(i), **types) for i in (0, 2, 3)]
    twice = _slices(tf, n([3, 1, 3, 2, 1]))
    texts = _slices(tf, np.array(["b", "", "b", ""]))
    none = R.SamplingDataset(input_dataset=_numbers(tf), rate=np.float32(0), seed=n(1), seed2=n(2), **types)
    all_ = R.SamplingDataset(input_dataset=_numbers(tf), rate=np.float32(1), seed=n(1), seed2=n(2), **types)
    windows = R.WindowDataset(
        input_dataset=_numbers(tf, 4), size=n(2), shift=n(1), stride=n(2), drop_remainder=True, **_types(tf, tf.variant)
    )
    iterator = R.IteratorV2(shared_name="w", container="", **_types(tf, tf.variant))
    window = R.IteratorGetNext(iterator=iterator, **_types(tf, tf.variant))[0]
    rows = _batched(tf, window, 5, _types(tf, shapes=[[None]]))
    first = R.DatasetToSingleElement(dataset=rows, **_types(tf, shapes=[[None]]))
    return [
        *_each(tf, _both(tf, "DirectedInterleaveDataset", **chosen, **types)),
        *_each(tf, shards),
        *_each(tf, _both(tf, "UniqueDataset", input_dataset=twice, **types)),
        *_elements(tf, R.UniqueDataset(input_dataset=texts, **_types(tf, tf.string)), _types(tf, tf.string)),
        *_each(tf, [none, all_]),
        R.MakeIterator(dataset=windows, iterator=iterator),
        Drained(list(first)),
        [R.DatasetCardinality(input_dataset=d) for d in (twice, _numbers(tf, 0), none, shards[1])],
        [R.ExperimentalDatasetCardinality(input_dataset=d) for d in (twice, _numbers(tf, 0), none)],
        R.DatasetToSingleElement(dataset=_numbers(tf, 1), **types),
        R.DatasetToSingleElement(dataset=_numbers(tf, 2), **types),
        R.DatasetToSingleElement(dataset=_numbers(tf, 0), **types),
    ]


def datasets_in_random_order(tf: Any) -> list[Any]:
    """The order is another one on each side; sorted, the elements are the same."""
    R, n, types = tf.raw_ops, np.int64, _types(tf)
    seeds = {"seed": n(1), "seed2": n(2)}
    rows = _types(tf, shapes=[[None]])
    steps = []
    for dataset in (
        R.ShuffleDataset(input_dataset=_numbers(tf), buffer_size=n(3), **seeds, **types),
        R.ShuffleAndRepeatDataset(input_dataset=_numbers(tf), buffer_size=n(9), count=n(2), **seeds, **types),
    ):
        batched = _batched(tf, dataset, 99, rows)
        steps.append(tf.sort(R.DatasetToSingleElement(dataset=batched, **rows)[0]))
    for name in ("RandomDataset", "ExperimentalRandomDataset"):
        endless = getattr(R, name)(**seeds, **types)
        some = R.TakeDataset(input_dataset=endless, count=n(50), **types)
        batched = _batched(tf, some, 99, rows)
        drawn = R.DatasetToSingleElement(dataset=batched, **rows)[0]
        steps.append([tf.shape(drawn), tf.reduce_all((drawn >= 0) & (drawn < 2**32)), tf.reduce_max(drawn) > 2**31])
    return steps


def datasets_of_files(tf: Any) -> list[Any]:
    R, n, text = tf.raw_ops, np.int64, _types(tf, tf.string)
    csv = written("a.csv", b'a,b,c\n1,"x,y",2.5\n,z,nan\n7,"",\n')
    three = _types(tf, tf.int64, tf.float32, shapes=[[], []])
    options = {
        "filenames": [csv],
        "buffer_size": n(9),
        "header": True,
        "field_delim": ",",
        "use_quote_delim": True,
        "na_value": "",
        "select_cols": n([0, 2]),
        "record_defaults": [n([-5]), np.float32([0.5])],
        "compression_type": "",
        "output_shapes": [[], []],
    }
    records = written("records", b"HEADaabbccF")
    packed = written("records.gz", gzip.compress(b"HEADaabbccF", mtime=0))
    fixed = {"header_bytes": n(4), "record_bytes": n(2), "footer_bytes": n(1), "buffer_size": n(0)}
    folder = Path(records).parent
    (folder / "records2").write_bytes(b"")
    names = _both(tf, "MatchingFilesDataset", patterns=[str(folder / "rec*"), str(folder / "none*")])
    database = str(folder / "base.sqlite")
    with sqlite3.connect(database) as connection:
        connection.execute("create table t (a integer, b text, c real)")
        connection.executemany("insert into t values (?, ?, ?)", [(1, "x", 0.5), (2, "", -3.25)])
    connection.close()
    asked = _types(tf, tf.int64, tf.string, tf.float64)
    sql = _both(
        tf,
        "SqlDataset",
        driver_name="sqlite",
        data_source_name=database,
        query="select a, b, c from t order by a",
        **asked,
    )
    target = str(folder / "out.tfrecord")
    content = _slices(tf, np.array(["one", "", "three"]))
    steps = []
    for prefix in ("", "Experimental"):
        path = target + prefix
        write = getattr(R, f"{prefix}DatasetToTFRecord")(input_dataset=content, filename=path, compression_type="GZIP")
        back = R.TFRecordDataset(filenames=[path], compression_type="GZIP", buffer_size=n(0))
        steps += [write, *_elements(tf, back, text)]
    for dataset in names:
        iterator = R.IteratorV2(shared_name="", container="", **text)
        name = R.IteratorGetNext(iterator=iterator, **text)[0]
        steps += [
            R.MakeIterator(dataset=dataset, iterator=iterator),
            Drained(tf.strings.split([name], "/").values[-1:]),
        ]
    return [
        *steps,
        *_each(tf, _both(tf, "CSVDataset", **options), three),
        *_elements(tf, R.FixedLengthRecordDatasetV2(filenames=[records], compression_type="", **fixed), text),
        *_elements(tf, R.FixedLengthRecordDatasetV2(filenames=[packed], compression_type="GZIP", **fixed), text),
        *_each(tf, sql, asked),
    ]


def datasets_of_examples(tf: Any) -> list[Any]:
    R, n = tf.raw_ops, np.int64
    texts = []
    for values in ([1.5, np.nan], [3.0, 4.0], None):
        example = tf.train.Example()
        if values:
            example.features.feature["f"].float_list.value.extend(values)
        example.features.feature["s"].int64_list.value.extend([7] * (len(texts) + 1))
        texts.append(example.SerializeToString(deterministic=True))
    batches = _batched(tf, _slices(tf, np.array(texts, object)), 2, _types(tf, tf.string, shapes=[[None]]))
    types = _types(tf, tf.variant, tf.float32, shapes=[[None, 3], [None, 2]])
    steps = []
    for dataset in _both(
        tf,
        "ParseExampleDataset",
        input_dataset=batches,
        num_parallel_calls=n(1),
        dense_defaults=[np.float32([0.5, -1])],
        sparse_keys=["s"],
        dense_keys=["f"],
        sparse_types=[tf.int64],
        dense_shapes=[[2]],
        **types,
    ):
        iterator = R.IteratorV2(shared_name="", container="", **types)
        value, dense = R.IteratorGetNext(iterator=iterator, **types)
        sparse = R.DeserializeSparse(serialized_sparse=value, dtype=tf.int64)
        steps += [R.MakeIterator(dataset=dataset, iterator=iterator), Drained([sparse, dense])]
    return steps


def datasets_that_are_kept(tf: Any) -> list[Any]:
    R, _n, types = tf.raw_ops, np.int64, _types(tf)
    folder = Path(written("x", b"")).parent
    snapshot = R.SnapshotDataset(input_dataset=_numbers(tf, 4), path=str(folder / "snapshot"), **types)
    cached = R.CacheDataset(input_dataset=_numbers(tf, 4), filename=str(folder / "cache"), **types)
    again = R.DatasetFromGraph(graph_def=R.DatasetToGraph(input_dataset=_numbers(tf, 3)))
    return [
        *_elements(tf, snapshot),
        *_elements(tf, snapshot),
        *_elements(tf, cached),
        *_elements(tf, cached),
        *_elements(tf, again),
    ]


def iterators(tf: Any) -> list[Any]:
    R, types = tf.raw_ops, _types(tf)
    it = R.IteratorV2(shared_name="it", container="", **types)
    text = R.IteratorToStringHandle(resource_handle=it)
    by_name = [getattr(R, f"IteratorFromStringHandle{v}")(string_handle=text, **types) for v in ("", "V2")]
    optional = R.IteratorGetNextAsOptional(iterator=it, **types)
    has = R.OptionalHasValue(optional=optional)
    make = R.MakeIterator(dataset=_numbers(tf, 4), iterator=it)
    return [
        R.IteratorGetNextSync(iterator=it, **types),
        make,
        has,
        R.IteratorGetNextSync(iterator=by_name[0], **types),
        R.OptionalGetValue(optional=R.IteratorGetNextAsOptional(iterator=it, **types), **types),
        R.IteratorGetNext(iterator=by_name[1], **types),
        has,
        R.OptionalGetValue(optional=R.IteratorGetNextAsOptional(iterator=it, **types), **types),
        make,
        Drained(list(R.IteratorGetNext(iterator=it, **types))),
    ]


def iterators_that_resume(tf: Any) -> list[Any]:
    R, types = tf.raw_ops, _types(tf)
    a, b = (R.IteratorV2(shared_name=name, container="", **types) for name in "ab")
    numbers = _numbers(tf, 5)
    moved = R.DeserializeIterator(resource_handle=b, serialized=R.SerializeIterator(resource_handle=a))
    step = R.IteratorGetNextSync(iterator=a, **types)
    return [
        [R.MakeIterator(dataset=numbers, iterator=it) for it in (a, b)],
        step,
        step,
        moved,
        Drained(list(R.IteratorGetNextSync(iterator=b, **types))),
        Drained(list(step)),
    ]


def iterators_without_a_name(tf: Any) -> list[Any]:
    R, types, steps = tf.raw_ops, _types(tf), []
    made = R.AnonymousIteratorV2(**types)
    with tf.control_dependencies([R.MakeIterator(dataset=_numbers(tf, 2), iterator=made.handle)]):
        value = R.IteratorGetNextSync(iterator=made.handle, **types)
    with tf.control_dependencies(list(value)):
        gone = R.DeleteIterator(handle=made.handle, deleter=made.deleter)
    steps.append([list(value), gone])
    cache = R.AnonymousMemoryCache()
    data = R.CacheDatasetV2(input_dataset=_numbers(tf, 3), filename="", cache=cache.handle, **types)
    it = R.AnonymousIterator(**types)
    with tf.control_dependencies([R.MakeIterator(dataset=data, iterator=it)]):
        value = R.IteratorGetNextSync(iterator=it, **types)
    return [*steps, list(value)]


def iterators_of_several_devices(tf: Any) -> list[Any]:
    R, types, n = tf.raw_ops, _types(tf), np.int64
    device = "/job:localhost/replica:0/task:0/device:CPU:0"
    made = R.MultiDeviceIterator(devices=[device, device], shared_name="m", container="", **types)
    started = R.MultiDeviceIteratorInit(dataset=_numbers(tf, 5), multi_device_iterator=made, max_buffer_size=n(4))
    text = R.MultiDeviceIteratorToStringHandle(multi_device_iterator=made)
    found = R.MultiDeviceIteratorFromStringHandle(string_handle=text, **types)
    values = [
        R.MultiDeviceIteratorGetNextFromShard(multi_device_iterator=found, shard_num=i, incarnation_id=n(1), **types)
        for i in (0, 1)
    ]
    return [started, values[0], values[1], values[1], values[0], values[0], values[0], values[1]]
