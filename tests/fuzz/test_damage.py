"""A short run of the fuzzer of files: a few damaged ones of each kind, and every case that was a finding once."""

from __future__ import annotations

import importlib.util

import pytest

from tests.fuzz.damage import run_case
from tests.fuzz.damaged_files import SUBJECTS

#: subject, seed and number of cases that ended in other exceptions than refusals
_FOUND = (
    ("functions", 1, 18),
    ("functions", 1, 434),
    ("functions", 2, 370),
    ("functions", 991, 34),
    ("graph", 2, 784),
    ("meta-graph", 2, 2293),
    ("older-checkpoint", 1, 139),
)


@pytest.mark.parametrize("subject", [name for name in SUBJECTS if name != "onnx"])
def test_a_few_of_each_kind(subject: str) -> None:
    outcomes = [run_case(subject, 1, number) for number in range(8)]
    assert any(outcome != "result" for outcome in outcomes), outcomes


@pytest.mark.skipif(importlib.util.find_spec("onnx") is None, reason="the extra onnx is not installed")
def test_a_few_models_of_onnx() -> None:
    outcomes = [run_case("onnx", 1, number) for number in range(8)]
    assert any(outcome != "result" for outcome in outcomes), outcomes


@pytest.mark.parametrize(("subject", "seed", "number"), _FOUND)
def test_what_was_found(subject: str, seed: int, number: int) -> None:
    assert run_case(subject, seed, number)
