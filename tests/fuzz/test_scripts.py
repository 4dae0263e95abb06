"""The fuzzer of scripts: what it writes can be read, and what it compares is found different where it is."""

from __future__ import annotations

from pathlib import Path

import pytest

import anabranch as tf
from tests.fuzz.scripts.differential import make_script
from tests.fuzz.scripts.observed import differs
from tests.fuzz.scripts.savers import OTHERS_FOLDER
from tests.fuzz.scripts.subjects import SUBJECTS
from tests.fuzz.scripts.worker import run


@pytest.mark.parametrize("subject", sorted(SUBJECTS))
def test_scripts_can_be_read_and_follow_from_their_numbers(subject: str) -> None:
    for index in range(20):
        script = make_script(subject, 1, index)
        assert script == make_script(subject, 1, index)
        compile(script, "script.py", "exec")


def test_what_a_script_shows() -> None:
    found = run(tf, "see('a', np.float32(2))\nattempt('b', lambda: tf.zeros([-1]))\nraise KeyError('x')\n")
    assert [name for name, _ in found["seen"]] == ["a", "b", "script ends"]
    assert found["seen"][0][1] == {"array": "float32", "shape": [], "values": [2.0]}
    assert found["seen"][2][1] == {"error": "KeyError"}
    assert "KeyError" in found["messages"][2]


def test_halves_of_a_script_share_a_folder(tmp_path: Path) -> None:
    first, _, second = make_script("savers", 1, 3).partition(OTHERS_FOLDER)
    assert run(tf, first, str(tmp_path))["seen"] == [["saved", None]]
    assert (tmp_path / "model.index").exists()
    found = dict(run(tf, second, str(tmp_path))["seen"])
    assert "listed" in found
    assert "script ends" not in found


def test_differences() -> None:
    assert differs({"error": "InvalidArgumentError"}, {"error": "UnicodeDecodeError"}) is None
    assert differs({"bytes": "x"}, {"error": "UnicodeDecodeError"}) is not None
    one = {"array": "float32", "shape": [2], "values": [1.0, "nan"]}
    assert differs(one, {**one, "values": [1.00001, "nan"]}) is None
    assert differs(one, {**one, "values": [1.1, "nan"]}) == "1.0, expected 1.1"
    assert differs({**one, "array": "float64"}, one) == "array float64, expected float32"
    assert differs({"static": [None, 2]}, {"static": [3, 2]}) is None
    assert differs({"static": [1, 2]}, {"static": [3, None]}) == "static shape [1, 2], expected [3, None]"
    assert differs({"unordered": [1, 2]}, {"unordered": [2, 1]}) is None
    assert differs([1, 2], [1]) == "2 of them, expected 1"
