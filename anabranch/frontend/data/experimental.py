"""`tf.data.experimental`: transformations for `Dataset.apply`, and questions to datasets (WP4.5)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from anabranch.core import dtypes
from anabranch.core.device import DeviceSpec, canonical_name, check_valid
from anabranch.core.dtypes import DTypeLike
from anabranch.core.nest import Structure
from anabranch.core.shapes import ShapeLike, TensorShape
from anabranch.core.values import TensorLike
from anabranch.frontend.data import nest
from anabranch.frontend.data.datasets import Dataset
from anabranch.frontend.data.functions import ElementBody, check_predicate, state_body
from anabranch.frontend.data.nested import DatasetComponent
from anabranch.frontend.data.padding import known_batch
from anabranch.frontend.data.structure import (
    SparseComponent,
    TensorComponent,
    are_compatible,
    components_of,
    flat_attrs,
    values_from,
)
from anabranch.frontend.data.variants import int64_scalar, seed_tensors
from anabranch.frontend.storage.parsing import parse_example
from anabranch.graph.building import apply_op
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.graph import op_def_of
from anabranch.graph.operation import Tensor
from anabranch.ops import raw

#: leaves a buffer size or a degree of parallelism to us
AUTOTUNE: Final = -1
INFINITE_CARDINALITY: Final = -1
UNKNOWN_CARDINALITY: Final = -2

Transformation = Callable[[Dataset], Dataset]


# ---------------------------------------------------------------------- sources
def Counter(start: TensorLike = 0, step: TensorLike = 1, dtype: DTypeLike = dtypes.int64) -> Dataset:
    """Numbers from `start` on by `step`, endlessly."""
    start_tensor, step_tensor = convert_to_tensor(start, dtype), convert_to_tensor(step, dtype)
    return (
        Dataset.from_tensors(0)
        .repeat(None)
        .apply(scan(start_tensor, lambda state, _: (raw.AddV2(state, step_tensor), state)))
    )


class RandomDataset(Dataset):
    """Endless pseudo-random int64 scalars, 0 <= x < 2**32."""

    def __init__(self, seed: int | None = None) -> None:
        structure = TensorComponent(dtypes.int64, TensorShape([]))
        super().__init__(raw.RandomDataset(*seed_tensors(seed), **flat_attrs(structure)), structure)


# ---------------------------------------------------------------------- batches
def map_and_batch(
    map_func: Callable[..., Any],
    batch_size: TensorLike,
    num_parallel_batches: int | None = None,
    drop_remainder: TensorLike = False,
    num_parallel_calls: TensorLike | None = None,
) -> Transformation:
    """`map` and `batch` in one.

    Raises:
        ValueError: both `num_parallel_batches` and `num_parallel_calls` are given.
    """
    if num_parallel_batches is not None and num_parallel_calls is not None:
        raise ValueError("The `num_parallel_batches` and `num_parallel_calls` arguments are mutually exclusive.")

    def transform(dataset: Dataset) -> Dataset:
        calls = 1 if num_parallel_calls is None else num_parallel_calls
        if num_parallel_batches is not None:
            calls = num_parallel_batches * batch_size
        body = ElementBody(map_func, "tf.data.experimental.map_and_batch()", dataset._structure)
        size, drop = int64_scalar(batch_size), convert_to_tensor(drop_remainder, dtypes.bool)
        known = known_batch(size, drop)
        return dataset._with_function(
            "MapAndBatchDataset",
            body,
            nest.map_structure(lambda c: c.batched(known), body.structure),
            batch_size=size,
            num_parallel_calls=int64_scalar(calls),
            drop_remainder=drop,
            preserve_cardinality=True,
        )

    return transform


map_and_batch_with_legacy_function = map_and_batch


def unbatch() -> Transformation:
    """The rows of each element as elements; see `Dataset.unbatch`."""
    return lambda dataset: dataset.unbatch()


def dense_to_sparse_batch(batch_size: TensorLike, row_shape: TensorLike) -> Transformation:
    """Batches of tensors of different shapes as sparse tensors.

    Raises:
        TypeError: an element is no single tensor.
    """

    def transform(dataset: Dataset) -> Dataset:
        component = dataset._structure
        if not isinstance(component, TensorComponent):
            raise TypeError("DenseToSparseDataset requires an input with a single component.")
        shape = TensorShape(row_shape)
        dims = np.array([-1 if d is None else d for d in shape.dims_tuple or ()], np.int64)
        structure = SparseComponent(component.dtype, TensorShape([None]).concatenate(shape))
        return dataset._made(
            "DenseToSparseBatchDataset", structure, batch_size=int64_scalar(batch_size), row_shape=int64_scalar(dims)
        )

    return transform


# ---------------------------------------------------------------------- order
def shuffle_and_repeat(
    buffer_size: TensorLike, count: TensorLike | None = None, seed: int | None = None
) -> Transformation:
    """`shuffle` and `repeat` in one."""

    def transform(dataset: Dataset) -> Dataset:
        seeds = seed_tensors(seed)
        return dataset._made(
            "ShuffleAndRepeatDataset",
            buffer_size=int64_scalar(buffer_size),
            seed=seeds[0],
            seed2=seeds[1],
            count=int64_scalar(-1 if count is None else count),
        )

    return transform


def enumerate_dataset(start: TensorLike = 0) -> Transformation:
    """Each element with its number before it."""
    return lambda dataset: dataset.enumerate(start)


def unique() -> Transformation:
    """Each element once. For single integer and string scalars.

    Raises:
        TypeError: the elements are something else.
    """

    def transform(dataset: Dataset) -> Dataset:
        if dataset.output_types not in (dtypes.int32, dtypes.int64, dtypes.string):
            raise TypeError(
                "`tf.data.experimental.unique()` only supports inputs with a single `tf.int32`, `tf.int64`, or "
                "`tf.string` component."
            )
        return dataset._made("UniqueDataset")

    return transform


def ignore_errors() -> Transformation:
    """Leaves out the elements whose computation fails."""
    return lambda dataset: dataset._made("IgnoreErrorsDataset")


def take_while(predicate: Callable[..., Any]) -> Transformation:
    """The elements before the first of which `predicate` is false."""

    def transform(dataset: Dataset) -> Dataset:
        body = ElementBody(predicate, "tf.data.experimental.take_while()", dataset._structure)
        check_predicate(body, "`predicate`")
        return dataset._made("TakeWhileDataset", other_arguments=body.captured, predicate=body.function)

    return transform


def parallel_interleave(
    map_func: Callable[..., Any],
    cycle_length: TensorLike,
    block_length: TensorLike = 1,
    sloppy: TensorLike = False,
    buffer_output_elements: TensorLike | None = None,
    prefetch_input_elements: TensorLike | None = None,
) -> Transformation:
    """`interleave` whose datasets compute ahead in threads of their own; the order stays, whatever `sloppy` says."""

    def transform(dataset: Dataset) -> Dataset:
        body = ElementBody(map_func, "tf.data.experimental.parallel_interleave()", dataset._structure)
        if not isinstance(body.structure, DatasetComponent):
            raise TypeError("`map_func` must return a `Dataset` object.")
        return dataset._with_function(
            "ParallelInterleaveDataset",
            body,
            body.structure.element,
            cycle_length=int64_scalar(cycle_length),
            block_length=int64_scalar(block_length),
            sloppy=convert_to_tensor(sloppy, dtypes.bool),
            buffer_output_elements=int64_scalar(
                2 * block_length if buffer_output_elements is None else buffer_output_elements
            ),
            prefetch_input_elements=int64_scalar(
                2 * cycle_length if prefetch_input_elements is None else prefetch_input_elements
            ),
        )

    return transform


# ---------------------------------------------------------------------- several datasets
def _directed(selector: Dataset, datasets: list[Dataset]) -> Dataset:
    structure = datasets[0]._structure
    for dataset in datasets[1:]:
        if dataset.output_types != datasets[0].output_types or dataset.output_classes != datasets[0].output_classes:
            raise TypeError("All datasets must have the same type and class.")
        structure = nest.map_structure(lambda a, b: a.most_specific(b), structure, dataset._structure)
    bound = {
        "selector_input_dataset": selector._variant_tensor,
        "data_input_datasets": [d._variant_tensor for d in datasets],
        **flat_attrs(structure),
    }
    return Dataset(apply_op(op_def_of("DirectedInterleaveDataset"), bound).outputs[0], structure)


def choose_from_datasets(datasets: list[Dataset], choice_dataset: Dataset) -> Dataset:
    """The next element of `datasets[i]`, for each `i` in `choice_dataset`.

    Raises:
        TypeError: `choice_dataset` does not hold int64 scalars, or the datasets differ in type.
    """
    if not are_compatible(TensorComponent(dtypes.int64, TensorShape([])), choice_dataset._structure):
        raise TypeError("`choice_dataset` must be a dataset of scalar `tf.int64` tensors.")
    return _directed(choice_dataset, datasets)


def sample_from_datasets(
    datasets: list[Dataset], weights: TensorLike | None = None, seed: int | None = None
) -> Dataset:
    """The next element of one of the datasets, drawn with the probabilities `weights` (a list, a tensor, or a dataset).

    Datasets that have ended are passed over.

    Raises:
        ValueError: the numbers of datasets and weights differ.
    """
    count = len(datasets)
    if weights is None:
        weights = np.full(count, 1.0 / count)
    if not isinstance(weights, Dataset):
        tensor = convert_to_tensor(weights, name="weights")
        if tensor.dtype not in (dtypes.float32, dtypes.float64):
            raise TypeError("`weights` must be convertible to a tensor of `tf.float32` or `tf.float64` elements.")
        if not tensor.shape.is_compatible_with([count]):
            raise ValueError("`weights` must be a vector of length `len(datasets)`.")
        weights = Dataset.from_tensors(tensor).repeat()
    if count == 1:
        return datasets[0]

    def select(chances: Tensor, number: Tensor) -> Tensor:
        place = raw.Div(raw.Cast(number, DstT=dtypes.float64), float(2**32))
        ends = raw.Cumsum(raw.Cast(chances, DstT=dtypes.float64), 0)
        total = raw.Sum(raw.Cast(chances, DstT=dtypes.float64), 0)
        passed = raw.Cast(raw.LessEqual(ends, raw.Mul(place, total)), DstT=dtypes.int64)
        last = raw.Cast(raw.Sub(raw.Size(chances), 1), DstT=dtypes.int64)
        chosen: Tensor = raw.Minimum(raw.Sum(passed, 0), last)
        chosen.set_shape([])
        return chosen

    return _directed(Dataset.zip((weights, RandomDataset(seed))).map(select), datasets)


# ---------------------------------------------------------------------- functions with a state
def scan(initial_state: Structure, scan_func: Callable[[Any, Any], Any]) -> Transformation:
    """`state, output = scan_func(state, element)` for each element; the outputs are the new elements.

    Raises:
        TypeError: `scan_func` does not return a pair, or changes the state's types.
    """

    def transform(dataset: Dataset) -> Dataset:
        structure, flat = components_of(initial_state)

        def state_of(result: Structure) -> Any:
            if not isinstance(result, tuple) or len(result) != 2:
                raise TypeError("The scan function must return a pair comprising the new state and the output value.")
            return result[0]

        body, _ = state_body(scan_func, "tf.data.experimental.scan()", structure, dataset._structure, state_of)
        return dataset._with_function("ScanDataset", body, body.structure[1], initial_state=flat)

    return transform


def group_by_window(
    key_func: Callable[..., Any],
    reduce_func: Callable[[Any, Any], Any],
    window_size: TensorLike | None = None,
    window_size_func: Callable[[Any], Any] | None = None,
) -> Transformation:
    """Groups elements by a key; `reduce_func(key, dataset of a full group)` gives the elements that come out.

    Args:
        key_func: element -> int64 scalar.
        window_size: how many elements make a group full; or `window_size_func`: key -> int64 scalar.

    Raises:
        ValueError: not exactly one of `window_size` and `window_size_func` is given; a key is no int64 scalar.
        TypeError: `reduce_func` does not return a dataset.
    """
    if (window_size is None) == (window_size_func is None):
        raise ValueError("Must pass either window_size or window_size_func.")
    size_of = window_size_func or (lambda _: int64_scalar(window_size))
    number = TensorComponent(dtypes.int64, TensorShape([]))

    def transform(dataset: Dataset) -> Dataset:
        what = "tf.data.experimental.group_by_window()"
        key = ElementBody(lambda *element: _as_key(key_func(*element)), what, dataset._structure)
        size = ElementBody(lambda k: _as_int64(size_of(k)), what, number)
        if not are_compatible(number, key.structure):
            raise ValueError(f"`key_func` must return a single tf.int64 tensor, got {key.structure!r}")
        if not are_compatible(number, size.structure):
            raise ValueError(f"`window_size_func` must return a single tf.int64 scalar tensor, got {size.structure!r}")
        group = DatasetComponent(Dataset, dataset._structure)
        reduce = ElementBody(
            lambda pair_key, pair_group: _reduced(reduce_func, pair_key, pair_group, dataset._structure),
            what,
            number,
            group,
        )
        if not isinstance(reduce.structure, DatasetComponent):
            raise TypeError("`reduce_func` must return a `Dataset` object.")
        return dataset._made(
            "GroupByWindowDataset",
            reduce.structure.element,
            key_func_other_arguments=key.captured,
            reduce_func_other_arguments=reduce.captured,
            window_size_func_other_arguments=size.captured,
            key_func=key.function,
            reduce_func=reduce.function,
            window_size_func=size.function,
        )

    return transform


def _as_key(value: TensorLike) -> Tensor:
    return value if isinstance(value, Tensor) else int64_scalar(value)


def _as_int64(value: TensorLike) -> Tensor:
    tensor = convert_to_tensor(value)
    return tensor if tensor.dtype is dtypes.int64 else convert_to_tensor(raw.Cast(tensor, DstT=dtypes.int64))


def _reduced(function: Callable[..., Any], key: TensorLike, group: Dataset, structure: Structure) -> Any:
    return function(key, Dataset(group._variant_tensor, structure))


class Reducer:
    """What `group_by_reducer` does with the elements of a key: `init_func`, `reduce_func`, `finalize_func`."""

    def __init__(
        self,
        init_func: Callable[[Any], Any],
        reduce_func: Callable[[Any, Any], Any],
        finalize_func: Callable[[Any], Any],
    ) -> None:
        self.init_func = init_func
        self.reduce_func = reduce_func
        self.finalize_func = finalize_func


def group_by_reducer(key_func: Callable[..., Any], reducer: Reducer) -> Transformation:
    """One element for each key: what `reducer` makes of all elements with that key."""

    def reduce(key: TensorLike, group: Dataset) -> Dataset:
        state = group.reduce(reducer.init_func(key), reducer.reduce_func)
        results = reducer.finalize_func(*state) if type(state) is tuple else reducer.finalize_func(state)
        return Dataset.from_tensors(results)

    return group_by_window(key_func, reduce, np.iinfo(np.int64).max)


def bucket_by_sequence_length(
    element_length_func: Callable[..., Any],
    bucket_boundaries: Sequence[int],
    bucket_batch_sizes: Sequence[int],
    padded_shapes: Structure | None = None,
    padding_values: Structure | None = None,
    pad_to_bucket_boundary: bool = False,
    no_padding: bool = False,
    drop_remainder: bool = False,
) -> Transformation:
    """Batches elements of similar length together.

    Args:
        element_length_func: element -> its length, an integer scalar.
        bucket_boundaries: ascending lengths that divide the buckets.
        bucket_batch_sizes: for each bucket its batch size; one more than boundaries.
        padded_shapes, padding_values: as in `padded_batch`; default: the elements' own shapes.
        pad_to_bucket_boundary: pad unknown sizes to the bucket's boundary minus one instead of the longest element.
        no_padding: whether elements are all of one shape in a bucket already.

    Raises:
        ValueError: the numbers of batch sizes and boundaries do not fit.
    """
    if len(bucket_batch_sizes) != len(bucket_boundaries) + 1:
        raise ValueError("len(bucket_batch_sizes) must equal len(bucket_boundaries) + 1")
    sizes = np.array(bucket_batch_sizes, np.int64)
    boundaries = list(bucket_boundaries)
    limits = np.array([*boundaries, np.iinfo(np.int32).max], np.int64)

    def bucket(*element: Structure) -> Tensor:
        length = raw.Cast(convert_to_tensor(element_length_func(*element)), DstT=dtypes.int64)
        passed = raw.Cast(raw.LessEqual(int64_scalar(limits[:-1]), length), DstT=dtypes.int64)
        number: Tensor = raw.Sum(passed, 0)
        number.set_shape([])
        return number

    def size_of(key: Tensor) -> Tensor:
        size: Tensor = raw.GatherV2(int64_scalar(sizes), key, 0)
        return size

    def shapes_for(key: Tensor, shapes: Structure) -> Any:
        if not pad_to_bucket_boundary:
            return shapes
        boundary = raw.Sub(raw.GatherV2(int64_scalar(limits), key, 0), int64_scalar(1))

        def filled(shape: ShapeLike) -> Any:
            dims = TensorShape(shape).dims_tuple or ()
            return raw.Pack([boundary if d is None else int64_scalar(d) for d in dims]) if dims else shape

        return nest.map_structure(filled, shapes)

    def batched(key: Tensor, group: Dataset) -> Dataset:
        size = size_of(key)
        if pad_to_bucket_boundary:
            message = "When pad_to_bucket_boundary=True, elements must have length < max(bucket_boundaries)."
            raw.Assert(raw.Less(key, int64_scalar(len(boundaries))), [convert_to_tensor(message)])
        if no_padding:
            return group.batch(size, drop_remainder=drop_remainder)
        shapes = group.output_shapes if padded_shapes is None else padded_shapes
        return group.padded_batch(size, shapes_for(key, shapes), padding_values, drop_remainder)

    return group_by_window(bucket, batched, window_size_func=size_of)


# ---------------------------------------------------------------------- questions
def cardinality(dataset: Dataset) -> Tensor:
    """The number of elements, an int64 scalar; `INFINITE_CARDINALITY`, or `UNKNOWN_CARDINALITY`."""
    made: Tensor = raw.ExperimentalDatasetCardinality(dataset._variant_tensor)
    return made


def get_single_element(dataset: Dataset) -> Structure:
    """The only element of a dataset.

    Raises:
        TypeError: it is no dataset.
        InvalidArgumentError (in the step): it has none, or more than one.
    """
    if not isinstance(dataset, Dataset):
        raise TypeError("`dataset` must be a `tf.data.Dataset` object.")
    bound = {"dataset": dataset._variant_tensor, **flat_attrs(dataset._structure)}
    return values_from(dataset._structure, apply_op(op_def_of("DatasetToSingleElement"), bound).outputs)


def to_variant(dataset: Dataset) -> Tensor:
    """The variant tensor that stands for a dataset."""
    return dataset._variant_tensor


# ---------------------------------------------------------------------- devices
def prefetch_to_device(device: str, buffer_size: TensorLike | None = None) -> Transformation:
    """Elements are computed ahead and copied into a device's memory, while steps use those before them.

    Args:
        device: the name of a device of the session's, such as ``"/gpu:0"``; it may leave out parts. A step that uses
            elements there copies them no more, one that uses them elsewhere copies them back. Where the session has no
            such device they stay on the host.
        buffer_size: how many are ready at most (and lie in the device's memory); default: the pipeline chooses.

    Raises:
        ValueError: the name is malformed.
    """
    copied = copy_to_device(device)
    return lambda dataset: copied(dataset).prefetch(AUTOTUNE if buffer_size is None else buffer_size)


def copy_to_device(target_device: str, source_device: str = "/cpu:0") -> Transformation:
    """Elements are copied into a device's memory when they are asked for; see `prefetch_to_device`.

    Args:
        source_device: where they are computed; not needed, since that is the host.

    Raises:
        ValueError: a name is malformed.
    """
    check_valid(source_device)
    wanted = canonical_name(target_device)
    if DeviceSpec.from_string(wanted).device_type in (None, "CPU"):
        return lambda dataset: dataset
    return lambda dataset: dataset._made("_CopyToDeviceDataset", target_device=wanted)


# ---------------------------------------------------------------------- what changes nothing here
def latency_stats(tag: str) -> Transformation:
    """The same elements; how long each takes (µs) is recorded under `tag`, where a `StatsAggregator` gathers it."""
    return lambda dataset: dataset._made("LatencyStatsDataset", tag=convert_to_tensor(tag, dtypes.string))


def bytes_produced_stats(tag: str) -> Transformation:
    """The same elements; how many bytes each has is recorded under `tag`, where a `StatsAggregator` gathers it."""
    return lambda dataset: dataset._made("BytesProducedStatsDataset", tag=convert_to_tensor(tag, dtypes.string))


def parse_example_dataset(features: Mapping[str, Any], num_parallel_calls: TensorLike = 1) -> Transformation:
    """Batches of serialized `tf.train.Example`s as dicts of tensors; `features` as for `tf.io.parse_example`."""
    return lambda dataset: dataset.map(lambda serialized: parse_example(serialized, features), num_parallel_calls)
