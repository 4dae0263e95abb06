"""`tf.contrib.learn`: how models are exported, records that are read by queues, and graphs that are run a few times."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anabranch as tf

learn = tf.contrib.learn
exports = learn.utils.saved_model_export_utils
inputs = learn.utils.input_fn_utils
X = np.arange(12, dtype=np.float32).reshape(6, 2)
Y = X.sum(1, keepdims=True)


def a_model(features: Any, labels: Any, mode: str) -> Any:
    """A constant for each example, and what is fed, as two outputs."""
    weight = tf.get_variable("weight", [], initializer=tf.ones_initializer())
    said = {"said": weight * features["x"]}
    loss = train_op = None
    if labels is not None:
        loss = tf.losses.mean_squared_error(labels, tf.reduce_sum(said["said"], 1, keepdims=True))
        train_op = tf.assign_add(tf.train.get_global_step(), 1)
    alternatives = {"one": (None, said), "other": (None, {"twice": 2 * said["said"]})}
    return learn.ModelFnOps(mode, said, loss, train_op, output_alternatives=alternatives)


def batches() -> Any:
    return {"x": tf.constant(X)}, tf.constant(Y)


def outputs_of(folder: bytes | str, fed: dict[str, Any]) -> dict[str, Any]:
    """What a model's default signature gives."""
    with tf.Graph().as_default(), tf.Session() as session:
        model = tf.saved_model.loader.load(session, ["serve"], os.fsdecode(folder))
        signature = model.signature_def["serving_default"]
        feeds = {signature.inputs[name].name: value for name, value in fed.items()}
        values: dict[str, Any] = session.run({name: t.name for name, t in signature.outputs.items()}, feeds)
        return values


def test_an_experiment_exports_its_model(tmp_path: Path) -> None:
    estimator = learn.Estimator(a_model, str(tmp_path))
    with tf.Graph().as_default():
        features = {"x": tf.zeros([1, 2])}
        serving = inputs.build_default_serving_input_fn(features)
    strategy = exports.make_export_strategy(serving, "other", exports_to_keep=2)
    assert (type(strategy), strategy.name) == (learn.ExportStrategy, "Servo")
    learn.Experiment(
        estimator, batches, batches, train_steps=1, eval_steps=1, export_strategies=strategy
    ).train_and_evaluate()
    (folder,) = (tmp_path / "export").glob("Servo/*")
    np.testing.assert_array_equal(outputs_of(str(folder), {"x": X})["twice"], 2 * X)
    for _ in range(2):
        latest = strategy.export(estimator, str(folder.parent))
    assert not folder.exists()
    assert len(list(folder.parent.iterdir())) == 2
    assert exports.get_most_recent_export(str(folder.parent)) == os.fsdecode(latest)
    one = exports.make_export_strategy(serving, "one").export(estimator, str(tmp_path / "one"))
    np.testing.assert_array_equal(outputs_of(one, {"x": X})["said"], X)
    with pytest.raises(ValueError, match=r"no output 'none'; there are \['one', 'other', 'serving_default'\]"):
        exports.make_export_strategy(serving, "none").export(estimator, str(tmp_path / "one"))
    with pytest.raises(ValueError, match=r"Say default_output_alternative_key.*\['one', 'other'\]"):
        exports.make_export_strategy(serving).export(estimator, str(tmp_path / "one"))
    with pytest.raises(ValueError, match="must be defined"):
        estimator.export_savedmodel(str(tmp_path), None)


def test_exports_of_records_of_the_best_and_changed_ones(tmp_path: Path) -> None:
    estimator = learn.Estimator(a_model, str(tmp_path))
    estimator.fit(input_fn=batches, steps=1)
    records = exports.make_parsing_export_strategy([tf.feature_column.numeric_column("x", [2])], "one")
    folder = records.export(estimator, str(tmp_path / "records"))
    example = tf.train.Example()
    example.features.feature["x"].float_list.value.extend([1.0, 2.0])
    np.testing.assert_array_equal(outputs_of(folder, {"examples": [example.SerializeToString()]})["said"], [[1, 2]])

    serving = learn.build_parsing_serving_input_fn({"x": tf.FixedLenFeature([2], tf.float32)})
    best = exports.make_best_model_export_strategy(serving, default_output_alternative_key="one")
    base = str(tmp_path / "best")
    assert best.export(estimator, base, eval_result={}) is None
    assert best.export(estimator, base, eval_result={"loss": 2.0}) is not None
    assert best.export(estimator, base, eval_result={"loss": 3.0}) is None
    last = best.export(estimator, base, eval_result={"loss": 1.0})
    assert [str(path) for path in Path(base).iterdir()] == [os.fsdecode(last)]

    def note(before: str, after: str) -> None:
        os.rename(before, after)
        Path(after, "note").write_text("changed", encoding="utf-8")

    changed = exports.extend_export_strategy(records, note, "noted")
    written = os.fsdecode(changed.export(estimator, str(tmp_path / "noted")))
    assert changed.name == "noted"
    assert Path(written, "note").exists()
    assert [path.name for path in (tmp_path / "noted").iterdir()] == [os.path.basename(written)]


def test_records_are_read_by_queues(tmp_path: Path) -> None:
    path = str(tmp_path / "records")
    with tf.python_io.TFRecordWriter(path) as writer:
        for number in range(5):
            example = tf.train.Example()
            example.features.feature["n"].int64_list.value.append(number)
            writer.write(example.SerializeToString())
    spec = {"n": tf.FixedLenFeature([], tf.int64)}
    with tf.Graph().as_default():
        keys, features = learn.read_keyed_batch_features(path, 2, spec, tf.TFRecordReader, False, num_epochs=1)
        shuffled = learn.read_batch_examples(path, 5, tf.TFRecordReader, num_epochs=1, seed=1)
        texts = learn.read_batch_examples([path], 2, tf.TFRecordReader, parse_fn=lambda record: {"a": record})
        assert list(texts) == ["a"]
        with pytest.raises(ValueError, match="No files match"):
            learn.read_batch_examples(f"{path}-not", 2, tf.TFRecordReader)
        with tf.train.MonitoredSession() as session:
            read = [session.run([keys, features["n"]]) for _ in range(2)]
            whole = session.run(shuffled)
    assert [list(numbers) for _, numbers in read] == [[0, 1], [2, 3]]
    assert all(key.startswith(path.encode()) for key in read[0][0])
    assert len(set(whole)) == 5


def test_graphs_are_run_a_few_times(tmp_path: Path) -> None:
    with tf.Graph().as_default():
        v, x = tf.get_variable("v", initializer=2.0), tf.placeholder(tf.float32)
        count = tf.assign_add(v, x)
        assert learn.run_n({"count": count}, {x: 1.0}, n=2) == [{"count": 3.0}, {"count": 4.0}]
        assert learn.run_feeds({"count": count}, [{x: 1.0}, {x: 5.0}])[1]["count"] == 8.0
        with tf.Session() as session:
            session.run(v.assign(7.0))
            path = tf.train.Saver().save(session, str(tmp_path / "model"))
        assert learn.infer(path, {"v": v + 1}) == {"v": 8.0}
        with pytest.raises(ValueError, match="nothing to run"):
            learn.run_n({})
        other = tf.Graph()
        with other.as_default(), pytest.raises(ValueError, match="2 graphs"):
            learn.run_n({"here": tf.zeros([]), "there": count})
