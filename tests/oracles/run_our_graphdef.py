"""Does genuine TensorFlow run the graphs that anabranch writes? Run by hand, once with each interpreter::

    .venv/bin/python tests/oracles/run_our_graphdef.py write runs/graphs
    .venv-peers/bin/python tests/oracles/run_our_graphdef.py check runs/graphs

`write` builds programs with anabranch, runs them, and leaves for each `NAME.pb` (the GraphDef) and `NAME.npz` (what was
fed, run and fetched, as `graph_files.py` describes it), and `NAME.meta`. `check` runs the GraphDefs and the meta graphs
with TensorFlow and compares.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np


# ---------------------------------------------------------------------- with anabranch
def _mlp(ab: Any) -> tuple[dict[Any, Any], list[Any], list[Any]]:
    """A perceptron with Adam and a global step: resources, gradients, slots."""
    x = ab.raw.Placeholder(dtype="float32", shape=[None, 4], name="x")
    labels = ab.raw.Placeholder(dtype="int32", shape=[None], name="labels")
    hidden = x
    for width in (8, 3):
        rows = hidden.shape.as_list()[-1]
        start = np.sin(np.arange(rows * width, dtype=np.float32)).reshape(rows, width)
        weights = ab.Variable(start, name="weights")
        bias = ab.Variable(np.zeros(width, np.float32), name="bias")
        hidden = ab.raw.BiasAdd(ab.raw.MatMul(hidden, weights), bias)
        if width == 8:
            hidden = ab.raw.Elu(hidden)
    losses, _ = ab.raw.SparseSoftmaxCrossEntropyWithLogits(hidden, labels)
    loss = ab.raw.Mean(losses, [0], name="loss")
    train = ab.AdamOptimizer(0.05).minimize(loss)
    start = ab.global_variables_initializer()
    feeds = {x: np.cos(np.arange(20, dtype=np.float32)).reshape(5, 4), labels: np.array([0, 2, 1, 1, 0], np.int32)}
    return feeds, [start, train, train, train], [loss, hidden]


def _conv(ab: Any) -> tuple[dict[Any, Any], list[Any], list[Any]]:
    """Convolution, pooling and Momentum."""
    x = ab.raw.Placeholder(dtype="float32", shape=[None, 8, 8, 2], name="x")
    start = 0.3 * np.sin(np.arange(3 * 3 * 2 * 4, dtype=np.float32)).reshape(3, 3, 2, 4)
    kernel = ab.Variable(start, name="kernel")
    y = ab.raw.Relu(ab.raw.Conv2D(x, kernel, strides=[1, 1, 1, 1], padding="SAME"))
    y = ab.raw.MaxPool(y, ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding="VALID")
    loss = ab.raw.Mean(ab.raw.Square(y), [0, 1, 2, 3], name="loss")
    train = ab.MomentumOptimizer(0.1, 0.9, use_nesterov=True).minimize(loss)
    feeds = {x: np.sin(1.7 * np.arange(2 * 8 * 8 * 2, dtype=np.float32)).reshape(2, 8, 8, 2)}
    return feeds, [ab.global_variables_initializer(), train, train], [loss, y]


def _choice(ab: Any) -> tuple[dict[Any, Any], list[Any], list[Any]]:
    """A conditional (functions in the library) around a variable, and its gradient."""
    x = ab.raw.Placeholder(dtype="float32", shape=[3], name="x")
    scale = ab.Variable(1.5, name="scale")
    total = ab.raw.Sum(x, [0])
    y = ab.cond(ab.raw.Greater(total, 0.0), lambda: ab.raw.Mul(x, scale.value()), lambda: ab.raw.Sub(x, scale.value()))
    (gradient,) = ab.gradients([ab.raw.Sum(y, [0])], [x])
    return {x: np.array([1.0, -0.25, 2.0], np.float32)}, [scale.initializer], [y, gradient]


def _words(ab: Any) -> tuple[dict[Any, Any], list[Any], list[Any]]:
    """Host operations, shapes and constants of many dtypes."""
    x = ab.raw.Placeholder(dtype="int64", shape=[None], name="x")
    unique, positions = ab.raw.Unique(x)
    shape = ab.raw.Shape(x, out_type="int64")
    half = ab.raw.Cast(ab.convert_to_tensor(np.array([0.5, -2.0], np.float16)), DstT="float64")
    ranged = ab.raw.Range(0, 5, 2)
    return {x: np.array([3, 1, 3, 2])}, [], [unique, positions, shape, half, ranged]


PROGRAMS = {"mlp": _mlp, "conv": _conv, "choice": _choice, "words": _words}


def _names() -> SimpleNamespace:
    """What programs need of anabranch."""
    from anabranch.autodiff import gradients
    from anabranch.frontend.control_flow import conditionals as control_flow
    from anabranch.frontend.variables import functions as variable_functions, variables
    from anabranch.graph import conversion
    from anabranch.ops import raw
    from anabranch.train.optimizers import adam, momentum

    found = SimpleNamespace(raw=raw)
    for module in (gradients, control_flow, variable_functions, variables, conversion, adam, momentum):
        vars(found).update({name: value for name, value in vars(module).items() if not name.startswith("_")})
    return found


def write(folder: Path) -> None:
    from anabranch.graph.graph import Graph
    from anabranch.session import Session
    from anabranch.train.meta_graph import export_meta_graph

    names = _names()
    folder.mkdir(parents=True, exist_ok=True)
    for name, program in PROGRAMS.items():
        with Graph().as_default() as graph, Session() as session:
            feeds, targets, fetches = program(names)
            for target in targets:
                session.run(target, feeds)
            values = session.run(fetches, feeds)
            (folder / f"{name}.pb").write_bytes(graph.as_graph_def().SerializeToString())
            export_meta_graph(str(folder / f"{name}.meta"))
        arrays = {f"feed/{tensor.name}": value for tensor, value in feeds.items()}
        arrays |= {f"fetch/{tensor.name}": value for tensor, value in zip(fetches, values, strict=True)}
        np.savez(folder / f"{name}.npz", targets=np.array([t.name for t in targets], np.str_), **arrays)
        print(f"wrote {name}: {len(graph.get_operations())} operations")


# ---------------------------------------------------------------------- with TensorFlow
def check(folder: Path) -> None:
    import tensorflow as tf

    tf1 = tf.compat.v1
    failed = []
    for path in sorted(folder.glob("*.pb")):
        record = np.load(path.with_suffix(".npz"), allow_pickle=False)
        feeds = {key.removeprefix("feed/"): record[key] for key in record if key.startswith("feed/")}
        fetches = {key.removeprefix("fetch/"): record[key] for key in record if key.startswith("fetch/")}
        for form in ("GraphDef", "MetaGraphDef"):
            try:
                with tf.Graph().as_default(), tf1.Session() as session:
                    if form == "GraphDef":
                        tf1.import_graph_def(tf1.GraphDef.FromString(path.read_bytes()), name="")
                    else:
                        tf1.train.import_meta_graph(str(path.with_suffix(".meta")))
                    for target in record["targets"]:
                        session.run(str(target), feeds)
                    values = session.run(list(fetches), feeds)
                for key, value in zip(fetches, values, strict=True):
                    np.testing.assert_allclose(value, fetches[key], rtol=1e-4, atol=1e-6, err_msg=key)
                print(f"{path.stem} as {form}: the same")
            except Exception as error:
                failed.append(path.stem)
                print(f"{path.stem} as {form}: {type(error).__name__}: {error}")
    sys.exit(bool(failed))


if __name__ == "__main__":
    {"write": write, "check": check}[sys.argv[1]](Path(sys.argv[2]))
