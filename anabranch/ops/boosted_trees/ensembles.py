"""Ensembles of boosted trees: making and saving them, predictions, growth. The object: `state.boosted_trees`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from anabranch.core.arrays import Array, HostArray
from anabranch.core.resources import ResourceHandle
from anabranch.core.shapes import TensorShape
from anabranch.errors import InvalidArgumentError
from anabranch.graph.building import define_op
from anabranch.graph.kernel_contexts import StepHostContext
from anabranch.ops import shape_rules
from anabranch.ops.boosted_trees.gains import weight_and_gain
from anabranch.ops.resources.shared_objects import is_made, make_object, named_handle, object_behind
from anabranch.proto import boosted_trees_pb2
from anabranch.state.boosted_trees import Split, TreeEnsemble, best_splits

_KIND: Final = "boosted trees ensemble"
_HANDLE: Final = {"tree_ensemble_handle": 0}
_LOADED: Final = {**_HANDLE, "stamp_token": 0, "tree_ensemble_serialized": 0}


def _ensemble(ctx: StepHostContext, handle: ResourceHandle) -> TreeEnsemble:
    ensemble: TreeEnsemble = object_behind(ctx, handle, _KIND)
    return ensemble


# ---------------------------------------------------------------------- the resource
BoostedTreesEnsembleResourceHandleOp = define_op(
    "BoostedTreesEnsembleResourceHandleOp",
    "-> resource: resource",
    "container: string = '', shared_name: string = ''",
    stateful=True,
)
BoostedTreesEnsembleResourceHandleOp.shape(shape_rules.scalar)


@BoostedTreesEnsembleResourceHandleOp.host_kernel
def _(*, ctx: StepHostContext) -> ResourceHandle:
    return named_handle(ctx, _KIND)


IsBoostedTreesEnsembleInitialized = define_op(
    "IsBoostedTreesEnsembleInitialized",
    "tree_ensemble_handle: resource -> is_initialized: bool",
    stateful=True,
    ranks=_HANDLE,
)
IsBoostedTreesEnsembleInitialized.shape(shape_rules.scalar)


@IsBoostedTreesEnsembleInitialized.host_kernel
def _(tree_ensemble_handle: ResourceHandle, *, ctx: StepHostContext) -> bool:
    return is_made(ctx, tree_ensemble_handle, _KIND)


_SAVED = "tree_ensemble_handle: resource, stamp_token: int64, tree_ensemble_serialized: string ->"
BoostedTreesCreateEnsemble = define_op("BoostedTreesCreateEnsemble", _SAVED, stateful=True, ranks=_LOADED)
BoostedTreesCreateEnsemble.shape(shape_rules.no_outputs)
BoostedTreesDeserializeEnsemble = define_op("BoostedTreesDeserializeEnsemble", _SAVED, stateful=True, ranks=_LOADED)
BoostedTreesDeserializeEnsemble.shape(shape_rules.no_outputs)


@BoostedTreesCreateEnsemble.host_kernel
def _(
    tree_ensemble_handle: ResourceHandle, stamp_token: Array, tree_ensemble_serialized: Array, *, ctx: StepHostContext
) -> None:
    made = TreeEnsemble(tree_ensemble_serialized.item(), int(stamp_token))
    make_object(ctx, tree_ensemble_handle, _KIND, lambda: made)


@BoostedTreesDeserializeEnsemble.host_kernel
def _(
    tree_ensemble_handle: ResourceHandle, stamp_token: Array, tree_ensemble_serialized: Array, *, ctx: StepHostContext
) -> None:
    ensemble = _ensemble(ctx, tree_ensemble_handle)
    with ensemble.lock:
        ensemble.replace(tree_ensemble_serialized.item(), int(stamp_token))


BoostedTreesSerializeEnsemble = define_op(
    "BoostedTreesSerializeEnsemble",
    "tree_ensemble_handle: resource -> stamp_token: int64, tree_ensemble_serialized: string",
    stateful=True,
    ranks=_HANDLE,
)


@BoostedTreesSerializeEnsemble.shape
def _(tree_ensemble_handle: TensorShape) -> list[TensorShape]:
    return [shape_rules.SCALAR] * 2


@BoostedTreesSerializeEnsemble.host_kernel
def _(tree_ensemble_handle: ResourceHandle, *, ctx: StepHostContext) -> Any:
    ensemble = _ensemble(ctx, tree_ensemble_handle)
    with ensemble.lock:
        return ensemble.stamp, ensemble.serialized()


BoostedTreesGetEnsembleStates = define_op(
    "BoostedTreesGetEnsembleStates",
    "tree_ensemble_handle: resource -> stamp_token: int64, num_trees: int32, num_finalized_trees: int32, "
    "num_attempted_layers: int32, last_layer_nodes_range: int32",
    stateful=True,
    ranks=_HANDLE,
)


@BoostedTreesGetEnsembleStates.shape
def _(tree_ensemble_handle: TensorShape) -> list[TensorShape]:
    return [*[shape_rules.SCALAR] * 4, TensorShape([2])]


@BoostedTreesGetEnsembleStates.host_kernel
def _(tree_ensemble_handle: ResourceHandle, *, ctx: StepHostContext) -> Any:
    ensemble = _ensemble(ctx, tree_ensemble_handle)
    with ensemble.lock:
        counts = ensemble.tree_count, ensemble.final_tree_count, ensemble.attempted_layers
        return ensemble.stamp, *counts, np.array(ensemble.last_layer, np.int32)


# ---------------------------------------------------------------------- predictions
def _batch(features: list[TensorShape], *others: TensorShape) -> TensorShape:
    ranked = [shape_rules.with_rank(s, 1, f"argument 'bucketized_features'[{i}]") for i, s in enumerate(features)]
    return shape_rules.merged(*ranked, *others)


def _features(ctx: StepHostContext, features: list[HostArray]) -> list[HostArray]:
    """Features as vectors; a column is one too."""
    flat = [feature.reshape(-1) for feature in features]
    same = all(feature.size == flat[0].size for feature in flat)
    ctx.check(same, f"bucketized_features must have one size, got {[f.size for f in flat]}")
    return flat


_FEATURES = "num_bucketized_features: int >= 1, logits_dimension: int"
BoostedTreesPredict = define_op(
    "BoostedTreesPredict",
    "tree_ensemble_handle: resource, bucketized_features: num_bucketized_features * int32 -> logits: float",
    _FEATURES,
    stateful=True,
)


@BoostedTreesPredict.shape
def _(
    tree_ensemble_handle: TensorShape, bucketized_features: list[TensorShape], *, logits_dimension: int
) -> TensorShape:
    return _batch(bucketized_features).concatenate([logits_dimension])


@BoostedTreesPredict.host_kernel
def _(
    tree_ensemble_handle: ResourceHandle,
    bucketized_features: list[HostArray],
    *,
    logits_dimension: int,
    ctx: StepHostContext,
) -> Any:
    ensemble = _ensemble(ctx, tree_ensemble_handle)
    with ensemble.lock:
        return ensemble.predict(_features(ctx, bucketized_features), logits_dimension)


BoostedTreesTrainingPredict = define_op(
    "BoostedTreesTrainingPredict",
    "tree_ensemble_handle: resource, cached_tree_ids: int32, cached_node_ids: int32, "
    "bucketized_features: num_bucketized_features * int32 -> partial_logits: float, tree_ids: int32, node_ids: int32",
    _FEATURES,
    stateful=True,
)


@BoostedTreesTrainingPredict.shape
def _(
    tree_ensemble_handle: TensorShape,
    cached_tree_ids: TensorShape,
    cached_node_ids: TensorShape,
    bucketized_features: list[TensorShape],
    *,
    logits_dimension: int,
) -> list[TensorShape]:
    batch = _batch(bucketized_features, cached_tree_ids, cached_node_ids)
    return [batch.concatenate([logits_dimension]), batch, batch]


@BoostedTreesTrainingPredict.host_kernel
def _(
    tree_ensemble_handle: ResourceHandle,
    cached_tree_ids: HostArray,
    cached_node_ids: HostArray,
    bucketized_features: list[HostArray],
    *,
    logits_dimension: int,
    ctx: StepHostContext,
) -> Any:
    features = _features(ctx, bucketized_features)
    expected = (features[0].size,)
    for name, ids in (("cached_tree_ids", cached_tree_ids), ("cached_node_ids", cached_node_ids)):
        ctx.check(ids.shape == expected, f"{name} must have shape {list(expected)}, got {list(ids.shape)}")
    ensemble = _ensemble(ctx, tree_ensemble_handle)
    with ensemble.lock:
        return ensemble.training_predict(cached_tree_ids, cached_node_ids, features, logits_dimension)


BoostedTreesExampleDebugOutputs = define_op(
    "BoostedTreesExampleDebugOutputs",
    "tree_ensemble_handle: resource, bucketized_features: num_bucketized_features * int32 -> "
    "examples_debug_outputs_serialized: string",
    _FEATURES,
    stateful=True,
)


@BoostedTreesExampleDebugOutputs.shape
def _(tree_ensemble_handle: TensorShape, bucketized_features: list[TensorShape]) -> TensorShape:
    return _batch(bucketized_features)


@BoostedTreesExampleDebugOutputs.host_kernel
def _(
    tree_ensemble_handle: ResourceHandle,
    bucketized_features: list[HostArray],
    *,
    logits_dimension: int,
    ctx: StepHostContext,
) -> Any:
    one = logits_dimension == 1
    ctx.check(one, f"Currently only one dimensional outputs are supported, got logits_dimension {logits_dimension}.")
    ensemble = _ensemble(ctx, tree_ensemble_handle)
    with ensemble.lock:
        return np.array(ensemble.debug_outputs(_features(ctx, bucketized_features)), object)


# ---------------------------------------------------------------------- growth
BoostedTreesCenterBias = define_op(
    "BoostedTreesCenterBias",
    "tree_ensemble_handle: resource, mean_gradients: float, mean_hessians: float, l1: float, l2: float -> "
    "continue_centering: bool",
    stateful=True,
    ranks={"mean_gradients": 2, "mean_hessians": 2, "l1": 0, "l2": 0},
)


@BoostedTreesCenterBias.shape
def _(
    tree_ensemble_handle: TensorShape,
    mean_gradients: TensorShape,
    mean_hessians: TensorShape,
    l1: TensorShape,
    l2: TensorShape,
) -> TensorShape:
    shape_rules.merged(mean_gradients, mean_hessians)
    return shape_rules.SCALAR


@BoostedTreesCenterBias.host_kernel
def _(
    tree_ensemble_handle: ResourceHandle,
    mean_gradients: HostArray,
    mean_hessians: HostArray,
    l1: HostArray,
    l2: HostArray,
    *,
    ctx: StepHostContext,
) -> Any:
    fits = mean_gradients.shape == mean_hessians.shape and mean_gradients.shape[1:] == (1,) and mean_gradients.size > 0
    shapes = f"got {list(mean_gradients.shape)} and {list(mean_hessians.shape)}"
    ctx.check(fits, f"mean_gradients and mean_hessians must have shape [1, 1]: a bias has one logit; {shapes}")
    weight, _ = weight_and_gain(mean_gradients[0], mean_hessians[0], l1, l2)
    ensemble = _ensemble(ctx, tree_ensemble_handle)
    with ensemble.lock:
        goes_on = ensemble.center(weight[0])
        ensemble.stamp += 1
        return goes_on


def _candidates(
    ctx: StepHostContext, inputs: dict[str, Any], ids: HostArray, rate: np.float32
) -> Iterator[tuple[int, Split]]:
    """The splits that features propose, with the node of each."""
    kinds = set(boosted_trees_pb2.SplitTypeWithDefault.keys())
    for i, feature in enumerate(ids.tolist()):
        mine = {name: values[i] for name, values in inputs.items()}
        nodes = mine["node_ids"]
        for name, value in mine.items():
            rank = 2 if name.endswith("contribs") else 1
            fits = value.ndim == rank and value.shape[0] == nodes.size
            ctx.check(fits, f"{name}[{i}] must have rank {rank} and {nodes.size} rows, got {list(value.shape)}")
        for at, node in enumerate(nodes.tolist()):
            kind = mine["split_types"][at].decode()
            ctx.check(kind in kinds, f"split_types[{i}][{at}] must be one of {sorted(kinds)}, got {kind!r}")
            contributions = mine["left_node_contribs"][at], mine["right_node_contribs"][at]
            yield (
                node,
                Split(
                    feature,
                    int(mine["dimension_ids"][at]),
                    int(mine["thresholds"][at]),
                    mine["gains"][at],
                    rate * contributions[0],
                    rate * contributions[1],
                    kind,
                ),
            )


def _grow(
    ctx: StepHostContext,
    handle: ResourceHandle,
    inputs: dict[str, Any],
    ids: HostArray,
    rate: HostArray,
    max_depth: HostArray,
    pruning: int,
    logits: int = 1,
) -> None:
    count = len(inputs["node_ids"])
    ctx.check(ids.shape == (count,), f"feature_ids must have shape [{count}], got {list(ids.shape)}")
    splits = best_splits(_candidates(ctx, inputs, ids, np.float32(rate)))
    for node, split in splits.items():
        if split.left.size < logits or split.right.size < logits:
            raise InvalidArgumentError(None, ctx.op, f"the split of node {node} must have {logits} contributions")
    ensemble = _ensemble(ctx, handle)
    with ensemble.lock:
        ensemble.grow(splits, int(max_depth), pruning, logits)
        ensemble.stamp += 1


BoostedTreesUpdateEnsemble = define_op(
    "BoostedTreesUpdateEnsemble",
    "tree_ensemble_handle: resource, feature_ids: int32, node_ids: num_features * int32, gains: num_features * float, "
    "thresholds: num_features * int32, left_node_contribs: num_features * float, "
    "right_node_contribs: num_features * float, max_depth: int32, learning_rate: float ->",
    "pruning_mode: int >= 0, num_features: int >= 0",
    stateful=True,
    ranks={"feature_ids": 1},
    late_ranks={"max_depth": 0, "learning_rate": 0},
)


def _check_rows(vectors: dict[str, list[TensorShape]], matrices: dict[str, list[TensorShape]]) -> None:
    """All that is said of one feature has one row for each node."""
    names = [*vectors, *matrices]
    for i, row in enumerate(zip(*vectors.values(), *matrices.values(), strict=True)):
        ranked = [
            shape_rules.with_rank(shape, 1 if name in vectors else 2, f"argument {name!r}[{i}]")
            for name, shape in zip(names, row, strict=True)
        ]
        shape_rules.merged(*(shape[:1] for shape in ranked))


@BoostedTreesUpdateEnsemble.shape
def _(
    tree_ensemble_handle: TensorShape,
    feature_ids: TensorShape,
    node_ids: list[TensorShape],
    gains: list[TensorShape],
    thresholds: list[TensorShape],
    left_node_contribs: list[TensorShape],
    right_node_contribs: list[TensorShape],
    max_depth: TensorShape,
    learning_rate: TensorShape,
) -> tuple[()]:
    shape_rules.merged(feature_ids, TensorShape([len(node_ids)]))
    _check_rows(
        {"node_ids": node_ids, "gains": gains, "thresholds": thresholds},
        {"left_node_contribs": left_node_contribs, "right_node_contribs": right_node_contribs},
    )
    return ()


@BoostedTreesUpdateEnsemble.host_kernel
def _(
    tree_ensemble_handle: ResourceHandle,
    feature_ids: HostArray,
    node_ids: list[HostArray],
    gains: list[HostArray],
    thresholds: list[HostArray],
    left_node_contribs: list[HostArray],
    right_node_contribs: list[HostArray],
    max_depth: HostArray,
    learning_rate: HostArray,
    *,
    pruning_mode: int,
    ctx: StepHostContext,
) -> None:
    inputs = {
        "node_ids": node_ids,
        "gains": gains,
        "thresholds": thresholds,
        "left_node_contribs": left_node_contribs,
        "right_node_contribs": right_node_contribs,
        "dimension_ids": [np.zeros_like(nodes) for nodes in node_ids],
        "split_types": [np.full(nodes.shape, b"INEQUALITY_DEFAULT_LEFT", object) for nodes in node_ids],
    }
    _grow(ctx, tree_ensemble_handle, inputs, feature_ids, learning_rate, max_depth, pruning_mode)


BoostedTreesUpdateEnsembleV2 = define_op(
    "BoostedTreesUpdateEnsembleV2",
    "tree_ensemble_handle: resource, feature_ids: num_groups * int32, dimension_ids: num_features * int32, "
    "node_ids: num_features * int32, gains: num_features * float, thresholds: num_features * int32, "
    "left_node_contribs: num_features * float, right_node_contribs: num_features * float, "
    "split_types: num_features * string, max_depth: int32, learning_rate: float, pruning_mode: int32 ->",
    "num_features: int >= 0, logits_dimension: int = 1, num_groups: int >= 1 = 1",
    stateful=True,
    late_ranks={"max_depth": 0, "learning_rate": 0, "pruning_mode": 0},
)


@BoostedTreesUpdateEnsembleV2.shape
def _(
    tree_ensemble_handle: TensorShape,
    feature_ids: list[TensorShape],
    dimension_ids: list[TensorShape],
    node_ids: list[TensorShape],
    gains: list[TensorShape],
    thresholds: list[TensorShape],
    left_node_contribs: list[TensorShape],
    right_node_contribs: list[TensorShape],
    split_types: list[TensorShape],
    max_depth: TensorShape,
    learning_rate: TensorShape,
    pruning_mode: TensorShape,
) -> tuple[()]:
    for i, ids in enumerate(feature_ids):
        shape_rules.with_rank(ids, 1, f"argument 'feature_ids'[{i}]")
    _check_rows(
        {"dimension_ids": dimension_ids, "node_ids": node_ids, "gains": gains}
        | {"thresholds": thresholds, "split_types": split_types},
        {"left_node_contribs": left_node_contribs, "right_node_contribs": right_node_contribs},
    )
    return ()


@BoostedTreesUpdateEnsembleV2.host_kernel
def _(
    tree_ensemble_handle: ResourceHandle,
    feature_ids: list[HostArray],
    dimension_ids: list[HostArray],
    node_ids: list[HostArray],
    gains: list[HostArray],
    thresholds: list[HostArray],
    left_node_contribs: list[HostArray],
    right_node_contribs: list[HostArray],
    split_types: list[HostArray],
    max_depth: HostArray,
    learning_rate: HostArray,
    pruning_mode: HostArray,
    *,
    logits_dimension: int,
    ctx: StepHostContext,
) -> None:
    inputs = {
        "node_ids": node_ids,
        "gains": gains,
        "thresholds": thresholds,
        "left_node_contribs": left_node_contribs,
        "right_node_contribs": right_node_contribs,
        "dimension_ids": dimension_ids,
        "split_types": split_types,
    }
    ids = np.concatenate(feature_ids)
    _grow(
        ctx, tree_ensemble_handle, inputs, ids, learning_rate, max_depth, int(pruning_mode), logits_dimension
    )  # fmt: skip


for _op in (
    BoostedTreesEnsembleResourceHandleOp,
    IsBoostedTreesEnsembleInitialized,
    BoostedTreesCreateEnsemble,
    BoostedTreesDeserializeEnsemble,
    BoostedTreesSerializeEnsemble,
    BoostedTreesGetEnsembleStates,
    BoostedTreesPredict,
    BoostedTreesTrainingPredict,
    BoostedTreesExampleDebugOutputs,
    BoostedTreesCenterBias,
    BoostedTreesUpdateEnsemble,
    BoostedTreesUpdateEnsembleV2,
):
    _op.not_differentiable()
