"""`tf.contrib.estimator.RNNClassifier` and `RNNEstimator`: recurrent networks over columns of sequences."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import anabranch as tf
from anabranch.contrib.arguments import PassedOn
from anabranch.contrib.clipped_gradients import clip_gradients_by_norm
from anabranch.estimator.class_heads import classification_head
from anabranch.estimator.estimators import Estimator
from anabranch.estimator.heads import Head, WeightColumn
from anabranch.estimator.model_parts import OptimizerLike, model_function, optimizer_of
from anabranch.estimator.run_config import RunConfig
from anabranch.feature_column.columns import FeatureColumn
from anabranch.feature_column.sequences import sequence_input_layer

_RATE: Final = 0.05
_CLIP_NORM: Final = 5.0
_DEFAULT: Final = "use_default"
_CELLS: Final[dict[str, Callable[[int], tf.nn.rnn_cell.RNNCell]]] = {
    "basic_rnn": tf.nn.rnn_cell.BasicRNNCell,
    "simple_rnn": tf.nn.rnn_cell.BasicRNNCell,
    "lstm": tf.nn.rnn_cell.BasicLSTMCell,
    "gru": tf.nn.rnn_cell.GRUCell,
}
#: of a mode, of `ModeKeys`
CellFunction = Callable[[str], tf.nn.rnn_cell.RNNCell]


@dataclass(frozen=True)
class _Recurrent:
    """A part whose logits are those of the last step of each example."""

    sequence_columns: tuple[FeatureColumn, ...]
    context_columns: tuple[FeatureColumn, ...]
    cell_fn: CellFunction
    optimizer: OptimizerLike
    partitioner: PassedOn
    scope = "rnn"
    learning_rate = _RATE

    def logits(self, features: Mapping[str, PassedOn], mode: str, units: int) -> tf.Tensor:
        with tf.variable_scope(self.scope, values=list(features.values()), partitioner=self.partitioner):
            with tf.variable_scope("sequence_input_layer"):
                inputs, lengths = self._inputs(features)
            outputs, _ = tf.nn.dynamic_rnn(self.cell_fn(mode), inputs, lengths, dtype=tf.float32)
            rows: Any = tf.shape(outputs)[0]
            # an example without steps has no last one; its first output is zero
            last = tf.maximum(tf.cast(lengths, tf.int32) - 1, 0)
            states = tf.gather_nd(outputs, tf.stack([tf.range(rows), last], 1))
            return tf.layers.dense(states, units, kernel_initializer=tf.glorot_uniform_initializer(), name="logits")

    def _inputs(self, features: Mapping[str, PassedOn]) -> tuple[tf.Tensor, tf.Tensor]:
        """The inputs of each step, with the context in each, and how many steps there are."""
        inputs, lengths = sequence_input_layer(dict(features), self.sequence_columns)
        if self.context_columns:
            context: Any = tf.feature_column.input_layer(dict(features), self.context_columns)
            repeated = tf.tile(tf.expand_dims(context, 1), [1, tf.shape(inputs)[1], 1])
            inputs = tf.concat([inputs, repeated], 2)
        return inputs, lengths


def _cell_function(num_units: Iterable[int] | None, cell_type: str, rnn_cell_fn: CellFunction | None) -> CellFunction:
    if rnn_cell_fn is not None:
        if num_units is not None or cell_type != _DEFAULT:
            raise ValueError("num_units and cell_type must not be specified when using rnn_cell_fn")
        return rnn_cell_fn
    sizes = list(num_units or ())
    if not sizes:
        raise ValueError("num_units must be specified when no rnn_cell_fn is given")
    kind = "basic_rnn" if cell_type == _DEFAULT else cell_type
    if kind not in _CELLS:
        raise ValueError(f"Supported cell types are {sorted(_CELLS)}; given: {cell_type!r}")

    def make(mode: str) -> tf.nn.rnn_cell.RNNCell:
        cells = [_CELLS[kind](size) for size in sizes]
        return cells[0] if len(cells) == 1 else tf.nn.rnn_cell.MultiRNNCell(cells)

    return make


class RNNEstimator(Estimator):
    """A recurrent network with a head of your choice.

    Gradients are cut to a norm of 5.

    Args:
        head: what the model says, such as `tf.contrib.estimator.regression_head()`.
        sequence_feature_columns: of sequences, see `tf.feature_column.sequence_numeric_column`.
        context_feature_columns: dense ones, which each step gets beside its own.
        num_units: how many units each layer has.
        cell_type: "basic_rnn" (the default), "lstm" or "gru".
        rnn_cell_fn: gives the cell for a mode, in place of these two.
        model_dir, config: as for `Estimator`.
        optimizer: as for `DNNClassifier`.
        input_layer_partitioner: of the variables.

    Raises:
        ValueError: both or neither of `num_units` and `rnn_cell_fn` are given, or an unknown kind of cells.
    """

    def __init__(
        self,
        head: Head,
        sequence_feature_columns: Iterable[FeatureColumn],
        context_feature_columns: Iterable[FeatureColumn] | None = None,
        num_units: Iterable[int] | None = None,
        cell_type: str = _DEFAULT,
        rnn_cell_fn: CellFunction | None = None,
        model_dir: str | None = None,
        optimizer: OptimizerLike = "Adagrad",
        input_layer_partitioner: PassedOn = None,
        config: RunConfig | None = None,
    ) -> None:
        part = _Recurrent(
            tuple(sequence_feature_columns),
            tuple(context_feature_columns or ()),
            _cell_function(num_units, cell_type, rnn_cell_fn),
            lambda: clip_gradients_by_norm(optimizer_of(optimizer, _RATE), _CLIP_NORM),
            input_layer_partitioner,
        )
        super().__init__(model_function(head, [part]), model_dir, config)


class RNNClassifier(RNNEstimator):
    """A recurrent network that says which class a sequence is of.

    Args:
        sequence_feature_columns, context_feature_columns, num_units, cell_type, rnn_cell_fn, model_dir, optimizer,
            input_layer_partitioner, config: as for `RNNEstimator`.
        n_classes, weight_column, label_vocabulary, loss_reduction: as for `DNNClassifier`.
    """

    def __init__(
        self,
        sequence_feature_columns: Iterable[FeatureColumn],
        context_feature_columns: Iterable[FeatureColumn] | None = None,
        num_units: Iterable[int] | None = None,
        cell_type: str = _DEFAULT,
        rnn_cell_fn: CellFunction | None = None,
        model_dir: str | None = None,
        n_classes: int = 2,
        weight_column: WeightColumn = None,
        label_vocabulary: Sequence[str] | None = None,
        optimizer: OptimizerLike = "Adagrad",
        loss_reduction: str = tf.losses.Reduction.SUM_OVER_BATCH_SIZE,
        input_layer_partitioner: PassedOn = None,
        config: RunConfig | None = None,
    ) -> None:
        head = classification_head(n_classes, weight_column, label_vocabulary, loss_reduction)
        super().__init__(
            head,
            sequence_feature_columns,
            context_feature_columns,
            num_units,
            cell_type,
            rnn_cell_fn,
            model_dir,
            optimizer,
            input_layer_partitioner,
            config,
        )
