"""Operations of neural networks beside what genuine TensorFlow recorded for random inputs."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from tests.fed_data import fed_data
from tests.oracles.nn_cases import CASES

FIXTURE = Path(__file__).parents[2] / "fixtures" / "tensorflow" / "nn.json.gz"
RECORDED: dict[str, list[list[dict[str, Any]]]] = json.loads(gzip.decompress(FIXTURE.read_bytes()))
TOLERANCE = {"float16": 1e-2, "float32": 2e-5, "float64": 1e-10}


def test_each_case_is_recorded() -> None:
    assert sorted(RECORDED) == sorted(CASES)


@pytest.mark.parametrize("name", CASES)
def test_values_are_those_that_tensorflow_recorded(name: str) -> None:
    graphs = [tf.Graph() for _ in RECORDED[name]]
    fetches, feeds = [], []
    for seed, graph in enumerate(graphs):
        with graph.as_default():
            fetches.append([tensor.name for tensor in CASES[name](tf, np.random.RandomState(seed))])
        feeds.append({tensor.name: value for tensor, value in fed_data(graph).items()})
    # one program for all of them: the graphs differ in what is fed
    with tf.Session(graph=graphs[0]) as session:
        runs = list(map(session.run, fetches, feeds))
    for seed, (values, entries) in enumerate(zip(runs, RECORDED[name], strict=True)):
        assert len(values) == len(entries)
        for index, (value, entry) in enumerate(zip(values, entries, strict=True)):
            what = f"value {index} of {name}, seed {seed}"
            assert (value.dtype.name, list(value.shape)) == (entry["dtype"], entry["shape"]), what
            wanted = np.array(entry["elements"], value.dtype).reshape(value.shape)
            tolerance = TOLERANCE.get(value.dtype.name, 0)
            np.testing.assert_allclose(value, wanted, rtol=tolerance, atol=tolerance, err_msg=what)
