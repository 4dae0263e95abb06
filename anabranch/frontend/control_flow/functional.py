"""Functions over the elements of tensors: map_fn, scan, foldl, foldr (§3.4, WP4.5)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, overload

from anabranch.core import nest
from anabranch.core.nest import Structure
from anabranch.core.shapes import TensorShape
from anabranch.core.values import PassedOn, TensorLike
from anabranch.frontend.control_flow.tensor_array import TensorArray
from anabranch.frontend.control_flow.while_loop import while_loop
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.graph import get_default_graph
from anabranch.graph.operation import Tensor
from anabranch.ops import raw


def _count(tensors: list[Tensor]) -> Any:
    """The number of elements: an int where it is known."""
    for tensor in tensors:
        if tensor.shape.ndims == 0:
            what = "must be a tensor" if len(tensors) == 1 else "must be tensors"
            which = "not a scalar" if len(tensors) == 1 else "not scalars"
            raise ValueError(f"elems {what} of one or more dimensions, {which}: {tensor.name} has none")
        if tensor.shape.dims_tuple and tensor.shape.dims_tuple[0] is not None:
            return tensor.shape.dims_tuple[0]
    return raw.StridedSlice(raw.Shape(tensors[0]), [0], [1], [1], shrink_axis_mask=1)


def _arrays(tensors: list[Tensor], count: TensorLike) -> list[TensorArray]:
    first = tensors[0].shape[:1]
    for tensor in tensors[1:]:
        first = first.merge_with(tensor.shape[:1])
    return [TensorArray(t.dtype, size=count, infer_shape=True, element_shape=t.shape[1:]).unstack(t) for t in tensors]


def _flat(structure: Structure) -> list[Tensor]:
    return [convert_to_tensor(v) for v in nest.flatten(structure)]


def _check(fn: Callable[..., Any]) -> None:
    if not callable(fn):
        raise TypeError("fn must be callable.")


def _stacked(arrays: list[TensorArray], count: TensorLike) -> list[Tensor]:
    results = [array.stack() for array in arrays]
    for result in results:
        if result.shape.ndims is not None:
            result.set_shape(TensorShape([count if isinstance(count, int) else None]).concatenate(result.shape[1:]))
    return results


@overload
def map_fn(
    fn: Callable[[Any], Tensor],
    elems: Structure,
    dtype: Structure = ...,
    parallel_iterations: int | None = ...,
    back_prop: bool = ...,
    swap_memory: bool = ...,
    infer_shape: bool = ...,
    name: str | None = ...,
) -> Tensor: ...
@overload
def map_fn(
    fn: Callable[[Any], Any], elems: Structure, dtype: Structure = ..., *args: PassedOn, **kwargs: PassedOn
) -> nest.Structure: ...
def map_fn(
    fn: Callable[[Any], Any],
    elems: Structure,
    dtype: Structure | None = None,
    parallel_iterations: int | None = None,
    back_prop: bool = True,
    swap_memory: bool = False,
    infer_shape: bool = True,
    name: str | None = None,
) -> nest.Structure:
    """Applies `fn` to each row of `elems`, and stacks what it returns.

    Args:
        fn: called with one row (in the structure of `elems`).
        elems: a tensor of shape [n, ...], or a structure of tensors with one n.
        dtype: structure of dtypes of what `fn` returns; default: as `elems`.
        parallel_iterations, back_prop, swap_memory: see `while_loop`.
        infer_shape: whether all rows of the result must have one shape.
        name: of the operation.

    Returns:
        The results of `fn`, stacked: tensors of shape [n, ...], in the structure of `dtype`.

    Raises:
        TypeError: `fn` is not callable, or returns another structure or dtype than `dtype` says.
        ValueError: `elems` has no rows.

    Example:
        >>> sess.run(tf.map_fn(lambda row: row * row[0], tf.constant([[1, 2], [3, 4]])))
        array([[ 1,  2],
               [ 9, 12]], dtype=int32)
    """
    _check(fn)
    with get_default_graph().name_scope(name or "map"):
        tensors = _flat(elems)
        count = _count(tensors)
        sources = _arrays(tensors, count)
        like = elems if dtype is None else dtype
        kinds = [t.dtype for t in tensors] if dtype is None else nest.flatten(dtype)
        results = [TensorArray(k, size=count, infer_shape=infer_shape) for k in kinds]

        def body(i: Tensor, arrays: list[TensorArray]) -> Any:
            given = (
                nest.pack_sequence_as(elems, [s.read(i) for s in sources])
                if nest.is_nested(elems)
                else sources[0].read(i)
            )
            got = fn(given)
            nest.assert_same_structure(like, got)
            flat = [convert_to_tensor(v) for v in nest.flatten(got)]
            return raw.AddV2(i, 1), [a.write(i, v) for a, v in zip(arrays, flat, strict=True)]

        _, results = while_loop(
            lambda i, _: raw.Less(i, count),
            body,
            (0, results),
            parallel_iterations=parallel_iterations or 10,
            back_prop=back_prop,
            swap_memory=swap_memory,
            maximum_iterations=count,
        )
        stacked = _stacked(results, count)
        return nest.pack_sequence_as(like, stacked) if nest.is_nested(like) else stacked[0]


@overload
def scan(
    fn: Callable[[Any, Any], Tensor],
    elems: Structure,
    initializer: Structure = ...,
    parallel_iterations: int = ...,
    back_prop: bool = ...,
    swap_memory: bool = ...,
    infer_shape: bool = ...,
    reverse: bool = ...,
    name: str | None = ...,
) -> Tensor: ...
@overload
def scan(fn: Callable[[Any, Any], Any], elems: Structure, *args: PassedOn, **kwargs: PassedOn) -> nest.Structure: ...
def scan(
    fn: Callable[[Any, Any], Any],
    elems: Structure,
    initializer: Structure | None = None,
    parallel_iterations: int = 10,
    back_prop: bool = True,
    swap_memory: bool = False,
    infer_shape: bool = True,
    reverse: bool = False,
    name: str | None = None,
) -> nest.Structure:
    """All intermediate results of `accumulator = fn(accumulator, row)`, stacked.

    Args:
        fn: called with the accumulator and one row of `elems`; returns the next accumulator.
        initializer: structure of the first accumulator; default: the first row, which is then the first result.
        reverse: whether to go from the last row to the first.

    Raises:
        TypeError: `fn` is not callable, or returns another structure than the accumulator's.
    """
    _check(fn)
    with get_default_graph().name_scope(name or "scan"):
        folding = _Folding(fn, elems, initializer, reverse)
        kinds = [t.dtype for t in folding.start]
        arrays = [TensorArray(k, size=folding.count, infer_shape=infer_shape) for k in kinds]
        if initializer is None:
            arrays = [a.write(folding.position(0), v) for a, v in zip(arrays, folding.start, strict=True)]

        def body(i: Tensor, state: list[Tensor], arrays: list[TensorArray]) -> Any:
            position = folding.position(i)
            new = folding.step(position, state, check_types=True)
            return raw.AddV2(i, 1), new, [a.write(position, v) for a, v in zip(arrays, new, strict=True)]

        _, _, arrays = while_loop(
            lambda i, *_: raw.Less(i, folding.count),
            body,
            (folding.first, folding.start, arrays),
            parallel_iterations=parallel_iterations,
            back_prop=back_prop,
            swap_memory=swap_memory,
            maximum_iterations=folding.count,
        )
        return folding.packed(_stacked(arrays, folding.count))


@overload
def foldl(
    fn: Callable[[Any, Any], Tensor],
    elems: Structure,
    initializer: Structure = ...,
    parallel_iterations: int = ...,
    back_prop: bool = ...,
    swap_memory: bool = ...,
    name: str | None = ...,
) -> Tensor: ...
@overload
def foldl(fn: Callable[[Any, Any], Any], elems: Structure, *args: PassedOn, **kwargs: PassedOn) -> nest.Structure: ...
def foldl(
    fn: Callable[[Any, Any], Any],
    elems: Structure,
    initializer: Structure | None = None,
    parallel_iterations: int = 10,
    back_prop: bool = True,
    swap_memory: bool = False,
    name: str | None = None,
) -> nest.Structure:
    """The last `accumulator = fn(accumulator, row)`, over the rows of `elems` from first to last.

    Args:
        fn: takes an accumulator and a row, returns the next accumulator, of the first one's structure, dtypes, shapes.
        elems: a tensor [n, ...], or a nested structure of them with one n.
        initializer: the first accumulator, a tensor or a nested structure; default: the first row.
        parallel_iterations, back_prop, swap_memory: see `while_loop`.

    Raises:
        TypeError: `fn` is not callable, or what it returns differs in dtype.
        ValueError: what it returns differs in structure or shape.
    """
    return _fold(fn, elems, initializer, parallel_iterations, back_prop, swap_memory, name or "foldl", reverse=False)


@overload
def foldr(
    fn: Callable[[Any, Any], Tensor],
    elems: Structure,
    initializer: Structure = ...,
    parallel_iterations: int = ...,
    back_prop: bool = ...,
    swap_memory: bool = ...,
    name: str | None = ...,
) -> Tensor: ...
@overload
def foldr(fn: Callable[[Any, Any], Any], elems: Structure, *args: PassedOn, **kwargs: PassedOn) -> nest.Structure: ...
def foldr(
    fn: Callable[[Any, Any], Any],
    elems: Structure,
    initializer: Structure | None = None,
    parallel_iterations: int = 10,
    back_prop: bool = True,
    swap_memory: bool = False,
    name: str | None = None,
) -> nest.Structure:
    """Like `foldl`, over the rows from last to first; without an initializer it starts with the last row."""
    return _fold(fn, elems, initializer, parallel_iterations, back_prop, swap_memory, name or "foldr", reverse=True)


def _fold(
    fn: Callable[..., Any],
    elems: Structure,
    initializer: Structure,
    parallel: int,
    back_prop: bool,
    swap: bool,
    name: str,
    reverse: bool,
) -> Any:
    _check(fn)
    with get_default_graph().name_scope(name):
        folding = _Folding(fn, elems, initializer, reverse)

        def body(i: Tensor, state: list[Tensor]) -> Any:
            return raw.AddV2(i, 1), folding.step(folding.position(i), state)

        _, state = while_loop(
            lambda i, _: raw.Less(i, folding.count),
            body,
            (folding.first, folding.start),
            parallel_iterations=parallel,
            back_prop=back_prop,
            swap_memory=swap,
            maximum_iterations=folding.count,
        )
        return folding.packed(state)


class _Folding:
    """What `scan` and the folds share: rows, the accumulator, and the order of the rows."""

    def __init__(self, fn: Callable[[Any, Any], Any], elems: Structure, initializer: Structure, reverse: bool) -> None:
        self.fn, self.elems, self.reverse = fn, elems, reverse
        tensors = _flat(elems)
        self.count = _count(tensors)
        self.sources = _arrays(tensors, self.count)
        self.structure = elems if initializer is None else initializer
        self.first = 1 if initializer is None else 0
        if initializer is None:
            self.start = [s.read(self.position(0)) for s in self.sources]
        else:
            self.start = _flat(initializer)

    def position(self, i: TensorLike) -> Any:
        """Which row comes i-th."""
        if not self.reverse:
            return i
        return (
            self.count - 1 - i
            if isinstance(i, int) and isinstance(self.count, int)
            else raw.Sub(raw.Sub(self.count, 1), i)
        )

    def step(self, position: TensorLike, state: list[Tensor], check_types: bool = False) -> list[Tensor]:
        """The accumulator after one more row."""
        rows = [s.read(position) for s in self.sources]
        row = nest.pack_sequence_as(self.elems, rows) if nest.is_nested(self.elems) else rows[0]
        new = self.fn(self.packed(state), row)
        nest.assert_same_structure(self.structure, new, check_types=check_types)
        return [
            convert_to_tensor(v, old.dtype) if not isinstance(v, Tensor) else v
            for v, old in zip(nest.flatten(new), state, strict=True)
        ]

    def packed(self, flat: list[Tensor]) -> Any:
        """The accumulator in its structure."""
        return nest.pack_sequence_as(self.structure, flat) if nest.is_nested(self.structure) else flat[0]
