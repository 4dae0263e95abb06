"""Functions with Python's statements over tensors: what is beside the recorded values of `autograph_cases.py`."""

from __future__ import annotations

import functools
import inspect
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch import errors

GLOBAL = 5


def run(value: Any) -> Any:
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        return session.run(value)


def converted(function: Callable[..., Any]) -> Callable[..., Any]:
    return tf.autograph.to_graph(function)


# ---------------------------------------------------------------------- beyond what TensorFlow converts
def test_returns_from_inside_loops() -> None:
    def first_above(values: Any, limit: Any) -> Any:
        for i in tf.range(tf.shape(values)[0]):
            for x in values[i]:
                if x > limit:
                    return x, i
        return -1.0, -1

    rows = np.array([[1.0, 2.0], [3.0, 9.0], [4.0, 5.0]], np.float32)
    for limit in (0.5, 2.5, 4.0, 20.0):
        found = [(x, i) for i, row in enumerate(rows) for x in row if x > limit]
        result = converted(first_above)(tf.constant(rows), tf.constant(limit))
        assert tuple(run(result)) == (found[0] if found else (-1.0, -1))


def test_a_loop_that_may_end_without_the_return_it_has() -> None:
    def doubled(x: Any) -> Any:  # noqa: RET503
        while x < 100:
            x = x * 2
            if x > 50:
                return x

    assert run(converted(doubled)(tf.constant(5))) == 80
    with pytest.raises(errors.InvalidArgumentError, match="doubled ended without a `return`"):
        run(converted(doubled)(tf.constant(200)))


def test_returns_of_nothing_from_inside_loops() -> None:
    seen = tf.Variable(0)

    @tf.function
    def count(n: Any) -> None:
        for i in tf.range(n):
            if i > 3:
                return
            seen.assign_add(1)

    done = count(tf.constant(10))
    with tf.Session() as session:
        session.run(seen.initializer)
        session.run(done)
        assert session.run(seen) == 4


def test_conditional_expressions_in_one_another_and_built_in_functions() -> None:
    def graded(x: Any) -> Any:
        return 1 if x > 5 else max(x, 2) if x > 0 else (3 if x < -5 else 4)

    assert [run(converted(graded)(tf.constant(x))) for x in (6, 1, 4, -6, -1)] == [1, 2, 4, 3, 4]


def test_loops_over_datasets() -> None:
    def summed(dataset: Any, start: Any) -> Any:
        total, count = start, 0
        for x, y in dataset:
            if x > 1:
                total += x * y
            count += 1
        return total, count

    numbers = tf.data.Dataset.range(5)
    dataset = tf.data.Dataset.zip((numbers, numbers))
    assert tuple(run(converted(summed)(dataset, tf.constant(10, tf.int64)))) == (10 + 4 + 9 + 16, 5)


# ---------------------------------------------------------------------- effects
def test_effects_in_branches_and_bodies_of_a_function_happen_though_nothing_depends_on_them() -> None:
    ups, downs = tf.Variable(0), tf.Variable(0)

    @tf.function
    def step(values: Any) -> None:
        for x in values:
            if x > 0:
                ups.assign_add(x)
            else:
                downs.assign_sub(x)

    done = step(tf.constant([1, -2, 3, -4, 5]))
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(done)
        assert session.run([ups, downs]) == [9, 6]


def test_effects_of_a_converted_function_wait_for_control_dependencies_where_that_is_asked_for() -> None:
    total = tf.Variable(1)

    def doubled(x: Any) -> Any:
        total.assign_add(x)
        return x * 2

    features = tf.autograph.experimental.Feature.AUTO_CONTROL_DEPS
    result = tf.autograph.to_graph(doubled, experimental_optional_features=features)(tf.constant(4))
    with tf.Session() as session:
        session.run(total.initializer)
        assert session.run(result) == 8
        assert session.run(total) == 5


def test_assertions_and_names() -> None:
    def checked(x: Any) -> Any:
        assert x > 0, "x is to be positive"
        return x + 1

    feature = tf.autograph.experimental.Feature
    features = (feature.ASSERT_STATEMENTS, feature.AUTO_CONTROL_DEPS, feature.NAME_SCOPES)
    made = tf.autograph.to_graph(checked, experimental_optional_features=features)
    result = made(tf.constant(1))
    assert result.op.name.startswith("checked/")
    assert run(result) == 2
    with pytest.raises(errors.InvalidArgumentError, match="x is to be positive"):
        run(made(tf.constant(-1)))


# ---------------------------------------------------------------------- the function stays what it is
def test_closures_globals_defaults_and_docstrings_stay() -> None:
    cell = 1

    def original(x: Any, *more: Any, power: int = 2, **named: Any) -> Any:
        """What it does."""
        if x > 0:
            return x**power + cell + GLOBAL + sum(more) + named.get("last", 0)
        return x

    made = converted(original)
    assert made.__doc__ == original.__doc__
    assert made.__kwdefaults__ == {"power": 2}
    assert inspect.signature(made).parameters.keys() == inspect.signature(original).parameters.keys()
    assert run(made(tf.constant(3), 10, 20, last=100)) == 9 + 1 + 5 + 30 + 100
    cell = 1000
    assert run(made(tf.constant(3))) == 9 + 1000 + 5


class Base:
    def opened(self, x: Any) -> Any:
        return x + 1


class Gate(Base):
    limit = 3

    def opened(self, x: Any) -> Any:
        while x < self.limit:
            x = super().opened(x)
        return x

    @tf.function
    def traced(self, x: Any) -> Any:
        if x > self.limit:
            return self.opened(x - 10)
        return x


def test_methods() -> None:
    gate = Gate()
    assert run(converted(Gate.opened)(gate, tf.constant(-2))) == 3
    assert run(converted(gate.opened)(gate, tf.constant(-2))) == 3
    assert run([gate.traced(tf.constant(5)), gate.traced(tf.constant(2))]) == [3, 2]


def test_lambdas_and_partial_functions() -> None:
    assert run(converted(lambda x, y: x if x > y else -y)(tf.constant(2), tf.constant(3))) == -3

    def scaled(x: Any, factor: int) -> Any:
        return x * factor if x > 0 else x

    assert run(tf.function(functools.partial(scaled, factor=4))(tf.constant(2))) == 8


def test_exceptions_that_are_handled() -> None:
    def caught(x: Any, table: dict[str, int]) -> Any:
        try:
            y = table["key"]
        except KeyError as error:
            y = len(error.args)
        finally:
            table["seen"] = 1
        return x + y if x > 0 else x

    table: dict[str, int] = {}
    assert run(converted(caught)(tf.constant(2), table)) == 3
    assert table == {"seen": 1}


def test_a_decorator_is_not_applied_again() -> None:
    calls = []

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any) -> Any:
            calls.append(function.__name__)
            return function(*args)

        return call

    @counted
    def absolute(x: Any) -> Any:
        if x < 0:
            return -x
        return x

    assert run(converted(absolute)(tf.constant(-4))) == 4
    assert calls == ["absolute"]


# ---------------------------------------------------------------------- what is not converted
def test_what_is_not_to_be_converted_is_called_as_it_is() -> None:
    seen = []

    @tf.autograph.experimental.do_not_convert
    def plain(x: Any) -> Any:
        seen.append(plain_inside(x))
        return x

    def plain_inside(x: Any) -> str:
        try:
            return "python" if x > 0 else "other"
        except TypeError as error:
            return str(error)

    def outer(x: Any) -> Any:
        if plain(x) > 1:
            return plain_inside(x + 0), x
        return "small", x

    text, _ = run(converted(outer)(tf.constant(3)))
    assert text == b"python"
    assert "has no truth value while the graph is built" in seen[0]


def test_without_recursion_calls_are_left_alone() -> None:
    def inner(x: Any) -> Any:
        return x + 1 if x > 0 else x

    def outer(x: Any) -> Any:
        return inner(x) if x > 3 else x

    assert run(tf.autograph.to_graph(outer)(tf.constant(5))) == 6
    with pytest.raises(TypeError, match="truth value"):
        tf.autograph.to_graph(outer, recursive=False)(tf.constant(5))


def test_a_function_without_source_runs_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    made: dict[str, Any] = {}
    exec(compile("def plus(x):\n    return x + 1", "<nowhere>", "exec"), made)  # noqa: S102 - a function of nowhere
    assert run(tf.function(made["plus"])(tf.constant(1))) == 2
    with pytest.raises(ValueError, match="plus .*cannot be converted: .*source code"):
        tf.autograph.to_graph(made["plus"])
    with pytest.raises(TypeError, match="a function, a method or a lambda is converted"):
        tf.autograph.to_graph(3)  # type: ignore[arg-type]


# ---------------------------------------------------------------------- errors
def line_of(function: Callable[..., Any], text: str) -> int:
    lines, first = inspect.getsourcelines(function)
    return first + next(i for i, line in enumerate(lines) if text in line)


def test_operations_and_tracebacks_name_the_lines_of_the_user() -> None:
    def failing(x: Any) -> Any:
        y = x
        if x > 0:
            y = tf.matmul(x, x)  # here
        return y

    with pytest.raises(ValueError) as caught:
        converted(failing)(tf.constant(1.0))
    frames = traceback.extract_tb(caught.value.__traceback__)
    mine = [f for f in frames if f.filename == __file__ and f.line and "here" in f.line]
    assert [f.lineno for f in mine] == [line_of(failing, "# here")]

    def adding(x: Any) -> Any:
        while x < 10:
            x = tf.add(x, 1, name="added")  # there
        return x

    with tf.Graph().as_default() as graph:
        converted(adding)(tf.constant(1))
        (body,) = (f for name, f in graph.functions.items() if "body" in name)
        (added,) = (op for op in body.get_operations() if op.name == "added")
        assert added.site is not None
        assert str(added.site).endswith(f"test_autograph.py:{line_of(adding, '# there')}")


@pytest.mark.parametrize(
    ("kind", "message", "function"),
    [
        (ValueError, "'y' must also be initialized in the else branch", "unassigned"),
        (ValueError, "the else branch must also have a return statement", "half_returning"),
        (TypeError, "'y' has dtype int32 in the main branch, but dtype float32 in the else branch", "two_dtypes"),
        (TypeError, "'y' must have the same nested structure", "two_structures"),
        (TypeError, "'y' holds <object", "of_objects"),
        (ValueError, "'y' is None in the else branch", "half_none"),
        (ValueError, "condition of an `if` statement expected to be `tf.bool` scalar", "on_numbers"),
        (ValueError, "'y' must be defined before the loop.*'y' is used before it is assigned", "read_first"),
        (TypeError, "'x' has dtype int32 before the loop, but dtype float32 after one iteration", "growing_dtype"),
        (ValueError, r"'y' has shape \(1,\) before the loop, but shape \(2,\) after one iteration", "growing_shape"),
        (NotImplementedError, "`break` or `return` depends on a tensor", "python_loop"),
        (ValueError, "is a scalar, which cannot be iterated over; use tf.range", "over_a_scalar"),
    ],
)
def test_messages(kind: type[Exception], message: str, function: str) -> None:
    with pytest.raises(kind, match=message):
        converted(globals()[function])(tf.constant(1))


def unassigned(x: Any) -> Any:
    if x > 0:
        y = x
    return y


def half_returning(x: Any) -> Any:  # noqa: RET503
    if x > 0:
        return x


def two_dtypes(x: Any) -> Any:
    if x > 0:
        y = 1
    else:
        y = 2.0  # type: ignore[assignment]
    return y


def two_structures(x: Any) -> Any:
    y = [x]
    if x > 0:
        y = [x, x]
    return y


def of_objects(x: Any) -> Any:
    y: object = x
    if x > 0:
        y = object()
    return y


def half_none(x: Any) -> Any:
    if x > 0:
        y = x
    else:
        y = None
    return y


def on_numbers(x: Any) -> Any:
    if x:
        x = x + 1
    return x


def read_first(x: Any) -> Any:
    while x < 3:
        y = y + x  # type: ignore[has-type] # noqa: F821
        x = x + 1
    return y


def growing_dtype(x: Any) -> Any:
    while x < 3:
        x = tf.cast(x, tf.float32)
    return x


def growing_shape(x: Any) -> Any:
    y = tf.constant([1])
    while tf.shape(y)[0] < x:
        y = tf.concat([y, y], 0)
    return y


def python_loop(x: Any) -> Any:
    for i in range(3):
        if x > i:
            break
    return i


def over_a_scalar(x: Any) -> Any:
    for y in x:
        x = y
    return x


def test_a_variable_of_a_loop_that_never_runs() -> None:
    def last(n: Any) -> Any:
        i = 0
        while i < n:
            y = i * 2
            i += 1
        return y

    assert run(converted(last)(tf.constant(3))) == 4
    with pytest.raises(errors.InvalidArgumentError, match="loop must iterate at least once to initialize 'y'"):
        run(converted(last)(tf.constant(0)))


def test_the_code_can_be_read() -> None:
    @tf.function
    def sign(x: Any) -> Any:
        if x > 0:
            return 1
        return -1

    text = tf.autograph.to_code(sign.python_function)
    assert text.startswith("def tf__sign(x):")
    assert "ag__.if_stmt(ag__.ld(x) > 0" in text


def test_what_a_loop_tries_out_leaves_nothing_behind() -> None:
    def collected(n: Any) -> Any:
        for i in tf.range(n):
            y = i * 2
            tf.add_to_collection("tried", y)
        return y

    with tf.Graph().as_default() as graph:
        converted(collected)(tf.constant(2))
        assert len(graph.get_collection("tried")) == 1


def test_features() -> None:
    feature = tf.autograph.experimental.Feature
    assert set(feature.all_but(feature.LISTS)) == set(feature.all()) - {feature.LISTS, feature.ALL}
    with pytest.raises(TypeError, match="optional features are of tf.autograph.experimental.Feature"):
        tf.autograph.to_graph(unassigned, experimental_optional_features=("LISTS",))  # type: ignore[arg-type]


def test_lists_of_tensors() -> None:
    def filled(n: Any) -> Any:
        squares: Any = tf.TensorArray(tf.int32, size=0, dynamic_size=True)
        for i in tf.range(n):
            squares.append(i * i)
        names = ["a"]
        names.append("b")
        names[0] = "c"
        last = names.pop()
        return squares[n - 1], names, last, len(squares)

    features = tf.autograph.experimental.Feature.LISTS
    made = tf.autograph.to_graph(filled, experimental_optional_features=features)
    number, names, last, length = made(tf.constant(4))
    assert run([number, length]) == [9, 4]
    assert (names, last) == (["c"], "b")
