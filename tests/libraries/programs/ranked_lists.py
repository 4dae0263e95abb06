"""TensorFlow Ranking: estimators that learn to order lists, by two losses; how good the order is."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_ranking as ranking

rng = np.random.RandomState(0)
SIZE, WIDE = 6, 4
values = rng.randn(64, SIZE, WIDE).astype(np.float32)
worth = values @ rng.randn(WIDE)
relevance = (worth > 0.5).astype(np.float32) + (worth > 1.5)


def lists() -> Any:
    """The next batch of lists, for ever: features and relevance."""
    data = tf.data.Dataset.from_tensor_slices(({"f": values}, relevance.astype(np.float32)))
    return data.repeat().batch(16).make_one_shot_iterator().get_next()


def score(context: Any, group: Any, mode: Any, params: Any, config: Any) -> tf.Tensor:
    """A score for each element."""
    inner = tf.layers.dense(tf.layers.flatten(group["f"]), 16, tf.nn.relu)
    return tf.layers.dense(inner, 1)


def columns(features: Any, mode: Any) -> Any:
    """The features of the list and of its elements as dense tensors."""
    return ranking.feature.encode_listwise_features(
        features,
        input_size=SIZE,
        context_feature_columns={},
        example_feature_columns={"f": tf.feature_column.numeric_column("f", shape=(WIDE,))},
        mode=mode,
    )


def train_operation(loss: tf.Tensor) -> tf.Operation:
    """A step of Adagrad."""
    return tf.train.AdagradOptimizer(0.1).minimize(loss, global_step=tf.train.get_or_create_global_step())


for name in ("pairwise_logistic_loss", "softmax_loss"):
    head = ranking.head.create_ranking_head(
        loss_fn=ranking.losses.make_loss_fn(name),
        eval_metric_fns={"ndcg": ranking.metrics.make_ranking_metric_fn(ranking.metrics.RankingMetricKey.NDCG)},
        train_op_fn=train_operation,
    )
    model = ranking.model.make_groupwise_ranking_fn(
        group_score_fn=score, group_size=1, transform_fn=columns, ranking_head=head
    )
    estimator = tf.estimator.Estimator(model)
    estimator.train(lists, steps=60)
    measured = estimator.evaluate(lists, steps=4)
    print(name, measured)
    assert measured["ndcg"] > 0.9
