"""`tf.contrib.gan`: models, losses, training, features, scores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anabranch as tf

gan = tf.contrib.gan


def _generator(noise: tf.Tensor) -> Any:
    return tf.layers.dense(noise, 2, name="out")


def _discriminator(data: tf.Tensor, _: object) -> Any:
    return tf.layers.dense(data, 1, kernel_initializer=tf.ones_initializer(), name="score")


def _model() -> Any:
    return gan.gan_model(_generator, _discriminator, tf.ones([4, 2]), tf.random_normal([4, 3], seed=1))


def _value(tensor: Any) -> Any:
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        return session.run(tensor)


def _numbers(*values: float) -> tf.Tensor:
    return tf.constant(np.array(values, np.float32)[:, None])


def test_a_model_holds_both_networks_with_variables_of_their_scopes() -> None:
    model = _model()
    assert [v.op.name for v in model.generator_variables] == ["Generator/out/kernel", "Generator/out/bias"]
    assert [v.op.name for v in model.discriminator_variables] == [
        "Discriminator/score/kernel",
        "Discriminator/score/bias",
    ]
    np.testing.assert_array_equal(_value(model.discriminator_real_outputs), np.full([4, 1], 2.0))
    with pytest.raises(ValueError, match="same shape as real data"):
        gan.gan_model(_generator, lambda data, _: tf.reduce_sum(data, 1), tf.ones([4, 5]), tf.zeros([4, 3]), "G", "D")


def test_losses_are_those_of_the_papers() -> None:
    real, fake = _numbers(1.0, -2.0), _numbers(0.5, 3.0)
    x, z = np.array([1.0, -2.0]), np.array([0.5, 3.0])
    w = gan.losses.wargs

    def sigmoid(v: Any) -> Any:
        return 1 / (1 + np.exp(-v))

    expected = {
        w.wasserstein_discriminator_loss: z.mean() - x.mean(),
        w.least_squares_discriminator_loss: ((x - 1) ** 2).mean() / 2 + (z**2).mean() / 2,
    }
    for loss, value in expected.items():
        np.testing.assert_allclose(_value(loss(real, fake)), value, rtol=1e-5)
    smoothed = w.minimax_discriminator_loss(real, fake, label_smoothing=0.0)
    np.testing.assert_allclose(_value(smoothed), -np.log(sigmoid(x)).mean() - np.log(1 - sigmoid(z)).mean(), rtol=1e-5)
    np.testing.assert_allclose(_value(w.modified_generator_loss(fake)), -np.log(sigmoid(z)).mean(), rtol=1e-5)
    np.testing.assert_allclose(_value(w.wasserstein_generator_loss(fake, weights=2.0)), -2 * z.mean(), rtol=1e-5)
    assert len(tf.get_collection(tf.GraphKeys.LOSSES)) == 5


def test_the_gradients_penalty_is_that_of_a_linear_discriminator() -> None:
    penalty = gan.losses.wasserstein_gradient_penalty(_model())
    np.testing.assert_allclose(_value(penalty), (np.sqrt(2.0) - 1.0) ** 2, rtol=1e-4)
    one_sided = gan.losses.wasserstein_gradient_penalty(_model_again(), one_sided=True, target=2.0)
    np.testing.assert_allclose(_value(one_sided), 0.0, atol=1e-6)


def _model_again() -> Any:
    return gan.gan_model(_generator, _discriminator, tf.ones([4, 2]), tf.zeros([4, 3]), "G2", "D2")


def test_losses_of_models_take_tensors_from_their_fields() -> None:
    model = _model()
    with pytest.raises(ValueError, match="both the tuple and keyword args"):
        gan.losses.wasserstein_generator_loss(model, discriminator_gen_outputs=model.generated_data)
    with pytest.raises(ValueError, match="`one_hot_labels` must be supplied|must be supplied"):
        gan.losses.acgan_generator_loss(model)
    with pytest.raises(ValueError, match="must be an `InfoGANModel`"):
        gan.gan_loss(model, mutual_information_penalty_weight=1.0)
    with pytest.raises(ValueError, match="must be greater than 0"):
        gan.gan_loss(model, gradient_penalty_weight=-1.0)


def test_the_loop_makes_steps_of_both_and_counts_them(tmp_path: Path) -> None:
    model = _model()
    loss = gan.gan_loss(model, add_summaries=False)
    optimizers = tf.train.GradientDescentOptimizer(0.5), tf.train.GradientDescentOptimizer(0.25)
    operations = gan.gan_train_ops(model, loss, *optimizers)
    hooks = gan.get_sequential_train_hooks(gan.GANTrainSteps(1, 2))
    stop = tf.train.StopAtStepHook(num_steps=3)
    assert gan.gan_train(operations, str(tmp_path), get_hooks_fn=hooks, hooks=[stop]) == 3
    reader = tf.train.load_checkpoint(str(tmp_path))
    assert reader.get_tensor("global_step") == 3
    # a constant that is added to both outputs does not change the difference of their means
    np.testing.assert_allclose(reader.get_tensor("Discriminator/score/bias"), [0.0], atol=1e-6)
    # the generator's bias went up by the weights, which were ones in the first of its steps
    assert (reader.get_tensor("Generator/out/bias") > 0.4).all()


def test_updates_belong_to_one_of_the_networks() -> None:
    model = _model()
    loss = gan.gan_loss(model, add_summaries=False)
    tf.add_to_collection(tf.GraphKeys.UPDATE_OPS, tf.no_op(name="elsewhere"))
    optimizer = tf.train.GradientDescentOptimizer(0.1)
    with pytest.raises(ValueError, match="unused update ops"):
        gan.gan_train_ops(model, loss, optimizer, optimizer)
    assert gan.gan_train_ops(model, loss, optimizer, optimizer, check_for_unused_update_ops=False).train_hooks == []


def test_a_cycle_of_models_comes_back() -> None:
    model = gan.cyclegan_model(
        lambda x: x * tf.get_variable("factor", [], initializer=tf.constant_initializer(3.0)),
        _discriminator,
        tf.ones([4, 2]),
        2.0 * tf.ones([4, 2]),
    )
    loss = gan.cyclegan_loss(model, cycle_consistency_loss_weight=1.0, add_summaries=False)
    back, consistency = _value([model.reconstructed_x, gan.losses.cycle_consistency_loss(model)])
    np.testing.assert_allclose(back, np.full([4, 2], 9.0))
    np.testing.assert_allclose(consistency, (8.0 + 16.0) / 2)
    assert isinstance(loss, gan.CycleGANLoss)


def test_spectral_norms_come_near_the_largest_singular_value() -> None:
    weights = np.random.RandomState(0).normal(size=[6, 4]).astype(np.float32)
    norm = gan.features.compute_spectral_norm(tf.constant(weights), power_iteration_rounds=30)
    np.testing.assert_allclose(_value(norm), np.linalg.svd(weights)[1][0], rtol=1e-3)
    getter = gan.features.spectral_normalization_custom_getter(power_iteration_rounds=30)
    with tf.variable_scope("scaled", custom_getter=getter):
        kernel = tf.layers.Dense(4, name="d")
        kernel.build([None, 6])
    value = _value(kernel.kernel)
    np.testing.assert_allclose(np.linalg.svd(value)[1][0], 1.0, rtol=1e-2)


def test_virtual_batches_normalize_by_the_reference_and_the_example() -> None:
    rng = np.random.RandomState(1)
    reference, batch = (rng.normal(3.0, 2.0, [8, 5]).astype(np.float32) for _ in range(2))
    vbn = gan.features.VBN(tf.constant(reference))
    own, given = _value([vbn.reference_batch_normalization(), vbn(tf.constant(batch))])
    np.testing.assert_allclose(
        own, (reference - reference.mean(0)) / np.sqrt(reference.var(0) + 1e-3), rtol=1e-3, atol=1e-4
    )
    mean = (8 * reference.mean(0) + batch) / 9
    square = (8 * (reference**2).mean(0) + batch**2) / 9
    np.testing.assert_allclose(given, (batch - mean) / np.sqrt(square - mean**2 + 1e-3), rtol=1e-3, atol=1e-4)


def test_a_pool_gives_what_was_put_in_earlier() -> None:
    counter = tf.get_variable("counter", [], tf.float32, tf.zeros_initializer(), use_resource=True)
    pooled = gan.features.tensor_pool(counter.assign_add(1.0), pool_size=2, pooling_probability=1.0)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        given = [float(session.run(pooled)) for _ in range(6)]
    assert given[:2] == [1.0, 2.0]
    assert all(one < place for place, one in enumerate(given[2:], start=3))
    assert len(set(given[2:])) == 4


def test_distances_of_distributions() -> None:
    rng = np.random.RandomState(2)
    a, b = rng.normal(size=[200, 3]), rng.normal(0.5, 2.0, size=[200, 3])
    ca, cb = np.cov(a.T), np.cov(b.T)
    eigenvalues = np.linalg.eigvals(ca @ cb)
    expected = ((a.mean(0) - b.mean(0)) ** 2).sum() + np.trace(ca + cb) - 2 * np.sqrt(eigenvalues.real).sum()
    scores = gan.eval
    distance = scores.frechet_classifier_distance_from_activations(tf.constant(a), tf.constant(b))
    np.testing.assert_allclose(_value(distance), expected, rtol=1e-6)
    kernel, error = _value(
        scores.kernel_classifier_distance_and_std_from_activations(tf.constant(a), tf.constant(b), max_block_size=70)
    )
    assert 0.5 < kernel < 20
    assert error > 0
    logits = np.log(np.array([[0.9, 0.1], [0.2, 0.8]]))
    p = np.exp(logits)
    expected = np.exp((p * (logits - np.log(p.mean(0)))).sum(1).mean())
    np.testing.assert_allclose(_value(scores.classifier_score_from_logits(tf.constant(logits))), expected)


def test_pictures_stand_in_a_grid() -> None:
    pictures = np.arange(4 * 2 * 3, dtype=np.float32).reshape(4, 2, 3, 1)
    expected = np.concatenate([np.concatenate(pictures[:2], 1), np.concatenate(pictures[2:], 1)])[None]
    np.testing.assert_array_equal(_value(gan.eval.image_grid(tf.constant(pictures), [2, 2], [2, 3], 1)), expected)
    np.testing.assert_array_equal(_value(gan.eval.image_reshaper(tf.constant(pictures))), expected)
    noise = tf.random_uniform([4, 32, 32, 3], seed=1)
    stripes = noise * 0.1 + tf.reshape(tf.cast(tf.range(32) % 2, tf.float32), [32, 1, 1])
    same, other = _value(gan.eval.sliced_wasserstein_distance(noise, stripes))[0]
    assert same < other


def test_an_estimator_trains_evaluates_and_samples(tmp_path: Path) -> None:
    estimator = gan.estimator.GANEstimator(
        str(tmp_path),
        _generator,
        _discriminator,
        gan.losses.wasserstein_generator_loss,
        gan.losses.wasserstein_discriminator_loss,
        tf.train.GradientDescentOptimizer(0.1),
        lambda: tf.train.GradientDescentOptimizer(0.1),
        get_eval_metric_ops_fn=lambda model: {"mean": tf.metrics.mean(model.generated_data)},
    )

    def inputs() -> Any:
        return tf.zeros([4, 3]), tf.ones([4, 2])

    estimator.train(inputs, steps=2)
    found = estimator.evaluate(inputs, steps=1)
    assert set(found) == {"global_step", "loss", "generator_loss", "discriminator_loss", "mean"}
    assert found["global_step"] == 2
    data = tf.data.Dataset.from_tensors(np.zeros([4, 3], np.float32))
    first = next(iter(estimator.predict(lambda: tf.data.make_one_shot_iterator(data).get_next())))
    np.testing.assert_allclose(first.mean(), found["mean"], rtol=1e-5)


def test_a_head_makes_a_model_function(tmp_path: Path) -> None:
    head = gan.estimator.GANHead(
        gan.losses.wasserstein_generator_loss,
        gan.losses.wasserstein_discriminator_loss,
        tf.train.GradientDescentOptimizer(0.1),
        lambda: tf.train.GradientDescentOptimizer(0.1),
        name="h",
    )

    def model_fn(features: Any, labels: Any, mode: str) -> Any:
        model = gan.gan_model(_generator, _discriminator, labels, features)
        return head.create_estimator_spec(None, mode, logits=model)

    estimator = tf.estimator.Estimator(model_fn, str(tmp_path))
    estimator.train(lambda: (tf.zeros([4, 3]), tf.ones([4, 2])), steps=2)
    found = estimator.evaluate(lambda: (tf.zeros([4, 3]), tf.ones([4, 2])), steps=1)
    assert set(found) == {"global_step", "loss", "generator_loss/h", "discriminator_loss/h"}
    assert found["loss"] == pytest.approx(found["generator_loss/h"] + found["discriminator_loss/h"], abs=1e-6)
    with pytest.raises(ValueError, match="must be a GANModel"):
        head.create_loss(None, "train", logits=3, labels=None)
