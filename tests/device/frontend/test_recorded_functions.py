"""Public functions beside what genuine TensorFlow gave for the same uses of them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from tests.oracles import autograph_cases, public_function_cases

FOLDER = Path(__file__).parents[2] / "fixtures" / "tensorflow"
RECORDED: dict[str, list[dict[str, Any]]] = {
    name: entry
    for fixture in ("public_functions", "autograph")
    for name, entry in json.loads(gzip.decompress((FOLDER / f"{fixture}.json.gz").read_bytes())).items()
}
CASES = {**public_function_cases.CASES, **autograph_cases.CASES}
TOLERANCE = {"float16": 2e-3, "float32": 1e-5, "complex64": 1e-5, "float64": 1e-9, "complex128": 1e-9}


def test_each_case_is_recorded() -> None:
    assert sorted(RECORDED) == sorted(CASES)


@pytest.mark.parametrize("name", CASES)
def test_values_are_those_that_tensorflow_recorded(name: str) -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        fetched = tf.nest.flatten(CASES[name](tf), expand_composites=True)
        values = session.run(fetched)
    assert len(values) == len(RECORDED[name])
    for index, (value, entry) in enumerate(zip(values, RECORDED[name], strict=True)):
        same(np.asarray(value), entry, f"value {index} of {name}")


def same(array: np.ndarray[Any, Any], entry: dict[str, Any], what: str) -> None:
    assert list(array.shape) == entry["shape"], what
    if array.dtype.fields:
        (field,) = array.dtype.fields  # a quantised dtype
        array = array[field]
    dtype = "bytes" if array.dtype.kind in "OS" else array.dtype.name
    assert dtype == entry["dtype"], what
    elements = array.reshape(-1)
    if dtype == "bytes":
        assert elements.tolist() == [item.encode("latin-1") for item in entry["elements"]], what
        return
    if array.dtype.kind == "c":
        elements = np.stack([elements.real, elements.imag], -1)
    tolerance = TOLERANCE.get(dtype, 0)
    expected = np.array(entry["elements"], elements.dtype).reshape(elements.shape)
    np.testing.assert_allclose(elements, expected, rtol=tolerance, atol=tolerance, err_msg=what)
