"""tf.train: linear models by stochastic dual coordinate ascent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from anabranch.core.values import TensorLike
from anabranch.frontend import raw_functions
from anabranch.frontend.variables.variables import Variable
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw


class SdcaOptimizer(NamedTuple):
    """What `sdca_optimizer` returns."""

    out_example_state_data: Tensor
    out_delta_sparse_weights: list[Tensor]
    out_delta_dense_weights: list[Tensor]


def sdca_optimizer(
    sparse_example_indices: Sequence[TensorLike],
    sparse_feature_indices: Sequence[TensorLike],
    sparse_feature_values: Sequence[TensorLike],
    dense_features: Sequence[TensorLike],
    example_weights: TensorLike,
    example_labels: TensorLike,
    sparse_indices: Sequence[TensorLike],
    sparse_weights: Sequence[TensorLike],
    dense_weights: Sequence[TensorLike],
    example_state_data: TensorLike,
    loss_type: str,
    l1: float,
    l2: float,
    num_loss_partitions: int,
    num_inner_iterations: int,
    adaptative: bool = True,
    name: str | None = None,
) -> SdcaOptimizer:
    """One pass over examples: what to add to the weights of a linear model, and to the dual variables of the examples.

    Args:
        sparse_example_indices: for each group of sparse features a vector (int64): the example of each of its features.
        sparse_feature_indices: likewise, which feature it is.
        sparse_feature_values: likewise its value (float32), for the groups that have values; those of all others are 1.
        dense_features: matrices (float32) of a row for each example.
        example_weights, example_labels: vectors (float32).
        sparse_indices: for each group of sparse features the features that `sparse_weights` has weights of.
        sparse_weights, dense_weights: vectors (float32) of weights.
        example_state_data: float32, shape [examples, 4]: the dual variable, the loss before, the dual loss, the weight.
        loss_type: "logistic_loss", "squared_loss", "hinge_loss", "smooth_hinge_loss" or "poisson_loss".
        l1, l2: of the regularization of the whole data set.
        num_loss_partitions: how many such calls change the weights side by side.
        num_inner_iterations: accepted; TensorFlow, too, does not look at it.
        adaptative: whether examples that have much to gain are taken more often.

    Returns:
        The new state of the examples, and what to add to the weights.

    When it runs: `InvalidArgumentError` for labels that the loss does not take, features without weights, and features
    that stand twice in an example.
    """
    found = raw.SdcaOptimizer(
        sparse_example_indices,
        sparse_feature_indices,
        sparse_feature_values,
        dense_features,
        example_weights,
        example_labels,
        sparse_indices,
        sparse_weights,
        dense_weights,
        example_state_data,
        loss_type=loss_type,
        l1=l1,
        l2=l2,
        num_loss_partitions=num_loss_partitions,
        num_inner_iterations=num_inner_iterations,
        adaptative=adaptative,
        name=name,
    )
    return SdcaOptimizer(*found)


def sdca_fprint(input: TensorLike, name: str | None = None) -> Tensor:
    """Fingerprints of a vector of strings, names of examples: int64, shape [strings, 2]; the first is never 0 or 1.

    Example:
        >>> sess.run(tf.train.sdca_fprint(["abc"])).shape
        (1, 2)
    """
    marks: Tensor = raw.SdcaFprint(input, name=name)
    return marks


def sdca_shrink_l1(weights: Sequence[Variable], l1: float, l2: float, name: str | None = None) -> Operation:
    """Moves float32 variables towards zero by l1 / l2, and not beyond it.

    Args:
        weights: variables.
        l1, l2: of the regularization.

    Returns:
        The operation.

    Raises:
        TypeError: one of `weights` is no variable.

    Example:
        >>> w = tf.Variable([0.75, -2.0])
        >>> sess.run(w.initializer)
        >>> sess.run(tf.train.sdca_shrink_l1([w], l1=0.5, l2=1.0))
        >>> sess.run(w)
        array([ 0.25, -1.5 ], dtype=float32)
    """
    function = raw_functions.keyword_function("SdcaShrinkL1")
    assert function is not None
    done: Operation = function(weights=list(weights), l1=l1, l2=l2, name=name)
    return done
