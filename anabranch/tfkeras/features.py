"""Feature columns as a layer."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import anabranch as tf
from anabranch.core.values import PassedOn
from anabranch.feature_column.columns import FeatureColumn
from anabranch.feature_column.sequences import sequence_input_layer
from anabranch.tfkeras import initializers, package, shapes
from anabranch.tfkeras.layer import KerasLayer


def _configuration(value: PassedOn) -> Any:
    """A column, or what one consists of, as a configuration keeps it."""
    if isinstance(value, FeatureColumn):
        parts = {field.name: _configuration(getattr(value, field.name)) for field in dataclasses.fields(value)}  # type: ignore[arg-type]
        return {"class_name": type(value).__name__, "config": parts}
    if isinstance(value, tf.DType):
        return {"dtype": value.name}
    if isinstance(value, tuple):
        return [_configuration(each) for each in value]
    if isinstance(value, bytes):
        return value.decode()
    if hasattr(value, "get_config"):
        return {"initializer": initializers.serialize(value)}
    return {"function": value.__name__} if callable(value) else value


def _configured(value: PassedOn) -> Any:
    """What `_configuration` made a configuration of.

    Raises:
        ValueError: there is no class of columns, or no function, of a name.
    """
    if isinstance(value, list):
        return tuple(_configured(each) for each in value)
    if not isinstance(value, dict):
        return value
    if "dtype" in value:
        return tf.as_dtype(value["dtype"])
    if "initializer" in value:
        return initializers.deserialize(value["initializer"])
    if "function" in value:
        return _named(package.module("utils.generic_utils")._GLOBAL_CUSTOM_OBJECTS, value["function"])
    kinds: dict[str, Any] = {cls.__name__: cls for cls in _kinds(FeatureColumn)}
    kind = _named(kinds, value["class_name"])
    return kind(**{name: _configured(part) for name, part in value["config"].items()})


def _named(known: Mapping[str, Any], name: str) -> Any:
    if name not in known:
        raise ValueError(f"the configuration of a column names {name!r}; see tf.keras.utils.CustomObjectScope")
    return known[name]


def _kinds(cls: type) -> Iterator[type]:
    """All classes of columns."""
    kinds: list[type] = cls.__subclasses__()
    for kind in kinds:
        yield kind
        yield from _kinds(kind)


class DenseFeatures(KerasLayer):
    """A dense tensor of features, a dictionary of tensors, by feature columns.

    Args:
        feature_columns: dense columns of `tf.feature_column`.
    """

    def __init__(
        self, feature_columns: PassedOn, trainable: bool = True, name: str | None = None, **kwargs: PassedOn
    ) -> None:
        super().__init__(name=name, trainable=trainable, **kwargs)
        is_one = hasattr(feature_columns, "variable_shape") or not isinstance(feature_columns, Iterable)
        if isinstance(feature_columns, dict):
            raise ValueError("Expected feature_columns to be iterable, found dict.")
        columns: Sequence[Any] = [feature_columns] if is_one else list(feature_columns)
        for column in columns:
            if not hasattr(column, "variable_shape"):
                raise ValueError(
                    f"Items of feature_columns must be a DenseColumn. You can wrap a categorical column with an "
                    f"embedding_column or indicator_column. Given: {column}"
                )
        self._feature_columns = columns
        self._variables_of: dict[Any, Any] = {}
        self.supports_masking = True

    @property
    def _is_feature_layer(self) -> bool:
        return True

    def call(self, features: PassedOn, cols_to_output_tensors: PassedOn = None) -> Any:
        if not isinstance(features, dict):
            raise ValueError(f"We expected a dictionary here. Instead we got: {features}")
        made: dict[Any, Any] = {}
        outputs: dict[Any, Any] = {}
        with tf.variable_scope(self.name, reuse=tf.AUTO_REUSE, auxiliary_name_scope=False):
            result = tf.feature_column.input_layer(
                dict(features),
                self._feature_columns,
                trainable=self.trainable,
                cols_to_vars=made,
                cols_to_output_tensors=outputs,
            )
        for variables in made.values():
            for variable in tf.nest.flatten(variables):
                self._own(variable)
        if cols_to_output_tensors is not None:
            cols_to_output_tensors.update(outputs)
        return result

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "feature_columns": [_configuration(each) for each in self._feature_columns]}

    @classmethod
    def from_config(cls, config: PassedOn) -> Any:
        columns = [_configured(each) for each in config["feature_columns"]]
        return super().from_config({**config, "feature_columns": columns})

    def compute_mask(self, inputs: PassedOn, mask: PassedOn = None) -> Any:
        return None

    def _width(self) -> int:
        return sum(int(column.variable_shape.num_elements() or 0) for column in self._feature_columns)

    def compute_output_shape(self, input_shape: PassedOn) -> Any:
        first = next(iter(input_shape.values())) if isinstance(input_shape, dict) else input_shape
        answer = tf.TensorShape([tf.TensorShape(first).as_list()[0], self._width()])
        return answer if shapes.of_tensorflow(first) else shapes.as_tuples(answer)


class DenseFeaturesV2(DenseFeatures):
    """`tf.compat.v2.keras.layers.DenseFeatures`: a class of its own, which libraries tell from that of version 1."""


class SequenceFeatures(KerasLayer):
    """The input of a recurrent network from features, a dictionary of tensors, by columns of sequences.

    Its outputs are float32 [batch, steps, elements], and the number of steps of each example, int64 [batch].

    Args:
        feature_columns: `sequence_numeric_column`s, and embeddings and indicators of other columns of sequences.

    Raises:
        ValueError: a column is no dense one.
    """

    def __init__(
        self, feature_columns: PassedOn, trainable: bool = True, name: str | None = None, **kwargs: PassedOn
    ) -> None:
        super().__init__(name=name, trainable=trainable, **kwargs)
        columns = list(feature_columns) if isinstance(feature_columns, list | tuple) else [feature_columns]
        for column in columns:
            if not hasattr(column, "variable_shape"):
                raise ValueError(f"Items of feature_columns must be a SequenceDenseColumn. Given: {column}")
        self._feature_columns = columns

    @property
    def _is_feature_layer(self) -> bool:
        return True

    def call(self, features: PassedOn) -> Any:
        if not isinstance(features, dict):
            raise ValueError(f"We expected a dictionary here. Instead we got: {features}")
        before = {id(variable) for variable in tf.global_variables()}
        with tf.variable_scope(self.name, reuse=tf.AUTO_REUSE, auxiliary_name_scope=False):
            result = sequence_input_layer(features, self._feature_columns, self.trainable)
        for variable in tf.global_variables():
            if id(variable) not in before:
                self._own(variable)
        return result

    def compute_mask(self, inputs: PassedOn, mask: PassedOn = None) -> Any:
        return None


SequenceFeatures.__module__ = "tensorflow.keras.experimental"
