"""Heads with logits and labels, built with whichever modules are handed in, and what they come to.

The oracle records what the heads of tensorflow-estimator give on genuine TensorFlow, and a test compares.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

RANDOM = np.random.RandomState(5)


def _normal(*shape: int) -> np.ndarray[Any, Any]:
    return RANDOM.normal(0, 1.5, shape).round(3).astype(np.float32)


def _weights(*shape: int) -> np.ndarray[Any, Any]:
    return RANDOM.uniform(0.2, 2, shape).round(3).astype(np.float32)


class Sparse(NamedTuple):
    """A sparse tensor, before there is a graph."""

    indices: list[list[int]]
    values: list[Any]
    dense_shape: list[int]


class Case(NamedTuple):
    """A head and a batch; the arguments of a `MultiHead` hold a list of (head, arguments)."""

    head: str
    arguments: dict[str, Any]
    logits: np.ndarray[Any, Any]
    labels: Any
    weights: np.ndarray[Any, Any] | None = None
    penalties: tuple[float, ...] = ()


CASES = {
    "binary": Case("BinaryClassHead", {}, _normal(6, 1), [[1], [0], [1], [1], [0], [0]]),
    "binary, all arguments": Case(
        "BinaryClassHead",
        {
            "weight_column": "w",
            "thresholds": [0.25, 0.6],
            "label_vocabulary": ["no", "yes"],
            "loss_reduction": "sum",
            "name": "likes",
        },
        _normal(6, 1),
        ["yes", "no", "no", "yes", "yes", "no"],
        _weights(6, 1),
        (0.5, 0.25),
    ),
    "binary, sequences": Case(
        "BinaryClassHead",
        {"weight_column": "w"},
        _normal(2, 3, 1),
        [[[1], [0], [0]], [[0], [1], [1]]],
        _weights(2, 3, 1),
    ),
    "classes": Case("MultiClassHead", {"n_classes": 3}, _normal(5, 3), [[0], [2], [1], [1], [0]]),
    "classes, all arguments": Case(
        "MultiClassHead",
        {
            "n_classes": 3,
            "weight_column": "w",
            "label_vocabulary": ["red", "green", "blue"],
            "loss_reduction": "sum",
            "name": "colour",
        },
        _normal(4, 3),
        ["blue", "red", "green", "red"],
        _weights(4, 1),
        (0.125,),
    ),
    "classes, sequences": Case("MultiClassHead", {"n_classes": 4}, _normal(2, 2, 4), [[[3], [0]], [[1], [2]]]),
    "labels": Case("MultiLabelHead", {"n_classes": 3}, _normal(4, 3), [[1, 0, 1], [0, 0, 1], [0, 1, 0], [1, 1, 1]]),
    "labels, all arguments": Case(
        "MultiLabelHead",
        {
            "n_classes": 3,
            "weight_column": "w",
            "thresholds": [0.3, 0.7],
            "label_vocabulary": ["a", "b", "c"],
            "loss_reduction": "sum",
            "classes_for_class_based_metrics": ["c", "a"],
            "name": "tags",
        },
        _normal(4, 3),
        Sparse([[0, 0], [0, 1], [1, 0], [3, 0], [3, 1]], ["a", "c", "b", "c", "b"], [4, 2]),
        _weights(4, 1),
        (1.0,),
    ),
    "labels, by number": Case(
        "MultiLabelHead",
        {"n_classes": 4, "classes_for_class_based_metrics": [1, 3]},
        _normal(3, 4),
        Sparse([[0, 0], [1, 0], [1, 1], [2, 0]], [3, 1, 2, 0], [3, 2]),
    ),
    "numbers": Case("RegressionHead", {}, _normal(5, 1), [[1.0], [0.5], [-2.0], [3.0], [0.25]]),
    "numbers, all arguments": Case(
        "RegressionHead",
        {"label_dimension": 3, "weight_column": "w", "loss_reduction": "sum", "name": "place"},
        _normal(4, 3),
        _normal(4, 3).tolist(),
        _weights(4, 1),
        (0.5,),
    ),
    "counts": Case(
        "PoissonRegressionHead",
        {"label_dimension": 2},
        _normal(4, 2),
        [[0.0, 1.0], [2.0, 3.0], [1.0, 7.0], [4.0, 0.0]],
    ),
    "counts, all arguments": Case(
        "PoissonRegressionHead",
        {"compute_full_loss": False, "loss_reduction": "sum", "weight_column": "w", "name": "visits"},
        _normal(4, 1),
        [[3.0], [0.0], [1.0], [5.0]],
        _weights(4, 1),
    ),
    "shares": Case(
        "LogisticRegressionHead",
        {"weight_column": "w"},
        _normal(5, 1),
        [[0.25], [1.0], [0.0], [0.75], [0.5]],
        _weights(5, 1),
    ),
    "two heads": Case(
        "MultiHead",
        {"heads": [("RegressionHead", {"name": "size"}), ("MultiClassHead", {"n_classes": 3, "name": "kind"})]},
        _normal(4, 4),
        {"size": [[1.0], [2.0], [0.5], [-1.0]], "kind": [[0], [2], [1], [1]]},
    ),
    "two heads, all arguments": Case(
        "MultiHead",
        {
            "heads": [
                ("BinaryClassHead", {"name": "likes", "weight_column": "w", "loss_reduction": "sum"}),
                ("MultiLabelHead", {"n_classes": 2, "name": "tags", "loss_reduction": "sum"}),
            ],
            "head_weights": [2.0, 0.5],
        },
        _normal(4, 3),
        {"likes": [[1], [0], [0], [1]], "tags": [[1, 0], [1, 1], [0, 0], [0, 1]]},
        _weights(4, 1),
        (0.75,),
    ),
}


def _head(heads: Any, kind: str, arguments: dict[str, Any]) -> Any:
    if kind == "MultiHead":
        parts = [_head(heads, *part) for part in arguments["heads"]]
        return heads.MultiHead(parts, arguments.get("head_weights"))
    return getattr(heads, kind)(**arguments)


def _tensors(tf: Any, labels: Any) -> Any:
    if isinstance(labels, dict):
        return {name: _tensors(tf, values) for name, values in labels.items()}
    return tf.SparseTensor(*labels) if isinstance(labels, Sparse) else tf.constant(labels)


def _key(key: Any) -> str:
    return "/".join(key) if isinstance(key, tuple) else key


def _plain(value: Any) -> Any:
    array = np.asarray(value)
    return np.vectorize(bytes.decode)(array).tolist() if array.dtype == object else array.tolist()


def _output(output: Any) -> dict[str, Any]:
    """The tensors of an export output."""
    if hasattr(output, "classes"):
        return {"scores": output.scores, "classes": output.classes}
    if hasattr(output, "value"):
        return {"value": output.value}
    return {_key(key): tensor for key, tensor in output.outputs.items()}


def result(tf: Any, heads: Any, name: str) -> dict[str, Any]:
    """What a head makes of its batch: losses, metrics of two batches, predictions, export outputs, and a step."""
    case = CASES[name]
    found: dict[str, Any] = {}
    for mode in ("train", "eval", "infer"):
        with tf.Graph().as_default(), tf.Session() as session:
            step = tf.train.get_or_create_global_step()
            logits = tf.Variable(case.logits)
            features = {} if case.weights is None else {"w": tf.constant(case.weights)}

            def train(loss: Any, step: Any = step) -> Any:
                return tf.train.GradientDescentOptimizer(1.0).minimize(loss, global_step=step)

            spec = _head(heads, case.head, case.arguments).create_estimator_spec(
                features=features,
                mode=mode,
                logits=tf.convert_to_tensor(logits),
                labels=None if mode == "infer" else _tensors(tf, case.labels),
                train_op_fn=train if mode == "train" else None,
                regularization_losses=[tf.constant(penalty) for penalty in case.penalties] or None,
            )
            pairs = {
                key: metric if isinstance(metric, tuple) else (metric.result(), metric.updates)
                for key, metric in (spec.eval_metric_ops or {}).items()
            }
            session.run([tf.global_variables_initializer(), tf.local_variables_initializer(), tf.tables_initializer()])
            if mode == "train":
                session.run(spec.train_op)
                found["logits"] = _plain(session.run(logits))
            elif mode == "eval":
                found["loss"] = float(session.run(spec.loss))
                for _ in range(2):
                    session.run([update for _, update in pairs.values()])
                found["metrics"] = {key: float(session.run(value)) for key, (value, _) in pairs.items()}
            else:
                found["predictions"] = {_key(key): _plain(v) for key, v in session.run(spec.predictions).items()}
                found["outputs"] = {
                    signature: {key: _plain(v) for key, v in session.run(_output(output)).items()}
                    for signature, output in spec.export_outputs.items()
                }
    return found
