"""Assertions, checks and printing."""

from __future__ import annotations

import collections
import pprint
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anabranch import errors
from anabranch.core import dtypes
from anabranch.frontend.arrays import constants, strings
from anabranch.frontend.control_flow import checks, conditionals, numeric_checks, printing, while_loop
from anabranch.frontend.framework import control_dependencies
from anabranch.frontend.ragged import strings as ragged_strings
from anabranch.graph.composite import SparseTensor
from anabranch.graph.graph import get_default_graph
from anabranch.ops import raw
from anabranch.passes.prune import prune
from anabranch.session import Session
from anabranch.xla.islands import runs_on_host


def run(fetches: Any, feeds: Any = None) -> Any:
    with Session() as session:
        return session.run(fetches, feeds)


def test_assert_shows_its_data() -> None:
    x = constants.placeholder("float32", [None], name="x")
    check = checks.Assert(raw.All(raw.Less(x, 3.0), [0]), ["too large {}:", x], summarize=2)
    run(check, {x: [1.0, 2.0]})
    with pytest.raises(errors.InvalidArgumentError, match=r"assertion failed: \[too large \{\}:\] \[1 5\.\.\.\]"):
        run(check, {x: [1.0, 5.0, 6.0]})


def test_an_assertion_with_constant_messages_is_compiled() -> None:
    x = constants.placeholder("float32", [])
    with control_dependencies([checks.assert_positive(x)]):
        y = raw.Exp(x)
    asserted = [op for op in get_default_graph().get_operations() if op.type == "Assert"]
    assert not any(runs_on_host(op) for op in prune([], asserted, [x]).operations if op.type == "Assert")
    run(y, {x: 1.0})
    with pytest.raises(errors.InvalidArgumentError, match="Condition x > 0"):
        run(y, {x: -1.0})


def test_messages_may_be_computed() -> None:
    x = constants.placeholder("int32", [])
    with pytest.raises(errors.InvalidArgumentError, match=r"\[7\]"):
        run(checks.Assert(raw.Less(x, 3), [strings.as_string(x)]), {x: 7})


@pytest.mark.parametrize(
    ("check", "good", "bad"),
    [
        (checks.assert_equal, 2, 3),
        (checks.assert_none_equal, 3, 2),
        (checks.assert_less, 3, 2),
        (checks.assert_less_equal, 2, 1),
        (checks.assert_greater, 1, 2),
        (checks.assert_greater_equal, 2, 3),
    ],
)
def test_comparisons(check: Any, good: int, bad: int) -> None:
    x = constants.placeholder("int32", [None])
    run(check(x, good), {x: [2, 2]})
    with pytest.raises(errors.InvalidArgumentError, match="hello"):
        run(check(x, bad, message="hello"), {x: [2, 2]})
    check([2, 2], good)
    with pytest.raises(errors.InvalidArgumentError, match="did not hold element-wise"):
        check([2, 2], bad)


def test_what_is_computed_is_checked_in_the_step() -> None:
    """A graph with an assertion that does not hold can be built, as in TensorFlow, unless constants say so."""
    summed = raw.Sum(np.array([0, 0]), 0)
    check = checks.assert_positive(summed)
    with Session() as session, pytest.raises(errors.InvalidArgumentError, match="Condition x > 0"):
        session.run(check)
    for given in (constants.constant(0), raw.Cast(constants.constant(0), DstT=dtypes.float32), raw.Rank(summed)):
        with pytest.raises(errors.InvalidArgumentError, match="Condition x > 0"):
            checks.assert_positive(given)


def test_signs_and_nearness() -> None:
    checks.assert_negative([-1]), checks.assert_positive([1.5])
    checks.assert_non_negative([0]), checks.assert_non_positive(np.array([0, -1], np.int64))
    for check, bad in (
        (checks.assert_negative, 0),
        (checks.assert_positive, 0),
        (checks.assert_non_negative, -1),
        (checks.assert_non_positive, 1),
    ):
        with pytest.raises(errors.InvalidArgumentError):
            check([bad])
    checks.assert_near(1.0, 1.0 + 1e-7)
    with pytest.raises(errors.InvalidArgumentError, match="tolerance"):
        checks.assert_near(1.0, 1.1)
    checks.assert_near(1.0, 1.1, atol=0.2)


def test_ranks() -> None:
    x = constants.placeholder("float32")
    assert checks.assert_rank([1], 1).name.endswith("static_checks_determined_all_ok")
    checks.assert_rank_at_least([[1]], 1)
    checks.assert_rank_in([1], (0, 1))
    for check, rank in ((checks.assert_rank, 2), (checks.assert_rank_at_least, 2), (checks.assert_rank_in, (0, 2))):
        with pytest.raises(ValueError, match="must have rank"):
            check([1], rank)
        run(check(x, rank), {x: [[1.0]]})
        with pytest.raises(errors.InvalidArgumentError, match="must have rank"):
            run(check(x, rank), {x: [1.0]})
    assert checks.assert_scalar(1.0).shape.as_list() == []
    with pytest.raises(ValueError, match="Expected scalar shape"):
        checks.assert_scalar([1.0])


def test_types() -> None:
    checks.assert_type(constants.constant(1), "int32")
    with pytest.raises(TypeError, match="must be of type"):
        checks.assert_type(constants.constant(1), "float32")
    checks.assert_integer(1)
    with pytest.raises(TypeError, match="integer type"):
        checks.assert_integer(1.0)
    checks.assert_proper_iterable([1])
    for value in (constants.constant([1]), "abc", SparseTensor([[0]], [1], [1]), 5):
        with pytest.raises(TypeError, match="iterable"):
            checks.assert_proper_iterable(value)
    assert checks.is_numeric_tensor(constants.constant(1))
    assert not checks.is_numeric_tensor(constants.constant("a"))
    assert not checks.is_numeric_tensor(1)


def test_order() -> None:
    assert run(checks.is_non_decreasing([1, 1, 2]))
    assert not run(checks.is_strictly_increasing([1, 1, 2]))
    assert run(checks.is_strictly_increasing([1]))
    with pytest.raises(TypeError, match="numeric"):
        checks.is_non_decreasing(["a"])


def test_numerics() -> None:
    x = constants.placeholder("float32", [None], name="x")
    checked = numeric_checks.verify_tensor_all_finite(x, "bad {x}")
    assert run(checked, {x: [1.0]}).tolist() == [1.0]
    for value, word in ((np.nan, "NaN"), (np.inf, "Inf")):
        with pytest.raises(errors.InvalidArgumentError, match=rf"bad \{{x\}} : Tensor had {word} values; it is x:0"):
            run(checked, {x: [value]})
    with pytest.raises(ValueError, match="needs a tensor"):
        numeric_checks.verify_tensor_all_finite(x)


def test_all_tensors_of_a_graph_can_be_checked() -> None:
    x = constants.placeholder("float32", [], name="x")
    y = raw.Log(x, name="logarithm")
    check = numeric_checks.add_check_numerics_ops()
    assert run([y, check], {x: 1.0})[0] == 0.0
    with pytest.raises(errors.InvalidArgumentError, match="logarithm:0 : Tensor had NaN values; it is logarithm:0"):
        run(check, {x: -1.0})


def test_checks_of_a_whole_graph_do_not_reach_into_control_flow() -> None:
    conditionals.cond(constants.placeholder("bool", []), lambda: constants.constant(1), lambda: constants.constant(2))
    numeric_checks.add_check_numerics_ops()  # there are no floating tensors in the branches
    while_loop.while_loop(lambda i, x: raw.Less(i, 3), lambda i, x: (raw.AddV2(i, 1), raw.Neg(x)), [0, 1.0])
    with pytest.raises(ValueError, match=r"is not compatible with TensorFlow control flow.*'while/While'"):
        numeric_checks.add_check_numerics_ops()


# ---------------------------------------------------------------------- printing (Print, PrintV2)
def test_print_passes_its_input_on(capfd: pytest.CaptureFixture[str]) -> None:
    x = constants.placeholder("float32", [None])
    y = printing.Print(x, [x, "text"], message="here: ", first_n=2, summarize=2)
    with Session() as session:
        for _ in range(3):
            assert session.run(y, {x: [1.0, 2.5, 3.0]}).tolist() == [1.0, 2.5, 3.0]
    assert capfd.readouterr().err == "here: [1 2.5...][text]\n" * 2


def test_print_v2_formats_structures(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    x = constants.constant([[1, 2], [3, 4]])
    op = printing.print_v2("values:", {"a": x, "b": 5}, output_stream=sys.stdout, sep=" ", end="!\n")
    run(op)
    assert capfd.readouterr().out == "values: {'a': [[1 2]\n [3 4]], 'b': 5}!\n"
    path = tmp_path / "log"
    run(printing.print_v2(constants.constant("line"), output_stream=f"file://{path}"))
    assert path.read_text() == "line\n"
    with pytest.raises(ValueError, match="Unsupported output stream"):
        printing.print_v2("x", output_stream="nowhere")
    with pytest.raises(ValueError, match="Unrecognized keyword"):
        printing.print_v2("x", stream=sys.stdout)


@pytest.mark.parametrize("make", [dict, collections.OrderedDict])
def test_print_v2_prints_each_value_beside_its_key(make: Any, capfd: pytest.CaptureFixture[str]) -> None:
    values = make([("small", constants.constant(1)), ("Big", [constants.constant(2), 3])])
    run(printing.print_v2(values, "'", constants.constant(4), output_stream=sys.stdout, sep="'"))
    shown = {k: [2, 3] if k == "Big" else 1 for k in values}
    assert capfd.readouterr().out == f"{pprint.pformat(make(shown))}'''4\n"


def test_print_v2_marks_sparse_tensors_as_tensorflow_does(capfd: pytest.CaptureFixture[str]) -> None:
    sparse = SparseTensor([[0, 1]], [5], [2, 3])
    run(printing.print_v2(sparse, output_stream=sys.stdout))
    assert capfd.readouterr().out == "'SparseTensor(indices=[[0 1]], values=[5], shape=[2 3])'\n"


def test_the_clock() -> None:
    assert printing.timestamp().op.type == "Timestamp"
    assert abs(run(printing.timestamp()) - time.time()) < 60


# ---------------------------------------------------------------------- strings
def test_string_functions() -> None:
    split = ragged_strings.string_split(["a b", "c"])
    assert run(split).values.tolist() == [b"a", b"b", b"c"]
    assert run(ragged_strings.split("a<>b", sep="<>")).values.tolist() == [b"a", b"b"]
    assert run(strings.string_join(["a", ["b", "c"]], separator="/")).tolist() == [b"a/b", b"a/c"]
    assert run(strings.reduce_join([["a", "b"], ["c", "d"]])) == b"abcd"
    assert run(strings.reduce_join([["a", "b"]], reduction_indices=1, keepdims=True)).tolist() == [[b"ab"]]
    assert run(strings.string_to_number(["1", "2"], "int32")).tolist() == [1, 2]
    assert run(strings.substr("hello", 1, 3)) == b"ell"
    assert run(strings.regex_replace("a1b2", "[0-9]", "")) == b"ab"
    assert run(strings.regex_full_match(["ab", "b"], constants.constant("a."))).tolist() == [True, False]
    assert run(strings.string_format("{} and {}", [constants.constant([1, 2]), "x"])) == b'[1 2] and "x"'
    assert run(strings.decode_raw(b"\1\2", "uint8")).tolist() == [1, 2]
    assert run(strings.decode_base64(strings.encode_base64("?>"))) == b"?>"
    assert run(strings.string_to_hash_bucket_fast(["a"], 10)).shape == (1,)
    with pytest.raises(ValueError, match="placeholder"):
        strings.string_format("{}", [1, 2])
    with pytest.raises(ValueError, match="exactly one"):
        strings.string_to_number()
