"""Import rule of TreeEnsemble: all trees are descended together, level by level."""

from __future__ import annotations

import numpy as np

import anabranch as tf
from anabranch.core.arrays import HostArray
from anabranch.onnx import models
from anabranch.onnx.rules import OnnxNode, rule

_AVERAGE, _SUM, _MIN, _MAX = range(4)
_NONE, _SOFTMAX, _LOGISTIC, _SOFTMAX_ZERO, _PROBIT = range(5)
_MEMBER = 6


class _Trees:
    """The attributes of an ensemble. A place in a tree is the number of a node, or that of a leaf after all nodes."""

    def __init__(self, node: OnnxNode) -> None:
        self.label = node.label
        self.modes = self._table(node, "nodes_modes").astype(np.int64)
        self.count = self.modes.size
        self.splits = self._table(node, "nodes_splits")
        self.features = self._numbers(node, "nodes_featureids", self.count)
        self.leaf_targets = np.array(node.ints("leaf_targetids", default=[]), np.int64)
        self.leaf_weights = self._table(node, "leaf_weights")
        self.when_true = self._places(node, "nodes_truenodeids", "nodes_trueleafs")
        self.when_false = self._places(node, "nodes_falsenodeids", "nodes_falseleafs")
        tracked = node.ints("nodes_missing_value_tracks_true", default=[0] * self.count)
        self.missing_is_true = np.array(tracked, bool)
        self.roots = np.array(node.ints("tree_roots", default=[]), np.int64)
        self.targets = node.integer("n_targets", 1)
        self._check()

    @staticmethod
    def _table(node: OnnxNode, name: str) -> HostArray:
        value = node.attr(name)
        table: HostArray = np.zeros(0) if value is None else models.array_of(value)
        return table.reshape(-1)

    def _numbers(self, node: OnnxNode, name: str, count: int) -> HostArray:
        values = np.array(node.ints(name, default=[]), np.int64)
        if values.size != count:
            raise ValueError(f"{node.label}: {name} has {values.size} elements, and must have {count}")
        return values

    def _places(self, node: OnnxNode, name: str, leaf_name: str) -> HostArray:
        numbers, leaves = self._numbers(node, name, self.count), self._numbers(node, leaf_name, self.count)
        limits = np.where(leaves, self.leaf_targets.size, self.count)
        if ((numbers < 0) | (numbers >= limits)).any():
            raise ValueError(f"{node.label}: {name} names nodes or leaves that are not there")
        return np.asarray(numbers + np.where(leaves, self.count, 0))

    def _check(self) -> None:
        sizes = {"nodes_splits": self.splits.size, "nodes_missing_value_tracks_true": self.missing_is_true.size}
        uneven = {name: size for name, size in sizes.items() if size != self.count}
        if uneven or self.leaf_weights.size != self.leaf_targets.size:
            raise ValueError(f"{self.label}: its attributes must have one element for each node or leaf: {uneven}")
        for name, values, limit in (
            ("tree_roots", self.roots, self.count),
            ("leaf_targetids", self.leaf_targets, self.targets),
            ("nodes_modes", self.modes, _MEMBER + 1),
        ):
            if values.size and (values.min() < 0 or values.max() >= limit):
                raise ValueError(f"{self.label}: {name} must be from 0 to {limit - 1}")

    def depth(self) -> int:
        """How many nodes the longest way to a leaf has."""
        level, depth = np.unique(self.roots), 0
        while level.size:
            depth += 1
            if depth > self.count:
                raise ValueError(f"{self.label}: its nodes are in a circle")
            below = np.unique(np.concatenate([self.when_true[level], self.when_false[level]]))
            level = below[below < self.count]
        return depth

    def members(self, node: OnnxNode) -> HostArray:
        """For each node, the values it is to be one of, filled up with NaN, which equals nothing."""
        listed = self._table(node, "membership_values")
        ends = np.flatnonzero(np.isnan(listed))
        asking = np.flatnonzero(self.modes == _MEMBER)
        if ends.size != asking.size:
            raise ValueError(f"{self.label}: {asking.size} nodes ask for members, and {ends.size} lists are given")
        lists = [part[~np.isnan(part)] for part in np.split(listed, ends)][: asking.size]
        result = np.full((self.count, max((len(values) for values in lists), default=0)), np.nan)
        for number, values in zip(asking, lists, strict=True):
            result[number, : len(values)] = values
        return result


@rule("TreeEnsemble", 5, domain="ai.onnx.ml")
def _tree_ensemble(node: OnnxNode) -> tf.Tensor:
    x, trees = node.tensor(), _Trees(node)
    place = tf.zeros([tf.shape(x)[0], 1], tf.int64) + tf.constant(trees.roots)
    members = trees.members(node)
    for _ in range(trees.depth()):
        place = _below(x, trees, members, place)
    leaf = place - trees.count
    weights = tf.gather(tf.constant(trees.leaf_weights, x.dtype), leaf)
    here = tf.one_hot(
        tf.gather(tf.constant(trees.leaf_targets), leaf), trees.targets, dtype=x.dtype
    )  # [batch, trees, targets]
    result = _aggregated(node, tf.expand_dims(weights, 2), here, trees.roots.size)
    result.set_shape([x.shape.as_list()[0] if x.shape.ndims else None, trees.targets])
    return _transformed(node, result)


def _below(x: tf.Tensor, trees: _Trees, members: HostArray, place: tf.Tensor) -> tf.Tensor:
    """The next place [batch, trees] of each way; a leaf stays."""
    number = tf.minimum(place, trees.count - 1)
    feature = tf.gather(tf.constant(trees.features), number)
    value = tf.gather(x, feature, axis=1, batch_dims=1)
    split, mode = tf.gather(tf.constant(trees.splits, x.dtype), number), tf.gather(tf.constant(trees.modes), number)
    tests = [value <= split, value < split, value >= split, value > split, tf.equal(value, split)]
    tests.append(tf.logical_not(tests[-1]))
    if members.shape[1]:
        among = tf.gather(tf.constant(members, x.dtype), number)
        tests.append(tf.reduce_any(tf.equal(tf.expand_dims(value, 2), among), 2))
    else:
        tests.append(tf.zeros_like(tests[0]))
    passed = tf.zeros_like(tests[0])
    for kind, test in enumerate(tests):
        passed = tf.logical_or(passed, tf.logical_and(tf.equal(mode, kind), test))
    missing = tf.gather(tf.constant(trees.missing_is_true), number)
    passed = tf.logical_or(passed, tf.logical_and(missing, tf.is_nan(value)))
    below = tf.where_v2(
        passed, tf.gather(tf.constant(trees.when_true), number), tf.gather(tf.constant(trees.when_false), number)
    )
    return tf.where_v2(place < trees.count, below, place)


def _aggregated(node: OnnxNode, weights: tf.Tensor, here: tf.Tensor, trees: int) -> tf.Tensor:
    """Of weights [batch, trees, 1], which go to the targets that `here` marks, one value for each target."""
    how = node.integer("aggregate_function", _SUM)
    if how in (_SUM, _AVERAGE):
        total = tf.reduce_sum(weights * here, 1)
        return total / trees if how == _AVERAGE else total
    if how not in (_MIN, _MAX):
        raise ValueError(f"{node.label}: aggregate_function must be from 0 to 3, not {how}")
    limit = tf.constant(weights.dtype.max if how == _MIN else weights.dtype.min, weights.dtype)
    reduce = tf.reduce_min if how == _MIN else tf.reduce_max
    return reduce(tf.where_v2(here > 0, weights, limit), 1)


def _transformed(node: OnnxNode, x: tf.Tensor) -> tf.Tensor:
    how = node.integer("post_transform", _NONE)
    if how == _NONE:
        return x
    if how == _SOFTMAX:
        return tf.nn.softmax(x)
    if how == _LOGISTIC:
        return tf.sigmoid(x)
    if how == _SOFTMAX_ZERO:  # Zeros stay, and have no share.
        powers = tf.where_v2(tf.equal(x, 0), tf.zeros_like(x), tf.exp(x - tf.reduce_max(x, -1, keepdims=True)))
        return tf.math.divide_no_nan(powers, tf.reduce_sum(powers, -1, keepdims=True))
    raise tf.errors.UnimplementedError(None, None, f"{node.label}: post_transform {how} is none of 0 to 3")
