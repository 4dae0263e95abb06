"""Checkpoints of objects whose graph of objects says anything: bundles that are whole, with protos that lie."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.core.trackables import OBJECT_GRAPH_PROTO_KEY
from anabranch.io import tensor_bundle_writer
from anabranch.proto.saved_object_pb2 import TrackableObjectGraph

Tensors = dict[str, Any]


class Model(tf.Module):  # type: ignore[misc]
    """Variables in attributes and structures."""

    def __init__(self) -> None:
        super().__init__()
        self.w = tf.Variable(np.arange(6, dtype=np.float32).reshape(2, 3), name="w")
        self.parts = [tf.Variable(3, name="c"), {"k": tf.Variable("text", name="s")}]


def build() -> tuple[Any, Any, Any]:
    model, optimizer = Model(), tf.train.MomentumOptimizer(0.1, 0.9)
    train = optimizer.minimize(tf.reduce_sum(model.w * model.w), var_list=[model.w])
    return model, train, tf.train.Checkpoint(model=model, optimizer=optimizer)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Tensors:
    with tf.Graph().as_default(), tf.Session() as session:
        _, train, checkpoint = build()
        session.run(tf.global_variables_initializer())
        session.run(train)
        path = checkpoint.save(str(tmp_path_factory.mktemp("saved") / "model"), session=session)
    reader = tf.train.NewCheckpointReader(path)
    return {name: reader.read_tensor(name) for name in reader.names()}


def _number(draw: random.Random, count: int) -> int:
    return draw.choice((0, count - 1, count, 10**6, -1, 2**31 - 1, draw.randrange(count)))


def _change_graph(draw: random.Random, data: bytes) -> bytes:
    graph = TrackableObjectGraph.FromString(data)
    node = draw.choice(list(graph.nodes))
    count = len(graph.nodes)

    def add_child() -> None:
        name = draw.choice(("w", "model", "", "../x", "\0"))
        node.children.add(node_id=_number(draw, count), local_name=name)

    def add_slot() -> None:
        one, other = _number(draw, count), _number(draw, count)
        node.slot_variables.add(original_variable_node_id=one, slot_variable_node_id=other, slot_name="momentum")

    def lead_elsewhere() -> None:
        for attribute in node.attributes:
            attribute.checkpoint_key = draw.choice(("", OBJECT_GRAPH_PROTO_KEY, "nothing", "../../x"))

    def drop() -> None:
        del graph.nodes[draw.randrange(count)]

    def deepen() -> None:
        for number in range(1200):
            graph.nodes[-1].children.add(node_id=count + number, local_name="d")
            graph.nodes.add()

    changes: tuple[Callable[[], None], ...] = (add_child, add_child, add_slot, lead_elsewhere, drop, deepen)
    draw.choice(changes)()
    return graph.SerializeToString()


def _change_bytes(draw: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(draw.choice((1, 2, 8))):
        changed[draw.randrange(len(changed))] = draw.randrange(256)
    return bytes(changed[: draw.choice((len(changed), draw.randrange(len(changed))))])


def _damaged(draw: random.Random, tensors: Tensors) -> Tensors:
    data = tensors[OBJECT_GRAPH_PROTO_KEY].reshape(())[()]
    changed = draw.choice((_change_graph, _change_graph, _change_bytes))(draw, data)
    damaged = tensors | {OBJECT_GRAPH_PROTO_KEY: np.array(changed, object)}
    if draw.random() < 0.2:
        name = draw.choice(sorted(damaged))
        damaged[name] = draw.choice((np.array(3.5), np.zeros(0), np.array(b"x", object)))
    return damaged


def test_damaged_graphs_of_objects_are_restored_or_refused(saved: Tensors, tmp_path: Path) -> None:
    draw, outcomes = random.Random(1), Counter[str]()
    for number in range(80):
        path = str(tmp_path / f"damaged{number}")
        tensor_bundle_writer.write_bundle(path, sorted(_damaged(draw, saved).items()))
        with tf.Graph().as_default(), tf.Session() as session:
            model, _, checkpoint = build()
            try:
                status = checkpoint.restore(path)
                if number % 2:
                    status.assert_consumed()
                status.initialize_or_restore(session)
                assert session.run(model.w).shape == (2, 3)
                outcomes["restored"] += 1
            except (tf.errors.OpError, AssertionError, ValueError) as error:
                outcomes[type(error).__name__] += 1
    assert outcomes["restored"] >= 5
    assert sum(outcomes.values()) - outcomes["restored"] >= 20
