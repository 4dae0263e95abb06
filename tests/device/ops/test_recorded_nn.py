"""Operations of neural networks beside what genuine TensorFlow recorded for random inputs."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from tests.oracles.nn_cases import CASES

FIXTURE = Path(__file__).parents[2] / "fixtures" / "tensorflow" / "nn.json.gz"
RECORDED: dict[str, list[list[dict[str, Any]]]] = json.loads(gzip.decompress(FIXTURE.read_bytes()))
TOLERANCE = {"float16": 1e-2, "float32": 2e-5, "float64": 1e-10}


def test_each_case_is_recorded() -> None:
    assert sorted(RECORDED) == sorted(CASES)


@pytest.mark.parametrize("name", CASES)
def test_values_are_those_that_tensorflow_recorded(name: str) -> None:
    for seed, entries in enumerate(RECORDED[name]):
        with tf.Graph().as_default(), tf.Session() as session:
            values = session.run(list(CASES[name](tf, np.random.RandomState(seed))))
        assert len(values) == len(entries)
        for index, (value, entry) in enumerate(zip(values, entries, strict=True)):
            what = f"value {index} of {name}, seed {seed}"
            assert (value.dtype.name, list(value.shape)) == (entry["dtype"], entry["shape"]), what
            wanted = np.array(entry["elements"], value.dtype).reshape(value.shape)
            tolerance = TOLERANCE.get(value.dtype.name, 0)
            np.testing.assert_allclose(value, wanted, rtol=tolerance, atol=tolerance, err_msg=what)
