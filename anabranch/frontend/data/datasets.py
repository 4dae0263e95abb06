"""`tf.data.Dataset`: sequences of elements, and what can be made of them (WP4.5)."""

from __future__ import annotations

from collections import abc
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from anabranch.core import dtypes
from anabranch.core.attrs import FuncAttr
from anabranch.core.nest import Structure
from anabranch.core.shapes import TensorShape
from anabranch.core.values import TensorLike
from anabranch.frontend.data import nest
from anabranch.frontend.data.functions import ElementBody, copied_by_value, state_body
from anabranch.frontend.data.generators import generator_variant
from anabranch.frontend.data.iterators import Iterator
from anabranch.frontend.data.options import Options
from anabranch.frontend.data.padding import check_padded, known_batch, padded_shape, padding_tensors
from anabranch.frontend.data.structure import (
    Component,
    SparseComponent,
    TensorComponent,
    are_compatible,
    classes_of,
    component_classes,
    component_makers,
    components_of,
    flat_attrs,
    shapes_of,
    sliced_component_of,
    types_of,
    values_from,
)
from anabranch.frontend.framework import get_seed
from anabranch.graph.building import Argument, apply_op
from anabranch.graph.composite import SparseTensor
from anabranch.graph.constants import constant_value_as_shape
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.function_graph import FunctionGraph
from anabranch.graph.graph import get_default_graph, op_def_of
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw


class Dataset:
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
        return Dataset(self._variant_tensor, self._structure, self._options.merge(options))

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
        return self._make_one_shot_iterator()

    def _make_one_shot_iterator(self) -> Iterator:
        graph = get_default_graph()
        body = FunctionGraph("make_dataset", graph)
        try:
            body.outputs = [copied_by_value(self._variant_tensor, body)]
        except ValueError as error:
            raise ValueError(
                "Failed to create a one-shot iterator. `Dataset.make_one_shot_iterator()` does not support datasets "
                "that capture stateful objects (variables, tables) or placeholders; use "
                f"make_initializable_iterator() for them. (Original error: {error})"
            ) from None
        factory = FuncAttr(graph.add_function(body.name, body))
        resource = raw.OneShotIterator(dataset_factory=factory, **flat_attrs(self._structure))
        return Iterator._of(resource, None, self._structure)

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
        return self._make_initializable_iterator(shared_name)

    def _make_initializable_iterator(self, shared_name: str | None = None) -> Iterator:
        resource = raw.IteratorV2(container="", shared_name=shared_name or "", **flat_attrs(self._structure))
        initializer = raw.MakeIterator(self._variant_tensor, resource)
        return Iterator._of(resource, initializer, self._structure)

    # ------------------------------------------------------------------ sources
    @staticmethod
    def from_tensors(tensors: Structure) -> Dataset:
        """One element: `tensors`, a structure of values."""
        structure, flat = components_of(tensors)
        return Dataset(_op("TensorDataset", None, components=flat, **_component_attrs(structure)), structure)

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
        wholes, flat = components_of(tensors, sliced_component_of)
        rows = TensorShape([None])
        for component in nest.flatten(wholes):
            if component.shapes.ndims == 0:
                raise ValueError("Unbatching a tensor is only supported for rank >= 1")
            rows = rows.merge_with(component.shapes[:1])
        structure = nest.map_structure(lambda c: c.unbatched(), wholes)
        return Dataset(_op("TensorSliceDataset", None, components=flat, **_component_attrs(structure)), structure)

    @staticmethod
    def from_sparse_tensor_slices(sparse_tensor: SparseTensor) -> Dataset:
        """The rows of a sparse tensor, each as a tuple (indices, values, dense shape).

        Raises:
            TypeError: it is no `SparseTensor`.
        """
        if not isinstance(sparse_tensor, SparseTensor):
            raise TypeError(f"`sparse_tensor` must be a `tf.SparseTensor` object. Was {sparse_tensor!r}.")
        shape = sparse_tensor.get_shape()
        rank = None if shape.ndims is None else shape.ndims - 1
        structure = (
            TensorComponent(dtypes.int64, TensorShape([None, rank])),
            TensorComponent(sparse_tensor.dtype, TensorShape([None])),
            TensorComponent(dtypes.int64, TensorShape([rank])),
        )
        variant = raw.SparseTensorSliceDataset(sparse_tensor.indices, sparse_tensor.values, sparse_tensor.dense_shape)
        return Dataset(variant, structure)

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
        if not 1 <= len(args) <= 3:
            raise ValueError(f"Invalid `args`: {args}. Expected 1 to 3 positional arguments.")
        start, stop, step = (0, args[0], 1) if len(args) == 1 else (args[0], args[1], args[2] if args[2:] else 1)
        structure = TensorComponent(dtypes.int64, TensorShape([]))
        numbers = {"start": start, "stop": stop, "step": step}
        return Dataset(_op("RangeDataset", structure, **{k: _int64(v, k) for k, v in numbers.items()}), structure)

    @staticmethod
    def list_files(file_pattern: TensorLike, shuffle: bool | None = None, seed: int | None = None) -> Dataset:
        """The names of the files that match a pattern, or a list of them; in random order unless `shuffle` is False.

        Raises (in the step):
            InvalidArgumentError: no file matches.
        """
        patterns = convert_to_tensor(file_pattern, dtypes.string, name="file_pattern")
        names = raw.MatchingFiles(patterns)
        count = raw.Size(names)
        message = convert_to_tensor(b"No files matched pattern: ")
        check = raw.Assert(raw.Greater(count, 0), [message, patterns])
        graph = get_default_graph()
        with graph.control_dependencies([check]):
            names = raw.Identity(names)
        dataset = Dataset.from_tensor_slices(names)
        if shuffle is False:
            return dataset
        return dataset.shuffle(raw.Maximum(raw.Cast(count, DstT=dtypes.int64), _int64(1)), seed=seed)

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
        variant = _op("ZipDataset", structure, input_datasets=[d._variant_tensor for d in flat])
        return Dataset(variant, structure, options)

    # ------------------------------------------------------------------ one dataset after another
    def concatenate(self, dataset: Dataset) -> Dataset:
        """These elements, then those of `dataset`.

        Raises:
            TypeError: the types, or the structures, differ.
        """
        try:
            nest.assert_same_structure(self._structure, dataset._structure)
        except ValueError as error:
            raise TypeError(f"Two datasets to concatenate have different types, namely structures: {error}") from None
        for one, other in zip(nest.flatten(self._structure), nest.flatten(dataset._structure), strict=True):
            if type(one) is not type(other) or one.types != other.types:
                raise TypeError(
                    "Two datasets to concatenate have different types "
                    f"{self.output_types} and {dataset.output_types}, or classes"
                )
        structure = nest.map_structure(lambda a, b: a.most_specific(b), self._structure, dataset._structure)
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
        return self._made("RepeatDataset", count=_int64(-1 if count is None else count, "count"))

    def take(self, count: TensorLike) -> Dataset:
        """The first `count` elements; all for -1."""
        return self._made("TakeDataset", count=_int64(count, "count"))

    def skip(self, count: TensorLike) -> Dataset:
        """All but the first `count` elements; none for -1."""
        return self._made("SkipDataset", count=_int64(count, "count"))

    def shard(self, num_shards: TensorLike, index: TensorLike) -> Dataset:
        """Every `num_shards`-th element, beginning with number `index`.

        Raises:
            ValueError, InvalidArgumentError: `index` is not in 0 .. num_shards - 1.
        """
        shards, which = _int64(num_shards, "num_shards"), _int64(index, "index")
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
            buffer_size=_int64(buffer_size, "buffer_size"),
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
        return self._made("PrefetchDataset", buffer_size=_int64(-1 if buffer_size is None else buffer_size))

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
        size, drop = _int64(batch_size, "batch_size"), convert_to_tensor(drop_remainder, dtypes.bool)
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
        size, drop = _int64(batch_size, "batch_size"), convert_to_tensor(drop_remainder, dtypes.bool)
        components = nest.flatten(self._structure)
        if any(not isinstance(c, TensorComponent) for c in components):
            raise TypeError("Batching of padded sparse tensors is not currently supported")
        shapes = [padded_shape(s) for s in nest.flatten_up_to(self._structure, padded_shapes)]
        fills = padding_tensors(padding_values, self._structure)
        known = known_batch(size, drop)
        flat = []
        for component, shape in zip(components, shapes, strict=True):
            static = constant_value_as_shape(shape)
            check_padded(component.shape, static)
            flat.append(TensorComponent(component.dtype, TensorShape([known]).concatenate(static)))
        structure = nest.pack_sequence_as(self._structure, flat)
        variant = apply_op(
            op_def_of("PaddedBatchDatasetV2"),
            {
                "input_dataset": self._variant_tensor,
                "batch_size": size,
                "padded_shapes": shapes,
                "padding_values": fills,
                "drop_remainder": drop,
                "output_shapes": [c.shape for c in flat],
            },
        ).outputs[0]
        return Dataset(variant, structure, self._options)

    def window(
        self,
        size: TensorLike,
        shift: TensorLike | None = None,
        stride: TensorLike = 1,
        drop_remainder: TensorLike = False,
    ) -> Dataset:
        """Datasets of `size` elements, `stride` apart, that begin `shift` (default: `size`) apart."""
        length = _int64(size, "size")
        structure = nest.map_structure(DatasetComponent, self._structure)
        return self._made(
            "WindowDataset",
            structure,
            size=length,
            shift=length if shift is None else _int64(shift, "shift"),
            stride=_int64(stride, "stride"),
            drop_remainder=convert_to_tensor(drop_remainder, dtypes.bool),
        )

    def unbatch(self) -> Dataset:
        """The rows of each element as elements.

        Raises:
            ValueError: a component is a scalar, or they differ in their number of rows.
        """
        rows = TensorShape([None])
        for component in nest.flatten(self._structure):
            shape = (
                component.shapes if isinstance(component, TensorComponent | SparseComponent) else component.flat_shape
            )
            if shape.ndims == 0:
                raise ValueError("Cannot unbatch an input with scalar components.")
            rows = rows.merge_with(TensorShape([None]) if shape.ndims is None else shape[:1])
        structure = nest.map_structure(lambda c: c.unbatched(), self._structure)
        return _in_rows(self)._made("UnbatchDataset", structure)

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
        body = _dataset_body(map_func, "Dataset.flat_map()", self._structure)
        return self._with_function("FlatMapDataset", body, body.structure.element)

    def interleave(
        self,
        map_func: Callable[..., Any],
        cycle_length: TensorLike,
        block_length: TensorLike = 1,
        num_parallel_calls: TensorLike | None = None,
    ) -> Dataset:
        """Like `flat_map`, with `cycle_length` datasets that take turns, `block_length` elements each.

        Args:
            num_parallel_calls: when given, the datasets compute ahead beside each other; the order stays.
        """
        body = _dataset_body(map_func, "Dataset.interleave()", self._structure)
        lengths = {"cycle_length": _int64(cycle_length), "block_length": _int64(block_length)}
        if num_parallel_calls is None:
            return self._with_function("InterleaveDataset", body, body.structure.element, **lengths)
        return self._with_function(
            "ParallelInterleaveDatasetV2",
            body,
            body.structure.element,
            **lengths,
            num_parallel_calls=_int64(num_parallel_calls),
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
        variant = _op(
            "FilterDataset",
            self._structure,
            input_dataset=self._variant_tensor,
            other_arguments=body.captured,
            predicate=body.function,
        )
        return Dataset(variant, self._structure, self._options)

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
    def _made(self, type_name: str, structure: Structure | None = None, **bound: Argument) -> Dataset:
        """The dataset of an operation on this one."""
        structure = self._structure if structure is None else structure
        variant = _op(type_name, structure, input_dataset=self._variant_tensor, **bound)
        return Dataset(variant, structure, self._options)

    def _with_function(self, type_name: str, body: ElementBody, structure: Structure, **bound: Argument) -> Dataset:
        """The same, for an operation with one function."""
        return self._made(type_name, structure, other_arguments=body.captured, f=body.function, **bound)


# ---------------------------------------------------------------------- helpers
def _in_rows(dataset: Dataset) -> Dataset:
    """The dataset with sparse tensors taken apart into rows, so that they have a first dimension like tensors."""
    if not any(isinstance(c, SparseComponent) for c in nest.flatten(dataset._structure)):
        return dataset

    def rows(*values: TensorLike) -> tuple[Tensor, ...]:
        return tuple(sliced_component_of(value)[1] for leaf in values for value in nest.flatten(leaf))

    return dataset.map(rows)


def _op(type_name: str, structure: Structure, **bound: Argument) -> Tensor:
    """The variant of a new dataset operation; `structure` of its elements, where its attributes tell it."""
    if structure is not None:
        bound.update(flat_attrs(structure))
    op: Operation = apply_op(op_def_of(type_name), bound)
    return op.outputs[0]


def _component_attrs(structure: Structure) -> dict[str, Any]:
    return {"output_shapes": flat_attrs(structure)["output_shapes"]}


def _int64(value: TensorLike, name: str | None = None) -> Tensor:
    return convert_to_tensor(value, dtypes.int64, name=name)


def seed_tensors(seed: TensorLike) -> tuple[Tensor, Tensor]:
    """The two seeds of an operation as int64 scalars; both zero: drawn anew."""
    if isinstance(seed, Tensor):
        graph_seed, _ = get_seed(0)
        return _int64(graph_seed, "seed"), seed if seed.dtype is dtypes.int64 else raw.Cast(seed, DstT=dtypes.int64)
    one, two = get_seed(seed)
    first, second = one or 0, two or 0
    if one is not None and first == 0 and second == 0:
        second = 2**31 - 1
    return _int64(first, "seed"), _int64(second, "seed2")


def check_predicate(body: ElementBody, what: str) -> None:
    """Raises ValueError unless a function returns a boolean scalar."""
    wanted = TensorComponent(dtypes.bool, TensorShape([]))
    if not are_compatible(wanted, body.structure):
        raise ValueError(f"{what} return type must be convertible to a scalar boolean tensor. Was {body.structure!r}.")


def _dataset_body(function: Callable[..., Any], what: str, structure: Structure) -> ElementBody:
    body = ElementBody(function, what, structure)
    if not isinstance(body.structure, DatasetComponent):
        raise TypeError(f"the function passed to {what} must return a `Dataset` object, got {body.structure!r}")
    return body


# ---------------------------------------------------------------------- datasets as elements
class DatasetComponent(Component):
    """A dataset as a component of an element: `element` is the structure of its elements."""

    def __init__(self, element: Structure, shape: TensorShape | None = None) -> None:
        self.element = element
        self._shape = TensorShape([]) if shape is None else shape

    @property
    def flat_type(self) -> Any:
        return dtypes.variant

    @property
    def flat_shape(self) -> TensorShape:
        return self._shape

    def from_tensor(self, tensor: Tensor) -> Dataset:
        return Dataset(tensor, self.element)

    @property
    def classes(self) -> Any:
        return Dataset

    @property
    def types(self) -> Any:
        return types_of(self.element)

    @property
    def shapes(self) -> Any:
        return shapes_of(self.element)

    def batched(self, size: int | None) -> Component:
        return DatasetComponent(self.element, TensorShape([size]).concatenate(self._shape))

    def unbatched(self) -> Component:
        return DatasetComponent(self.element, self._shape[1:])

    def is_compatible_with(self, other: Component) -> bool:
        return isinstance(other, DatasetComponent) and are_compatible(self.element, other.element)

    def most_specific(self, other: Component) -> Component:
        assert isinstance(other, DatasetComponent)
        element = nest.map_structure(lambda a, b: a.most_specific(b), self.element, other.element)
        return DatasetComponent(element, self._shape)


def _component_of_dataset(value: object) -> tuple[Component, Tensor] | None:
    return (DatasetComponent(value._structure), value._variant_tensor) if isinstance(value, Dataset) else None


component_makers.append(_component_of_dataset)
component_classes[Dataset] = lambda types, shapes: DatasetComponent(TensorComponent(types, shapes))
