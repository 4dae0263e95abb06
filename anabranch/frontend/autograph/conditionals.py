"""Conditionals and logical operators of converted code, on tensors and on everything else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from anabranch.core import nest
from anabranch.core.shapes import TensorShape
from anabranch.core.values import PassedOn, TensorLike
from anabranch.frontend.autograph.state import (
    State,
    SymbolNames,
    as_tensors,
    check_same,
    is_scratch,
    is_symbolic,
    scalar_condition,
    waiting_for_effects,
)
from anabranch.frontend.autograph.undefined import Undefined, UndefinedReturnValue, is_missing
from anabranch.frontend.control_flow.checks import Assert
from anabranch.frontend.control_flow.conditionals import cond as conditional
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.graph import get_default_graph
from anabranch.graph.operation import Tensor
from anabranch.ops import raw

#: variables that conversion adds: whether a return, a break or a continue was met
_CONTROL = ("do_return", "break_", "continue_")


def if_stmt(
    cond: TensorLike,
    body: Callable[[], None],
    orelse: Callable[[], None],
    get_state: Callable[[], State],
    set_state: Callable[[State], None],
    symbol_names: SymbolNames,
    nouts: int,
) -> None:
    """`if cond: body() else: orelse()`.

    Args:
        get_state, set_state: the variables that either branch changes.
        symbol_names: their names.
        nouts: how many of them, the first ones, are read afterwards.

    Raises:
        ValueError: a variable has a value after one branch only.
        TypeError: a variable has other dtypes or structures after the two branches.
    """
    if not is_symbolic(cond):
        (body if cond else orelse)()
        return
    pred = scalar_condition(cond, "an `if` statement")
    if is_scratch():
        _run_both(body, orelse, get_state, set_state)
        return
    before = tuple(get_state())
    after: list[State] = []

    def branch(which: Callable[[], None], label: str) -> Callable[[], Any]:
        def traced() -> Any:
            set_state(before)
            which()
            values = tuple(get_state())[:nouts]
            after.append(values)
            _check_defined(values, symbol_names, label)
            if len(after) == 2:
                _check_branches(after[0], values, symbol_names)
            tensors = tuple(
                as_tensors(v, name, f"in the {label} branch") for name, v in zip(symbol_names, values, strict=False)
            )
            return waiting_for_effects(get_default_graph(), tensors) if values else _done()

        return traced

    results = conditional(pred, branch(body, "main"), branch(orelse, "else"), strict=True)
    outputs = [
        both[0] if _is_settled(name, *both) else result
        for name, result, *both in zip(symbol_names, results if nouts else (), *after, strict=False)
    ]
    set_state((*outputs, *before[nouts:]))


def _done() -> Tensor:
    """What a branch returns that changes no variable: something that waits for what it does."""
    (done,) = waiting_for_effects(get_default_graph(), (convert_to_tensor(True),))
    return done  # type: ignore[no-any-return]


def _is_settled(name: str, one: PassedOn, other: PassedOn) -> bool:
    """Whether a variable that conversion added has the same known value after both branches."""
    return name.startswith(_CONTROL) and isinstance(one, bool) and one is other


def _check_defined(values: State, names: SymbolNames, label: str) -> None:
    for name, value in zip(names, values, strict=False):
        if isinstance(value, Undefined):
            raise ValueError(
                f"'{name}' must also be initialized in the {label} branch: the `if` depends on a tensor; or give it a "
                "value before the `if`"
            )
        if isinstance(value, UndefinedReturnValue):
            raise ValueError(
                f"the {label} branch must also have a return statement: the `if` depends on a tensor, and a value that "
                "is returned on one way has to be returned on every way"
            )


def _check_branches(one: State, other: State, names: SymbolNames) -> None:
    for name, a, b in zip(names, one, other, strict=False):
        check_same(name, a, b, "in the main branch", "in the else branch")


def _run_both(
    body: Callable[[], None],
    orelse: Callable[[], None],
    get_state: Callable[[], State],
    set_state: Callable[[State], None],
) -> None:
    """Both branches one after the other, where only the types of what comes out are wanted."""
    before = tuple(get_state())
    body()
    one = tuple(get_state())
    set_state(before)
    orelse()
    set_state(tuple(_either(a, b) for a, b in zip(one, get_state(), strict=True)))


def _either(one: PassedOn, other: PassedOn) -> Any:
    if isinstance(one, Undefined | UndefinedReturnValue) or (one is None and not is_missing(other)):
        return other
    if isinstance(one, Tensor) and isinstance(other, Tensor) and one.dtype.base_dtype is other.dtype.base_dtype:
        return one if _as_list(one.shape) == _as_list(other.shape) else _of_either_shape(one, other)
    return one


def _as_list(shape: TensorShape) -> Sequence[int | None] | None:
    return shape.dims_tuple


def _of_either_shape(one: Tensor, other: Tensor) -> Tensor:
    a, b = one.shape.dims_tuple, other.shape.dims_tuple
    shape = (
        None
        if a is None or b is None or len(a) != len(b)
        else [m if m == n else None for m, n in zip(a, b, strict=True)]
    )
    return raw.Placeholder(dtype=one.dtype.base_dtype, shape=TensorShape(shape))  # type: ignore[no-any-return]


# ---------------------------------------------------------------------- expressions
def if_exp(cond: TensorLike, if_true: Callable[[], Any], if_false: Callable[[], Any], expr_repr: str = "value") -> Any:
    """`if_true() if cond else if_false()`.

    Raises:
        TypeError: the two have other dtypes or structures, where the condition is a tensor.
    """
    if not is_symbolic(cond):
        return if_true() if cond else if_false()
    values: list[Any] = []

    def branch(which: Callable[[], Any]) -> Callable[[], Any]:
        def traced() -> Any:
            values.append(which())
            if len(values) == 2:
                check_same(f"({expr_repr})", values[0], values[1], "in the main branch", "in the else branch")
            return waiting_for_effects(get_default_graph(), (values[-1],))

        return traced

    pred = scalar_condition(cond, "a conditional expression")
    return conditional(pred, branch(if_true), branch(if_false), strict=True)[0]


def and_(a: Callable[[], Any], b: Callable[[], Any]) -> Any:
    """`a() and b()`, where b is computed only if a is true."""
    first = a()
    if not is_symbolic(first):
        return first and b()
    return conditional(scalar_condition(first, "`and`"), b, lambda: first)


def or_(a: Callable[[], Any], b: Callable[[], Any]) -> Any:
    """`a() or b()`, where b is computed only if a is false."""
    first = a()
    if not is_symbolic(first):
        return first or b()
    return conditional(scalar_condition(first, "`or`"), lambda: first, b)


def not_(a: TensorLike) -> Any:
    """`not a`."""
    return raw.LogicalNot(convert_to_tensor(a)) if is_symbolic(a) else not a


def eq(a: TensorLike, b: TensorLike) -> Any:
    """`a == b`, by value for tensors."""
    return raw.Equal(*_alike(a, b)) if is_symbolic(a) or is_symbolic(b) else a == b


def not_eq(a: TensorLike, b: TensorLike) -> Any:
    """`a != b`, by value for tensors."""
    return raw.NotEqual(*_alike(a, b)) if is_symbolic(a) or is_symbolic(b) else a != b


def _alike(a: TensorLike, b: TensorLike) -> tuple[Tensor, Tensor]:
    if isinstance(a, Tensor):
        return a, convert_to_tensor(b, a.dtype.base_dtype)
    second = convert_to_tensor(b)
    return convert_to_tensor(a, second.dtype.base_dtype), second


def assert_stmt(expression1: TensorLike, expression2: Callable[[], Any]) -> Any:
    """`assert expression1, expression2()`; of a tensor, when the step runs."""
    if not callable(expression2):
        raise TypeError(f"the message of an assertion is a function, got {expression2!r}")
    if is_symbolic(expression1):
        return Assert(convert_to_tensor(expression1), nest.flatten(expression2()))
    assert expression1, expression2()
    return None
