"""The state of boosted trees in a graph: an ensemble of trees, and the quantiles of features. Savers save both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

import anabranch as tf
from anabranch.contrib.arguments import TensorLike
from anabranch.frontend.resources.made_objects import MadeObject, register_object
from anabranch.train.saveables import SaveableObject, SaveSpec

_raw = tf.raw_ops


class EnsembleState(NamedTuple):
    """How far an ensemble has grown: scalars, and the nodes [start, end) of the last layer, int32 [2]."""

    stamp: tf.Tensor
    tree_count: tf.Tensor
    final_tree_count: tf.Tensor
    attempted_layers: tf.Tensor
    last_layer: tf.Tensor


class Ensemble:
    """An ensemble of trees, empty at first.

    Args:
        scope: its name, with a "/" at the end: that of a name scope.
        is_shared: whether it belongs to the model and is saved; else each session has one of its own.
    """

    def __init__(self, scope: str, is_shared: bool = True) -> None:
        with tf.name_scope(scope):
            self.handle: tf.Tensor = _raw.BoostedTreesEnsembleResourceHandleOp(
                container="", shared_name=scope, name=scope
            )
            make = self.run(_raw.BoostedTreesCreateEnsemble, stamp_token=np.int64(0), tree_ensemble_serialized="")
            is_made = self.run(_raw.IsBoostedTreesEnsembleInitialized)
            register_object(MadeObject(self.handle, make, is_made), is_shared)
            if is_shared:
                tf.add_to_collection(tf.GraphKeys.SAVEABLE_OBJECTS, _SavedEnsemble(self, make))

    def run(self, operation: Callable[..., Any], **inputs: TensorLike) -> Any:
        """The results of an operation of `tf.raw_ops` on the ensemble, where that is."""
        with tf.device(self.handle.device):
            return operation(tree_ensemble_handle=self.handle, **inputs)

    def serialized(self) -> tuple[tf.Tensor, tf.Tensor]:
        """Its stamp, and a `TreeEnsemble` message."""
        stamp, message = self.run(_raw.BoostedTreesSerializeEnsemble)
        return stamp, message

    def replace(self, stamp: tf.Tensor, message: tf.Tensor) -> tf.Operation:
        """Puts another ensemble in its place."""
        replaced: tf.Operation = self.run(
            _raw.BoostedTreesDeserializeEnsemble, stamp_token=stamp, tree_ensemble_serialized=message
        )
        return replaced

    def state(self) -> EnsembleState:
        """How far it has grown."""
        return EnsembleState(*self.run(_raw.BoostedTreesGetEnsembleStates))

    def predict(self, buckets: Sequence[tf.Tensor]) -> tf.Tensor:
        """The logits of examples, float32 [batch, 1]; `buckets` are int32 [batch] for each feature."""
        logits: tf.Tensor = self.run(_raw.BoostedTreesPredict, bucketized_features=list(buckets), logits_dimension=1)
        return logits

    def explain(self, buckets: Sequence[tf.Tensor]) -> tf.Tensor:
        """For each example a `DebugOutput` message, string [batch]: the features of its splits, logits on its way."""
        messages: tf.Tensor = self.run(
            _raw.BoostedTreesExampleDebugOutputs, bucketized_features=list(buckets), logits_dimension=1
        )
        return messages


class _SavedEnsemble(SaveableObject):
    """An ensemble in a checkpoint: its stamp and its message."""

    def __init__(self, ensemble: Ensemble, make: tf.Operation) -> None:
        self._ensemble, self._make = ensemble, make
        name = ensemble.handle.name
        parts = zip(ensemble.serialized(), ("_stamp", "_serialized"), strict=True)
        super().__init__(ensemble.handle, [SaveSpec(tensor, "", name + part) for tensor, part in parts], name)

    def restore(self, restored_tensors: list[tf.Tensor], restored_shapes: list[object] | None) -> tf.Operation:
        with tf.control_dependencies([self._make]):
            return self._ensemble.replace(*restored_tensors)


class Quantiles:
    """The quantiles of features of numbers; their boundaries are empty until `flush` has run.

    Args:
        scope: a name scope, with a "/" at the end.
        count: how many features there are.
        epsilon: the greatest error of a quantile, as a part of the examples.
    """

    def __init__(self, scope: str, count: int, epsilon: float) -> None:
        self._count, self._epsilon = count, epsilon
        with tf.name_scope(scope):
            self.handle: tf.Tensor = _raw.BoostedTreesQuantileStreamResourceHandleOp(
                container="", shared_name=scope, name=scope
            )
            make = self.run(_raw.BoostedTreesCreateQuantileStreamResource, epsilon=epsilon, num_streams=np.int64(count))
            is_made = self.run(_raw.IsBoostedTreesQuantileStreamResourceInitialized)
            register_object(MadeObject(self.handle, make, is_made))
            tf.add_to_collection(tf.GraphKeys.SAVEABLE_OBJECTS, _SavedBoundaries(self, make))

    def run(self, operation: Callable[..., Any], **inputs: TensorLike) -> Any:
        """The results of an operation of `tf.raw_ops` on the quantiles, where they are."""
        with tf.device(self.handle.device):
            return operation(quantile_stream_resource_handle=self.handle, **inputs)

    def boundaries(self) -> list[tf.Tensor]:
        """The boundaries between the buckets of each feature, float32 [n]."""
        found: list[tf.Tensor] = self.run(
            _raw.BoostedTreesQuantileStreamResourceGetBucketBoundaries, num_features=self._count
        )
        return list(found)

    def set_boundaries(self, boundaries: Sequence[tf.Tensor]) -> tf.Operation:
        """Replaces the boundaries."""
        replaced: tf.Operation = self.run(
            _raw.BoostedTreesQuantileStreamResourceDeserialize, bucket_boundaries=list(boundaries)
        )
        return replaced

    def add(self, values: Sequence[tf.Tensor], weights: tf.Tensor) -> tf.Operation:
        """Takes a batch into account: float32 [batch] for each feature, and the weights of examples, [batch] or [1]."""
        summaries = _raw.BoostedTreesMakeQuantileSummaries(
            float_values=list(values), example_weights=weights, epsilon=self._epsilon
        )
        added: tf.Operation = self.run(_raw.BoostedTreesQuantileStreamResourceAddSummaries, summaries=list(summaries))
        return added

    def flush(self, buckets: int) -> tf.Operation:
        """Makes boundaries of so many buckets from what was added."""
        flushed: tf.Operation = self.run(_raw.BoostedTreesQuantileStreamResourceFlush, num_buckets=np.int64(buckets))
        return flushed


class _SavedBoundaries(SaveableObject):
    """Boundaries of buckets in a checkpoint."""

    def __init__(self, quantiles: Quantiles, make: tf.Operation) -> None:
        self._quantiles, self._make = quantiles, make
        name = quantiles.handle.name
        specs = [
            SaveSpec(tensor, "", f"{name}_bucket_boundaries_{i}") for i, tensor in enumerate(quantiles.boundaries())
        ]
        super().__init__(quantiles.handle, specs, name)

    def restore(self, restored_tensors: list[tf.Tensor], restored_shapes: list[object] | None) -> tf.Operation:
        with tf.control_dependencies([self._make]):
            return self._quantiles.set_boundaries(restored_tensors)
