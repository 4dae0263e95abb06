"""`tf.contrib.factorization`: clusters of examples, in an estimator or in a graph of the user's own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, TypeAlias

import anabranch as tf
from anabranch.contrib.arguments import PassedOn

_KMeans: TypeAlias = tf.estimator.experimental.KMeans
COSINE_DISTANCE: Final = _KMeans.COSINE_DISTANCE
SQUARED_EUCLIDEAN_DISTANCE: Final = _KMeans.SQUARED_EUCLIDEAN_DISTANCE
KMEANS_PLUS_PLUS_INIT: Final = _KMeans.KMEANS_PLUS_PLUS_INIT
RANDOM_INIT: Final = _KMeans.RANDOM_INIT


class KMeansClustering(tf.estimator.experimental.KMeans):
    """`tf.estimator.experimental.KMeans` with the name of its seed from before; see there."""

    def __init__(
        self,
        num_clusters: int,
        model_dir: str | None = None,
        initial_clusters: PassedOn = tf.estimator.experimental.KMeans.RANDOM_INIT,
        distance_metric: str = tf.estimator.experimental.KMeans.SQUARED_EUCLIDEAN_DISTANCE,
        random_seed: int | None = 0,
        use_mini_batch: bool = True,
        mini_batch_steps_per_iteration: int = 1,
        kmeans_plus_plus_num_retries: int = 2,
        relative_tolerance: float | None = None,
        config: tf.estimator.RunConfig | None = None,
        feature_columns: Iterable[Any] | None = None,
    ) -> None:
        super().__init__(
            num_clusters,
            model_dir,
            initial_clusters,
            distance_metric,
            random_seed,
            use_mini_batch,
            mini_batch_steps_per_iteration,
            kmeans_plus_plus_num_retries,
            relative_tolerance,
            config,
            feature_columns,
        )
