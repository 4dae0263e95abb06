"""`make oracle` tells of whatever differs between two recordings, and of nothing else."""

from __future__ import annotations

import copy
import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.oracles.__main__ import FIXTURES, RECORDINGS, ROOT, compare, contents, differences, leaves

VALUE: dict[str, Any] = {"a": [1, 2.0, float("nan"), "text"], "b": {"c": np.arange(3.0), "d": None}, "e": True}


def test_equal_ones_do_not_differ() -> None:
    assert list(differences(VALUE, copy.deepcopy(VALUE))) == []
    assert len(list(leaves(VALUE))) == 7


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda v: v["a"].__setitem__(0, 2), "['a'][0]: 1 is now 2"),
        (lambda v: v["a"].__setitem__(1, 2.001), "['a'][1]: 2.0 is now 2.001"),
        (lambda v: v["a"].__setitem__(2, 0.0), "['a'][2]: nan is now 0.0"),
        (lambda v: v["a"].append(1), "['a']: [1, 2.0, nan, 'text'] is now [1, 2.0, nan, 'text', 1]"),
        (lambda v: v["b"].__setitem__("c", np.arange(3)), "['b']['c']: array([0., 1., 2.]) is now array([0, 1, 2])"),
        (lambda v: v.__setitem__("e", 1), "['e']: True is now 1"),
        (lambda v: v.pop("e"), "['e'] is gone"),
        (lambda v: v.__setitem__("f", 1), "['f'] is new"),
    ],
)
def test_a_difference_is_told(change: Any, told: str) -> None:
    changed = copy.deepcopy(VALUE)
    change(changed)
    assert list(differences(VALUE, changed)) == [told]


def test_rounding_is_none() -> None:
    changed = copy.deepcopy(VALUE)
    changed["a"][1] += 1e-6
    changed["b"]["c"] += 1e-6
    assert list(differences(VALUE, changed)) == []


def test_files_are_compared_by_what_they_hold(tmp_path: Path) -> None:
    folder = tmp_path / FIXTURES / "tensorflow"
    folder.mkdir(parents=True)
    kept = contents(ROOT / FIXTURES / "tensorflow" / "generators.json.gz")
    name = next(iter(kept))
    for file in ("generators", "images", "rare", "sounds"):
        found = contents(ROOT / FIXTURES / "tensorflow" / f"{file}.json.gz")
        if file == "generators":
            del found[name]
        (folder / f"{file}.json.gz").write_bytes(gzip.compress(json.dumps(found).encode(), 1))
    count, differing = compare("make_operation_fixture", tmp_path)
    assert count > 1000
    assert differing == [f"generators.json.gz[{name!r}] is gone"]


def test_all_recordings_are_there() -> None:
    for name, recording in RECORDINGS.items():
        assert (ROOT / "tests" / "oracles" / f"{name}.py").exists()
        for pattern in recording.files:
            assert list((ROOT / FIXTURES).glob(pattern)), (name, pattern)
