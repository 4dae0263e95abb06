"""Boosted trees beside what those of tensorflow-estimator 1.15 came to on genuine TensorFlow (recorded)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf import json_format

import anabranch as tf
from anabranch.proto import boosted_trees_pb2
from tests.oracles.boosted_tree_cases import CASES, FEATURES, LABELS, SIZE, columns, data, estimator, result

RECORDED = json.loads(
    (Path(__file__).parents[2] / "fixtures" / "tensorflow" / "boosted_trees.json").read_text(encoding="utf-8")
)


def to_dict(serialized: bytes) -> dict[str, Any]:
    return json_format.MessageToDict(boosted_trees_pb2.TreeEnsemble.FromString(serialized))


def check_equal(ours: Any, theirs: Any, what: str) -> None:
    """Compares numbers, words and what holds them."""
    if isinstance(theirs, dict):
        assert set(ours) == set(theirs), what
        for key, value in theirs.items():
            check_equal(ours[key], value, f"{what}, {key}")
    elif isinstance(theirs, list) and theirs and isinstance(theirs[0], dict):
        assert len(ours) == len(theirs), what
        for i, value in enumerate(theirs):
            check_equal(ours[i], value, f"{what}[{i}]")
    elif np.asarray(theirs).dtype.kind in "Ub":
        assert ours == theirs, what
    else:
        np.testing.assert_allclose(ours, theirs, rtol=2e-4, atol=2e-5, err_msg=what)


@pytest.mark.parametrize("name", CASES)
def test_trees_grow_as_tensorflows_grew(name: str, tmp_path: Path) -> None:
    """Losses by step, metrics, predictions, explanations, the ensemble itself, and what an exported model says."""
    check_equal(result(tf, tf.estimator, to_dict, name, tmp_path), RECORDED[name], name)


def test_every_recorded_case_is_compared() -> None:
    assert set(RECORDED) == set(CASES)
