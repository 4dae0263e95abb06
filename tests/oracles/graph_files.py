"""Graphs and the files around them, as TensorFlow writes them.

Used by `make_proto_fixtures.py`; needs TensorFlow. Beside a graph `NAME.pb` stands `NAME.npz` with arrays that
TensorFlow fed ("feed/TENSOR") and fetched ("fetch/TENSOR") after it ran the operations named in "targets", in that
order, with the same feeds.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf import text_format

tf1 = tf.compat.v1


def _ramp(shape: list[int], dtype: Any = np.float32) -> np.ndarray[Any, Any]:
    """Distinct values in [-0.5, 0.5) in a scattered order."""
    n = int(np.prod(shape))
    return ((np.arange(n) * 7919 % n) / n - 0.5).astype(dtype).reshape(shape)


def _variable(name: str, shape: list[int]) -> tf.Variable:
    return tf1.get_variable(name, initializer=_ramp(shape))


def _conv_net(loop: bool) -> tuple[dict[str, tf.Tensor], dict[str, Any]]:
    """A convolution net, its loss, gradients, optimizer, summaries; with `loop`, its logits go through a while loop."""
    x = tf1.placeholder(tf.float32, [None, 8, 8, 1], name="x")
    labels = tf1.placeholder(tf.int32, [None], name="labels")
    with tf1.variable_scope("conv"):
        hidden = tf.nn.conv2d(x, _variable("kernel", [3, 3, 1, 4]), strides=1, padding="SAME")
        hidden = tf.nn.relu(tf.nn.bias_add(hidden, _variable("bias", [4])))
        hidden = tf.nn.max_pool2d(hidden, 2, 2, "VALID")
    with tf1.variable_scope("dense"):
        flat = tf.reshape(hidden, [-1, 4 * 4 * 4])
        logits = tf.matmul(flat, _variable("kernel", [64, 3]))
    mixing = _variable("mixing", [3, 3])
    if loop:
        _, logits = tf1.while_loop(
            lambda i, _: i < 3,
            lambda i, v: (i + 1, tf.tanh(tf.matmul(v, mixing)) + 0.5 * v),
            [tf.constant(0), logits],
            name="mix",
            parallel_iterations=4,
        )
    else:
        logits = tf.tanh(tf.matmul(logits, mixing)) + 0.5 * logits
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits), name="loss")
    step = tf1.train.get_or_create_global_step()
    optimizer = tf1.train.MomentumOptimizer(0.1, 0.9)
    gradients = optimizer.compute_gradients(loss)
    train = optimizer.apply_gradients(gradients, global_step=step, name="train")
    tf1.summary.scalar("loss", loss)
    tf1.summary.histogram("logits", logits)
    fetches = {"loss:0": loss, "logits": logits} | {f"gradient/{v.op.name}": g for g, v in gradients}
    return {"x": x, "labels": labels}, {"fetches": fetches, "train": train, "step": step}


def _write_graph(files: Path, name: str, graph: tf.Graph, also_text: bool = True) -> None:
    definition = graph.as_graph_def()
    (files / f"{name}.pb").write_bytes(definition.SerializeToString(deterministic=True))
    if also_text:
        (files / f"{name}.pbtxt").write_text(text_format.MessageToString(definition))


def _write_run(path: Path, feeds: dict[tf.Tensor, Any], fetches: list[tf.Tensor], targets: list[tf.Operation]) -> None:
    with tf1.Session() as session:
        for target in targets:
            session.run(target, feeds)
        values = session.run(fetches, feeds)
    arrays = {f"feed/{tensor.name}": np.asarray(value) for tensor, value in feeds.items()}
    arrays |= {f"fetch/{tensor.name}": np.asarray(value) for tensor, value in zip(fetches, values, strict=True)}
    np.savez_compressed(path, targets=np.array([target.name for target in targets], dtype=np.str_), **arrays)


def write_conv_while(files: Path) -> None:
    """Control flow v1 (Switch, Merge, Enter, ...), resource variables; also its meta graph and an event file."""
    tf1.disable_control_flow_v2()
    with tf.Graph().as_default() as graph:
        tf1.enable_resource_variables()
        inputs, outputs = _conv_net(loop=True)
        saver = tf1.train.Saver()
        initialize = tf1.global_variables_initializer()
        summaries = tf1.summary.merge_all()
        feeds = {inputs["x"]: _ramp([5, 8, 8, 1]), inputs["labels"]: np.array([0, 1, 2, 1, 0], np.int32)}
        _write_graph(files, "conv_while", graph)
        _write_run(
            files / "conv_while.npz",
            feeds,
            list(outputs["fetches"].values()),
            [initialize, outputs["train"], outputs["train"]],
        )
        meta = tf1.train.export_meta_graph(
            saver_def=saver.saver_def, graph=graph, clear_devices=True, strip_default_attrs=True
        )
        (files / "conv_while.meta").write_bytes(meta.SerializeToString(deterministic=True))
        with tf1.Session() as session:
            session.run(initialize)
            summary = session.run(summaries, feeds)
        _write_events(files / "events.out.tfevents", graph, summary)


def write_conv(files: Path) -> None:
    """The same net without the loop."""
    with tf.Graph().as_default() as graph:
        tf1.enable_resource_variables()
        inputs, outputs = _conv_net(loop=False)
        tf1.train.Saver()
        initialize = tf1.global_variables_initializer()
        _write_graph(files, "conv", graph, also_text=False)
        # no two values alike in a pooling window: where there is a tie, rounding decides which one gets the gradient
        x = np.sin(1.7 * np.arange(5 * 8 * 8, dtype=np.float32)).reshape(5, 8, 8, 1)
        feeds = {inputs["x"]: x, inputs["labels"]: np.array([0, 1, 2, 1, 0], np.int32)}
        fetches = list(outputs["fetches"].values())
        _write_run(files / "conv.npz", feeds, fetches, [initialize, outputs["train"], outputs["train"]])


def _write_events(path: Path, graph: tf.Graph, summary: bytes) -> None:
    small = tf.Graph()
    with small.as_default():
        tf.constant(1.0, name="one")
    with tempfile.TemporaryDirectory() as folder:
        writer = tf1.summary.FileWriter(folder)
        writer.add_graph(small, global_step=0)
        writer.add_summary(summary, global_step=1)
        image = tf1.Summary.Image(height=1, width=1, colorspace=1, encoded_image_string=b"not a PNG")
        writer.add_summary(tf1.Summary(value=[tf1.Summary.Value(tag="picture", image=image)]), global_step=2)
        writer.add_session_log(
            tf1.SessionLog(status=tf1.SessionLog.CHECKPOINT, checkpoint_path="model.ckpt-2"), global_step=2
        )
        writer.add_run_metadata(tf1.RunMetadata(), "step 2", global_step=2)
        writer.close()
        shutil.copyfile(next(Path(folder).iterdir()), path)


def write_functions(files: Path) -> None:
    """Functional control flow (If, While) and calls of tf.functions, with the library that holds the bodies."""
    tf1.enable_control_flow_v2()
    with tf.Graph().as_default() as graph:

        @tf.function(input_signature=[tf.TensorSpec([None], tf.float32), tf.TensorSpec([], tf.float32)])
        def scaled(v: tf.Tensor, factor: tf.Tensor) -> tf.Tensor:
            return v * factor + 1.0

        x = tf1.placeholder(tf.float32, [None], name="x")
        factor = tf1.get_variable("factor", initializer=np.float32(1.5), use_resource=True)
        y = scaled(x, factor)
        y = tf1.cond(tf.reduce_sum(y) > 0.0, lambda: scaled(y, 2.0), lambda: -y, name="choose")
        _, y = tf1.while_loop(lambda i, _: i < 4, lambda i, v: (i + 1, v * factor), [0, y], name="grow")
        y = tf.identity(y, name="y")
        (gradient,) = tf1.gradients(y, [factor])
        initialize = tf1.global_variables_initializer()
        _write_graph(files, "functions", graph)
        feeds = {x: np.array([0.5, -1.0, 2.0], np.float32)}
        _write_run(files / "functions.npz", feeds, [y, gradient], [initialize])
    tf1.disable_control_flow_v2()


def write_ref_variables(files: Path) -> None:
    """A graph from the days of reference variables: VariableV2, Assign, ApplyGradientDescent, and a Saver's nodes."""
    with tf.Graph().as_default() as graph:
        tf1.disable_resource_variables()
        x = tf1.placeholder(tf.float32, [None, 3], name="x")
        w = tf1.get_variable("w", initializer=_ramp([3, 2]))
        y = tf.matmul(x, w, name="y")
        loss = tf.reduce_mean(tf.square(y - 1.0), name="loss")
        train = tf1.train.GradientDescentOptimizer(0.5).minimize(loss, name="train")
        saver = tf1.train.Saver()
        initialize = tf1.global_variables_initializer()
        _write_graph(files, "ref_variables", graph, also_text=False)
        _write_trained(files, saver, [initialize, train, train], {x: _ramp([4, 3])})
        _write_run(files / "ref_variables.npz", {x: _ramp([4, 3])}, [y, loss], [initialize, train, train])
        tf1.enable_resource_variables()


def _write_trained(files: Path, saver: Any, targets: list[tf.Operation], feeds: dict[tf.Tensor, Any]) -> None:
    """The meta graph and the checkpoint after the same steps, `ref_variables.ckpt.*`."""
    with tempfile.TemporaryDirectory() as folder, tf1.Session() as session:
        for target in targets:
            session.run(target, feeds)
        saver.save(session, f"{folder}/ref_variables.ckpt")
        for path in Path(folder).glob("ref_variables.*"):
            shutil.copyfile(path, files / path.name)


def write_saved_model(path: Path) -> None:
    """A TensorFlow 2 saved model's `saved_model.pb`: an object graph, signatures and functions."""

    class Scale(tf.Module):
        def __init__(self) -> None:
            self.factor = tf.Variable(2.0, name="factor")

        @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, name="x")])
        def __call__(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
            return {"scaled": self.factor * x}

    with tempfile.TemporaryDirectory() as folder:
        model = Scale()
        tf.saved_model.save(
            model,
            folder,
            signatures=model.__call__,
            options=tf.saved_model.SaveOptions(save_debug_info=False, experimental_debug_stripper=True),
        )
        path.write_bytes((Path(folder) / "saved_model.pb").read_bytes())


def write_examples(files: Path) -> None:
    feature = {
        "image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"\x00\xff", b""])),
        "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[-1, 0, 2**62])),
        "weight": tf.train.Feature(float_list=tf.train.FloatList(value=[0.1, -3.5])),
        "nothing": tf.train.Feature(),
    }
    example = tf.train.Example(features=tf.train.Features(feature=feature))
    (files / "example.pb").write_bytes(example.SerializeToString(deterministic=True))
    words = tf.train.FeatureList(
        feature=[tf.train.Feature(int64_list=tf.train.Int64List(value=[i] * i)) for i in range(3)]
    )
    sequence = tf.train.SequenceExample(
        context=example.features, feature_lists=tf.train.FeatureLists(feature_list={"words": words})
    )
    (files / "sequence_example.pb").write_bytes(sequence.SerializeToString(deterministic=True))


def write_checkpoint_state(path: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        tf1.train.update_checkpoint_state(
            folder,
            "model.ckpt-20",
            ["model.ckpt-10", "model.ckpt-20"],
            all_model_checkpoint_timestamps=[1.5, 2.5],
            last_preserved_timestamp=1.25,
        )
        path.write_bytes((Path(folder) / "checkpoint").read_bytes())


def write(files: Path) -> None:
    write_examples(files)
    write_checkpoint_state(files / "checkpoint")
    write_saved_model(files / "saved_model.pb")
    write_conv_while(files)
    write_conv(files)
    write_functions(files)
    write_ref_variables(files)
