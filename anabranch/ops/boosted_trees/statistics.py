"""Sums of gradients and hessians by node and bucket, and the best splits of nodes that follow from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from anabranch.core.arrays import Array, HostArray
from anabranch.core.kernel_context import OperationContext
from anabranch.core.shapes import TensorShape
from anabranch.graph.building import define_op
from anabranch.ops import shape_rules
from anabranch.ops.boosted_trees.gains import weight_and_gain

#: gains that differ by less are equal
_TOLERANCE: Final = 1e-15
_LOWEST: Final = float(np.finfo(np.float32).min)
_LEFT, _RIGHT, _EQUAL = b"INEQUALITY_DEFAULT_LEFT", b"INEQUALITY_DEFAULT_RIGHT", b"EQUALITY_DEFAULT_RIGHT"
#: how many numbers a summary may have
_LARGEST: Final = 2**31 - 1


def _check_index(ctx: OperationContext, name: str, values: HostArray, limit: int) -> None:
    inside = bool(((values >= 0) & (values < limit)).all())
    ctx.check(
        inside, f"{name} must be in [0, {limit}), got values from {values.min(initial=0)} to {values.max(initial=0)}"
    )


def _check_rows(ctx: OperationContext, rows: int, **values: HostArray) -> None:
    for name, value in values.items():
        ctx.check(value.shape[0] == rows, f"{name} must have {rows} rows as node_ids has, got {value.shape[0]}")


def _check_size(ctx: OperationContext, *dims: int) -> None:
    size = 1
    for dim in dims:
        size *= dim
    ctx.check(size <= _LARGEST, f"a summary of shape {list(dims)} is too large")


# ---------------------------------------------------------------------- sums
BoostedTreesMakeStatsSummary = define_op(
    "BoostedTreesMakeStatsSummary",
    "node_ids: int32, gradients: float, hessians: float, bucketized_features_list: num_features * int32 -> "
    "stats_summary: float",
    "max_splits: int >= 1, num_buckets: int >= 1, num_features: int >= 1",
    ranks={"node_ids": 1, "gradients": 2, "hessians": 2},
)


@BoostedTreesMakeStatsSummary.shape
def _(
    node_ids: TensorShape,
    gradients: TensorShape,
    hessians: TensorShape,
    bucketized_features_list: list[TensorShape],
    *,
    max_splits: int,
    num_buckets: int,
    num_features: int,
) -> TensorShape:
    shape_rules.merged(gradients, hessians)
    for i, shape in enumerate(bucketized_features_list):
        shape_rules.with_rank(shape, 1, f"argument 'bucketized_features_list'[{i}]")
    shape_rules.merged(node_ids, gradients[:1], *bucketized_features_list)
    return TensorShape([num_features, max_splits, num_buckets, 2])


@BoostedTreesMakeStatsSummary.host_kernel
def _(
    node_ids: Array,
    gradients: Array,
    hessians: Array,
    bucketized_features_list: list[Array],
    *,
    max_splits: int,
    num_buckets: int,
    ctx: OperationContext,
) -> Any:
    _check_rows(ctx, node_ids.size, gradients=gradients, hessians=hessians)
    _check_index(ctx, "node_ids", node_ids, max_splits)
    _check_size(ctx, len(bucketized_features_list), max_splits, num_buckets, 2)
    sums = np.zeros((len(bucketized_features_list), max_splits, num_buckets, 2))
    stats = np.concatenate([gradients[:, :1], hessians[:, :1]], axis=1)
    for total, feature in zip(sums, bucketized_features_list, strict=True):
        _check_rows(ctx, node_ids.size, bucketized_features_list=feature)
        _check_index(ctx, "bucketized_features_list", feature, num_buckets)
        np.add.at(total, (node_ids, feature), stats)
    return sums.astype(np.float32)


_BUCKETS = "max_splits: int >= 1, num_buckets: int >= 1"
BoostedTreesAggregateStats = define_op(
    "BoostedTreesAggregateStats",
    "node_ids: int32, gradients: float, hessians: float, feature: int32 -> stats_summary: float",
    _BUCKETS,
    ranks={"node_ids": 1, "gradients": 2, "hessians": 2, "feature": 2},
)


def _stats_dimension(gradients: TensorShape, hessians: TensorShape) -> int | None:
    logits, others = gradients.with_rank(2).as_list()[1], hessians.with_rank(2).as_list()[1]
    return None if logits is None or others is None else logits + others


@BoostedTreesAggregateStats.shape
def _(
    node_ids: TensorShape,
    gradients: TensorShape,
    hessians: TensorShape,
    feature: TensorShape,
    *,
    max_splits: int,
    num_buckets: int,
) -> TensorShape:
    feature = feature.with_rank(2)
    shape_rules.merged(node_ids, gradients[:1], hessians[:1], feature[:1])
    # TensorFlow's rule says [max_splits, num_buckets, ...], which is not what its kernel gives
    return TensorShape([max_splits, feature[1], num_buckets + 1, _stats_dimension(gradients, hessians)])


@BoostedTreesAggregateStats.host_kernel
def _(
    node_ids: Array,
    gradients: Array,
    hessians: Array,
    feature: Array,
    *,
    max_splits: int,
    num_buckets: int,
    ctx: OperationContext,
) -> Any:
    _check_rows(ctx, node_ids.size, gradients=gradients, hessians=hessians, feature=feature)
    _check_index(ctx, "node_ids", node_ids, max_splits)
    buckets = np.where(feature == -1, num_buckets, feature)  # what is missing has the last bucket
    _check_index(ctx, "feature", buckets, num_buckets + 1)
    stats = np.concatenate([gradients, hessians], axis=1)
    dims = max_splits, feature.shape[1], num_buckets + 1, stats.shape[1]
    _check_size(ctx, *dims)
    sums = np.zeros(dims)
    for dimension in range(feature.shape[1]):
        np.add.at(sums[:, dimension], (node_ids, buckets[:, dimension]), stats)
    return sums.astype(np.float32)


BoostedTreesSparseAggregateStats = define_op(
    "BoostedTreesSparseAggregateStats",
    "node_ids: int32, gradients: float, hessians: float, feature_indices: int32, feature_values: int32, "
    "feature_shape: int32 -> stats_summary_indices: int32, stats_summary_values: float, stats_summary_shape: int32",
    _BUCKETS,
    ranks={
        "node_ids": 1,
        "gradients": 2,
        "hessians": 2,
        "feature_indices": 2,
        "feature_values": 1,
        "feature_shape": 1,
    },
)


@BoostedTreesSparseAggregateStats.shape
def _(
    node_ids: TensorShape,
    gradients: TensorShape,
    hessians: TensorShape,
    feature_indices: TensorShape,
    feature_values: TensorShape,
    feature_shape: TensorShape,
) -> list[TensorShape]:
    shape_rules.merged(node_ids, gradients[:1], hessians[:1])
    shape_rules.merged(feature_indices[:1], feature_values)
    shape_rules.merged(feature_shape, TensorShape([2]))
    return [TensorShape([None, 4]), TensorShape([None]), TensorShape([4])]


@BoostedTreesSparseAggregateStats.host_kernel
def _(
    node_ids: Array,
    gradients: Array,
    hessians: Array,
    feature_indices: Array,
    feature_values: Array,
    feature_shape: Array,
    *,
    max_splits: int,
    num_buckets: int,
    ctx: OperationContext,
) -> Any:
    batch, dimensions = node_ids.size, int(feature_shape[1])
    _check_rows(ctx, batch, gradients=gradients, hessians=hessians)
    _check_index(ctx, "node_ids", node_ids, max_splits + 1)
    ctx.check(
        feature_indices.shape == (feature_values.size, 2),
        f"feature_indices must have shape [{feature_values.size}, 2], got {list(feature_indices.shape)}",
    )
    _check_index(ctx, "feature_values", feature_values, num_buckets + 1)
    _check_index(ctx, "feature_indices[:, 0]", feature_indices[:, 0], batch)
    _check_index(ctx, "feature_indices[:, 1]", feature_indices[:, 1], dimensions)
    _check_size(ctx, batch, dimensions)
    places = feature_indices[:, 0].astype(np.int64) * dimensions + feature_indices[:, 1]
    ctx.check(bool((np.diff(places) > 0).all()), "feature_indices should be increasing; reorder the sparse tensor")
    buckets = np.full(batch * dimensions, num_buckets, np.int64)  # what is missing has the last bucket
    buckets[places] = feature_values
    stats = np.concatenate([gradients, hessians], axis=1)
    # the place of a sum as one number, which sorts in a tenth of the time of three
    nodes, rank = np.unique(node_ids, return_inverse=True)
    used, bucket = np.unique(buckets, return_inverse=True)
    keys = (np.repeat(rank.reshape(-1), dimensions) * dimensions + np.tile(np.arange(dimensions), batch)) * len(used)
    keys += bucket.reshape(-1)
    found, at = np.unique(keys, return_inverse=True)
    sums = np.zeros((len(found), stats.shape[1]), np.float32)
    np.add.at(sums, at.reshape(-1), np.repeat(stats, dimensions, axis=0))
    place, bucket = np.divmod(found, max(len(used), 1))
    node, dimension = np.divmod(place, max(dimensions, 1))
    summed = np.column_stack([nodes[node], dimension, used[bucket]])
    indices = np.column_stack(
        [np.repeat(summed, stats.shape[1], axis=0), np.tile(np.arange(stats.shape[1]), len(found))]
    )  # fmt: skip
    shape = np.array([max_splits, dimensions, num_buckets + 1, stats.shape[1]], np.int32)
    return indices.astype(np.int32), sums.reshape(-1), shape


# ---------------------------------------------------------------------- splits
@dataclass
class _Splits:
    """The splits found for nodes, one after the other."""

    nodes: list[int] = field(default_factory=list)
    gains: list[Any] = field(default_factory=list)
    dimensions: list[int] = field(default_factory=list)
    thresholds: list[int] = field(default_factory=list)
    left: list[HostArray] = field(default_factory=list)
    right: list[HostArray] = field(default_factory=list)
    kinds: list[bytes] = field(default_factory=list)

    def add(
        self, node: int, gain: HostArray, place: tuple[int, int, bytes], sides: tuple[HostArray, HostArray]
    ) -> None:
        self.nodes.append(node)
        self.gains.append(gain)
        self.dimensions.append(place[0])
        self.thresholds.append(place[1])
        self.kinds.append(place[2])
        self.left.append(sides[0])
        self.right.append(sides[1])

    def columns(self, tree_complexity: HostArray, logits: int) -> tuple[HostArray, ...]:
        count = len(self.nodes)
        return (
            np.array(self.nodes, np.int32),
            np.array(self.gains, np.float32) - np.float32(tree_complexity),
            np.array(self.dimensions, np.int32),
            np.array(self.thresholds, np.int32),
            np.array(self.left, np.float32).reshape(count, logits),
            np.array(self.right, np.float32).reshape(count, logits),
            np.array(self.kinds, object).reshape(count),
        )


def _first_best(gains: HostArray) -> int | None:
    """The first gain that no other exceeds; None: all are the lowest of numbers, or no numbers."""
    best, at = _LOWEST, None
    for i, gain in enumerate(gains.tolist()):
        if gain - best >= _TOLERANCE:
            best, at = gain, i
    return at


def _best(
    left: tuple[HostArray, HostArray], right: tuple[HostArray, HostArray], l1: HostArray, l2: HostArray
) -> tuple[int, Any, tuple[HostArray, HostArray]] | None:
    """Of candidates, whose sides have these sums: the best, the gain of both its sides, their weights."""
    left_weights, left_gains = weight_and_gain(*left, l1, l2)
    right_weights, right_gains = weight_and_gain(*right, l1, l2)
    gains = left_gains + right_gains
    at = _first_best(gains)
    return None if at is None else (at, gains[at], (left_weights[at], right_weights[at]))


def _check_range(ctx: OperationContext, node_id_range: HostArray, nodes: int) -> range:
    ctx.check(node_id_range.shape == (2,), f"node_id_range argument must have shape [2], got {node_id_range.shape}")
    first, last = (int(i) for i in node_id_range)
    inside = last <= first or 0 <= first < last <= nodes
    ctx.check(inside, f"node_id_range must be within [0, {nodes}), got [{first}, {last})")
    return range(first, last)


_REGULAR = "l1: float, l2: float, tree_complexity: float, min_node_weight: float"
BoostedTreesCalculateBestGainsPerFeature = define_op(
    "BoostedTreesCalculateBestGainsPerFeature",
    f"node_id_range: int32, stats_summary_list: num_features * float, {_REGULAR} -> "
    "node_ids_list: num_features * int32, gains_list: num_features * float, thresholds_list: num_features * int32, "
    "left_node_contribs_list: num_features * float, right_node_contribs_list: num_features * float",
    "max_splits: int >= 1, num_features: int >= 1",
    ranks={"node_id_range": 1, "l1": 0, "l2": 0, "tree_complexity": 0},
    late_ranks={"min_node_weight": 0},
)


@BoostedTreesCalculateBestGainsPerFeature.shape
def _(
    node_id_range: TensorShape,
    stats_summary_list: list[TensorShape],
    l1: TensorShape,
    l2: TensorShape,
    tree_complexity: TensorShape,
    min_node_weight: TensorShape,
    *,
    max_splits: int,
    num_features: int,
) -> list[list[TensorShape]]:
    shape_rules.merged(node_id_range, TensorShape([2]))
    for i, shape in enumerate(stats_summary_list):
        shape_rules.with_rank(shape, 3, f"argument 'stats_summary_list'[{i}]")
    shape_rules.merged(TensorShape([max_splits, None, 2]), *stats_summary_list)
    vector, matrix = TensorShape([None]), TensorShape([None, 1])
    return [[shape] * num_features for shape in (vector, vector, vector, matrix, matrix)]


@BoostedTreesCalculateBestGainsPerFeature.host_kernel
def _(
    node_id_range: Array,
    stats_summary_list: list[Array],
    l1: Array,
    l2: Array,
    tree_complexity: Array,
    min_node_weight: Array,
    *,
    ctx: OperationContext,
) -> Any:
    outputs = []
    for summary in stats_summary_list:
        ctx.check(summary.ndim == 3 and summary.shape[2] == 2, f"a summary has shape [_, _, 2], got {summary.shape}")
        splits = _Splits()
        for node in _check_range(ctx, node_id_range, len(summary)):
            sums = np.cumsum(summary[node], axis=0, dtype=np.float32)
            total = sums[-1] if len(sums) else np.zeros(2, np.float32)
            if total[1] < min_node_weight:
                continue
            _, parent = weight_and_gain(total[:1], total[1:], l1, l2)
            best = _best(_parts(sums, 1), _parts(total - sums, 1), l1, l2)
            nothing = np.zeros(1, np.float32)
            at, gain, sides = best or (0, np.float32(_LOWEST), (nothing, nothing))
            splits.add(node, gain - parent, (0, at, _LEFT), sides)
        columns = splits.columns(tree_complexity, 1)
        outputs.append([columns[i] for i in (0, 1, 3, 4, 5)])
    return [list(column) for column in zip(*outputs, strict=True)]


_FOUND = (
    "node_ids: int32, gains: float, feature_dimensions: int32, thresholds: int32, left_node_contribs: float, "
    "right_node_contribs: float, split_with_default_directions: string"
)
BoostedTreesCalculateBestFeatureSplit = define_op(
    "BoostedTreesCalculateBestFeatureSplit",
    f"node_id_range: int32, stats_summary: float, {_REGULAR} -> {_FOUND}",
    "logits_dimension: int >= 1, split_type: {'inequality', 'equality'} = 'inequality'",
    ranks={"node_id_range": 1, "stats_summary": 4, "l1": 0, "l2": 0, "tree_complexity": 0, "min_node_weight": 0},
)


def _found_shapes(logits: int) -> list[TensorShape]:
    vector, matrix = TensorShape([None]), TensorShape([None, logits])
    return [vector, vector, vector, vector, matrix, matrix, vector]


@BoostedTreesCalculateBestFeatureSplit.shape
def _(
    node_id_range: TensorShape,
    stats_summary: TensorShape,
    l1: TensorShape,
    l2: TensorShape,
    tree_complexity: TensorShape,
    min_node_weight: TensorShape,
    *,
    logits_dimension: int,
) -> list[TensorShape]:
    shape_rules.merged(node_id_range, TensorShape([2]))
    return _found_shapes(logits_dimension)


def _check_regular(ctx: OperationContext, logits: int, hessians: int, l1: HostArray, l2: HostArray) -> None:
    fits = 0 < hessians <= logits * logits
    ctx.check(fits, f"hessian dim should be > 0 and <= {logits * logits}, got {hessians}")
    for name, value in (("l1", l1), ("l2", l2)):
        ctx.check(bool(value >= 0), f"{name} = {value} but it should be >= 0")
    plain = logits == 1 or bool(l1 == 0)
    ctx.check(plain, f"l1 != 0 is not yet supported for multi-class regularization, got {l1}")


@BoostedTreesCalculateBestFeatureSplit.host_kernel
def _(
    node_id_range: Array,
    stats_summary: Array,
    l1: Array,
    l2: Array,
    tree_complexity: Array,
    min_node_weight: Array,
    *,
    logits_dimension: int,
    split_type: bytes,
    ctx: OperationContext,
) -> Any:
    _check_regular(ctx, logits_dimension, stats_summary.shape[3] - logits_dimension, l1, l2)
    splits = _Splits()
    dimensions, buckets = stats_summary.shape[1], stats_summary.shape[2] - 1
    for node in _check_range(ctx, node_id_range, len(stats_summary)):
        summary = stats_summary[node]
        if not dimensions or buckets <= 0:
            continue
        whole = _parts(np.cumsum(summary[0], axis=0, dtype=np.float32)[-1], logits_dimension)
        if np.linalg.norm(whole[1]) < min_node_weight:
            continue
        _, parent = weight_and_gain(*whole, l1, l2)
        left, total, kinds = _equalities(summary, whole) if split_type == b"equality" else _inequalities(summary)
        best = _best(_parts(left, logits_dimension), _parts(total - left, logits_dimension), l1, l2)
        if best is not None:
            at, gain, sides = best
            dimension, rest = divmod(at, buckets * len(kinds))
            splits.add(node, gain - parent, (dimension, rest // len(kinds), kinds[rest % len(kinds)]), sides)
    return splits.columns(tree_complexity, logits_dimension)


def _parts(stats: HostArray, logits: int) -> tuple[HostArray, HostArray]:
    """Gradients and hessians."""
    return stats[..., :logits], stats[..., logits:]


def _inequalities(summary: HostArray) -> tuple[HostArray, HostArray, Sequence[bytes]]:
    """Of one node: the sums of the left sides of all splits, and of both sides, by dimension, bucket, and kind."""
    sums = np.cumsum(summary, axis=1, dtype=np.float32)
    with_missing = sums[:, :-1] + summary[:, -1:]
    left = np.stack([with_missing, sums[:, :-1]], axis=2)
    total = np.broadcast_to(sums[:, -1][:, None, None, :], left.shape)
    width = summary.shape[-1]
    return left.reshape(-1, width), total.reshape(-1, width), (_LEFT, _RIGHT)


def _equalities(
    summary: HostArray, whole: tuple[HostArray, HostArray]
) -> tuple[HostArray, HostArray, Sequence[bytes]]:  # fmt: skip
    left = summary[:, :-1].reshape(-1, summary.shape[-1])
    return left, np.broadcast_to(np.concatenate(whole), left.shape), (_EQUAL,)


BoostedTreesSparseCalculateBestFeatureSplit = define_op(
    "BoostedTreesSparseCalculateBestFeatureSplit",
    "node_id_range: int32, stats_summary_indices: int32, stats_summary_values: float, stats_summary_shape: int32, "
    f"{_REGULAR} -> {_FOUND}",
    "logits_dimension: int >= 1, split_type: {'inequality'} = 'inequality'",
    ranks={
        "node_id_range": 1,
        "stats_summary_indices": 2,
        "stats_summary_values": 1,
        "stats_summary_shape": 1,
        "l1": 0,
        "l2": 0,
        "tree_complexity": 0,
        "min_node_weight": 0,
    },
)


@BoostedTreesSparseCalculateBestFeatureSplit.shape
def _(
    node_id_range: TensorShape,
    stats_summary_indices: TensorShape,
    stats_summary_values: TensorShape,
    stats_summary_shape: TensorShape,
    l1: TensorShape,
    l2: TensorShape,
    tree_complexity: TensorShape,
    min_node_weight: TensorShape,
) -> list[TensorShape]:
    shape_rules.merged(node_id_range, TensorShape([2]))
    shape_rules.merged(stats_summary_shape, TensorShape([4]))
    return _found_shapes(1)


@BoostedTreesSparseCalculateBestFeatureSplit.host_kernel
def _(
    node_id_range: Array,
    stats_summary_indices: Array,
    stats_summary_values: Array,
    stats_summary_shape: Array,
    l1: Array,
    l2: Array,
    tree_complexity: Array,
    min_node_weight: Array,
    *,
    ctx: OperationContext,
) -> Any:
    indices, values = stats_summary_indices, stats_summary_values
    fits = stats_summary_shape.shape == (4,) and indices.shape == (values.size, 4) and stats_summary_shape[3] >= 2
    ctx.check(
        fits, f"stats_summary is no sparse tensor of rank 4: indices {indices.shape}, shape {stats_summary_shape}"
    )
    first, last = (int(i) for i in node_id_range)
    inside = bool(((indices[:, 0] >= first) & (indices[:, 0] < last)).all())
    ctx.check(inside, f"stats_summary_indices has nodes {indices[:, 0].tolist()}, not all of them in [{first}, {last})")
    _check_index(ctx, "stats_summary_indices[:, 3]", indices[:, 3], int(stats_summary_shape[3]))
    buckets = int(stats_summary_shape[2]) - 1
    splits = _Splits()
    ends = np.flatnonzero(np.diff(indices[:, 0])) + 1
    for rows in np.split(np.arange(values.size), ends):
        if rows.size:
            _split_sparse(splits, indices[rows], values[rows], buckets, (l1, l2, min_node_weight))
    return splits.columns(tree_complexity, 1)


def _split_sparse(
    splits: _Splits,
    indices: HostArray,
    values: HostArray,
    buckets: int,
    regular: tuple[HostArray, HostArray, HostArray],
) -> None:
    """Adds the best split of one node, whose statistics are given by dimension, bucket and statistic."""
    l1, l2, least_weight = regular
    keys, at = np.unique(indices[:, 1:3], axis=0, return_inverse=True)
    stats = np.zeros((len(keys), 2), np.float32)
    known = indices[:, 3] < 2
    stats[at.reshape(-1)[known], indices[known, 3]] = values[known]
    of_first = stats[keys[:, 0] == keys[0, 0]]
    total = np.cumsum(of_first, axis=0, dtype=np.float32)[-1]
    if total[1] < least_weight:
        return
    _, parent = weight_and_gain(total[:1], total[1:], l1, l2)
    left, right, places = [], [], []
    for dimension in np.unique(keys[:, 0]).tolist():
        mine = keys[:, 0] == dimension
        present = mine & (keys[:, 1] < buckets)
        missing = stats[mine & (keys[:, 1] == buckets)].sum(axis=0, dtype=np.float32)
        sums = np.cumsum(stats[present], axis=0, dtype=np.float32)
        left.append(np.stack([sums, sums + missing], axis=1).reshape(-1, 2))
        right.append(np.stack([total - sums, total - missing - sums], axis=1).reshape(-1, 2))
        places += [(dimension, b, kind) for b in keys[present, 1].tolist() for kind in (_RIGHT, _LEFT)]
    best = _best(_parts(np.concatenate(left), 1), _parts(np.concatenate(right), 1), l1, l2)
    if best is not None:
        which, gain, sides = best
        splits.add(int(indices[0, 0]), gain - parent, places[which], sides)


for _op in (
    BoostedTreesMakeStatsSummary,
    BoostedTreesAggregateStats,
    BoostedTreesSparseAggregateStats,
    BoostedTreesCalculateBestGainsPerFeature,
    BoostedTreesCalculateBestFeatureSplit,
    BoostedTreesSparseCalculateBestFeatureSplit,
):
    _op.not_differentiable()
