"""Reading sequences in the graph: parse_single_sequence_example, parse_sequence_example (WP4.5)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anabranch.core import dtypes
from anabranch.core.dtypes import DType
from anabranch.core.shapes import TensorShape
from anabranch.core.values import TensorLike
from anabranch.frontend.storage.parsing import FeatureSet, FixedLenFeature, FixedLenSequenceFeature, VarLenFeature
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.graph import get_default_graph
from anabranch.ops import raw


def _check_kinds(features: Mapping[str, Any], kinds: tuple[type, ...]) -> None:
    for key in sorted(features):
        if not isinstance(features[key], kinds):
            raise ValueError(f"Unsupported {type(features[key]).__name__} {features[key]} for key {key!r}")


class _FeatureLists(FeatureSet):
    """Features of steps, in the form of the parsing operations' attributes.

    Raises:
        ValueError: a description that cannot be parsed.
    """

    def __init__(self, features: Mapping[str, Any]) -> None:
        _check_kinds(features, (VarLenFeature, FixedLenSequenceFeature))
        self.optional: list[str] = []
        super().__init__(features, may_be_empty=True)

    def _add_dense(self, key: str, feature: FixedLenFeature | FixedLenSequenceFeature, dtype: DType) -> None:
        assert isinstance(feature, FixedLenSequenceFeature)  # `__init__` has checked it
        if feature.default_value is not None:
            raise ValueError(f"feature list {key!r} can have no default_value: it has as many steps as the record")
        shape = TensorShape(feature.shape)
        if not shape.is_fully_defined():
            raise ValueError(f"feature list {key!r}: the shape {shape} of its steps must be fully known")
        if feature.allow_missing:
            self.optional.append(key)
        self.dense.append(key)
        self.dense_types.append(dtype)
        self.dense_shapes.append(shape)


class _Sequence:
    """What is read of a SequenceExample.

    Raises:
        ValueError: nothing is, or a description cannot be parsed.
    """

    def __init__(self, context: Mapping[str, Any] | None, lists: Mapping[str, Any] | None) -> None:
        if not context and not lists:
            raise ValueError("give context_features or sequence_features: both are empty")
        _check_kinds(context or {}, (VarLenFeature, FixedLenFeature))
        self.context = FeatureSet(context or {}, may_be_empty=True)
        self.lists = _FeatureLists(lists or {})

    def attributes(self) -> dict[str, Any]:
        """The attributes that both operations have."""
        return {
            "Ncontext_sparse": len(self.context.sparse),
            "Ncontext_dense": len(self.context.dense),
            "Nfeature_list_sparse": len(self.lists.sparse),
            "Nfeature_list_dense": len(self.lists.dense),
            "context_sparse_types": self.context.sparse_types,
            "Tcontext_dense": self.context.dense_types,
            "context_dense_shapes": self.context.dense_shapes,
            "feature_list_sparse_types": self.lists.sparse_types,
            "feature_list_dense_types": self.lists.dense_types,
            "feature_list_dense_shapes": self.lists.dense_shapes,
        }


def parse_single_sequence_example(
    serialized: TensorLike,
    context_features: Mapping[str, Any] | None = None,
    sequence_features: Mapping[str, Any] | None = None,
    example_name: TensorLike | None = None,
    name: str | None = None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Parses one serialized `tf.train.SequenceExample` message.

    Args:
        serialized: string scalar.
        context_features: name -> `FixedLenFeature` or `VarLenFeature`: of the message itself.
        sequence_features: name -> `FixedLenSequenceFeature` or `VarLenFeature`: of each step.
        example_name: the record's name for error messages; string scalar.

    Returns:
        (context: name -> tensor, or SparseTensor [values]; sequences: name -> tensor [steps, ...], or SparseTensor
        [steps, most values]).

    Raises:
        ValueError: both descriptions are empty, or one is not valid.
        InvalidArgumentError (in the step): the record does not parse, lacks a feature, or has it in another type or
            size.
    """
    wanted = _Sequence(context_features, sequence_features)
    with get_default_graph().name_scope(name or "ParseSingleSequenceExample"):
        parsed = raw.ParseSingleSequenceExample(
            serialized,
            convert_to_tensor(wanted.lists.optional, dtypes.string),
            list(wanted.context.sparse),
            list(wanted.context.dense),
            list(wanted.lists.sparse),
            list(wanted.lists.dense),
            wanted.context.defaults,
            "" if example_name is None else example_name,
            name="ParseSingleSequenceExample",
            **wanted.attributes(),
        )
    return wanted.context.arrange(*parsed[:4]), wanted.lists.arrange(*parsed[4:])


def parse_sequence_example(
    serialized: TensorLike,
    context_features: Mapping[str, Any] | None = None,
    sequence_features: Mapping[str, Any] | None = None,
    example_names: TensorLike | None = None,
    name: str | None = None,
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Parses a batch of serialized `tf.train.SequenceExample` messages.

    Args:
        serialized: string, shape [batch].
        context_features: as for `parse_single_sequence_example`.
        sequence_features: as for `parse_single_sequence_example`; sequences are padded with zeros or empty strings.
        example_names: names of the records for error messages; string, shape [batch].

    Returns:
        (context: name -> tensor [batch, ...], or SparseTensor [batch, values]; sequences: name -> tensor [batch, steps,
        ...], or SparseTensor [batch, steps, values]; lengths: name of each sequence that is a tensor -> int64 [batch]).

    Raises:
        As `parse_single_sequence_example`.
    """
    wanted = _Sequence(context_features, sequence_features)
    with get_default_graph().name_scope(name or "ParseSequenceExample"):
        parsed = raw.ParseSequenceExample(
            serialized,
            convert_to_tensor([], dtypes.string) if example_names is None else example_names,
            wanted.context.defaults,
            feature_list_dense_missing_assumed_empty=wanted.lists.optional,
            context_sparse_keys=wanted.context.sparse,
            context_dense_keys=wanted.context.dense,
            feature_list_sparse_keys=wanted.lists.sparse,
            feature_list_dense_keys=wanted.lists.dense,
            name="ParseSequenceExample",
            **wanted.attributes(),
        )
    lengths = dict(zip(wanted.lists.dense, parsed[8], strict=True))
    return wanted.context.arrange(*parsed[:4]), wanted.lists.arrange(*parsed[4:8]), lengths
