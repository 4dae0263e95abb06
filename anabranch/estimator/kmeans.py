"""k-means: examples are put to the nearest of some centres, and centres are moved into the middle of their examples.

Centres are chosen from the first batches ("k-means++": Arthur and Vassilvitskii, 2007), and each batch moves them: by
small batches (Sculley, "Web-scale k-means clustering", 2010), whose steps grow smaller for centres that have seen more
examples, or by whole data, whose means replace the centres.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

import anabranch as tf
from anabranch.contrib.arguments import PassedOn, TensorLike
from anabranch.core.pauses import Pauses
from anabranch.estimator.estimators import Estimator
from anabranch.estimator.export_outputs import PredictOutput
from anabranch.estimator.heads import DEFAULT
from anabranch.estimator.model_functions import EstimatorSpec, InputFunction
from anabranch.estimator.run_config import RunConfig
from anabranch.feature_column.columns import FeatureColumn

#: "random", "kmeans_plus_plus", the centres, or a function of a list of examples and how many centres are missing
InitialClusters: TypeAlias = "TensorLike | Callable[[list[tf.Tensor], tf.Tensor], tf.Tensor]"
_EUCLIDEAN: Final = "squared_euclidean"
_COSINE: Final = "cosine"
_RANDOM: Final = "random"
_PLUS_PLUS: Final = "kmeans_plus_plus"
#: how long (s) a worker waits at most before it looks again whether the chief has chosen the centres
_LONGEST_PAUSE: Final = 1.0


class _Settings(NamedTuple):
    """The arguments of `KMeans` that its model depends on."""

    num_clusters: int
    initial_clusters: InitialClusters
    is_cosine: bool
    seed: int | None
    use_mini_batch: bool
    batches_per_step: int
    retries: int
    tolerance: float | None
    columns: tuple[FeatureColumn, ...]

    @property
    def keeps_second_centres(self) -> bool:
        """Whether several batches move centres of their own, which then replace those that are compared with."""
        return self.use_mini_batch and self.batches_per_step > 1


class _Centres:
    """The variables of the model."""

    def __init__(self, settings: _Settings, dimension: int, is_global: bool = False) -> None:
        shape = [settings.num_clusters, dimension]
        self.clusters = tf.get_variable("clusters", shape, initializer=tf.zeros_initializer(), trainable=False)
        self.is_initialized = tf.get_variable("initialized", initializer=False, trainable=False)
        # only until all are chosen, so that no checkpoint of an estimator has it
        kind = tf.GraphKeys.GLOBAL_VARIABLES if is_global else tf.GraphKeys.LOCAL_VARIABLES
        self.selected = tf.Variable(0, trainable=False, collections=[kind], name="selected")
        self.moved: Any = self.clusters
        if settings.keeps_second_centres:
            self.moved = tf.get_variable("clusters_updated", shape, initializer=tf.zeros_initializer(), trainable=False)
            steps = np.int64(settings.batches_per_step)
            self.batches_left = tf.get_variable("update_in_steps", initializer=steps, trainable=False)
        first = 0 if settings.keeps_second_centres else 1  # a centre is an example itself
        self.counts = tf.get_variable(
            "counts", initializer=np.full(settings.num_clusters, first, np.int64), trainable=False
        )


def _model_function(settings: _Settings) -> Callable[..., EstimatorSpec]:
    def model_fn(features: PassedOn, mode: str, config: RunConfig) -> EstimatorSpec:
        points = _points(features, settings.columns)
        dimension = points.shape.as_list()[-1] if points.shape.ndims == 2 else None
        if dimension is None:
            raise ValueError(
                f"k-means takes examples of a known number of features, [batch, n]; got shape {points.shape} of "
                f"{points}. Say it by tf.Tensor.set_shape, or by feature_columns"
            )
        if settings.is_cosine:
            points = tf.nn.l2_normalize(points, 1)
        centres = _Centres(settings, dimension)
        compared: tf.Tensor = tf.convert_to_tensor(centres.clusters)
        if settings.is_cosine:
            compared = tf.nn.l2_normalize(compared, 1)
        nearest, distances = tf.raw_ops.NearestNeighbors(points=points, centers=compared, k=np.int64(1))
        indices, least = tf.squeeze(nearest, [1]), tf.squeeze(distances, [1])
        if settings.is_cosine:  # of unit vectors, the squared distance is twice the cosine distance
            least = least * 0.5
        loss = tf.reduce_sum(least)
        tf.summary.scalar("loss/raw", loss)
        with tf.control_dependencies([indices, loss]):
            moved = _move(settings, centres, points, indices)
        with tf.control_dependencies([moved]):
            train_op = tf.assign_add(tf.train.get_or_create_global_step(), 1).op
        hooks: list[tf.train.SessionRunHook] = [
            _ChoosesCentres(_choose(settings, centres, points), centres.is_initialized, config)
        ]
        if settings.tolerance is not None:
            hooks.append(_StopsWhenStill(loss, settings.tolerance))
        said = {"all_distances": _all_distances(points, compared, settings.is_cosine), "cluster_index": indices}
        outputs = {name: PredictOutput(tensor) for name, tensor in said.items()}
        return EstimatorSpec(
            mode,
            said,
            loss,
            train_op,
            {"score": tf.metrics.mean(loss)},
            {**outputs, DEFAULT: outputs["cluster_index"]},
            training_hooks=hooks,
        )

    return model_fn


def _points(features: PassedOn, columns: tuple[FeatureColumn, ...]) -> tf.Tensor:
    """Examples as a matrix, from a matrix or from features by name."""
    points: tf.Tensor
    if not isinstance(features, Mapping):
        points = tf.convert_to_tensor(features)
    elif columns:
        points = tf.feature_column.input_layer(features, columns)
    else:
        points = tf.concat([features[name] for name in sorted(features)], 1)
    return tf.cast(points, tf.float32)


def _all_distances(points: tf.Tensor, centres: tf.Tensor, is_cosine: bool) -> tf.Tensor:
    """Of each example from each centre."""
    products = tf.matmul(points, centres, transpose_b=True)
    if is_cosine:
        return 1 - products
    lengths = tf.reduce_sum(tf.square(points), 1, keepdims=True)
    distances: tf.Tensor = lengths - 2 * products + tf.reduce_sum(tf.square(centres), 1)
    return distances


# ---------------------------------------------------------------------- choosing centres
def _choose(settings: _Settings, centres: _Centres, points: tf.Tensor) -> tf.Tensor:
    """Chooses centres from a batch, and says whether all are chosen."""
    selected: tf.Tensor = tf.convert_to_tensor(centres.selected)
    missing = settings.num_clusters - selected
    new = _new_centres(settings, points, missing)
    if settings.is_cosine:
        new = tf.nn.l2_normalize(new, 1)
    number = tf.shape(new)[0]
    rows = tf.range(selected, selected + number)
    updates = [tf.scatter_update(centres.clusters, rows, new)]
    if settings.keeps_second_centres:
        updates.append(tf.scatter_update(centres.moved, rows, new))
    with tf.control_dependencies(updates):
        now = tf.assign_add(centres.selected, number)
    return tf.convert_to_tensor(tf.assign(centres.is_initialized, tf.equal(now, settings.num_clusters)))


def _new_centres(settings: _Settings, points: tf.Tensor, missing: tf.Tensor) -> tf.Tensor:
    chosen = settings.initial_clusters
    if callable(chosen):
        made: tf.Tensor = tf.cast(chosen([points], missing), tf.float32)
        return made
    if not isinstance(chosen, str):
        given: tf.Tensor = tf.cast(chosen, tf.float32)
        with tf.control_dependencies(
            [tf.assert_equal(tf.shape(given)[0], missing, message="initial_clusters are not num_clusters many")]
        ):
            return tf.identity(given)
    size = tf.shape(points)[0]
    if chosen == _RANDOM:
        picked = tf.random_uniform([missing], maxval=tf.maximum(size, 1), dtype=tf.int32, seed=settings.seed)
        return tf.gather(points, tf.cond(size <= missing, lambda: tf.range(size), lambda: picked))
    enough = tf.assert_greater_equal(size, missing, message="a batch has fewer examples than centres are missing")
    with tf.control_dependencies([enough]):
        return tf.raw_ops.KmeansPlusPlusInitialization(
            points=points,
            num_to_sample=tf.cast(missing, tf.int64),
            seed=np.int64(tf.get_seed(settings.seed)[0] or 0),
            num_retries_per_sample=np.int64(settings.retries),
        )


class _ChoosesCentres(tf.train.SessionRunHook):
    """Lets the chief choose centres from as many batches as it takes; workers wait for it."""

    def __init__(self, choose: tf.Tensor, is_initialized: tf.Variable, config: RunConfig) -> None:
        self._choose, self._is_initialized, self._config = choose, is_initialized, config

    def after_create_session(self, session: PassedOn, coord: PassedOn) -> None:
        end = time.monotonic() + self._config.session_creation_timeout_secs
        pauses, done = Pauses(_LONGEST_PAUSE), bool(session.run(self._is_initialized))
        while not done:
            if self._config.is_chief:
                done = bool(session.run(self._choose))
            elif time.monotonic() > end:
                raise tf.errors.DeadlineExceededError(None, None, "the chief has not chosen the centres in time")
            else:
                time.sleep(pauses.next())  # the chief's steps are not this session's
                done = bool(session.run(self._is_initialized))


class _StopsWhenStill(tf.train.SessionRunHook):
    """Ends training when the loss changes by less than a part of it."""

    def __init__(self, loss: tf.Tensor, tolerance: float) -> None:
        self._loss, self._tolerance = loss, tolerance
        self._before: float | None = None

    def before_run(self, run_context: PassedOn) -> tf.train.SessionRunArgs:
        return tf.train.SessionRunArgs(self._loss)

    def after_run(self, run_context: PassedOn, run_values: PassedOn) -> None:
        loss, before = float(run_values.results), self._before
        if before is not None and abs(loss - before) < self._tolerance * (1 + abs(before)):
            run_context.request_stop()
        self._before = loss


# ---------------------------------------------------------------------- moving centres
def _move(settings: _Settings, centres: _Centres, points: tf.Tensor, indices: tf.Tensor) -> tf.Operation:
    number = settings.num_clusters
    sums = tf.unsorted_segment_sum(points, indices, number)
    counts = tf.unsorted_segment_sum(tf.ones_like(indices, tf.int64), indices, number)
    if not settings.use_mini_batch:
        middles = sums / (tf.expand_dims(tf.cast(counts, tf.float32), 1) + 1e-6)
        if settings.is_cosine:
            middles = tf.nn.l2_normalize(middles, 1)
        moved: tf.Operation = tf.assign(centres.clusters, middles).op
        return moved
    ready = [_take_over(settings, centres)] if settings.keeps_second_centres else []
    with tf.control_dependencies(ready):
        seen = tf.cast(tf.identity(centres.counts) + counts, tf.float32)
        before = tf.identity(centres.moved)
        # a centre is the mean of all that was put to it: the more it has seen, the less a batch moves it
        shift = sums - tf.expand_dims(tf.cast(counts, tf.float32), 1) * before
        rates = tf.expand_dims(tf.div_no_nan(tf.ones_like(seen), seen), 1)
        shift = shift * rates
    with tf.control_dependencies([shift]):
        result: tf.Operation = tf.group(tf.assign_add(centres.counts, counts), tf.assign_add(centres.moved, shift))
    return result


def _take_over(settings: _Settings, centres: _Centres) -> tf.Tensor:
    """Counts batches; after enough of them, what they moved replaces the centres, and counts begin anew."""

    def replace() -> tf.Tensor:
        new = tf.identity(centres.moved)
        if settings.is_cosine:
            new = tf.nn.l2_normalize(new, 1)
        steps = np.int64(settings.batches_per_step - 1)
        with tf.control_dependencies(
            [tf.assign(centres.clusters, new), tf.assign(centres.counts, tf.zeros_like(centres.counts))]
        ):
            return tf.identity(tf.assign(centres.batches_left, steps))

    def wait() -> tf.Tensor:
        return tf.identity(tf.assign_sub(centres.batches_left, np.int64(1)))

    result: tf.Tensor = tf.cond(centres.batches_left <= 0, replace, wait)
    return result


class ClusteringParts(NamedTuple):
    """What `KMeansGraph.training_graph` gives.

    Attributes:
        all_scores: of each matrix of examples: the distances from all centres.
        cluster_idx: of each: the nearest centre of every example.
        scores: of each: the distance from it.
        cluster_centers_initialized: whether all centres are chosen, a variable.
        init_op: chooses centres from the examples.
        training_op: moves the centres.
    """

    all_scores: tuple[tf.Tensor, ...]
    cluster_idx: tuple[tf.Tensor, ...]
    scores: tuple[tf.Tensor, ...]
    cluster_centers_initialized: tf.Variable
    init_op: tf.Operation
    training_op: tf.Operation


class KMeansGraph:
    """Finds clusters in a graph of the user's own.

    Args:
        inputs: examples, [batch, n], or a list of such matrices.
        num_clusters, initial_clusters, distance_metric, use_mini_batch, mini_batch_steps_per_iteration,
            kmeans_plus_plus_num_retries: as for `KMeans`.
        random_seed: of the choice of centres.

    Raises:
        ValueError: the number of features is not known.
    """

    def __init__(
        self,
        inputs: PassedOn,
        num_clusters: int,
        initial_clusters: InitialClusters = _RANDOM,
        distance_metric: str = _EUCLIDEAN,
        use_mini_batch: bool = False,
        mini_batch_steps_per_iteration: int = 1,
        random_seed: int | None = 0,
        kmeans_plus_plus_num_retries: int = 2,
        kmc2_chain_length: int = 200,
    ) -> None:
        given = inputs if isinstance(inputs, list | tuple) else [inputs]
        self._inputs = [tf.cast(one, tf.float32) for one in given]
        self._settings = _Settings(
            num_clusters,
            initial_clusters,
            distance_metric == _COSINE,
            random_seed,
            use_mini_batch,
            mini_batch_steps_per_iteration,
            kmeans_plus_plus_num_retries,
            None,
            (),
        )

    def training_graph(self) -> ClusteringParts:
        """Adds variables and operations to the graph."""
        settings = self._settings
        dimension = self._inputs[0].shape.as_list()[-1] if self._inputs[0].shape.ndims == 2 else None
        if dimension is None:
            raise ValueError(f"k-means takes examples of a known number of features, [batch, n]; got {self._inputs[0]}")
        inputs = [tf.nn.l2_normalize(one, 1) for one in self._inputs] if settings.is_cosine else self._inputs
        # programs initialize global variables alone
        centres = _Centres(settings, dimension, is_global=True)
        compared: tf.Tensor = tf.convert_to_tensor(centres.clusters)
        if settings.is_cosine:
            compared = tf.nn.l2_normalize(compared, 1)
        found = [tf.raw_ops.NearestNeighbors(points=one, centers=compared, k=np.int64(1)) for one in inputs]
        indices = [tf.squeeze(nearest, [1]) for nearest, _ in found]
        # of unit vectors, the squared distance is twice the cosine distance
        least = [tf.squeeze(distances, [1]) * (0.5 if settings.is_cosine else 1.0) for _, distances in found]
        points = inputs[0] if len(inputs) == 1 else tf.concat(inputs, 0)
        with tf.control_dependencies(least):
            moved = _move(settings, centres, points, indices[0] if len(indices) == 1 else tf.concat(indices, 0))
        return ClusteringParts(
            tuple(_all_distances(one, compared, settings.is_cosine) for one in inputs),
            tuple(indices),
            tuple(least),
            centres.is_initialized,
            _choose(settings, centres, points).op,
            moved,
        )


class KMeans(Estimator):
    """Finds clusters of examples.

    Examples are a matrix of floats, [batch, n], or features by name, which are put side by side in the order of their
    names. Predictions are "cluster_index" and "all_distances"; an evaluation's "score" is the sum of the distances of a
    batch's examples from their centres.

    Args:
        num_clusters: how many.
        model_dir, config: as for `Estimator`.
        initial_clusters: "random" examples, "kmeans_plus_plus", the centres, or a function of a list of examples and
            how many centres are missing, which gives some; batches are taken until there are all.
        distance_metric: "squared_euclidean", or "cosine", for which examples are brought to the same length.
        seed: of the choice of centres.
        use_mini_batch: whether a batch is a part of the data; False: it is the whole.
        mini_batch_steps_per_iteration: after how many batches the centres that examples are put to are replaced.
        kmeans_plus_plus_num_retries: how many examples are tried for each centre.
        relative_tolerance: training ends when the loss changes by less than that part of it; None: it does not.
        feature_columns: what examples are made of; None: all features.

    Raises:
        ValueError: an unknown choice of centres or distance, or fewer than one cluster.
    """

    SQUARED_EUCLIDEAN_DISTANCE = _EUCLIDEAN
    COSINE_DISTANCE = _COSINE
    RANDOM_INIT = _RANDOM
    KMEANS_PLUS_PLUS_INIT = _PLUS_PLUS
    SCORE = "score"
    CLUSTER_INDEX = "cluster_index"
    ALL_DISTANCES = "all_distances"
    CLUSTER_CENTERS_VAR_NAME = "clusters"

    def __init__(
        self,
        num_clusters: int,
        model_dir: str | os.PathLike[str] | None = None,
        initial_clusters: InitialClusters = _RANDOM,
        distance_metric: str = _EUCLIDEAN,
        seed: int | None = None,
        use_mini_batch: bool = True,
        mini_batch_steps_per_iteration: int = 1,
        kmeans_plus_plus_num_retries: int = 2,
        relative_tolerance: float | None = None,
        config: RunConfig | None = None,
        feature_columns: Iterable[FeatureColumn] | None = None,
    ) -> None:
        if num_clusters < 1:
            raise ValueError(f"num_clusters must be positive, got {num_clusters}")
        if isinstance(initial_clusters, str) and initial_clusters not in (_RANDOM, _PLUS_PLUS):
            raise ValueError(
                f"Unsupported initialization algorithm {initial_clusters!r}: {_RANDOM!r} or {_PLUS_PLUS!r}"
            )
        if distance_metric not in (_EUCLIDEAN, _COSINE):
            raise ValueError(f"Unsupported distance metric {distance_metric!r}: {_EUCLIDEAN!r} or {_COSINE!r}")
        self._is_cosine = distance_metric == _COSINE
        settings = _Settings(
            num_clusters,
            initial_clusters,
            self._is_cosine,
            seed,
            use_mini_batch,
            mini_batch_steps_per_iteration,
            kmeans_plus_plus_num_retries,
            relative_tolerance,
            tuple(feature_columns or ()),
        )
        super().__init__(_model_function(settings), model_dir, config)

    def predict_cluster_index(self, input_fn: InputFunction) -> Iterator[int]:
        """The number of each example's cluster."""
        for said in self.predict(input_fn, [self.CLUSTER_INDEX]):
            yield said[self.CLUSTER_INDEX]

    def score(self, input_fn: InputFunction) -> float:
        """The sum of the distances of the first batch's examples from their centres."""
        return float(self.evaluate(input_fn, steps=1)[self.SCORE])

    def transform(self, input_fn: InputFunction) -> Iterator[np.ndarray[Any, Any]]:
        """The distances of each example from all centres; not squared."""
        for said in self.predict(input_fn, [self.ALL_DISTANCES]):
            distances = said[self.ALL_DISTANCES]
            yield distances if self._is_cosine else np.sqrt(np.maximum(distances, 0))

    def cluster_centers(self) -> np.ndarray[Any, Any]:
        """The centres, [num_clusters, n].

        Raises:
            ValueError: the estimator is not trained.
        """
        return np.asarray(self.get_variable_value(self.CLUSTER_CENTERS_VAR_NAME))
