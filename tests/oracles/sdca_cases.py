"""Linear models that are trained by dual coordinate ascent, with whichever modules are handed in.

The oracle records what tensorflow-estimator's come to on genuine TensorFlow, and a test compares. The examples of a
batch are taken in a random order, so that batches are of one example, or training goes on until order does not matter.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

_RANDOM = np.random.RandomState(7)
SIZE = 30
#: features by name
FEATURES: dict[str, np.ndarray[Any, Any]] = {
    "id": np.array([f"example {i}" for i in range(SIZE)], object),
    "height": _RANDOM.uniform(0, 4, SIZE).round(3).astype(np.float32),
    "pair": _RANDOM.uniform(-1, 1, (SIZE, 2)).round(3).astype(np.float32),
    "kind": _RANDOM.randint(0, 4, SIZE).astype(np.int64),
    "tags": np.array(["sweet", "sour", "", "none", "hot"], object)[_RANDOM.randint(0, 5, (SIZE, 3))],
    "strength": _RANDOM.uniform(0.1, 2, (SIZE, 3)).round(3).astype(np.float32),
    "weight": _RANDOM.uniform(0.3, 2, SIZE).round(3).astype(np.float32),
}
_SUM = FEATURES["height"] - 1.5 * FEATURES["pair"][:, 0] + np.array([0.5, -1, 2, 0])[FEATURES["kind"]]
_SUM = _SUM + (FEATURES["tags"] == "hot").sum(1) + _RANDOM.normal(0, 0.3, SIZE)
LABELS: dict[str, np.ndarray[Any, Any]] = {
    "numbers": _SUM.round(3).astype(np.float32),
    "classes": (_SUM > 2.5).astype(np.int64),
}


class Case(NamedTuple):
    """An estimator: the names of columns and labels, arguments of `LinearSDCA` and its own, and how it is trained."""

    estimator: str
    columns: str
    labels: str
    sdca: dict[str, Any]
    arguments: dict[str, Any]
    batch: int = SIZE
    steps: int = 80


_REGRESSOR, _CLASSIFIER = "LinearRegressor", "LinearClassifier"
CASES = {
    "numbers": Case(_REGRESSOR, "height_buckets kind pair", "numbers", {"symmetric_l2_regularization": 2.0}, {}),
    "classes": Case(_CLASSIFIER, "height pair kind", "classes", {"symmetric_l2_regularization": 1.5}, {}),
    "few weights": Case(
        _REGRESSOR,
        "height_buckets kind pair",
        "numbers",
        {"symmetric_l1_regularization": 1.0, "symmetric_l2_regularization": 2.0, "num_table_shards": 3},
        {},
    ),
    "weighted examples": Case(
        _CLASSIFIER, "height tags", "classes", {"symmetric_l2_regularization": 2.0}, {"weight_column": "weight"}
    ),
    "weighted tags": Case(_REGRESSOR, "strong_tags pair", "numbers", {"symmetric_l2_regularization": 3.0}, {}),
    # which examples are taken is drawn; after so many steps it no longer matters
    "adaptive": Case(
        _REGRESSOR, "kind pair", "numbers", {"adaptive": True, "symmetric_l2_regularization": 3.0}, {}, steps=320
    ),
    "one by one": Case(
        _REGRESSOR, "height_buckets tags pair", "numbers", {"symmetric_l2_regularization": 2.0}, {}, batch=1, steps=50
    ),
    "one class by one, two partitions": Case(
        _CLASSIFIER,
        "height kind",
        "classes",
        {"symmetric_l1_regularization": 0.1, "symmetric_l2_regularization": 2.0, "num_loss_partitions": 2},
        {},
        batch=1,
        steps=40,
    ),
}


def columns(tf: Any, names: str) -> list[Any]:
    """Columns by name."""
    fc = tf.feature_column
    kinds = fc.categorical_column_with_identity("kind", 4)
    tags = fc.categorical_column_with_vocabulary_list("tags", ["sweet", "sour", "hot"])
    made = {
        "height": lambda: fc.numeric_column("height"),
        "pair": lambda: fc.numeric_column("pair", 2),
        "height_buckets": lambda: fc.bucketized_column(fc.numeric_column("height"), [0.5, 1.0, 2.0, 3.5]),
        "kind": lambda: kinds,
        "kind_indicator": lambda: fc.indicator_column(kinds),
        "tags": lambda: tags,
        "strong_tags": lambda: fc.weighted_categorical_column(
            fc.categorical_column_with_hash_bucket("tags", 6), "strength"
        ),
    }
    return [made[name]() for name in names.split()]


def data(tf: Any, labels: str, batch: int = SIZE, epochs: int | None = None) -> Any:
    """An input function of the data, in order. Where a tag is missing, so is its strength."""
    features = {**FEATURES, "strength": np.where(FEATURES["tags"] == "", -1, FEATURES["strength"]).astype(np.float32)}

    def input_fn() -> Any:
        x, y = tf.estimator.inputs.numpy_input_fn(
            features, LABELS[labels], batch_size=batch, num_epochs=epochs, shuffle=False
        )()
        places = tf.where(tf.not_equal(x["tags"], ""))
        shape = tf.shape(x["tags"], out_type=tf.int64)
        for name in ("tags", "strength"):
            x[name] = tf.SparseTensor(places, tf.gather_nd(x[name], places), shape)
        return x, y

    return input_fn


def result(tf: Any, name: str, folder: Path) -> dict[str, Any]:
    """What comes of a case: variables, metrics and predictions."""
    before = tf.logging.get_verbosity()
    tf.logging.set_verbosity(tf.logging.ERROR)
    try:
        return _trained(tf, CASES[name], folder)
    finally:
        # whoever runs next in this process may look for a warning
        tf.logging.set_verbosity(before)


def _trained(tf: Any, case: Case, folder: Path) -> dict[str, Any]:
    sdca = tf.estimator.experimental.LinearSDCA("id", **case.sdca)
    model = getattr(tf.estimator, case.estimator)(
        columns(tf, case.columns), str(folder), optimizer=sdca, **case.arguments
    )
    model.train(data(tf, case.labels, case.batch), steps=case.steps)
    names = [variable for variable in model.get_variable_names() if variable.startswith("linear/")]
    key = "predictions" if case.estimator == _REGRESSOR else "logits"
    return {
        "variables": {variable: model.get_variable_value(variable).reshape(-1).tolist() for variable in names},
        "metrics": {key: float(v) for key, v in model.evaluate(data(tf, case.labels, epochs=1)).items()},
        "predictions": [float(said[key][0]) for said in model.predict(data(tf, case.labels, epochs=1))],
    }
