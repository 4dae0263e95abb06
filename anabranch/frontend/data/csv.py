"""Datasets of the rows of CSV files (WP4.5)."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from anabranch.core import dtypes
from anabranch.core.dtypes import DType, as_dtype
from anabranch.core.values import TensorLike
from anabranch.frontend.data.datasets import Dataset
from anabranch.frontend.data.readers import RowDataset, TextLineDataset
from anabranch.frontend.storage.parsing import decode_csv
from anabranch.graph.operation import Tensor
from anabranch.io import gfile
from anabranch.io.csv_rows import RowFile, split_row
from anabranch.io.positioned_records import LineFile
from anabranch.ops import raw

_KINDS = (dtypes.int32, dtypes.int64, dtypes.float32, dtypes.float64, dtypes.string)


class CsvDataset(Dataset):
    """The rows of CSV files, each as a tuple of scalars. A field in quotes may hold line ends.

    Args:
        filenames: string tensor.
        record_defaults: for each column its default value; or its dtype, where a value is required.
        compression_type: "" (none), "ZLIB" or "GZIP".
        buffer_size: bytes to read at a time.
        header: whether the first line of each file is to be left out.
        field_delim, use_quote_delim, na_value, select_cols: as for `tf.io.decode_csv`.
    """

    def __init__(
        self,
        filenames: TensorLike,
        record_defaults: Sequence[Any],
        compression_type: TensorLike | None = None,
        buffer_size: TensorLike | None = None,
        header: bool = False,
        field_delim: str = ",",
        use_quote_delim: bool = True,
        na_value: str = "",
        select_cols: Sequence[int] | None = None,
    ) -> None:
        defaults = [_default(value) for value in record_defaults]

        def rows(name: Tensor) -> Dataset:
            lines: Dataset
            if use_quote_delim:
                lines = RowDataset(name, field_delim, compression_type, buffer_size)
            else:
                lines = TextLineDataset(name, compression_type, buffer_size)
            return lines.skip(1) if header else lines

        def fields(line: Tensor) -> tuple[Tensor, ...]:
            columns = decode_csv(line, defaults, field_delim, use_quote_delim, None, na_value, select_cols)
            return tuple(columns)

        made = Dataset.from_tensor_slices(raw.Reshape(filenames, [-1])).flat_map(rows).map(fields)
        super().__init__(made._variant_tensor, made._structure)


def _default(value: TensorLike) -> Any:
    """A default value as `decode_csv` takes it: an empty vector where a dtype says that a value is required."""
    if isinstance(value, DType | type):
        dtype = as_dtype(value)
        return np.array([], dtype.as_numpy_dtype) if dtype is not dtypes.string else _no_text()
    return value


def _no_text() -> Tensor:
    made: Tensor = raw.Const(value=np.empty(0, np.object_), dtype=dtypes.string)
    return made


def make_csv_dataset(
    file_pattern: TensorLike,
    batch_size: int,
    column_names: Sequence[str] | None = None,
    column_defaults: Sequence[Any] | None = None,
    label_name: str | None = None,
    select_columns: Sequence[Any] | None = None,
    field_delim: str = ",",
    use_quote_delim: bool = True,
    na_value: str = "",
    header: bool = True,
    num_epochs: int | None = None,
    shuffle: bool = True,
    shuffle_buffer_size: int = 10000,
    shuffle_seed: int | None = None,
    prefetch_buffer_size: TensorLike | None = None,
    num_parallel_reads: int = 1,
    sloppy: bool = False,
    num_rows_for_inference: int | None = 100,
    compression_type: str | None = None,
) -> Dataset:
    """Batches of the rows of CSV files, as dicts from column names to columns.

    Args:
        file_pattern: a pattern, or a list of patterns or files.
        column_names: default: the first line of the first file.
        column_defaults: default values or dtypes; default: found in the first rows.
        label_name: this column is taken out of the dict: elements are then (dict, column).
        select_columns: names or numbers of the columns to keep.
        num_epochs: how often to read the files; None: endlessly.

    Raises:
        ValueError: no files, no such label, or column names and defaults that do not fit.
    """
    files = _files(file_pattern)
    layout = {"delimiter": field_delim, "quoted": use_quote_delim}
    if column_names is None:
        if not header:
            raise ValueError("Cannot infer column names without a header line.")
        column_names = _rows(files[0], layout, 1, compression_type)[0]
    if len(column_names) != len(set(column_names)):
        raise ValueError("Cannot have duplicate column names.")
    chosen = _selected(select_columns, column_names)
    if column_defaults is None:
        rows_of = functools.partial(_rows, layout=layout, compression=compression_type)
        column_defaults = _inferred(files, rows_of, header, na_value, chosen, num_rows_for_inference)
    if len(column_defaults) != len(chosen):
        raise ValueError(f"{len(chosen)} columns are selected, but there are {len(column_defaults)} defaults")
    names = [column_names[i] for i in chosen]
    if label_name is not None and label_name not in names:
        raise ValueError("`label_name` provided must be one of the columns.")
    if shuffle:
        order = np.random.default_rng(shuffle_seed).permutation(len(files))
        files = [files[i] for i in order]
    rows: Dataset = CsvDataset(
        files,
        list(column_defaults),
        compression_type,
        header=header,
        field_delim=field_delim,
        use_quote_delim=use_quote_delim,
        na_value=na_value,
        select_cols=chosen if len(chosen) < len(column_names) else None,
    )
    if shuffle:
        rows = rows.shuffle(shuffle_buffer_size, shuffle_seed)
    if num_epochs != 1:
        rows = rows.repeat(num_epochs)

    def named(*columns: Tensor) -> Any:
        features = dict(zip(names, columns, strict=True))
        if label_name is None:
            return features
        label = features.pop(label_name)
        return features, label

    return rows.batch(batch_size, drop_remainder=num_epochs is None).map(named).prefetch(prefetch_buffer_size)


def _files(pattern: TensorLike) -> list[str]:
    patterns = list(pattern) if isinstance(pattern, list | tuple) else [pattern]
    names = sorted(name for p in patterns for name in gfile.glob(p))
    if not names:
        raise ValueError(f"No files match {pattern!r}.")
    return names


def _rows(path: str, layout: dict[str, Any], count: int | None, compression: str | None = None) -> list[list[str]]:
    rows = (
        RowFile(path, layout["delimiter"].encode(), compression or "")
        if layout["quoted"]
        else LineFile(path, compression or "")
    )
    try:
        return [split_row(row.decode(), **layout) for row in itertools.islice(iter(rows.read, None), count)]
    finally:
        rows.close()


def _selected(columns: Sequence[Any] | None, names: Sequence[str]) -> list[int]:
    if columns is None:
        return list(range(len(names)))
    try:
        numbers = sorted(names.index(c) if isinstance(c, str) else int(c) for c in columns)
    except ValueError as error:
        raise ValueError(f"`select_columns` names a column that is none of {list(names)}: {error}") from None
    if len(numbers) != len(set(numbers)) or (numbers and not 0 <= numbers[0] <= numbers[-1] < len(names)):
        raise ValueError(f"`select_columns` must be different numbers below {len(names)}, got {list(columns)}")
    return numbers


def _inferred(
    files: list[str], rows_of: Callable[..., Any], header: bool, missing: str, chosen: list[int], count: int | None
) -> list[Any]:
    """The default values of the narrowest types that hold what the first rows have."""
    kinds = [0] * len(chosen)
    for path in files:
        rows = rows_of(path, count=None if count is None else count + header)[int(header) :]
        for row in rows:
            if len(row) <= max(chosen, default=-1):
                raise ValueError(f"{path!r} has a row of {len(row)} fields, fewer than there are columns: {row}")
            kinds = [max(k, _kind(row[i], missing)) for k, i in zip(kinds, chosen, strict=True)]
        if count is not None:
            count -= len(rows)
            if count <= 0:
                break
    return [_zero(_KINDS[kind]) for kind in kinds]


def _zero(dtype: DType) -> Any:
    return "" if dtype is dtypes.string else np.zeros((), dtype.as_numpy_dtype)


def _kind(text: str, missing: str) -> int:
    """The place in `_KINDS` of the narrowest type that holds a field."""
    if text in ("", missing):
        return 0
    for place, dtype in enumerate(_KINDS[:-1]):
        try:
            value = int(text) if dtype.is_integer else float(text)
        except ValueError:
            continue
        if dtype.min <= value <= dtype.max or value != value:
            return place
    return len(_KINDS) - 1
