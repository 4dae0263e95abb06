"""Recurrent estimators: they learn what only the order of a sequence says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anabranch as tf

fc = tf.feature_column
RANDOM = np.random.RandomState(3)
COUNT, STEPS = 64, 5
FIRST = RANDOM.randint(0, 2, COUNT)
#: two words alternate: which comes first is the class; half of the sequences are shorter
WORDS = np.array([["ab"[(first + at) % 2] for at in range(STEPS)] for first in FIRST])
LENGTHS = np.where(np.arange(COUNT) % 2, STEPS - 1, STEPS)
CLASS = np.array([(FIRST[i] + LENGTHS[i] - 1) % 2 for i in range(COUNT)])


def columns() -> list[Any]:
    words = tf.contrib.feature_column.sequence_categorical_column_with_vocabulary_list("words", ["a", "b"])
    return [fc.embedding_column(words, 3)]


def examples() -> tf.data.Dataset:
    places = [(i, at) for i in range(COUNT) for at in range(LENGTHS[i])]
    words = tf.SparseTensor(np.array(places, np.int64), [WORDS[place] for place in places], [COUNT, STEPS])
    features = {"words": words, "context": CLASS[:, None] * 2.0 - 1}
    return tf.data.Dataset.from_tensors((features, CLASS.astype(np.int64))).repeat()


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_a_classifier_learns_the_last_word(kind: str, tmp_path: Path) -> None:
    config = tf.estimator.RunConfig(str(tmp_path), tf_random_seed=1)
    model = tf.contrib.estimator.RNNClassifier(
        columns(), num_units=[8], cell_type=kind, optimizer=tf.train.AdamOptimizer(0.05), config=config
    )
    model.train(examples, steps=40)
    assert model.evaluate(examples, steps=1)["accuracy"] == 1.0
    names = model.get_variable_names()
    assert f"rnn/rnn/{'basic_lstm_cell' if kind == 'lstm' else 'gru_cell'}/" in "".join(f"{name}/" for name in names)
    assert "rnn/logits/kernel" in names
    first = next(iter(model.predict(lambda: examples().map(lambda features, _: features))))
    assert first["class_ids"].tolist() == [CLASS[0]]


def test_an_estimator_takes_context_cells_of_ones_own_and_a_head(tmp_path: Path) -> None:
    modes: list[str] = []

    def cell(mode: str) -> tf.nn.rnn_cell.RNNCell:
        modes.append(mode)
        return tf.nn.rnn_cell.MultiRNNCell([tf.nn.rnn_cell.GRUCell(4), tf.nn.rnn_cell.GRUCell(3)])

    model = tf.contrib.estimator.RNNEstimator(
        tf.contrib.estimator.regression_head(),
        columns(),
        [fc.numeric_column("context")],
        rnn_cell_fn=cell,
        optimizer=lambda: tf.train.AdamOptimizer(0.05),
        model_dir=str(tmp_path),
    )
    model.train(examples, steps=60)
    assert modes == ["train"]
    assert model.evaluate(examples, steps=1)["average_loss"] < 0.05


def test_what_does_not_go_together() -> None:
    make: Any = tf.contrib.estimator.RNNClassifier
    with pytest.raises(ValueError, match="num_units must be specified"):
        make(columns())
    with pytest.raises(ValueError, match="must not be specified"):
        make(columns(), num_units=[3], rnn_cell_fn=lambda mode: tf.nn.rnn_cell.GRUCell(3))
    with pytest.raises(ValueError, match="Supported cell types"):
        make(columns(), num_units=[3], cell_type="other")
