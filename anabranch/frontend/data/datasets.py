"""`tf.data.Dataset`: sequences of elements, and what can be made of them (WP4.5)."""

from __future__ import annotations

import os
from collections import abc
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from anabranch.core import dtypes
from anabranch.core.nest import Structure
from anabranch.core.trackables import Trackable
from anabranch.core.values import TensorLike
from anabranch.frontend.data import nest
from anabranch.frontend.data.functions import ElementBody, check_predicate, state_body
from anabranch.frontend.data.generators import generator_variant
from anabranch.frontend.data.iterators import Iterator, make_initializable_iterator, make_one_shot_iterator
from anabranch.frontend.data.nested import DatasetComponent, body_of_datasets
from anabranch.frontend.data.options import Options
from anabranch.frontend.data.padding import known_batch, padded_batch_variant
from anabranch.frontend.data.ragged import RaggedComponent
from anabranch.frontend.data.sources import (
    matching_files,
    one_element_variant,
    range_variant,
    slices_variant,
    sparse_slices_variant,
)
from anabranch.frontend.data.statistics import StatsAggregator
from anabranch.frontend.data.structure import (
    Component,
    SparseComponent,
    TensorComponent,
    classes_of,
    component_classes,
    component_makers,
    components_of,
    flat_attrs,
    joint_structure,
    rows_of,
    shapes_of,
    sliced_component_of,
    types_of,
    values_from,
)
from anabranch.frontend.data.variants import dataset_variant, int64_scalar, seed_tensors
from anabranch.graph.building import Argument, apply_op
from anabranch.graph.composite import SparseTensor
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.graph import op_def_of
from anabranch.graph.operation import Tensor
from anabranch.ops import raw


class Dataset(Trackable):
    """A sequence of elements, each a structure (tuples, dicts) of tensors, sparse tensors or datasets.

    The methods add operations to the graph; elements are computed when an iterator asks for them.

    Args:
        variant_tensor: the dataset as a tensor. Programs call `from_tensor_slices`, `from_generator`, `range` and the
            like.
        structure: what an element is.
        options: what `with_options` set.

    Raises:
        nothing

    Example:
        >>> dataset = tf.data.Dataset.range(5).map(lambda x: x * x).batch(2)
        >>> batch = tf.data.make_one_shot_iterator(dataset).get_next()
        >>> sess.run(batch), sess.run(batch)
        (array([0, 1]), array([4, 9]))
    """

    def __init__(self, variant_tensor: Tensor, structure: Structure, options: Options | None = None) -> None:
        self._variant_tensor = variant_tensor
        self._structure = structure
        self._options = options or Options()

    # ------------------------------------------------------------------ what it is
    @property
    def output_classes(self) -> Structure:
        """The structure of classes of an element's components."""
        return classes_of(self._structure)

    @property
    def output_shapes(self) -> Structure:
        """The structure of shapes."""
        return shapes_of(self._structure)

    @property
    def output_types(self) -> Structure:
        """The structure of dtypes."""
        return types_of(self._structure)

    @property
    def _element_structure(self) -> Any:
        return self._structure

    def __repr__(self) -> str:
        return f"<{type(self).__name__} shapes: {self.output_shapes}, types: {self.output_types}>"

    def __iter__(self) -> abc.Iterator[Any]:
        raise RuntimeError(
            "a dataset is walked by an iterator in a session: use make_one_shot_iterator(dataset).get_next()"
        )

    def options(self) -> Options:
        """The options that were given to it."""
        return self._options

    def with_options(self, options: Options) -> Dataset:
        """The same dataset, with options.

        Raises:
            ValueError: they are no `Options`.
        """
        return self._alike(self._variant_tensor, self._structure, self._options.merge(options))

    # ------------------------------------------------------------------ iterators
    def make_one_shot_iterator(self) -> Iterator:
        """An iterator that needs no initializer; see `make_one_shot_iterator`.

        Returns:
            An `Iterator`.

        Raises:
            ValueError: the dataset depends on a variable, a placeholder or a table.

        Example:
            >>> number = tf.data.Dataset.range(3).make_one_shot_iterator().get_next()
            >>> sess.run(number), sess.run(number)
            (np.int64(0), np.int64(1))
        """
        return make_one_shot_iterator(self)

    def make_initializable_iterator(self, shared_name: str | None = None) -> Iterator:
        """An iterator whose `initializer` must be run first; see `make_initializable_iterator`.

        Args:
            shared_name: the name under which other graphs and sessions of the task find the iterator.

        Returns:
            An `Iterator`.

        Raises:
            nothing

        Example:
            >>> count = tf.placeholder(tf.int64, [])
            >>> iterator = tf.data.Dataset.range(count).batch(10).make_initializable_iterator()
            >>> numbers = iterator.get_next()
            >>> sess.run(iterator.initializer, {count: 3})
            >>> sess.run(numbers)
            array([0, 1, 2])
        """
        return make_initializable_iterator(self, shared_name)

    # ------------------------------------------------------------------ sources
    @staticmethod
    def from_tensors(tensors: Structure) -> Dataset:
        """One element: `tensors`, a structure of values."""
        return Dataset(*one_element_variant(tensors))

    @staticmethod
    def from_tensor_slices(tensors: Structure) -> Dataset:
        """The rows of `tensors`, a structure of values with first dimensions alike.

        Args:
            tensors: arrays, lists or tensors of shape [n, ...], or a structure of them with one n.

        Returns:
            A `Dataset` of n elements in the structure of `tensors`.

        Raises:
            ValueError: a component is a scalar, or they differ in their number of rows.

        Example:
            >>> dataset = tf.data.Dataset.from_tensor_slices({"x": [1, 2], "y": [[3], [4]]})
            >>> sess.run(tf.data.make_one_shot_iterator(dataset).get_next())
            {'x': np.int32(1), 'y': array([3], dtype=int32)}
        """
        return Dataset(*slices_variant(tensors))

    @staticmethod
    def from_sparse_tensor_slices(sparse_tensor: SparseTensor) -> Dataset:
        """The rows of a sparse tensor, each as a tuple (indices, values, dense shape).

        Raises:
            TypeError: it is no `SparseTensor`.
        """
        return Dataset(*sparse_slices_variant(sparse_tensor))

    @staticmethod
    def from_generator(
        generator: Callable[..., Any],
        output_types: Structure,
        output_shapes: Structure | None = None,
        args: Sequence[TensorLike] | None = None,
    ) -> Dataset:
        """What a Python generator yields; each walk calls `generator` anew.

        Args:
            generator: returns something iterable; called with the values of `args`.
            output_types: structure of dtypes of what it yields.
            output_shapes: structure of shapes; default: unknown ones.
            args: tuple of tensors.

        Returns:
            A `Dataset`.

        Raises:
            TypeError: `generator` is not callable.
            InvalidArgumentError (in the step): it yields something else; the message shows what.

        Example:
            >>> dataset = tf.data.Dataset.from_generator(lambda: iter([1, 4, 9]), tf.int32, [])
            >>> numbers = tf.data.make_one_shot_iterator(dataset).get_next()
            >>> sess.run(numbers), sess.run(numbers)
            (np.int32(1), np.int32(4))
        """
        return Dataset(*generator_variant(generator, output_types, output_shapes, args))

    @staticmethod
    def range(*args: TensorLike) -> Dataset:
        """int64 scalars: range(stop), range(start, stop) or range(start, stop, step).

        Raises:
            ValueError: another number of arguments.
        """
        return Dataset(*range_variant(*args))

    @staticmethod
    def list_files(file_pattern: TensorLike, shuffle: bool | None = None, seed: int | None = None) -> Dataset:
        """The names of the files that match a pattern, or a list of them; in random order unless `shuffle` is False.

        Raises (in the step):
            InvalidArgumentError: no file matches.
        """
        names, count = matching_files(file_pattern)
        dataset = Dataset.from_tensor_slices(names)
        if shuffle is False:
            return dataset
        return dataset.shuffle(raw.Maximum(raw.Cast(count, DstT=dtypes.int64), int64_scalar(1)), seed=seed)

    @staticmethod
    def zip(datasets: Structure) -> Dataset:
        """The elements of several datasets side by side.

        Args:
            datasets: a structure (tuple, dict) of datasets, which becomes that of the elements.

        Raises:
            TypeError: something in it is no dataset.
        """
        flat = nest.flatten(datasets)
        for dataset in flat:
            if not isinstance(dataset, Dataset):
                hint = " Use a tuple instead of a list." if isinstance(dataset, list) else ""
                raise TypeError(f"The argument to `Dataset.zip()` must be a nested structure of datasets.{hint}")
        structure = nest.pack_sequence_as(datasets, [d._structure for d in flat])
        options = Options()
        for dataset in flat:
            options = options.merge(dataset._options)
        variant = dataset_variant("ZipDataset", structure, input_datasets=[d._variant_tensor for d in flat])
        return Dataset(variant, structure, options)

    # ------------------------------------------------------------------ one dataset after another
    def concatenate(self, dataset: Dataset) -> Dataset:
        """These elements, then those of `dataset`.

        Raises:
            TypeError: the types, or the structures, differ.
        """
        structure = joint_structure(self._structure, dataset._structure)
        made = self._made("ConcatenateDataset", structure, another_dataset=dataset._variant_tensor)
        return made.with_options(dataset._options)

    def repeat(self, count: TensorLike | None = None) -> Dataset:
        """The elements `count` times over; endlessly for None or -1.

        Args:
            count: an integer scalar, or None.

        Returns:
            A `Dataset`.

        Raises:
            nothing

        Example:
            >>> dataset = tf.data.Dataset.range(2).repeat(2).batch(4)
            >>> sess.run(tf.data.make_one_shot_iterator(dataset).get_next())
            array([0, 1, 0, 1])
        """
        return self._made("RepeatDataset", count=int64_scalar(-1 if count is None else count, "count"))

    def take(self, count: TensorLike) -> Dataset:
        """The first `count` elements; all for -1."""
        return self._made("TakeDataset", count=int64_scalar(count, "count"))

    def skip(self, count: TensorLike) -> Dataset:
        """All but the first `count` elements; none for -1."""
        return self._made("SkipDataset", count=int64_scalar(count, "count"))

    def shard(self, num_shards: TensorLike, index: TensorLike) -> Dataset:
        """Every `num_shards`-th element, beginning with number `index`.

        Raises:
            ValueError, InvalidArgumentError: `index` is not in 0 .. num_shards - 1.
        """
        shards, which = int64_scalar(num_shards, "num_shards"), int64_scalar(index, "index")
        return self._made("ShardDataset", num_shards=shards, index=which)

    def cache(self, filename: TensorLike = "") -> Dataset:
        """Keeps the elements of the first walk: in a file beside `filename`, or in memory where it is empty."""
        return self._made("CacheDataset", filename=convert_to_tensor(filename, dtypes.string, name="filename"))

    def shuffle(
        self, buffer_size: TensorLike, seed: int | None = None, reshuffle_each_iteration: bool | None = None
    ) -> Dataset:
        """The elements in random order, each drawn from a buffer of the next `buffer_size`.

        Args:
            buffer_size: an integer scalar, at least 1.
            seed: of the order.
            reshuffle_each_iteration: whether every repetition has another order (the default).

        Returns:
            A `Dataset` of the same elements.

        Raises (in the step):
            InvalidArgumentError: `buffer_size` is less than 1.

        Example:
            >>> dataset = tf.data.Dataset.range(5).shuffle(5).batch(5)
            >>> sorted(sess.run(tf.data.make_one_shot_iterator(dataset).get_next()).tolist())
            [0, 1, 2, 3, 4]
        """
        seeds = seed_tensors(seed)
        reshuffle = True if reshuffle_each_iteration is None else reshuffle_each_iteration
        return self._made(
            "ShuffleDataset",
            buffer_size=int64_scalar(buffer_size, "buffer_size"),
            seed=seeds[0],
            seed2=seeds[1],
            reshuffle_each_iteration=reshuffle,
        )

    def prefetch(self, buffer_size: TensorLike) -> Dataset:
        """The same elements; up to `buffer_size` (None, -1: our choice) are computed ahead in a thread.

        Args:
            buffer_size: an integer scalar.

        Returns:
            A `Dataset` of the same elements.

        Raises:
            nothing

        Example:
            >>> dataset = tf.data.Dataset.range(3).batch(3).prefetch(1)
            >>> sess.run(tf.data.make_one_shot_iterator(dataset).get_next())
            array([0, 1, 2])
        """
        return self._made("PrefetchDataset", buffer_size=int64_scalar(-1 if buffer_size is None else buffer_size))

    # ------------------------------------------------------------------ together
    def batch(self, batch_size: TensorLike, drop_remainder: TensorLike = False) -> Dataset:
        """`batch_size` elements stacked; what is left at the end is a smaller batch, or is dropped.

        Args:
            batch_size: an integer scalar.
            drop_remainder: whether a smaller batch at the end is left out; batches then have a known size.

        Returns:
            A `Dataset`, whose elements have the shapes [batch_size, ...].

        Raises (in the step):
            InvalidArgumentError: elements of one batch differ in shape.

        Example:
            >>> dataset = tf.data.Dataset.range(5).batch(2)
            >>> numbers = tf.data.make_one_shot_iterator(dataset).get_next()
            >>> [sess.run(numbers).tolist() for _ in range(3)]
            [[0, 1], [2, 3], [4]]
        """
        size, drop = int64_scalar(batch_size, "batch_size"), convert_to_tensor(drop_remainder, dtypes.bool)
        known = known_batch(size, drop)
        structure = nest.map_structure(lambda c: c.batched(known), self._structure)
        return self._made("BatchDatasetV2", structure, batch_size=size, drop_remainder=drop)

    def padded_batch(
        self,
        batch_size: TensorLike,
        padded_shapes: Structure,
        padding_values: Structure | None = None,
        drop_remainder: TensorLike = False,
    ) -> Dataset:
        """Like `batch`, for elements that differ in shape: each is padded at its end.

        Args:
            padded_shapes: structure of shapes; None or -1 in one stands for the largest size in the batch.
            padding_values: structure of scalars; default: zeros, empty texts.

        Raises:
            TypeError: a component is a sparse tensor, or a padding value has another dtype.
            ValueError: a padded shape does not fit a component.
        """
        variant, structure = padded_batch_variant(
            self._variant_tensor, self._structure, batch_size, padded_shapes, padding_values, drop_remainder
        )
        return self._alike(variant, structure, self._options)

    def window(
        self,
        size: TensorLike,
        shift: TensorLike | None = None,
        stride: TensorLike = 1,
        drop_remainder: TensorLike = False,
    ) -> Dataset:
        """Datasets of `size` elements, `stride` apart, that begin `shift` (default: `size`) apart."""
        length = int64_scalar(size, "size")
        structure = nest.map_structure(lambda c: DatasetComponent(Dataset, c), self._structure)
        return self._made(
            "WindowDataset",
            structure,
            size=length,
            shift=length if shift is None else int64_scalar(shift, "shift"),
            stride=int64_scalar(stride, "stride"),
            drop_remainder=convert_to_tensor(drop_remainder, dtypes.bool),
        )

    def unbatch(self) -> Dataset:
        """The rows of each element as elements.

        Raises:
            ValueError: a component is a scalar, or they differ in their number of rows.
        """
        return _in_rows(self)._made("UnbatchDataset", rows_of(self._structure))

    def enumerate(self, start: TensorLike = 0) -> Dataset:
        """Each element with its number, an int64 scalar, before it."""
        return Dataset.zip((Dataset.range(start, np.iinfo(np.int64).max), self))

    # ------------------------------------------------------------------ functions
    def map(self, map_func: Callable[..., Any], num_parallel_calls: TensorLike | None = None) -> Dataset:
        """`map_func` of each element.

        Args:
            map_func: builds the graph of the function; a tuple element arrives as several arguments.
            num_parallel_calls: how many calls may run at once; `tf.data.experimental.AUTOTUNE` leaves it to us.

        Returns:
            A `Dataset`, whose elements have the structure that `map_func` returns.

        Raises:
            TypeError: `map_func` returns something that no element can hold.

        Example:
            >>> dataset = tf.data.Dataset.range(3).map(lambda x: x * 10).batch(3)
            >>> sess.run(tf.data.make_one_shot_iterator(dataset).get_next())
            array([ 0, 10, 20])
        """
        body = ElementBody(map_func, "Dataset.map()", self._structure)
        if num_parallel_calls is None:
            return self._with_function("MapDataset", body, body.structure)
        calls = convert_to_tensor(num_parallel_calls, dtypes.int32, name="num_parallel_calls")
        return self._with_function("ParallelMapDataset", body, body.structure, num_parallel_calls=calls)

    def map_with_legacy_function(
        self, map_func: Callable[..., Any], num_parallel_calls: TensorLike | None = None
    ) -> Dataset:
        """The same as `map`."""
        return self.map(map_func, num_parallel_calls)

    def flat_map(self, map_func: Callable[..., Any]) -> Dataset:
        """The elements of the datasets that `map_func` makes of the elements, one dataset after the other.

        Raises:
            TypeError: `map_func` does not return a dataset.
        """
        body = body_of_datasets(map_func, "Dataset.flat_map()", self._structure)
        return self._with_function("FlatMapDataset", body, body.structure.element)

    def interleave(
        self,
        map_func: Callable[..., Any],
        cycle_length: TensorLike = -1,
        block_length: TensorLike = 1,
        num_parallel_calls: TensorLike | None = None,
    ) -> Dataset:
        """Like `flat_map`, with `cycle_length` datasets that take turns, `block_length` elements each.

        Args:
            cycle_length: `tf.data.experimental.AUTOTUNE`: as many as there are processors.
            num_parallel_calls: when given, the datasets compute ahead beside each other; the order stays.
        """
        body = body_of_datasets(map_func, "Dataset.interleave()", self._structure)
        if isinstance(cycle_length, int) and cycle_length == -1:  # `tf.data.experimental.AUTOTUNE`
            cycle_length = os.cpu_count() or 1
        lengths = {"cycle_length": int64_scalar(cycle_length), "block_length": int64_scalar(block_length)}
        if num_parallel_calls is None:
            return self._with_function("InterleaveDataset", body, body.structure.element, **lengths)
        return self._with_function(
            "ParallelInterleaveDatasetV2",
            body,
            body.structure.element,
            **lengths,
            num_parallel_calls=int64_scalar(num_parallel_calls),
        )

    def filter(self, predicate: Callable[..., Any]) -> Dataset:
        """The elements of which `predicate`, a boolean scalar, is true.

        Args:
            predicate: builds the graph of the function; takes an element, returns a boolean scalar.

        Returns:
            A `Dataset` of some of the elements.

        Raises:
            ValueError: `predicate` returns something else.

        Example:
            >>> dataset = tf.data.Dataset.range(6).filter(lambda x: tf.equal(x % 2, 0)).batch(3)
            >>> sess.run(tf.data.make_one_shot_iterator(dataset).get_next())
            array([0, 2, 4])
        """
        body = ElementBody(predicate, "Dataset.filter()", self._structure)
        check_predicate(body, "`predicate`")
        return self._made("FilterDataset", other_arguments=body.captured, predicate=body.function)

    def filter_with_legacy_function(self, predicate: Callable[..., Any]) -> Dataset:
        """The same as `filter`."""
        return self.filter(predicate)

    def reduce(self, initial_state: Structure, reduce_func: Callable[[Any, Any], Any]) -> Structure:
        """The last state of `state = reduce_func(state, element)` over all elements.

        Raises:
            TypeError: `reduce_func` returns another structure or other types than the state's.
        """
        structure, flat = components_of(initial_state)
        body, structure = state_body(reduce_func, "Dataset.reduce()", structure, self._structure, lambda s: s)
        op = apply_op(
            op_def_of("ReduceDataset"),
            {
                "input_dataset": self._variant_tensor,
                "initial_state": flat,
                "other_arguments": body.captured,
                "f": body.function,
                **flat_attrs(structure),
            },
        )
        return values_from(structure, op.outputs)

    def apply(self, transformation_func: Callable[[Dataset], Dataset]) -> Dataset:
        """`transformation_func(self)`.

        Raises:
            TypeError: that is no dataset.
        """
        dataset = transformation_func(self)
        if not isinstance(dataset, Dataset):
            raise TypeError(f"`transformation_func` must return a Dataset, got {dataset!r}.")
        return dataset

    # ------------------------------------------------------------------ building
    def _walked(self) -> Tensor:
        """The variant that an iterator walks: this dataset, with what its options add behind it."""
        wishes = self._options.experimental_stats
        if wishes.aggregator is None:
            return self._variant_tensor
        aggregator: StatsAggregator = wishes.aggregator
        recorded = self._made(
            "SetStatsAggregatorDataset",
            stats_aggregator=aggregator.resource,
            tag=convert_to_tensor(wishes.prefix or "", dtypes.string),
            counter_prefix=convert_to_tensor(wishes.counter_prefix or "", dtypes.string),
        )
        return recorded._variant_tensor

    def _alike(self, variant: Tensor, structure: Structure, options: Options) -> Dataset:
        """What a method makes of this dataset; a family of datasets with methods of its own says another class."""
        return Dataset(variant, structure, options)

    def _made(self, type_name: str, structure: Structure | None = None, **bound: Argument) -> Dataset:
        """The dataset of an operation on this one."""
        structure = self._structure if structure is None else structure
        variant = dataset_variant(type_name, structure, input_dataset=self._variant_tensor, **bound)
        return self._alike(variant, structure, self._options)

    def _with_function(self, type_name: str, body: ElementBody, structure: Structure, **bound: Argument) -> Dataset:
        """The same, for an operation with one function."""
        return self._made(type_name, structure, other_arguments=body.captured, f=body.function, **bound)


def _in_rows(dataset: Dataset) -> Dataset:
    """The dataset with sparse and ragged tensors taken apart into rows: these have a first dimension like tensors."""
    if not any(isinstance(c, SparseComponent | RaggedComponent) for c in nest.flatten(dataset._structure)):
        return dataset

    def rows(*values: TensorLike) -> tuple[Tensor, ...]:
        return tuple(sliced_component_of(value)[1] for leaf in values for value in nest.flatten(leaf))

    return dataset.map(rows)


# ---------------------------------------------------------------------- datasets as elements
def _component_of_dataset(value: object) -> tuple[Component, Tensor] | None:
    return (DatasetComponent(Dataset, value._structure), value._variant_tensor) if isinstance(value, Dataset) else None


component_makers.append(_component_of_dataset)
component_classes[Dataset] = lambda types, shapes: DatasetComponent(Dataset, TensorComponent(types, shapes))
