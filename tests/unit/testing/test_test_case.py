"""`tf.test.TestCase` begins each test with a fresh default graph, whatever surrounds it."""

from __future__ import annotations

import contextlib
import unittest
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import pytest

import anabranch as tf

seen: list[tf.Graph] = []
left: list[object] = []


class Case(tf.test.TestCase):
    __test__ = False  # for pytest

    def looks(self) -> None:
        seen.append(tf.get_default_graph())
        assert tf.get_default_graph().seed is not None
        assert tf.get_default_graph().get_operations() == []
        with self.session() as session:
            assert session.run(tf.constant(1) + 1) == 2
        self.assertAllClose(self.evaluate(tf.constant(2.0)), 2.0)
        for value in (tf.constant([2.0]), [2.0], np.array([2.0])):  # which libraries' tests call
            np.testing.assert_array_equal(self._GetNdArray(value), [2.0])
        with tf.device("/gpu:7"):  # which is given up, as in TensorFlow's
            on_gpu = tf.constant(3) + 1
        with self.session() as session:
            assert session.run(on_gpu) == 4

    def leaves_its_graph(self) -> None:
        left.append(graph := tf.Graph().as_default())
        graph.__enter__()
        tf.constant(1)


def run(*methods: str) -> list[str]:
    """What went wrong in the tests."""
    result = unittest.TestResult()
    unittest.TestSuite(Case(method) for method in methods).run(result)
    assert result.testsRun == len(methods)
    return [text for _, text in result.errors + result.failures]


@contextlib.contextmanager
def in_a_session() -> Iterator[None]:
    with tf.Session(graph=tf.Graph()):
        yield


@contextlib.contextmanager
def in_a_scope() -> Iterator[None]:
    with tf.Graph().as_default(), tf.Graph().as_default(), tf.name_scope("scope"), tf.device("/cpu:0"):
        yield


@pytest.mark.parametrize(
    "around", [contextlib.nullcontext, tf.Graph().as_default, in_a_session, in_a_scope], ids=lambda f: f.__name__
)
def test_a_test_has_a_graph_of_its_own(around: Callable[[], contextlib.AbstractContextManager[object]]) -> None:
    seen.clear()
    with around():
        graph = tf.get_default_graph()
        tf.constant(1)
        assert run("looks", "looks") == []
    assert len({graph, *seen}) == 3
    assert tf.get_default_graph() is seen[-1]
    assert tf.get_default_session() is None


def test_what_an_earlier_test_left_does_not_matter() -> None:
    assert run("leaves_its_graph", "looks", "leaves_its_graph", "looks") == []


def test_set_up_may_be_called_for_another_graph() -> None:
    class Other(tf.test.TestCase):
        def setUp(self) -> None:
            with tf.Graph().as_default():
                super().setUp()

        def looks(self) -> None:
            tf.constant(1)

    result = unittest.TestResult()
    Other("looks").run(result)
    assert result.wasSuccessful(), result.errors


def test_graphs_that_are_left_out_of_order_are_told_of() -> None:
    first, second = tf.Graph().as_default(), tf.Graph().as_default()
    first.__enter__()
    second.__enter__()
    with pytest.raises(AssertionError, match="in another order"):
        first.__exit__(None, None, None)
    second.__exit__(None, None, None)
    run("looks")


# ---------------------------------------------------------------------- what assertions say
class Pair(NamedTuple):
    a: int
    b: tuple[float, ...]


CASE = Case("looks")


@pytest.mark.parametrize(
    ("one", "other", "message"),
    [
        ([0], [1], r"not close dif = \[1\]"),
        (7, 7 + 1e-5, "Not equal to tolerance"),
        (np.array([1.0, np.nan]), np.array([1.0, 2.0]), r"not close where = \(array\(\[1\]\),\)"),
        ({"a": 1}, {"b": 1}, r"mismatched keys at : expected \['a'\], got \['b'\]"),
    ],
)
def test_what_is_not_close_is_shown(one: object, other: object, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        CASE.assertAllClose(one, other)


def test_a_named_tuple_compares_as_a_mapping() -> None:
    CASE.assertAllClose({"a": 1, "b": [2.0]}, Pair(a=1, b=(2.0,)))
    with pytest.raises(ValueError, match="Can't compare dict to non-dict"):
        CASE.assertAllClose(1, {"a": 1})


def test_what_is_not_equal_is_shown() -> None:
    with pytest.raises(AssertionError, match=r"(?s)not equal lhs = \[1\].*not equal rhs = \[3\]"):
        CASE.assertAllEqual([0, 1], [0, 3])
    with pytest.raises(AssertionError, match=r"(?s)not equal lhs = \[b'x'\]"):
        CASE.assertAllEqual([b"x"], [b"y"])
    with pytest.raises(AssertionError, match="ordered numeric type"):
        CASE.assertAllInRange(np.array([1j]), 0.0, 1.0)


def test_quantized_numbers_compare_with_numbers() -> None:
    with tf.Session(graph=tf.Graph()) as session, session.graph.as_default():
        CASE.assertAllEqual(session.run(tf.cast(tf.constant([1, 2]), tf.qint8)), [1, 2])


def test_an_unexpected_node_is_named() -> None:
    with tf.Graph().as_default() as graph:
        tf.constant(5, name="five")
        one = graph.as_graph_def()
        tf.constant(7, name="seven")
        two = graph.as_graph_def()
    tf.test.assert_equal_graph_def(two, two)
    with pytest.raises(AssertionError, match="Found unexpected node '{{node seven}}'"):
        tf.test.assert_equal_graph_def(two, one)
    with pytest.raises(AssertionError, match=r"Missing expected nodes: \['seven'\]"):
        tf.test.assert_equal_graph_def(one, two)


def test_dtypes_of_values() -> None:
    case = Case("looks")
    case.assertDTypeEqual(np.zeros(2, np.float32), tf.float32)
    case.assertDTypeEqual([np.int32(1), [2.0, 3.0]][:1], np.int32)
    with tf.Graph().as_default(), tf.Session().as_default():
        case.assertDTypeEqual(tf.constant(1), np.int32)
    with pytest.raises(AssertionError, match="float32"):
        case.assertDTypeEqual(np.zeros(2, np.float32), np.float64)


def test_the_assertions_of_absl_are_there() -> None:
    case = Case("looks")
    case.assertSameElements([1, 2, 2], [2, 1])
    with pytest.raises(AssertionError):
        case.assertSameElements([1], [2])
