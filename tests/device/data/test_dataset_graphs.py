"""Datasets as graphs: TensorFlow's are read, what is written is read again, and the rest is refused with a reason."""

from __future__ import annotations

import base64
import gzip
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch import errors
from tests.oracles.dataset_graph_cases import CASES

FIXTURE = Path(__file__).parents[2] / "fixtures" / "tensorflow" / "dataset_graphs.json.gz"
RECORDED: dict[str, dict[str, Any]] = json.loads(gzip.decompress(FIXTURE.read_bytes()))


def elements(dataset: tf.data.Dataset) -> list[Any]:
    following = tf.data.make_one_shot_iterator(dataset).get_next()
    found = []
    with tf.Session() as session:
        while True:
            try:
                found.append([np.asarray(part).tolist() for part in tf.nest.flatten(session.run(following))])
            except errors.OutOfRangeError:
                return found


def written(dataset: tf.data.Dataset) -> bytes:
    text = tf.raw_ops.DatasetToGraph(input_dataset=tf.data.experimental.to_variant(dataset))
    with tf.Session() as session:
        return bytes(session.run(text))


def read(text: bytes, structure: Any) -> tf.data.Dataset:
    variant = tf.raw_ops.DatasetFromGraph(graph_def=text)
    return tf.data.experimental.from_variant(variant, structure)


@pytest.mark.parametrize("name", CASES)
def test_what_tensorflow_wrote_is_read(name: str) -> None:
    with tf.Graph().as_default():
        structure = tf.data.experimental.get_structure(CASES[name](tf))
        dataset = read(base64.b64decode(RECORDED[name]["graph"]), structure)
        assert elements(dataset) == RECORDED[name]["elements"]


@pytest.mark.parametrize("name", CASES)
def test_what_is_written_is_read_again(name: str) -> None:
    with tf.Graph().as_default():
        dataset = CASES[name](tf)
        structure, text = tf.data.experimental.get_structure(dataset), written(dataset)
    folder = os.environ.get("DATASET_GRAPHS")  # where make_dataset_graphs_fixture.py looks for them
    if folder is not None:
        (Path(folder) / f"{name}.pb").write_bytes(text)
    graph = tf.GraphDef.FromString(text)
    assert [node.op for node in graph.node][-1] == "_Retval"
    with tf.Graph().as_default():
        assert elements(read(text, structure)) == RECORDED[name]["elements"]


def test_what_only_a_step_knows() -> None:
    limit = tf.placeholder(tf.int64, [], name="limit")
    with pytest.raises(ValueError, match="the dataset depends on limit .Placeholder, created at"):
        written(tf.data.Dataset.range(limit))
    text = tf.placeholder(tf.string, [], name="text")
    with pytest.raises(ValueError, match="DatasetFromGraph: text:0 .* has its value in a step only"):
        tf.raw_ops.DatasetFromGraph(graph_def=text)


def test_functions_with_state() -> None:
    dataset = tf.data.Dataset.range(3).map(lambda x: tf.random.uniform([]))
    variant = tf.data.experimental.to_variant(dataset)
    with pytest.raises(errors.FailedPreconditionError, match="RandomUniform.* has state; say allow_stateful=True"):
        tf.raw_ops.DatasetToGraph(input_dataset=variant)
    for allowed in ({"allow_stateful": True}, {"stateful_whitelist": ["RandomUniform"]}):
        assert tf.raw_ops.DatasetToGraph(input_dataset=variant, **allowed).dtype is tf.string


def test_what_is_no_graph_of_a_dataset() -> None:
    with pytest.raises(errors.InvalidArgumentError, match="holds no GraphDef"):
        tf.raw_ops.DatasetFromGraph(graph_def=b"\xff\xff\xff")
    with pytest.raises(errors.InvalidArgumentError, match="has 0 nodes _Retval"):
        tf.raw_ops.DatasetFromGraph(graph_def=b"")
    text = written(tf.data.Dataset.range(3))
    graph = tf.GraphDef.FromString(text)
    graph.node[-1].input[0] = graph.node[0].name
    with pytest.raises(errors.InvalidArgumentError, match="is int64, no dataset"):
        tf.raw_ops.DatasetFromGraph(graph_def=graph.SerializeToString())
