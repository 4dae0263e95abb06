"""Ensembles of decision trees that grow layer by layer, and what they predict.

An example begins at the root (node 0) of each tree and goes left or right by one of its features, which are numbers of
buckets, until it stands at a leaf; its logits are the sum of the leaves. Children stand behind their parent in a tree's
list of nodes, so that every path ends; `TreeEnsemble` checks that of ensembles that it reads.

A layer splits the leaves of the last tree. A tree that has all its layers is *final*, and a new one begins, which is a
single leaf of value 0. Where final trees are pruned, a final tree keeps a table of what became of each of its nodes,
since predictions of earlier steps are kept outside as pairs of a tree and a node.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from google.protobuf.message import DecodeError

from anabranch.core.arrays import HostArray
from anabranch.errors import InternalError, InvalidArgumentError
from anabranch.proto import boosted_trees_pb2 as pb

_FLOAT = np.float32
#: trees are not weighted: the learning rate is in their leaves
_TREE_WEIGHT: Final = 1.0
#: gains that differ by less are equal
_TOLERANCE: Final = 1e-15
#: a correction of the bias that is smaller, as a part of the bias, ends the centering
_LEAST_CORRECTION: Final = 0.01

NO_PRUNING: Final = 0
PRE_PRUNING: Final = 1
POST_PRUNING: Final = 2


@dataclass(frozen=True)
class Split:
    """A way to split a node: by `feature` at `threshold`. Children differ from the node by `left` and `right`."""

    feature: int
    dimension: int
    threshold: int
    gain: np.float32
    left: HostArray
    right: HostArray
    kind: str


def best_splits(candidates: Iterable[tuple[int, Split]]) -> dict[int, Split]:
    """The split of the greatest gain for each node, nodes in ascending order; of equal ones the lowest feature."""
    best: dict[int, Split] = {}
    for node, split in candidates:
        known = best.get(node)
        if known is None:
            best[node] = split
        elif abs(split.gain - known.gain) < _TOLERANCE:
            if split.feature < known.feature:
                best[node] = split
        elif split.gain - known.gain >= _TOLERANCE:
            best[node] = split
    return dict(sorted(best.items()))


@dataclass(frozen=True)
class _Table:
    """A tree as vectors over its nodes, for whole batches."""

    is_leaf: HostArray
    feature: HostArray
    threshold: HostArray
    is_equality: HostArray
    left: HostArray
    right: HostArray
    #: of leaves, and of inner nodes what they were before they were split (zero where that is not known)
    values: HostArray

    def descend(self, start: HostArray, features: list[HostArray]) -> HostArray:
        """The leaf in which each example ends that stands at the node `start`; `features` are theirs."""
        at = start.copy()
        moving = np.flatnonzero(~self.is_leaf[at])
        matrix = np.stack(features) if moving.size else np.zeros((0, 0), np.int32)
        while moving.size:
            nodes = at[moving]
            bucket = matrix[self.feature[nodes], moving]
            threshold = self.threshold[nodes]
            goes_left = np.where(self.is_equality[nodes], bucket == threshold, bucket <= threshold)
            at[moving] = np.where(goes_left, self.left[nodes], self.right[nodes])
            moving = moving[~self.is_leaf[at[moving]]]
        return at


class TreeEnsemble:
    """Trees, and how far they have grown. Its methods are called under `lock`.

    Args:
        serialized: a `TreeEnsemble` message; empty bytes are an ensemble without trees.
        stamp: grows with every change.

    Raises:
        InvalidArgumentError: the bytes are no sound ensemble.
    """

    title = "tree ensemble"

    def __init__(self, serialized: bytes, stamp: int) -> None:
        self.lock = threading.Lock()
        self._trees = _read(serialized)
        self.stamp = stamp
        self._tables: dict[int, _Table] = {}

    def replace(self, serialized: bytes, stamp: int) -> None:
        """Puts another ensemble in its place.

        Raises:
            InvalidArgumentError: the bytes are no sound ensemble.
        """
        self._trees = _read(serialized)
        self.stamp = stamp
        self._tables.clear()

    def serialized(self) -> bytes:
        """The message."""
        return self._trees.SerializeToString(deterministic=True)

    # ------------------------------------------------------------------ what it is
    @property
    def tree_count(self) -> int:
        """How many trees there are, the growing one included."""
        return len(self._trees.trees)

    @property
    def final_tree_count(self) -> int:
        """How many trees are final."""
        count = self.tree_count
        return count if count == 0 or self._trees.tree_metadata[count - 1].is_finalized else count - 1

    @property
    def attempted_layers(self) -> int:
        """How many layers were tried."""
        return int(self._trees.growing_metadata.num_layers_attempted)

    @property
    def last_layer(self) -> tuple[int, int]:
        """The nodes of the last layer, [start, end); of an ensemble without trees the root to be."""
        growing = self._trees.growing_metadata
        return growing.last_layer_node_start, max(1, growing.last_layer_node_end)

    # ------------------------------------------------------------------ predictions
    def predict(self, features: list[HostArray], logits: int) -> HostArray:
        """The logits of examples, whose features are one vector each: float32 [examples, logits].

        Raises:
            InvalidArgumentError: a tree splits by a feature that is not there.
            InternalError: leaves have another number of logits.
        """
        total = np.zeros((len(features[0]), logits), _FLOAT)
        start = np.zeros(len(total), np.int64)
        for tree in range(self.tree_count):
            table = self._table(tree, logits, len(features))
            total += self._weight(tree) * table.values[table.descend(start, features)]
        return total

    def training_predict(
        self, tree_ids: HostArray, node_ids: HostArray, features: list[HostArray], logits: int
    ) -> tuple[HostArray, HostArray, HostArray]:
        """What the logits change by since examples stood at nodes of trees; and where they stand now.

        Args:
            tree_ids, node_ids: where each example stood; node -1: it was not seen before.

        Raises:
            InvalidArgumentError: there is no such tree, node, or feature.
            InternalError: leaves have another number of logits.
        """
        batch, last = len(features[0]), self.tree_count - 1
        total, nodes = np.zeros((batch, logits), _FLOAT), np.zeros(batch, np.int32)
        if last < 0:
            return total, tree_ids.astype(np.int32), nodes
        if batch and not 0 <= tree_ids.min() <= tree_ids.max() <= last:
            raise InvalidArgumentError(None, None, f"cached_tree_ids must be in [0, {last}], got {tree_ids.tolist()}")
        for tree in range(int(tree_ids.min(initial=last)), last + 1):
            rows = np.flatnonzero(tree_ids <= tree)
            table = self._table(tree, logits, len(features))
            start, change = np.zeros(rows.size, np.int64), np.zeros((rows.size, logits), _FLOAT)
            known = (tree_ids[rows] == tree) & (node_ids[rows] >= 0)
            start[known], change[known] = self._moved(tree, node_ids[rows[known]], logits)
            change[known] -= table.values[start[known]]
            ends = table.descend(start, [feature[rows] for feature in features])
            total[rows] += self._weight(tree) * (change + table.values[ends])
            nodes[rows] = ends
        return total, np.full(batch, last, np.int32), nodes

    def _moved(self, tree: int, nodes: HostArray, logits: int) -> tuple[HostArray, HostArray]:
        """Where nodes of a tree are since it was pruned, and how their logits changed by that."""
        moves = self._trees.tree_metadata[tree].post_pruned_nodes_meta
        pruned = self._trees.tree_metadata[tree].is_finalized and len(moves) > 0
        limit = len(moves) if pruned else len(self._trees.trees[tree].nodes)
        if nodes.size and nodes.max() >= limit:
            raise InvalidArgumentError(
                None, None, f"cached_node_ids: tree {tree} has {limit} nodes, got node {nodes.max()}"
            )
        if not pruned:
            return nodes, np.zeros((nodes.size, logits), _FLOAT)
        changes = np.array([_padded(moves[n].logit_change, logits) for n in nodes.tolist()], _FLOAT)
        return np.array([moves[n].new_node_id for n in nodes.tolist()], np.int64), changes.reshape(-1, logits)

    def debug_outputs(self, features: list[HostArray]) -> list[bytes]:
        """For each example a `DebugOutput`: the features it was split by, and the logit after each split.

        Raises:
            InvalidArgumentError: there are no trees, or a tree splits by a feature that is not there.
        """
        if not self.tree_count:
            raise InvalidArgumentError(None, None, "the ensemble has no trees; train it first")
        tables = [self._table(tree, 1, len(features)) for tree in range(self.tree_count)]
        return [self._path(tables, row, features).SerializeToString() for row in range(len(features[0]))]

    def _path(self, tables: list[_Table], row: int, features: list[HostArray]) -> pb.DebugOutput:
        logit = self._weight(0) * tables[0].values[0, 0]
        path, past = pb.DebugOutput(logits_path=[logit]), _FLOAT(0)
        for tree, table in enumerate(tables):
            node = 0
            while not table.is_leaf[node]:
                feature, threshold = int(table.feature[node]), table.threshold[node]
                bucket = features[feature][row]
                goes_left = bucket == threshold if table.is_equality[node] else bucket <= threshold
                node = int(table.left[node] if goes_left else table.right[node])
                logit = self._weight(tree) * table.values[node, 0]
                path.feature_ids.append(feature)
                path.logits_path.append(logit + past)
            if tree == 0 or node > 0:
                past = past + logit
        return path

    def _weight(self, tree: int) -> np.float32:
        return _FLOAT(self._trees.tree_weights[tree])

    def _table(self, tree: int, logits: int, features: int) -> _Table:
        table = self._tables.get(tree)
        if table is None:
            table = self._tables[tree] = _table(self._trees.trees[tree])
        if table.values.shape[1] != logits:
            raise InternalError(
                None, None, f"Expected leaves of {logits} logits, but those of tree {tree} have {table.values.shape[1]}"
            )
        if table.feature.max(initial=-1) >= features:
            raise InvalidArgumentError(
                None, None, f"tree {tree} splits by feature {table.feature.max()}, but there are {features} features"
            )
        return table

    # ------------------------------------------------------------------ growth
    def grow(self, splits: Mapping[int, Split], max_depth: int, pruning: int, logits: int = 1) -> None:
        """Adds a layer to the last tree.

        Args:
            splits: for each node that is split, in ascending order.
            max_depth: layers of a whole tree.
            pruning: `NO_PRUNING`; `PRE_PRUNING`: splits of negative gain are not made; `POST_PRUNING`: they are undone
                when the tree is final.

        Raises:
            InvalidArgumentError: a split is of a node that is no leaf of the last tree.
        """
        tree = self.tree_count - 1
        self._note_attempt()
        if tree < 0:
            tree = self._add_tree(np.zeros(logits, _FLOAT))
        if pruning == PRE_PRUNING:
            splits = {node: split for node, split in splits.items() if not split.gain < 0}
        if not splits:
            return
        nodes, grown = self._trees.trees[tree].nodes, self._trees.tree_metadata[tree]
        self._check_leaves(tree, splits)
        self._tables.pop(tree, None)
        start = len(nodes)
        for node, split in splits.items():
            _split_node(self._trees.trees[tree], node, split)
        layer = start, len(nodes)
        grown.num_layers_grown += 1
        if grown.num_layers_grown >= max_depth:
            layer = 0, 1
            grown.is_finalized = True
            if pruning == POST_PRUNING:
                _prune(self._trees.trees[tree], grown, logits)
            self._add_tree(np.zeros(logits, _FLOAT))
        growing = self._trees.growing_metadata
        growing.last_layer_node_start, growing.last_layer_node_end = layer

    def _check_leaves(self, tree: int, splits: Mapping[int, Split]) -> None:
        nodes = self._trees.trees[tree].nodes
        for node in splits:
            if not 0 <= node < len(nodes) or nodes[node].WhichOneof("node") != "leaf":
                raise InvalidArgumentError(
                    None, None, f"node {node} is no leaf of tree {tree}, which has {len(nodes)} nodes; it cannot split"
                )

    def center(self, correction: np.float32) -> bool:
        """Moves the bias, the only leaf of the first tree.

        Returns:
            Whether there is more to correct.

        Raises:
            InvalidArgumentError: the first tree has grown already.
        """
        if not self.tree_count:
            self._add_tree(np.array([correction], _FLOAT))
            return True
        root = self._trees.trees[0].nodes[0]
        if root.WhichOneof("node") != "leaf":
            raise InvalidArgumentError(
                None, None, "the bias is centered before trees grow, but the first tree has split"
            )
        values = _leaf_values(root.leaf)
        if len(values) != 1:
            raise InternalError(None, None, f"Expected a bias of one logit, got {len(values)}")
        with np.errstate(all="ignore"):
            goes_on = bool(abs(correction / _FLOAT(values[0])) > _LEAST_CORRECTION)
        _set_values(root.leaf, np.array([_FLOAT(values[0]) + correction], _FLOAT))
        self._tables.pop(0, None)
        return goes_on

    def _note_attempt(self) -> None:
        growing, count = self._trees.growing_metadata, self.tree_count
        growing.num_layers_attempted += 1
        begins = count == 1 or (count > 1 and self._trees.tree_metadata[count - 2].is_finalized)
        if count == 0 or (begins and len(self._trees.trees[count - 1].nodes) == 1):
            growing.num_trees_attempted += 1

    def _add_tree(self, values: HostArray) -> int:
        _set_values(self._trees.trees.add().nodes.add().leaf, values)
        self._trees.tree_weights.append(_TREE_WEIGHT)
        self._trees.tree_metadata.add()
        return self.tree_count - 1


# ---------------------------------------------------------------------- nodes
def _read(serialized: bytes) -> pb.TreeEnsemble:
    try:
        ensemble = pb.TreeEnsemble.FromString(serialized)
    except DecodeError:
        raise InvalidArgumentError(None, None, "Unable to parse tree ensemble proto.") from None
    count = len(ensemble.trees)
    if len(ensemble.tree_weights) < count:
        _refuse(f"it has {count} trees, but {len(ensemble.tree_weights)} weights")
    while len(ensemble.tree_metadata) < count:
        ensemble.tree_metadata.add()
    for index, tree in enumerate(ensemble.trees):
        _check_tree(index, tree, ensemble.tree_metadata[index])
    return ensemble


def _check_tree(index: int, tree: pb.Tree, metadata: pb.TreeMetadata) -> None:
    count = len(tree.nodes)
    if not count:
        _refuse(f"tree {index} has no nodes")
    for i, node in enumerate(tree.nodes):
        kind = node.WhichOneof("node")
        if kind not in ("leaf", "bucketized_split", "categorical_split"):
            _refuse(f"node {i} of tree {index} is {kind or 'nothing'}; leaves and splits of buckets can be evaluated")
        if kind != "leaf":
            split = _split_of(node)
            if not (i < split.left_id < count and i < split.right_id < count and split.feature_id >= 0):
                _refuse(f"node {i} of tree {index} has children {split.left_id} and {split.right_id} of {count} nodes")
    if any(not 0 <= update.new_node_id < count for update in metadata.post_pruned_nodes_meta):
        _refuse(f"tree {index} was pruned to nodes that are not there")


def _refuse(why: str) -> None:
    raise InvalidArgumentError(None, None, f"Unable to use tree ensemble proto: {why}.")


def _split_of(node: pb.Node) -> pb.BucketizedSplit | pb.CategoricalSplit:
    return node.bucketized_split if node.HasField("bucketized_split") else node.categorical_split


def _leaf_values(leaf: pb.Leaf) -> list[float]:
    return list(leaf.vector.value) if leaf.HasField("vector") else [leaf.scalar]


def _node_values(node: pb.Node) -> list[float]:
    """The logits of a leaf; of an inner node those from before it was split, if any."""
    if node.HasField("leaf"):
        return _leaf_values(node.leaf)
    return _leaf_values(node.metadata.original_leaf) if node.metadata.HasField("original_leaf") else []


def _set_values(leaf: pb.Leaf, values: HostArray) -> None:
    leaf.SetInParent()
    if len(values) == 1:
        leaf.scalar = float(values[0])
    else:
        leaf.vector.value[:] = values.tolist()


def _table(tree: pb.Tree) -> _Table:
    values = [_node_values(node) for node in tree.nodes]
    widths = {len(value) for node, value in zip(tree.nodes, values, strict=True) if node.HasField("leaf")}
    if len(widths) > 1:
        raise InternalError(None, None, f"leaves of one tree have different numbers of logits: {sorted(widths)}")
    width = widths.pop()
    splits = [None if node.HasField("leaf") else _split_of(node) for node in tree.nodes]
    thresholds = [
        0 if s is None else s.value if isinstance(s, pb.CategoricalSplit) else s.threshold for s in splits
    ]  # fmt: skip
    return _Table(
        np.array([s is None for s in splits]),
        np.array([-1 if s is None else s.feature_id for s in splits]),
        np.array(thresholds),
        np.array([isinstance(s, pb.CategoricalSplit) for s in splits]),
        np.array([0 if s is None else s.left_id for s in splits]),
        np.array([0 if s is None else s.right_id for s in splits]),
        np.array([_padded(value, width) for value in values], _FLOAT).reshape(len(values), width),
    )


def _padded(values: Iterable[float], width: int) -> list[float]:
    found = list(values)
    return found if len(found) == width else [0.0] * width


def _split_node(tree: pb.Tree, at: int, split: Split) -> None:
    nodes = tree.nodes
    node = nodes[at]
    before = np.array(_leaf_values(node.leaf), _FLOAT)
    left, right = len(nodes), len(nodes) + 1
    _set_values(nodes.add().leaf, before + split.left)
    _set_values(nodes.add().leaf, before + split.right)
    if at != 0 or before.any():
        node.metadata.original_leaf.CopyFrom(node.leaf)
    node.metadata.gain = float(split.gain)
    if split.kind == "EQUALITY_DEFAULT_RIGHT":
        node.categorical_split.value = split.threshold
        node.categorical_split.SetInParent()
    else:
        ordered = node.bucketized_split
        ordered.SetInParent()
        ordered.threshold = split.threshold
        is_right = split.kind == "INEQUALITY_DEFAULT_RIGHT"
        ordered.default_direction = pb.DEFAULT_RIGHT if is_right else pb.DEFAULT_LEFT
    made = _split_of(node)
    made.feature_id, made.dimension_id = split.feature, split.dimension
    made.left_id, made.right_id = left, right


# ---------------------------------------------------------------------- pruning
def _prune(tree: pb.Tree, metadata: pb.TreeMetadata, logits: int) -> None:
    """Undoes splits of negative gain whose children are leaves, from below, and notes what became of each node."""
    changes = _undone_splits(tree)
    if not changes:
        return
    kept = [i for i in range(len(tree.nodes)) if i not in changes]
    new_ids = {old: new for new, old in enumerate(kept)}
    for i in range(len(tree.nodes)):
        update, at = metadata.post_pruned_nodes_meta.add(), i
        change: HostArray = np.zeros(logits, _FLOAT)
        while at in changes:
            at, step = changes[at]
            change = change + step
        update.new_node_id = new_ids[at]
        update.logit_change.extend(change.tolist())
    nodes = [tree.nodes[i] for i in kept]
    for node in nodes:
        if not node.HasField("leaf"):
            split = _split_of(node)
            split.left_id, split.right_id = new_ids[split.left_id], new_ids[split.right_id]
    remaining = pb.Tree(nodes=nodes)
    tree.CopyFrom(remaining)


def _undone_splits(tree: pb.Tree) -> dict[int, tuple[int, HostArray]]:
    """For each node that goes: its parent, and by how much the parent's logits exceed its own.

    Children stand behind their parents: from the last node to the first, a node's children have been dealt with.
    """
    changes: dict[int, tuple[int, HostArray]] = {}
    for i in reversed(range(len(tree.nodes))):
        node = tree.nodes[i]
        if node.HasField("leaf") or not node.metadata.gain < 0:
            continue
        split = _split_of(node)
        children = split.left_id, split.right_id
        if not all(tree.nodes[child].HasField("leaf") for child in children):
            continue
        known = _node_values(node)
        for child in children:
            theirs = np.array(_leaf_values(tree.nodes[child].leaf), _FLOAT)
            own = np.array(_padded(known, theirs.size), _FLOAT)
            changes[child] = i, own - theirs
        _set_values(node.leaf, own)
        node.ClearField("metadata")
    return changes
