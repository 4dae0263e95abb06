"""`tf.contrib.training`: examples that are left out, or repeated, by chance, so that each comes as often as wanted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import anabranch as tf
from anabranch.contrib.arguments import TensorLike


def rejection_sample(
    tensors: Sequence[TensorLike],
    accept_prob_fn: Callable[[list[tf.Tensor]], TensorLike],
    batch_size: int,
    queue_threads: int = 1,
    enqueue_many: bool = False,
    prebatch_capacity: int = 16,
    prebatch_threads: int = 1,
    runtime_checks: bool = False,
    name: str | None = None,
) -> list[tf.Tensor]:
    """Batches of examples, each of which is taken with a probability that a function gives.

    Args:
        tensors: of one example, or with `enqueue_many` of several, along the first axis.
        accept_prob_fn: given the tensors of one example, the probability.
        batch_size: of the result.
        queue_threads: that fill the queue of batches.
        enqueue_many: whether there are several examples.
        prebatch_capacity, prebatch_threads: of the queue that takes them apart.
        runtime_checks: whether a step fails where a probability is not between 0 and 1.
        name: of the operations.

    Raises:
        ValueError: with `enqueue_many`, the numbers of examples contradict each other.
        TypeError: `tensors` is a tensor, and no list of them.
    """
    with tf.variable_scope(name, "rejection_sample", tensors):
        given = _listed(tensors)
        if enqueue_many:
            given = _one_by_one(_of_one_length(given), prebatch_threads, prebatch_capacity)
        probability = tf.convert_to_tensor(accept_prob_fn(given))
        if runtime_checks:
            checks = [tf.assert_less_equal(0.0, probability), tf.assert_less_equal(probability, 1.0)]
            with tf.control_dependencies(checks):
                probability = tf.identity(probability, name="prob_with_checks")
        return _batched(given, probability, batch_size, queue_threads)


def stratified_sample(
    tensors: Sequence[TensorLike],
    labels: TensorLike,
    target_probs: TensorLike,
    batch_size: int,
    init_probs: TensorLike | None = None,
    enqueue_many: bool = False,
    queue_capacity: int = 16,
    threads_per_queue: int = 1,
    name: str | None = None,
) -> tuple[list[tf.Tensor], tf.Tensor]:
    """Batches in which classes come as often as wanted: examples of the others are left out by chance.

    Args:
        tensors: of one example, or with `enqueue_many` of several, along the first axis.
        labels: int: the classes of the examples.
        target_probs: [classes]: how often each is to come.
        batch_size: of the result.
        init_probs: [classes]: how often each comes by itself; None: it is counted.
        enqueue_many: whether there are several examples.
        queue_capacity, threads_per_queue: of the queues.
        name: of the operations.

    Returns:
        (batches of the tensors, the labels [batch]).

    Raises:
        ValueError: shapes contradict each other.
        TypeError: `tensors` is a tensor, and no list of them.
        InvalidArgumentError: (in the step) probabilities do not add up to 1, or a class that never comes is wanted.
    """
    with tf.name_scope(name, "stratified_sample", [labels]):
        given = [*_listed(tensors), tf.convert_to_tensor(labels)]
        if not enqueue_many:
            given = [x[tf.newaxis] for x in given]
        wanted = tf.convert_to_tensor(target_probs, tf.float32)
        wanted.shape.assert_is_fully_defined()
        given[-1].shape.assert_has_rank(1)
        (classes,) = wanted.shape.with_rank(1).as_list()
        found = (
            _counted(given[-1], int(classes or 0))
            if init_probs is None
            else tf.convert_to_tensor(init_probs, tf.float32)
        )
        found.shape.assert_is_compatible_with(wanted.shape)
        with tf.control_dependencies(_checks(found, wanted, given[-1])):
            accepted = _acceptance(tf.identity(found), wanted)
        one = _one_by_one(_of_one_length(given), threads_per_queue, queue_capacity)
        batch = _batched(one, tf.gather(accepted, one[-1]), batch_size, threads_per_queue)
        return batch[:-1], batch[-1]


def _listed(tensors: Sequence[TensorLike]) -> list[tf.Tensor]:
    if isinstance(tensors, tf.Tensor):
        raise TypeError(f"tensors must be a list of tensors, got {tensors!r}")
    return [tf.convert_to_tensor(x) for x in tensors]


def _of_one_length(tensors: list[tf.Tensor]) -> list[tf.Tensor]:
    for tensor in tensors:
        tensor.shape.with_rank_at_least(1)[0].assert_is_compatible_with(tensors[0].shape[0])
    return tensors


def _one_by_one(tensors: list[tf.Tensor], threads: int, capacity: int) -> list[tf.Tensor]:
    taken = tf.train.batch(tensors, 1, num_threads=threads, capacity=capacity, enqueue_many=True)
    return [tf.squeeze(x, [0]) for x in (taken if isinstance(taken, list) else [taken])]


def _batched(tensors: list[tf.Tensor], probability: tf.Tensor, batch_size: int, threads: int) -> list[tf.Tensor]:
    keeps = tf.random_uniform([]) < probability
    batch = tf.train.maybe_batch(tensors, keeps, batch_size, num_threads=threads)
    return list(batch) if isinstance(batch, list | tuple) else [batch]


def _counted(labels: tf.Tensor, classes: int) -> tf.Tensor:
    """How often each class has come so far, as if each had come ten times before."""
    seen = tf.Variable(tf.fill([classes], tf.constant(10, tf.int64)), trainable=False, name="class_count")
    now = seen.assign_add(tf.reduce_sum(tf.one_hot(labels, classes, dtype=tf.int64), 0))
    counts = tf.convert_to_tensor(now)
    result: tf.Tensor = tf.cast(counts / tf.reduce_sum(counts), tf.float32)
    return result


def _checks(found: tf.Tensor, wanted: tf.Tensor, labels: tf.Tensor) -> list[tf.Operation]:
    sums = [tf.assert_less(tf.abs(tf.reduce_sum(probs) - 1.0), 1e-6) for probs in (found, wanted)]
    signs = [tf.assert_non_negative(probs) for probs in (found, wanted)]
    possible = tf.Assert(
        tf.reduce_all(tf.logical_or(tf.not_equal(found, 0), tf.equal(wanted, 0))),
        ["All classes with zero initial probability must also have zero target probability: ", found, wanted],
    )
    classes = tf.cast(tf.size(wanted), labels.dtype)
    return [*sums, *signs, possible, tf.assert_non_negative(labels), tf.assert_less(labels, classes)]


def _acceptance(found: tf.Tensor, wanted: tf.Tensor) -> tf.Tensor:
    """As much of each class as leaves the wanted proportions, and all of the one that is missed most."""
    missed = tf.div_no_nan(wanted, found)
    result: tf.Tensor = missed / tf.reduce_max(missed)
    return result


def resample_at_rate(
    inputs: Sequence[TensorLike],
    rates: TensorLike,
    scope: str | None = None,
    seed: int | None = None,
    back_prop: bool = False,
) -> list[tf.Tensor]:
    """Repeats each example, or leaves it out, so that it comes as often as its rate on average.

    Args:
        inputs: tensors [batch, ...].
        rates: [batch].
        scope: of the operations.
        seed: of what is drawn.
        back_prop: accepted: gradients go to the examples that came.

    Returns:
        Tensors like `inputs`, with another number of examples.
    """
    del back_prop
    with tf.name_scope(scope, "resample_at_rate", [*inputs, rates]):
        given = tf.convert_to_tensor(rates, name="rates")
        counts = tf.cast(tf.random_poisson(given, [], given.dtype, seed), tf.int32)
        places = tf.repeat(tf.range(tf.size(counts)), counts)
        return [tf.gather(x, places) for x in inputs]


def weighted_resample(
    inputs: Sequence[TensorLike],
    weights: TensorLike,
    overall_rate: TensorLike,
    scope: str | None = None,
    mean_decay: float = 0.999,
    seed: int | None = None,
) -> tuple[list[tf.Tensor], tf.Tensor]:
    """Repeats examples, or leaves them out, by their weights, so that they come at a rate on average.

    Args:
        inputs: tensors [batch, ...].
        weights: [batch].
        overall_rate: how many there are on average for each that is given.
        scope: of the operations, and of the variables that hold the weights' moving average.
        mean_decay: of this average.
        seed: of what is drawn.

    Returns:
        (tensors like `inputs`, with another number of examples; their rates).
    """
    with tf.name_scope(scope, "weighted_resample", inputs) as opened:
        given = tf.convert_to_tensor(weights)
        with tf.variable_scope(scope, "estimate_mean", inputs):
            zeros = tf.zeros_initializer()
            average: Any = tf.get_local_variable("estimated_mean", [], given.dtype, zeros)
            mean = _moving_average(average, tf.reduce_mean(given), mean_decay)
        rates = given * overall_rate / mean
        rates_taken, *taken = resample_at_rate([rates, *inputs], rates, opened, seed)
        return taken, rates_taken


def _moving_average(average: tf.Variable, value: tf.Tensor, decay: float) -> tf.Tensor:
    """Corrected for its start at zero (Kingma and Ba 2015)."""
    steps = tf.get_local_variable("local_step", [], value.dtype, tf.zeros_initializer())
    moved = tf.assign_sub(average, (average - value) * (1.0 - decay))
    result: tf.Tensor = moved / (1.0 - tf.pow(tf.cast(decay, value.dtype), tf.assign_add(steps, 1.0)))
    return result
