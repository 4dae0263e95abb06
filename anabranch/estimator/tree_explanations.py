"""What a trained ensemble of trees says of its features: how much they gained, and what they did to a prediction."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from anabranch.proto import boosted_trees_pb2 as pb

_Vector = np.ndarray[Any, np.dtype[Any]]


def importances(ensemble: pb.TreeEnsemble, names: Sequence[str], normalize: bool) -> OrderedDict[str, float]:
    """The gains of all splits by the features of each column, the greatest first.

    Args:
        ensemble: trained.
        names: of each feature's column.
        normalize: whether they add up to 1.

    Raises:
        ValueError: nothing was split, or a sum of gains is negative, so that they cannot be normalized.
    """
    gains = np.zeros(len(names))
    for tree, weight in zip(ensemble.trees, ensemble.tree_weights, strict=True):
        for node in tree.nodes:
            if not node.HasField("leaf"):
                gains[_feature_of(node)] += weight * node.metadata.gain
    if normalize:
        if (gains < 0).any():
            raise ValueError("feature_importances must be non-negative to be normalized; a sum of gains is negative")
        if not gains.sum() > 0:
            raise ValueError("Trees are all empty or contain only a root node: there is nothing to normalize.")
        gains = gains / gains.sum()
    return _by_column(names, gains)


def _feature_of(node: pb.Node) -> int:
    split = node.bucketized_split if node.HasField("bucketized_split") else node.categorical_split
    return split.feature_id


def contributions(
    message: bytes, names: Sequence[str], is_classification: bool
) -> tuple[float, OrderedDict[str, float]]:
    """A prediction as what it would be of an average example, and what the features of each column add to that.

    Args:
        message: a `DebugOutput` message: the features on an example's way, and the logits before and after each.
        names: of each feature's column.
        is_classification: whether predictions are probabilities; else they are the logits.

    Returns:
        The bias, and contributions by column, those of the greatest size first.
    """
    way = pb.DebugOutput.FromString(message)
    link: Callable[[_Vector], _Vector] = _sigmoid if is_classification else np.asarray
    predictions = link(np.array(way.logits_path, np.float64))
    added = np.zeros(len(names))
    np.add.at(added, list(way.feature_ids), np.diff(predictions))
    return float(predictions[0]), _by_column(names, added)


def _sigmoid(logits: _Vector) -> _Vector:
    probabilities: _Vector = 1 / (1 + np.exp(-logits))
    return probabilities


def _by_column(names: Sequence[str], values: _Vector) -> OrderedDict[str, float]:
    sums: dict[str, float] = {}
    for name, value in zip(names, values.tolist(), strict=True):
        sums[name] = sums.get(name, 0.0) + value
    return OrderedDict(sorted(sums.items(), key=lambda pair: abs(pair[1]), reverse=True))
