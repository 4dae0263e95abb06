"""Reading records in the graph: parse_example, decode_csv, and how features are described (WP4.5)."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from anabranch.core import dtypes
from anabranch.core.dtypes import DType, as_dtype
from anabranch.core.shapes import TensorShape
from anabranch.core.values import TensorLike
from anabranch.frontend.sparse.form import sparse_merge
from anabranch.graph.composite import SparseTensor
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.graph import get_default_graph
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw

_PARSED_TYPES = (dtypes.float32, dtypes.int64, dtypes.string)


class VarLenFeature(NamedTuple):
    """A feature with any number of values: parsed as a SparseTensor.

    Args:
        dtype: float32, int64 or string.

    Raises:
        nothing

    Example:
        >>> record = tf.train.Example(features=tf.train.Features(feature={
        ...     "ids": tf.train.Feature(int64_list=tf.train.Int64List(value=[7, 8]))}))
        >>> parsed = tf.parse_single_example(record.SerializeToString(), {"ids": tf.VarLenFeature(tf.int64)})
        >>> sess.run(parsed["ids"]).values
        array([7, 8])
    """

    dtype: Any


class FixedLenFeature(NamedTuple):
    """A feature of a fixed shape: parsed as a tensor; `default_value` stands in for records that lack it.

    Args:
        shape: of the feature in one record, fully known.
        dtype: float32, int64 or string.
        default_value: for records that lack the feature, of shape `shape`; None: they are an error.

    Raises:
        nothing

    Example:
        >>> record = tf.train.Example(features=tf.train.Features(feature={
        ...     "size": tf.train.Feature(int64_list=tf.train.Int64List(value=[3, 4]))}))
        >>> parsed = tf.parse_single_example(record.SerializeToString(), {"size": tf.FixedLenFeature([2], tf.int64)})
        >>> sess.run(parsed["size"])
        array([3, 4])
    """

    shape: Any
    dtype: Any
    default_value: Any = None


class FixedLenSequenceFeature(NamedTuple):
    """A sequence of values of a fixed shape: parsed as a tensor, padded to the longest record."""

    shape: Any
    dtype: Any
    allow_missing: bool = False
    default_value: Any = None


class SparseFeature(NamedTuple):
    """A sparse tensor, of which a record has the values in one feature and the places in others.

    Args:
        index_key: the feature that says where each value stands; or a list of them, one for each dimension: int64.
        value_key: the feature that has the values.
        dtype: float32, int64 or string.
        size: of the dimension; or a list of sizes.
        already_sorted: whether the values are in row-major order by their places.

    Raises:
        nothing

    Example:
        >>> record = tf.train.Example(features=tf.train.Features(feature={
        ...     "at": tf.train.Feature(int64_list=tf.train.Int64List(value=[5, 2])),
        ...     "val": tf.train.Feature(float_list=tf.train.FloatList(value=[0.5, 1]))}))
        >>> feature = tf.io.SparseFeature("at", "val", tf.float32, 10)
        >>> parsed = tf.parse_single_example(record.SerializeToString(), {"both": feature})
        >>> sess.run(parsed["both"]).values
        array([1. , 0.5], dtype=float32)
    """

    index_key: Any
    value_key: str
    dtype: Any
    size: Any
    already_sorted: bool = False


#: how a feature is parsed
FeatureSpec: TypeAlias = VarLenFeature | FixedLenFeature | FixedLenSequenceFeature | SparseFeature


class FeatureSet:
    """Descriptions of features sorted by name and by kind, in the form of the parsing operations' attributes.

    Raises:
        ValueError: no features, or a description that cannot be parsed.
    """

    def __init__(self, features: Mapping[str, Any], may_be_empty: bool = False) -> None:
        if not features and not may_be_empty:
            raise ValueError(f"Missing: features was {features}.")
        self.sparse: list[str] = []
        self.sparse_types: list[DType] = []
        self.dense: list[str] = []
        self.dense_types: list[DType] = []
        self.dense_shapes: list[TensorShape] = []
        self.defaults: list[Any] = []
        self._wanted = dict(features)
        for key in sorted(features):
            self._add(key, features[key])

    def _add(self, key: str, feature: FeatureSpec) -> None:
        if not isinstance(feature, FeatureSpec):
            raise ValueError(f"Invalid feature {key}:{feature}.")
        if feature.dtype is None:
            raise ValueError(f"Missing type for feature {key}.")
        dtype = as_dtype(feature.dtype)
        if dtype not in _PARSED_TYPES:
            raise ValueError(f"feature {key!r} cannot be parsed as {dtype.name}; use float32, int64 or string")
        if isinstance(feature, VarLenFeature):
            self._add_sparse(key, dtype)
        elif isinstance(feature, SparseFeature):
            self._add_parts(feature, dtype)
        else:
            self._add_dense(key, feature, dtype)

    def _add_sparse(self, key: str, dtype: DType) -> None:
        if key not in self.sparse:
            self.sparse.append(key)
            self.sparse_types.append(dtype)
            return
        known = self.sparse_types[self.sparse.index(key)]
        if known is not dtype:
            raise ValueError(f"Conflicting type {known.name} vs {dtype.name} for feature {key}.")

    def _add_parts(self, feature: SparseFeature, dtype: DType) -> None:
        """The features that a sparse one is made of."""
        for part in ("index_key", "value_key"):
            if not getattr(feature, part):
                raise ValueError(f"Missing {part} for SparseFeature {feature}.")
        places = [feature.index_key] if isinstance(feature.index_key, str) else sorted(feature.index_key)
        for place in places:
            self._add_sparse(place, dtypes.int64)
        self._add_sparse(feature.value_key, dtype)

    def _add_dense(self, key: str, feature: FixedLenFeature | FixedLenSequenceFeature, dtype: DType) -> None:
        shape = TensorShape(feature.shape)
        if isinstance(feature, FixedLenSequenceFeature):
            if not feature.allow_missing:
                raise ValueError(
                    f"Unsupported: FixedLenSequenceFeature requires allow_missing to be True. (Feature {key}.)"
                )
            shape = TensorShape([None]).concatenate(shape)
        elif shape.ndims is None:
            raise ValueError(f"Missing shape for feature {key}.")
        elif shape.as_list()[:1] == [None]:
            raise ValueError(
                f"First dimension of shape for feature {key} unknown. Consider using FixedLenSequenceFeature."
            )
        elif not shape.is_fully_defined():
            raise ValueError(
                f"All dimensions of shape for feature {key} need to be known but received {shape.dims_tuple}."
            )
        self.dense.append(key)
        self.dense_types.append(dtype)
        self.dense_shapes.append(shape)
        self.defaults.append(_default(feature.default_value, dtype, shape, key))

    def arrange(
        self, indices: Sequence[Tensor], values: Sequence[Tensor], shapes: Sequence[Tensor], dense: Sequence[Tensor]
    ) -> dict[str, Any]:
        """The parsed tensors by name."""
        tensors: dict[str, Any] = dict(zip(self.dense, dense, strict=True))
        tensors.update(
            (k, SparseTensor(*parts)) for k, *parts in zip(self.sparse, indices, values, shapes, strict=True)
        )
        for key, feature in sorted(self._wanted.items()):
            if isinstance(feature, SparseFeature):
                tensors[key] = _merged(feature, tensors)
        return {key: tensor for key, tensor in tensors.items() if key in self._wanted}


def _merged(feature: SparseFeature, tensors: Mapping[str, Any]) -> SparseTensor:
    at = feature.index_key
    places = tensors[at] if isinstance(at, str) else [tensors[key] for key in at]
    return sparse_merge(places, tensors[feature.value_key], feature.size, already_sorted=feature.already_sorted)


def _default(value: TensorLike, dtype: DType, shape: TensorShape, key: str) -> Any:
    if value is None:
        return convert_to_tensor([], dtype, name="default")
    tensor = convert_to_tensor(value, dtype, name="key_" + re.sub(r"[^A-Za-z0-9_.\-]", "_", key))
    return raw.Reshape(tensor, list(shape.dims_tuple or ())) if shape.is_fully_defined() else tensor


def parse_example(
    serialized: TensorLike,
    features: Mapping[str, Any],
    name: str | None = None,
    example_names: TensorLike | None = None,
) -> dict[str, Any]:
    """Parses a batch of serialized `tf.train.Example` messages.

    Args:
        serialized: string, shape [batch].
        features: name -> `FixedLenFeature`, `VarLenFeature`, `FixedLenSequenceFeature` or `SparseFeature`.
        example_names: names of the records for error messages; string, shape [batch].

    Returns:
        name -> tensor of shape [batch, ...], or SparseTensor of shape [batch, longest].

    Raises:
        ValueError: a feature's description is not valid.
        InvalidArgumentError (in the step): a record does not parse, lacks a feature, or has it in another type or size.
    """
    wanted = FeatureSet(features)
    with get_default_graph().name_scope(name or "ParseExample"):
        names = convert_to_tensor([], dtypes.string) if example_names is None else example_names
        parsed = raw.ParseExample(
            serialized, names, list(wanted.sparse), list(wanted.dense), wanted.defaults,
            sparse_types=wanted.sparse_types, Tdense=wanted.dense_types, dense_shapes=wanted.dense_shapes,
            name="ParseExample",
        )  # fmt: skip
    return wanted.arrange(*parsed)


def parse_single_example(
    serialized: TensorLike,
    features: Mapping[str, Any],
    name: str | None = None,
    example_names: TensorLike | None = None,
) -> dict[str, Any]:
    """Like `parse_example` for one record: `serialized` is a scalar, and the results have no batch dimension.

    Args:
        serialized: a string scalar, an `Example` message.
        features: a dictionary from names to `FixedLenFeature`, `VarLenFeature` and the like.
        name: of the operation.
        example_names: a string scalar, for error messages.

    Returns:
        A dictionary: for each name a tensor of the feature's shape, or a `SparseTensor`.

    Raises:
        ValueError: there are no features, or one of them is malformed.

    Raises (in the step):
        InvalidArgumentError: the record does not parse, lacks a feature, or has it in another shape or dtype.

    Example:
        >>> record = tf.train.Example(features=tf.train.Features(feature={
        ...     "text": tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"hello"]))}))
        >>> parsed = tf.parse_single_example(record.SerializeToString(), {"text": tf.FixedLenFeature([], tf.string)})
        >>> sess.run(parsed["text"])
        b'hello'
    """
    wanted = FeatureSet(features)
    with get_default_graph().name_scope(name or "ParseSingleExample"):
        parsed = raw.ParseSingleExample(
            serialized,
            wanted.defaults,
            num_sparse=len(wanted.sparse),
            sparse_keys=wanted.sparse,
            dense_keys=wanted.dense,
            sparse_types=wanted.sparse_types,
            Tdense=wanted.dense_types,
            dense_shapes=wanted.dense_shapes,
            name="ParseSingleExample",
        )  # fmt: skip
    return wanted.arrange(*parsed)


def decode_csv(
    records: TensorLike,
    record_defaults: Sequence[TensorLike],
    field_delim: str = ",",
    use_quote_delim: bool = True,
    name: str | None = None,
    na_value: str = "",
    select_cols: Sequence[int] | None = None,
) -> list[Any]:
    """Takes lines of comma-separated values (RFC 4180) apart, one tensor per column.

    Args:
        records: string, any shape.
        record_defaults: per column a tensor (or value) of the column's type: empty where the column is required.
        field_delim: the character between fields.
        use_quote_delim: whether double quotes may stand around a field.
        name: of the operation.
        na_value: the string that stands for a missing value.
        select_cols: the columns to take, ascending; default: all.

    Returns:
        A list of tensors of the shape of `records`.

    Raises:
        ValueError: `select_cols` and `record_defaults` do not go together.
        TypeError: `record_defaults` is no list.
        InvalidArgumentError (in the step): a record has another number of fields, or a field does not parse.

    Example:
        >>> number, word = tf.decode_csv(["1,one", "2,two"], record_defaults=[[0], [""]])
        >>> sess.run([number, word])
        [array([1, 2], dtype=int32), array([b'one', b'two'], dtype=object)]
    """
    columns = list(select_cols or [])
    if any(b <= a for a, b in itertools.pairwise(columns)):
        raise ValueError("select_cols is not strictly increasing.")
    if columns and columns[0] < 0:
        raise ValueError("select_cols contains negative values.")
    if columns and len(columns) != len(record_defaults):
        raise ValueError("Length of select_cols and record_defaults do not match.")
    if not isinstance(record_defaults, list | tuple):
        raise TypeError(f"Expected list for 'record_defaults' argument to 'DecodeCSV' Op, not {record_defaults!r}.")
    defaults = [d if hasattr(d, "dtype") else convert_to_tensor(d) for d in record_defaults]
    return list(
        raw.DecodeCSV(
            records,
            defaults,
            field_delim=field_delim,
            use_quote_delim=use_quote_delim,
            na_value=na_value,
            select_cols=columns,
            name=name,
        )
    )


def read_file(filename: TensorLike, name: str | None = None) -> Tensor:
    """The contents of a file.

    Args:
        filename: a string scalar.
        name: of the operation.

    Returns:
        A string scalar.

    Raises (in the step):
        NotFoundError: there is no such file.

    Example:
        >>> with tf.gfile.GFile("text", "w") as file:
        ...     file.write("hello")
        >>> sess.run(tf.read_file("text"))
        b'hello'
    """
    result: Tensor = raw.ReadFile(filename, name=name)
    return result


def write_file(filename: TensorLike, contents: TensorLike, name: str | None = None) -> Operation:
    """An operation that writes a string scalar to a file; directories are made."""
    result: Operation = raw.WriteFile(filename, contents, name=name)
    return result


def matching_files(pattern: TensorLike, name: str | None = None) -> Tensor:
    """The files that match any of the patterns, sorted; string, shape [n]."""
    result: Tensor = raw.MatchingFiles(pattern, name=name)
    return result
