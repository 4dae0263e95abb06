"""`LinearSDCA` beside what tensorflow-estimator's came to on genuine TensorFlow (recorded)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from tests.oracles.sdca_cases import CASES, FEATURES, LABELS, columns, data, result

RECORDED = json.loads((Path(__file__).parents[2] / "fixtures" / "tensorflow" / "sdca.json").read_text(encoding="utf-8"))
LinearSDCA = tf.estimator.experimental.LinearSDCA


@pytest.mark.parametrize("name", CASES)
def test_models_come_to_what_tensorflows_came_to(name: str, tmp_path: Path) -> None:
    ours, theirs = result(tf, name, tmp_path), RECORDED[name]
    for what in ("variables", "metrics"):
        assert set(ours[what]) == set(theirs[what])
        for key, value in theirs[what].items():
            np.testing.assert_allclose(ours[what][key], value, rtol=1e-3, atol=2e-4, err_msg=f"{name}, {key}")
    np.testing.assert_allclose(ours["predictions"], theirs["predictions"], rtol=1e-3, atol=2e-4, err_msg=name)


def test_every_recorded_case_is_compared() -> None:
    assert set(RECORDED) == set(CASES)
