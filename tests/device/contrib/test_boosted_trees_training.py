"""`tf.contrib.estimator`: boosted trees that see the whole data in each step."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import anabranch as tf

contrib = tf.contrib.estimator
X = np.linspace(-1, 1, 40, dtype=np.float32)
COLUMN = tf.feature_column.bucketized_column(tf.feature_column.numeric_column("x"), [-0.5, 0.0, 0.5])


def examples(labels: np.ndarray) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices(({"x": X}, labels))


def test_trees_of_single_examples(tmp_path: Path) -> None:
    classes = (X > 0).astype(np.float32)
    classifier = contrib.boosted_trees_classifier_train_in_memory(
        lambda: examples(classes), [COLUMN], str(tmp_path / "a"), n_trees=3, max_depth=1, learning_rate=0.9
    )
    assert classifier.evaluate(lambda: examples(classes).batch(40))["accuracy"] == 1.0
    numbers = np.where(X > 0.5, 3, 1).astype(np.float32)
    regressor = contrib.boosted_trees_regressor_train_in_memory(
        lambda: examples(numbers), [COLUMN], str(tmp_path / "b"), n_trees=4, max_depth=1, learning_rate=0.9
    )
    assert regressor.evaluate(lambda: examples(numbers).batch(40))["average_loss"] < 0.01
    with pytest.raises(ValueError, match="single examples"):
        contrib.boosted_trees_regressor_train_in_memory(lambda: (tf.zeros([1]), tf.zeros([1])), [COLUMN])
