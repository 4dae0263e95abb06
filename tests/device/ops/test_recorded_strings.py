"""Operations on strings beside recorded results of TensorFlow, for random patterns, rewrites, separators and axes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.ops import raw

FIXTURE = Path(__file__).parents[2] / "fixtures" / "tensorflow" / "strings.json"
CASES: list[dict[str, Any]] = json.loads(FIXTURE.read_text())
#: arguments that are inputs; the others are attributes
FED = ("input", "inputs", "pattern", "rewrite", "delimiter", "sep", "reduction_indices")


def as_bytes(value: Any) -> Any:
    """The fixture writes bytes as the characters of their numbers."""
    if isinstance(value, list):
        return [as_bytes(item) for item in value]
    return value.encode("latin-1") if isinstance(value, str) else value


def strings(value: Any) -> Any:
    return np.array(as_bytes(value), np.object_)


@pytest.mark.parametrize("op", sorted({case["op"] for case in CASES}))
def test_values_are_those_that_tensorflow_recorded(op: str) -> None:
    different = []
    with tf.Session() as session:
        step = Step(session, op)
        for case in CASES:
            if case["op"] == op:
                found, expected = step.run(case), as_bytes(case["result"])
                if found != expected:
                    different.append((case, found))
    assert not different


class Step:
    """Runs one operation with fed arguments; its graph grows by one node for each new combination of attributes."""

    def __init__(self, session: tf.Session, op: str) -> None:
        self.session = session
        self.op = op
        self.nodes: dict[Any, Any] = {}

    def run(self, case: dict[str, Any]) -> Any:
        """The outputs as nested lists, None where the step is refused."""
        inputs = [key for key in case if key in FED]
        attrs = {key: value for key, value in case.items() if key not in {*FED, "op", "result"}}
        key = json.dumps(attrs)
        if key not in self.nodes:
            fed = [tf.placeholder(tf.int32 if name == "reduction_indices" else tf.string) for name in inputs]
            self.nodes[key] = (
                fed,
                getattr(raw, self.op)(*fed, **{name: as_bytes(value) for name, value in attrs.items()}),
            )
        fed, node = self.nodes[key]
        values = [
            np.array(case[name], np.int32) if name == "reduction_indices" else strings(case[name]) for name in inputs
        ]
        try:
            outputs = self.session.run(node, dict(zip(fed, values, strict=True)))
        except tf.errors.InvalidArgumentError:
            return None
        return [np.asarray(o).tolist() for o in (outputs if isinstance(outputs, tuple) else [outputs])]


def test_static_patterns_are_the_same_operations() -> None:
    inputs = tf.constant(["a1", "b"])
    with tf.Session() as session:
        replaced = session.run(tf.strings.regex_replace(inputs, r"([[:alpha:]])(\d)?", r"\2\1"))
        matched = session.run(tf.strings.regex_full_match(inputs, r"\pL\d"))
    assert replaced.tolist() == [b"1a", b"b"]
    assert matched.tolist() == [True, False]


def test_a_malformed_pattern_names_itself_and_the_operation() -> None:
    with (
        tf.Session() as session,
        pytest.raises(tf.errors.InvalidArgumentError, match=r"Invalid pattern: \(b, error: missing \): \(b"),
    ):
        session.run(tf.strings.regex_full_match(["x"], "(b"))


def test_repeats_in_repeats_take_linear_time() -> None:
    """A backtracking matcher would not return."""
    with tf.Session() as session:
        text = b"a" * 5000 + b"b"
        assert session.run(tf.strings.regex_replace(text, "(a+)+$", "x")) == text


@pytest.mark.parametrize(
    ("axis", "expected"), [(None, b"abcd"), ([0, 1], b"acbd"), ([1, 0], b"abcd"), ([-2, -1], b"acbd")]
)
def test_strings_are_joined_in_the_order_of_the_axes(axis: Any, expected: bytes) -> None:
    known = tf.constant([["a", "b"], ["c", "d"]])
    fed = tf.placeholder(tf.string)
    with tf.Session() as session:
        for matrix in (known, fed):
            joined = tf.reduce_join(matrix, axis=axis)
            assert session.run(joined, {fed: [["a", "b"], ["c", "d"]]}) == expected
