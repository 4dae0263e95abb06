"""Rows and columns of a stored matrix, put in the order of another vocabulary: for warm starts  (§4.3)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from anabranch.core.arrays import Array
from anabranch.core.compat import as_text
from anabranch.core.kernel_context import OperationContext
from anabranch.core.shapes import TensorShape
from anabranch.errors import InvalidArgumentError, UnimplementedError
from anabranch.graph.building import define_op
from anabranch.io import checkpoint_store, gfile
from anabranch.io.slices import SliceInfo
from anabranch.io.tensor_reader import TensorReader
from anabranch.ops import shape_rules

MISSING = -1

# ---------------------------------------------------------------------- which old line is each new line?
GenerateVocabRemapping = define_op(
    "GenerateVocabRemapping",
    "new_vocab_file: string, old_vocab_file: string -> remapping: int64, num_present: int32",
    "new_vocab_offset: int >= 0, num_new_vocab: int >= 0, old_vocab_size: int >= -1 = -1",
)
GenerateVocabRemapping.not_differentiable()


@GenerateVocabRemapping.shape
def _(
    new_vocab_file: TensorShape, old_vocab_file: TensorShape, *, new_vocab_offset: int, num_new_vocab: int
) -> list[TensorShape]:
    shape_rules.with_rank(new_vocab_file, 0, "new_vocab_file")
    shape_rules.with_rank(old_vocab_file, 0, "old_vocab_file")
    return [TensorShape([num_new_vocab]), TensorShape([])]


@GenerateVocabRemapping.host_kernel
def _(
    new_vocab_file: Array,
    old_vocab_file: Array,
    *,
    new_vocab_offset: int,
    num_new_vocab: int,
    old_vocab_size: int,
    ctx: OperationContext,
) -> list[Any]:
    new, old = (_lines(file) for file in (new_vocab_file, old_vocab_file))
    if new_vocab_offset + num_new_vocab > len(new):
        raise InvalidArgumentError(
            None,
            ctx.op,
            f"the new vocabulary {as_text(new_vocab_file.item())!r} has {len(new)} entries, but entries "
            f"{new_vocab_offset} to {new_vocab_offset + num_new_vocab} were asked for: give its true size",
        )
    known = old if old_vocab_size == -1 else old[:old_vocab_size]
    place = {word: line for line, word in enumerate(known)}
    wanted = new[new_vocab_offset : new_vocab_offset + num_new_vocab]
    remapping = np.array([place.get(word, MISSING) for word in wanted], np.int64)
    return [remapping, np.int32(np.count_nonzero(remapping != MISSING))]


def _lines(file: Array) -> list[bytes]:
    with gfile.GFile(as_text(file.item()), "rb") as opened:
        data: bytes = opened.read()
    return data.replace(b"\r", b"").removesuffix(b"\n").split(b"\n") if data else []


# ---------------------------------------------------------------------- loading in the new order
LoadAndRemapMatrix = define_op(
    "LoadAndRemapMatrix",
    "ckpt_path: string, old_tensor_name: string, row_remapping: int64, col_remapping: int64, "
    "initializing_values: float -> output_matrix: float",
    "num_rows: int >= 0, num_cols: int >= 1, max_rows_in_memory: int = -1",
    stateful=True,
)
LoadAndRemapMatrix.not_differentiable()


@LoadAndRemapMatrix.shape
def _(
    ckpt_path: TensorShape,
    old_tensor_name: TensorShape,
    row_remapping: TensorShape,
    col_remapping: TensorShape,
    initializing_values: TensorShape,
    *,
    num_rows: int,
    num_cols: int,
) -> TensorShape:
    shape_rules.with_rank(old_tensor_name, 0, "old_tensor_name")
    return TensorShape([num_rows, num_cols])


@LoadAndRemapMatrix.host_kernel
def _(
    ckpt_path: Array,
    old_tensor_name: Array,
    row_remapping: Array,
    col_remapping: Array,
    initializing_values: Array,
    *,
    num_rows: int,
    num_cols: int,
    max_rows_in_memory: int,
    ctx: OperationContext,
) -> Any:
    _check_remapping(ctx, "row_remapping", row_remapping, num_rows)
    columns = col_remapping if col_remapping.size else None
    if columns is not None:
        _check_remapping(ctx, "col_remapping", columns, num_cols)
    name = as_text(old_tensor_name.item())
    with checkpoint_store.open_checkpoint(as_text(ckpt_path.item())) as reader:
        shape = _matrix_shape(ctx, reader, name, None if columns is not None else num_cols)
        result = np.empty((num_rows, num_cols), np.float32)
        kept_columns = np.arange(num_cols) if columns is None else np.flatnonzero(columns != MISSING)
        sources = kept_columns if columns is None else columns[kept_columns]
        for start, rows in _row_blocks(reader, name, shape, row_remapping, max_rows_in_memory):
            inside = np.flatnonzero((row_remapping >= start) & (row_remapping < start + len(rows)))
            result[np.ix_(inside, kept_columns)] = rows[np.ix_(row_remapping[inside] - start, sources)]
    missing = np.ones((num_rows, num_cols), np.bool_)
    missing[np.ix_(np.flatnonzero(row_remapping != MISSING), kept_columns)] = False
    if np.count_nonzero(missing) != initializing_values.size:
        raise InvalidArgumentError(
            None,
            ctx.op,
            f"initializing_values contained {initializing_values.size} elements, but {np.count_nonzero(missing)} of "
            "the matrix are missing from the checkpoint: give one for each",
        )
    result[missing] = initializing_values.reshape(-1)
    return result


def _check_remapping(ctx: OperationContext, what: str, remapping: Array, size: int) -> None:
    if remapping.shape != (size,):
        raise InvalidArgumentError(
            None, ctx.op, f"Size of {what} is {remapping.size} instead of being equal to {size}, as the attribute says"
        )
    used = remapping[remapping != MISSING]
    ids, counts = np.unique(used, return_counts=True)
    if (counts > 1).any():
        twice = int(ids[counts > 1][0])
        places = np.flatnonzero(remapping == twice)[:2]
        raise UnimplementedError(
            None, ctx.op, f"{what}: old ID {twice} is mapped to both new ID {places[0]} and {places[1]}"
        )


def _matrix_shape(ctx: OperationContext, reader: TensorReader, name: str, num_cols: int | None) -> Sequence[int]:
    value = reader.get_variable_to_shape_map().get(name)
    if value is None:
        return reader.read_tensor(name).shape  # the reader's own error
    dtype = reader.get_variable_to_dtype_map()[name]
    if dtype.name != "float32" or len(value) != 2:
        raise InvalidArgumentError(
            None, ctx.op, f"Tensor {name} of the checkpoint is {dtype.name} of shape {value}; expected a float32 matrix"
        )
    if num_cols is not None and value[1] != num_cols:
        raise InvalidArgumentError(
            None, ctx.op, f"Tensor {name} has shape {value}, whose 2nd dimension is not num_cols={num_cols}"
        )
    return value


def _row_blocks(
    reader: TensorReader, name: str, shape: Sequence[int], remapping: Array, most: int
) -> Iterator[tuple[int, Any]]:
    """The stored rows from the first to the last that are wanted, at most `most` at a time if that is positive."""
    used = remapping[remapping != MISSING]
    if not used.size:
        return
    start, stop = int(used.min()), int(used.max()) + 1
    block = most if most > 0 else stop - start
    while start < stop:
        count = min(block, stop - start)
        spec = SliceInfo(name, tuple(shape), (start, 0), (count, shape[1])).spec
        yield start, reader.get_slice(name, spec)
        start += count
