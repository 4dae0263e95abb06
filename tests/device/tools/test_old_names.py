"""Names that Python and NumPy have removed, in the process that runs a program."""

from __future__ import annotations

import collections
import importlib
import inspect
import math
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.tools import command_line, gone_modules, old_h5py, old_names

_PROGRAM = """
import collections, imp, inspect, threading, time
from collections import Mapping
import numpy as np
assert np.zeros(2, np.int).dtype == np.int64 and np.float is float and np.asscalar(np.ones(1)) == 1.0
assert issubclass(dict, Mapping) and isinstance({}, collections.Mapping)
assert inspect.getargspec(lambda a, b=2, *c: 0) == (["a", "b"], "c", None, (2,))
assert time.clock() >= 0.0 and not threading.Thread().isAlive() and imp.reload
"""


@pytest.fixture
def restored() -> Iterator[None]:
    undo = old_names.restore()
    yield
    undo()


@pytest.mark.filterwarnings("ignore:the imp module is deprecated")
def test_a_program_finds_them_and_is_told_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "program.py"
    program.write_text(_PROGRAM)
    before = vars(np).get("__getattr__")
    for name in ("argv", "path"):
        monkeypatch.setattr(sys, name, list(getattr(sys, name)))
    monkeypatch.setenv("PYTHONPATH", "")
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    monkeypatch.setattr("anabranch.tools.tensorflow_alias.install", lambda: None)
    assert command_line.main(["run", str(program)]) == 0
    assert capsys.readouterr().err.count("anabranch run: the program uses ") == 1
    assert vars(np).get("__getattr__") is before
    assert not hasattr(collections, "Mapping")
    assert not hasattr(threading.Thread, "isAlive")
    assert command_line.main(["run", "--no-old-names", str(program)]) == 1


@pytest.mark.usefixtures("restored")
@pytest.mark.filterwarnings("ignore:the matrix subclass")
def test_arrays_of_floats() -> None:
    old: Any = np
    assert old.asfarray([1, 2]).dtype == np.float64
    assert old.asfarray([1, 2], np.float32).dtype == np.float32
    assert old.asfarray([1, 2], np.int8).dtype == np.float64
    assert old.mat([1, 2]).shape == (1, 2)
    assert old.round_(1.26, 1) == 1.3
    assert old.math.pi == math.pi


@pytest.mark.usefixtures("restored")
def test_what_is_missing_still_is() -> None:
    modules: list[Any] = [np, collections, inspect, time]
    for module in modules:
        with pytest.raises(AttributeError, match="nosuch"):
            _ = module.nosuch
    with pytest.raises(ImportError, match="nosuch"):
        exec("from collections import nosuch", {})  # noqa: S102 (a constant)


@pytest.mark.usefixtures("restored")
def test_keyword_only_arguments_have_no_place_in_an_argspec() -> None:
    getargspec = vars(inspect)["__getattr__"]("getargspec")
    with pytest.raises(ValueError, match="keyword-only"):
        getargspec(lambda *, a: a)
    assert getargspec(tf.nn.dropout).args[:2] == ["x", "keep_prob"]


def test_a_source_that_fails_leaves_no_module(tmp_path: Path) -> None:
    path = tmp_path / "broken.py"
    path.write_text("raise KeyError('here')")
    with pytest.raises(KeyError, match="here"):
        gone_modules._load_source("old_names_broken", str(path))
    assert "old_names_broken" not in sys.modules
    path.write_text("value = 3")
    importlib.invalidate_caches()
    assert gone_modules._load_source("old_names_broken", str(path)).value == 3
    del sys.modules["old_names_broken"]


@pytest.mark.usefixtures("restored")
def test_rows_of_unequal_lengths_are_objects(capsys: pytest.CaptureFixture[str]) -> None:
    pairs = list(zip(np.ones([3, 4]), np.zeros([3, 2]), strict=True))
    made = np.array(pairs)
    assert (made.shape, made.dtype) == ((3, 2), object)
    assert np.asarray([[1], [2, 3]]).tolist() == np.asanyarray([[1], [2, 3]]).tolist() == [[1], [2, 3]]
    assert "numpy.array of rows of unequal lengths" in capsys.readouterr().err
    assert np.array([[1, 2]], np.float32, copy=True).dtype == np.float32
    with pytest.raises(ValueError, match="inhomogeneous"):
        np.array([[1], [2, 3]], dtype=np.float32)


@pytest.mark.usefixtures("restored")
def test_several_arrays_are_a_list() -> None:
    grid = np.meshgrid([1, 2], [3])
    grid.append(np.ones([1, 2]))  # type: ignore[attr-defined]
    assert [one.tolist() for one in grid] == [[[1, 2]], [[3, 3]], [[1.0, 1.0]]]
    assert isinstance(np.broadcast_arrays([1], 2), list)
    assert isinstance(np.atleast_1d(1, 2), list)
    assert np.atleast_1d(1).tolist() == [1]


@pytest.mark.usefixtures("restored")
def test_arrays_that_must_be_copied_are(capsys: pytest.CaptureFixture[str]) -> None:
    kept = np.arange(3.0)
    assert np.array(kept, copy=False) is kept
    assert np.array([1, 2], copy=False).tolist() == [1, 2]
    assert np.array(kept, np.int32, copy=False).dtype == np.int32
    assert "numpy.array(copy=False)" in capsys.readouterr().err


@pytest.mark.usefixtures("restored")
def test_frames_and_series_are_appended(capsys: pytest.CaptureFixture[str]) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": [1], "b": [2]})
    assert frame.append({"a": 3, "b": 4}, ignore_index=True).to_numpy().tolist() == [[1, 2], [3, 4]]
    assert frame.append([frame, pandas.Series({"a": 5, "b": 6})])["b"].tolist() == [2, 2, 6]
    assert [name for name, _ in frame.iteritems()] == ["a", "b"]
    assert pandas.Series([1]).append(pandas.Series([2])).tolist() == [1, 2]
    assert "pandas.DataFrame.append" in capsys.readouterr().err


def test_data_sets_have_values() -> None:
    class Dataset:
        def __getitem__(self, key: object) -> list[int]:
            assert key == ()
            return [1, 2]

    module: Any = ModuleType("h5py._hl.dataset")
    module.Dataset = Dataset
    undo = old_h5py._give_values(module)
    assert module.Dataset().value == [1, 2]
    undo()
    assert not hasattr(Dataset, "value")


@pytest.mark.usefixtures("restored")
def test_python_types_stand_for_kinds_of_numbers() -> None:
    assert np.issubdtype(np.float32, float)
    assert np.issubdtype(np.dtype(np.int16), int)  # type: ignore[attr-defined]
    assert not np.issubdtype(np.int32, float)
    assert not np.issubdtype(np.uint8, int)
    assert not np.issubdtype(np.float32, np.float64)


def test_python_types_are_types_of_numpy_again_afterwards() -> None:
    old_names.restore(quiet=True)()
    assert not np.issubdtype(np.float32, float)
