"""Boosted trees that are trained on small data, with whichever modules are handed in, and what they come to.

The oracle records what the estimators of tensorflow-estimator 1.15 give on genuine TensorFlow, and a test compares.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

_RANDOM = np.random.RandomState(11)
SIZE = 60
#: features by name
FEATURES: dict[str, np.ndarray[Any, Any]] = {
    "height": _RANDOM.uniform(0, 4, SIZE).round(3).astype(np.float32),
    "width": _RANDOM.normal(0, 1, SIZE).round(3).astype(np.float32),
    "pair": _RANDOM.uniform(-1, 1, (SIZE, 2)).round(3).astype(np.float32),
    "kind": _RANDOM.randint(0, 4, SIZE).astype(np.int64),
    "colour": np.array(["red", "green", "blue", "grey"], object)[_RANDOM.randint(0, 4, SIZE)],
    "weight": _RANDOM.uniform(0.3, 2, SIZE).round(3).astype(np.float32),
}
_SUM = (
    FEATURES["height"]
    + np.array([0.5, -1, 2, 0], np.float32)[FEATURES["kind"]]
    - 1.5 * FEATURES["pair"][:, 0] * (FEATURES["width"] > 0)
    + 0.7 * (FEATURES["colour"] == "blue")
)
_NOISE = _RANDOM.normal(0, 0.3, SIZE)
LABELS: dict[str, np.ndarray[Any, Any]] = {
    "numbers": (_SUM + _NOISE).round(3).astype(np.float32),
    "counts": np.floor(np.maximum(_SUM + _NOISE, 0)).astype(np.float32),
    "classes": (_SUM + _NOISE > 2).astype(np.int64),
    "words": np.where(_SUM + _NOISE > 2, "large", "small").astype(object),
}


class Case(NamedTuple):
    """An estimator: its arguments, the names of columns and labels, and how it is trained.

    Attributes:
        batch: how many examples are in a batch.
        steps: of each call of `train`; None: until all trees are final.
        head: the name of a head of `tf.estimator`, for `BoostedTreesEstimator`.
    """

    estimator: str
    columns: str
    labels: str
    arguments: dict[str, Any]
    batch: int = SIZE
    steps: tuple[int | None, ...] = (None,)
    head: str | None = None


_SMALL = {"n_batches_per_layer": 1, "n_trees": 3, "max_depth": 3, "learning_rate": 0.5}
_COARSE = {**_SMALL, "quantile_sketch_epsilon": 0.1}
_REGRESSOR, _CLASSIFIER, _ESTIMATOR = "BoostedTreesRegressor", "BoostedTreesClassifier", "BoostedTreesEstimator"

CASES = {
    "numbers by buckets": Case(_REGRESSOR, "height_buckets width_buckets", "numbers", _SMALL),
    "batches of a layer, centered": Case(
        _REGRESSOR,
        "height_buckets kind",
        "numbers",
        {**_SMALL, "n_batches_per_layer": 3, "center_bias": True},
        batch=20,
    ),
    "batches of numbers": Case(_REGRESSOR, "height width", "numbers", {**_COARSE, "n_batches_per_layer": 4}, batch=15),
    "weighted numbers, many buckets": Case(
        _REGRESSOR,
        "height pair kind",
        "numbers",
        {**_SMALL, "quantile_sketch_epsilon": 0.02, "weight_column": "weight", "center_bias": True},
    ),
    "penalties": Case(
        _REGRESSOR,
        "height_buckets width_buckets kind",
        "numbers",
        {**_SMALL, "l1_regularization": 0.02, "l2_regularization": 0.3, "min_node_weight": 0.2},
    ),
    "pruned before": Case(
        _REGRESSOR,
        "height_buckets width_buckets kind",
        "numbers",
        {**_SMALL, "pruning_mode": "pre", "tree_complexity": 0.05},
    ),
    "pruned after": Case(
        _REGRESSOR,
        "height width_buckets kind",
        "numbers",
        {**_COARSE, "pruning_mode": "post", "tree_complexity": 0.05, "center_bias": True},
    ),
    "two calls": Case(_REGRESSOR, "height kind", "numbers", {**_COARSE, "center_bias": True}, steps=(4, None)),
    "classes": Case(_CLASSIFIER, "height width_buckets kind colour", "classes", {**_COARSE, "center_bias": True}),
    "weighted words": Case(
        _CLASSIFIER,
        "height_buckets hashed",
        "words",
        {**_SMALL, "weight_column": "weight", "label_vocabulary": ["small", "large"], "n_batches_per_layer": 2},
        batch=30,
    ),
    "in memory": Case(_REGRESSOR, "height width kind", "numbers", {**_COARSE, "train_in_memory": True}),
    "in memory, pruned classes": Case(
        _CLASSIFIER,
        "pair height_buckets kind",
        "classes",
        {
            **_COARSE,
            "max_depth": 2,  # in small nodes, splits by two features may be the same
            "train_in_memory": True,
            "pruning_mode": "post",
            "tree_complexity": 0.01,
            "center_bias": True,
        },
    ),
    "head of counts": Case(_ESTIMATOR, "height kind", "counts", _COARSE, head="PoissonRegressionHead"),
    "head of classes": Case(
        _ESTIMATOR, "height_buckets kind", "classes", {**_SMALL, "center_bias": True}, head="BinaryClassHead"
    ),
}


def columns(tf: Any, names: str) -> list[Any]:
    """Columns by name."""
    fc = tf.feature_column
    words = fc.categorical_column_with_vocabulary_list("colour", ["red", "green", "blue"])
    made = {
        "height": lambda: fc.numeric_column("height"),
        "width": lambda: fc.numeric_column("width"),
        "pair": lambda: fc.numeric_column("pair", 2),
        "height_buckets": lambda: fc.bucketized_column(fc.numeric_column("height"), [0.5, 1.0, 2.0, 3.5]),
        "width_buckets": lambda: fc.bucketized_column(fc.numeric_column("width"), [-1.0, 0.0, 1.0]),
        "kind": lambda: fc.indicator_column(fc.categorical_column_with_identity("kind", 4)),
        "colour": lambda: fc.indicator_column(words),
        "hashed": lambda: fc.indicator_column(fc.categorical_column_with_hash_bucket("colour", 5)),
    }
    return [made[name]() for name in names.split()]


def data(tf: Any, case: Case, epochs: int | None, batch: int | None = None) -> Callable[[], Any]:
    """An input function of the data, in order."""
    read: Callable[[], Any] = tf.estimator.inputs.numpy_input_fn(
        FEATURES, LABELS[case.labels], batch_size=batch or case.batch, num_epochs=epochs, shuffle=False
    )
    return read


def estimator(tf: Any, estimators: Any, case: Case, folder: Path) -> Any:
    """The estimator of a case, not trained."""
    head = {} if case.head is None else {"head": getattr(tf.estimator, case.head)()}
    config = tf.estimator.RunConfig(model_dir=str(folder), save_summary_steps=1)
    kind = getattr(estimators, case.estimator)
    return kind(columns(tf, case.columns), config=config, **head, **case.arguments)


def _plain(value: Any) -> Any:
    array = np.asarray(value)
    return np.vectorize(bytes.decode)(array).tolist() if array.dtype == object else array.tolist()


def _said(predictions: Iterator[dict[str, Any]]) -> dict[str, list[Any]]:
    """Predictions of all examples by name."""
    listed = list(predictions)
    return {key: [_plain(said[key]) for said in listed] for key in listed[0]}


def _metrics(found: dict[str, Any]) -> dict[str, float]:
    """Without the area that the heads of canned estimators of that version compute otherwise than the public ones."""
    return {key: float(value) for key, value in found.items() if key != "auc_precision_recall"}


def _with_gains(ensemble: dict[str, Any]) -> dict[str, Any]:
    """With the gains that are 0, which messages leave out, and without by what it is that such nodes are split.

    Where all examples of a node are alike, any split is as good as any other, and errors of rounding choose one.
    """
    for tree in ensemble["trees"]:
        for node in tree["nodes"]:
            split = node.get("bucketizedSplit", {})
            if abs(node.setdefault("metadata", {}).setdefault("gain", 0.0)) < 1e-6 and split:
                for what in ("featureId", "threshold"):
                    split.pop(what, None)
                for child in (split["leftId"], split["rightId"]):
                    tree["nodes"][child].pop("leaf", None)  # one of the two has no examples
    return ensemble


def _losses(tf: Any, folder: Path) -> dict[str, float]:
    """The losses that training wrote, by step."""
    found = {}
    for path in sorted(folder.glob("events.out.tfevents.*")):
        for event in tf.train.summary_iterator(str(path)):
            found.update({str(event.step): v.simple_value for v in event.summary.value if v.tag == "loss"})
    return found


def export(tf: Any, model: Any, case: Case, folder: Path) -> list[float]:
    """What an exported model says of the first examples, by its signature "predict"."""
    first = {name: values[:5] for name, values in FEATURES.items() if name in case.columns or name == "colour"}

    def receiver() -> Any:
        tensors = {
            name: tf.placeholder(tf.string if values.dtype == object else values.dtype, [None, *values.shape[1:]], name)
            for name, values in first.items()
        }
        return tf.estimator.export.ServingInputReceiver(tensors, tensors)

    path = model.export_saved_model(str(folder / "export"), receiver)
    return said_of_first(tf, path.decode(), first)


def said_of_first(tf: Any, path: str, first: dict[str, Any]) -> list[float]:
    """What an exported model says of some examples, by its signature "predict"."""
    with tf.Graph().as_default(), tf.Session() as session:
        meta = tf.saved_model.loader.load(session, ["serve"], path)
        signature = meta.signature_def["predict"]
        key = "predictions" if "predictions" in signature.outputs else "logits"
        feeds = {signature.inputs[name].name: values for name, values in first.items() if name in signature.inputs}
        said: list[float] = session.run(signature.outputs[key].name, feeds).reshape(-1).tolist()
        return said


@contextmanager
def _quiet(tf: Any) -> Iterator[None]:
    before = tf.logging.get_verbosity()
    tf.logging.set_verbosity(tf.logging.ERROR)
    yield
    tf.logging.set_verbosity(before)


def result(
    tf: Any, estimators: Any, to_dict: Callable[[bytes], dict[str, Any]], name: str, folder: Path
) -> dict[str, Any]:
    """What comes of a case.

    Args:
        tf, estimators: whose front end, and where the estimators are.
        to_dict: from a serialized `TreeEnsemble` to dictionaries.
        name: of the case.
        folder: an empty one.
    """
    case = CASES[name]
    with _quiet(tf):
        model = estimator(tf, estimators, case, folder)
        for steps in case.steps:
            model.train(data(tf, case, None), steps=steps)
        found: dict[str, Any] = {
            "losses": _losses(tf, folder),
            "metrics": _metrics(model.evaluate(data(tf, case, 1))),
            "predictions": _said(model.predict(data(tf, case, 1))),
            "importances": dict(model.experimental_feature_importances()),
            "ensemble": _with_gains(to_dict(np.asarray(model.get_variable_value("boosted_trees:0_serialized")).item())),
            "stamp": int(model.get_variable_value("boosted_trees:0_stamp")),
            "exported": export(tf, model, case, folder),
        }
        if min(found["importances"].values()) >= 0:
            found["shares"] = dict(model.experimental_feature_importances(normalize=True))
        # that version knows no head of the public ones to be of classes
        if case.arguments.get("center_bias") and case.head is None:
            listed = list(model.experimental_predict_with_explanations(data(tf, case, 1)))
            found["bias"] = float(listed[0]["bias"])
            found["contributions"] = [{key: float(v) for key, v in said["dfc"].items()} for said in listed[:20]]
    return found


def boundaries(tf: Any) -> list[list[float]]:
    """The boundaries of buckets that the operations find for streams of several kinds, in one or several parts."""
    raw, random, found = tf.raw_ops, np.random.RandomState(5), []
    with tf.Graph().as_default() as graph:
        epsilon, buckets = tf.placeholder(tf.float32, []), tf.placeholder(tf.int64, [])
        values, weights = (tf.placeholder(tf.float32, [None]) for _ in range(2))
        handle = raw.BoostedTreesQuantileStreamResourceHandleOp(container="", shared_name="q", name="q")
        of = {"quantile_stream_resource_handle": handle}
        make = raw.BoostedTreesCreateQuantileStreamResource(**of, epsilon=epsilon, num_streams=np.int64(1))
        summaries = raw.BoostedTreesMakeQuantileSummaries(
            float_values=[values], example_weights=weights, epsilon=epsilon
        )
        add = raw.BoostedTreesQuantileStreamResourceAddSummaries(**of, summaries=summaries)
        flush = raw.BoostedTreesQuantileStreamResourceFlush(**of, num_buckets=buckets)
        (ends,) = raw.BoostedTreesQuantileStreamResourceGetBucketBoundaries(**of, num_features=1)
    for i in range(60):
        size, error = int(random.choice([3, 8, 11, 12, 40, 61, 100, 333])), float(random.choice([0.3, 0.2, 0.1, 0.05]))
        kinds = random.rand(size), random.randn(size), random.randint(0, 30, size), random.rand(size).round(2)
        weight = (np.ones(size), random.rand(size))[i // 4 % 2]
        with tf.Session(graph=graph) as session:
            session.run(make, {epsilon: error})
            for part in np.array_split(np.arange(size), min(size, 1 + i % 3)):
                session.run(add, {values: kinds[i % 4][part], weights: weight[part], epsilon: error})
            session.run(flush, {buckets: int(1 / error)})
            found.append([float(end) for end in np.asarray(session.run(ends))])
    return found
