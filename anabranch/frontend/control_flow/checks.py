"""Assertions and checks: at once where values or shapes are known while the graph is built, else in every step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import numpy as np

from anabranch.core import dtypes
from anabranch.core.dtypes import DTypeLike, as_dtype
from anabranch.core.values import TensorLike
from anabranch.errors import InvalidArgumentError
from anabranch.frontend.control_flow.grouping import no_op
from anabranch.frontend.framework import control_dependencies, name_scope
from anabranch.graph.composite import SparseTensor, SparseTensorValue
from anabranch.graph.constants import constant_value
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw

#: the dtypes of tensors that `add_check_numerics_ops` checks


def Assert(
    condition: TensorLike, data: Iterable[TensorLike], summarize: int | None = None, name: str | None = None
) -> Operation:
    """An operation that makes the step fail with InvalidArgumentError where `condition` is false.

    Args:
        condition: a boolean scalar.
        data: a list of tensors (or texts) to show then.
        summarize: how many elements of each to show; default: 3.
        name: of the operation.

    Returns:
        The operation; nothing waits for it unless it is a control dependency.

    Raises (in the step):
        InvalidArgumentError: `condition` is false.

    Example:
        >>> x = tf.placeholder(tf.float32, [])
        >>> with tf.control_dependencies([tf.Assert(x > 0.0, [x])]):
        ...     root = tf.sqrt(x)
        >>> sess.run(root, {x: 9.0})
        np.float32(3.0)
    """
    with name_scope(name, "Assert", None):
        flag = convert_to_tensor(condition, dtypes.bool if not isinstance(condition, Tensor) else None, "Condition")
        result: Operation = raw.Assert(flag, list(data), summarize=summarize, name="Assert")
        return result


# ---------------------------------------------------------------------- comparing
_Comparison = Callable[[Tensor, Tensor], Tensor]


def _all(flags: Tensor) -> Tensor:
    known = flags.shape.ndims
    axes = raw.Range(0, raw.Rank(flags), 1) if known is None else np.arange(known, dtype=np.int32)
    result: Tensor = raw.All(flags, axes)
    return result


#: operation types that put values together without computing
_PUT_TOGETHER: Final = ("Cast", "Concat", "ConcatV2", "Equal", "Fill", "NotEqual", "Pack", "Range")


def _is_given(tensor: Tensor) -> bool:
    """Whether a value is written down in the graph: constants, known shapes, and these put together.

    TensorFlow knows no other values while a graph is built. What is computed is left to the step, so that a graph with
    an assertion that does not hold can be built.
    """
    op = tensor.op
    if op.type == "Const" or op.op_def.shape_valued:
        return True
    return op.type in _PUT_TOGETHER and all(_is_given(source) for source in op.inputs)


def _checked(operands: Sequence[Tensor], condition: Tensor, data: list[Any], summarize: int | None) -> Operation:
    """The assertion, or at once the error where given operands show the condition to be false."""
    known = constant_value(condition) if all(_is_given(operand) for operand in operands) else None
    if known is not None and not known:
        raise InvalidArgumentError(None, None, "\n".join(_static_text(item) for item in data))
    return Assert(condition, data, summarize=summarize)


def _static_text(item: TensorLike) -> str:
    if isinstance(item, Tensor):
        known = constant_value(item)
        return item.name if known is None else str(known)
    return item.decode() if isinstance(item, bytes) else str(item)


def _described(data: Iterable[TensorLike] | None, message: str | None, default: list[Any]) -> list[Any]:
    shown = default if data is None else list(data)
    return shown if message is None else [message, *shown]


def _binary_assert(
    name: str,
    symbol: str,
    compare: _Comparison,
    x: TensorLike,
    y: TensorLike,
    data: Iterable[TensorLike] | None,
    summarize: int | None,
    message: str | None,
) -> Operation:
    if x is y and name == "assert_equal":
        return no_op(name="static_checks_determined_all_ok")
    left = convert_to_tensor(x, None if isinstance(x, Tensor) else getattr(y, "dtype", None), "x")
    right = convert_to_tensor(y, left.dtype if not isinstance(y, Tensor) else None, "y")
    default = [
        f"Condition x {symbol} y did not hold element-wise:",
        f"x ({left.name}) = ",
        left,
        f"y ({right.name}) = ",
        right,
    ]
    return _checked([left, right], _all(compare(left, right)), _described(data, message, default), summarize)


def _binary(name: str, symbol: str, op_type: str) -> Callable[..., Operation]:
    def check(
        x: TensorLike,
        y: TensorLike,
        data: Iterable[TensorLike] | None = None,
        summarize: int | None = None,
        message: str | None = None,
        op_name: str | None = None,
    ) -> Operation:
        with name_scope(op_name, name, [t for t in (x, y) if isinstance(t, Tensor)]):
            return _binary_assert(name, symbol, getattr(raw, op_type), x, y, data, summarize, message)

    return check


_equal = _binary("assert_equal", "==", "Equal")
_none_equal = _binary("assert_none_equal", "!=", "NotEqual")
_less = _binary("assert_less", "<", "Less")
_less_equal = _binary("assert_less_equal", "<=", "LessEqual")
_greater = _binary("assert_greater", ">", "Greater")
_greater_equal = _binary("assert_greater_equal", ">=", "GreaterEqual")


def assert_equal(
    x: TensorLike,
    y: TensorLike,
    data: Iterable[TensorLike] | None = None,
    summarize: int | None = None,
    message: str | None = None,
    name: str | None = None,
) -> Operation:
    """Asserts x == y everywhere (the two broadcast); raises InvalidArgumentError at once where both are known.

    Args:
        x, y: tensors of one dtype, whose shapes broadcast.
        data: tensors to show when it fails; default: `x` and `y`.
        summarize: how many elements of each to show; default: 3.
        message: the beginning of the error's message.
        name: of the operation.

    Returns:
        An operation that fails where the assertion does not hold.

    Raises:
        InvalidArgumentError: it is known not to hold while the graph is built.

    Raises (in the step):
        InvalidArgumentError: it does not hold.

    Example:
        >>> x = tf.placeholder(tf.int32, [2])
        >>> with tf.control_dependencies([tf.assert_equal(x, [1, 2])]):
        ...     y = tf.identity(x)
        >>> sess.run(y, {x: [1, 2]})
        array([1, 2], dtype=int32)
    """
    return _equal(x, y, data, summarize, message, name)


def assert_none_equal(
    x: TensorLike,
    y: TensorLike,
    data: Iterable[TensorLike] | None = None,
    summarize: int | None = None,
    message: str | None = None,
    name: str | None = None,
) -> Operation:
    """Asserts x != y everywhere; see `assert_equal`."""
    return _none_equal(x, y, data, summarize, message, name)


def assert_less(
    x: TensorLike,
    y: TensorLike,
    data: Iterable[TensorLike] | None = None,
    summarize: int | None = None,
    message: str | None = None,
    name: str | None = None,
) -> Operation:
    """Asserts x < y everywhere; see `assert_equal`."""
    return _less(x, y, data, summarize, message, name)


def assert_less_equal(
    x: TensorLike,
    y: TensorLike,
    data: Iterable[TensorLike] | None = None,
    summarize: int | None = None,
    message: str | None = None,
    name: str | None = None,
) -> Operation:
    """Asserts x <= y everywhere; see `assert_equal`.

    Args:
        x, y: tensors of real numbers of one dtype, whose shapes broadcast.
        data: tensors to show when it fails; default: `x` and `y`.
        summarize: how many elements of each to show; default: 3.
        message: the beginning of the error's message.
        name: of the operation.

    Returns:
        An operation that fails where the assertion does not hold.

    Raises:
        InvalidArgumentError: it is known not to hold while the graph is built.

    Raises (in the step):
        InvalidArgumentError: it does not hold.

    Example:
        >>> x = tf.placeholder(tf.int32, [2])
        >>> with tf.control_dependencies([tf.assert_less_equal(x, 5)]):
        ...     y = tf.identity(x)
        >>> sess.run(y, {x: [1, 5]})
        array([1, 5], dtype=int32)
    """
    return _less_equal(x, y, data, summarize, message, name)


def assert_greater(
    x: TensorLike,
    y: TensorLike,
    data: Iterable[TensorLike] | None = None,
    summarize: int | None = None,
    message: str | None = None,
    name: str | None = None,
) -> Operation:
    """Asserts x > y everywhere; see `assert_equal`."""
    return _greater(x, y, data, summarize, message, name)


def assert_greater_equal(
    x: TensorLike,
    y: TensorLike,
    data: Iterable[TensorLike] | None = None,
    summarize: int | None = None,
    message: str | None = None,
    name: str | None = None,
) -> Operation:
    """Asserts x >= y everywhere; see `assert_equal`."""
    return _greater_equal(x, y, data, summarize, message, name)


def assert_near(
    x: TensorLike,
    y: TensorLike,
    rtol: TensorLike | None = None,
    atol: TensorLike | None = None,
    data: Iterable[TensorLike] | None = None,
    summarize: int | None = None,
    message: str | None = None,
    name: str | None = None,
) -> Operation:
    """Asserts |x - y| < atol + rtol * |y| everywhere; both tolerances default to ten times the dtype's epsilon."""
    with name_scope(name, "assert_near", [t for t in (x, y) if isinstance(t, Tensor)]):
        left = convert_to_tensor(x, None if isinstance(x, Tensor) else getattr(y, "dtype", None), "x")
        right = convert_to_tensor(y, left.dtype if not isinstance(y, Tensor) else None, "y")
        epsilon = 10 * dtypes.finfo(left.dtype.as_numpy_dtype).eps
        relative = convert_to_tensor(epsilon if rtol is None else rtol, left.dtype, "rtol")
        absolute = convert_to_tensor(epsilon if atol is None else atol, left.dtype, "atol")
        allowed = raw.AddV2(absolute, raw.Mul(relative, raw.Abs(right)))
        near = raw.Less(raw.Abs(raw.Sub(left, right)), allowed)
        default = [
            "x and y not equal to tolerance",
            f"x ({left.name}) = ",
            left,
            f"y ({right.name}) = ",
            right,
        ]
        return _checked([left, right], _all(near), _described(data, message, default), summarize)


# ---------------------------------------------------------------------- signs
def _sign_check(
    op_type: str,
    name: str,
    text: str,
    x: TensorLike,
    data: Iterable[TensorLike] | None,
    summarize: int | None,
    message: str | None,
    op_name: str | None,
) -> Operation:
    with name_scope(op_name, name, [x] if isinstance(x, Tensor) else None):
        tensor = convert_to_tensor(x, name="x")
        zero = np.zeros((), tensor.dtype.as_numpy_dtype)
        default = [f"Condition x {text} 0 did not hold element-wise:", f"x ({tensor.name}) = ", tensor]
        condition = _all(getattr(raw, op_type)(tensor, zero))
        return _checked([tensor], condition, _described(data, message, default), summarize)


def assert_negative(
    x: TensorLike,
    data: Iterable[TensorLike] | None = None,
    summarize: int | None = None,
    message: str | None = None,
    name: str | None = None,
) -> Operation:
    """Asserts x < 0 everywhere; see `assert_equal`."""
    return _sign_check("Less", "assert_negative", "<", x, data, summarize, message, name)


def assert_positive(
    x: TensorLike,
    data: Iterable[TensorLike] | None = None,
    summarize: int | None = None,
    message: str | None = None,
    name: str | None = None,
) -> Operation:
    """Asserts x > 0 everywhere; see `assert_equal`."""
    return _sign_check("Greater", "assert_positive", ">", x, data, summarize, message, name)


def assert_non_negative(
    x: TensorLike,
    data: Iterable[TensorLike] | None = None,
    summarize: int | None = None,
    message: str | None = None,
    name: str | None = None,
) -> Operation:
    """Asserts x >= 0 everywhere; see `assert_equal`."""
    return _sign_check("GreaterEqual", "assert_non_negative", ">=", x, data, summarize, message, name)


def assert_non_positive(
    x: TensorLike,
    data: Iterable[TensorLike] | None = None,
    summarize: int | None = None,
    message: str | None = None,
    name: str | None = None,
) -> Operation:
    """Asserts x <= 0 everywhere; see `assert_equal`."""
    return _sign_check("LessEqual", "assert_non_positive", "<=", x, data, summarize, message, name)


# ---------------------------------------------------------------------- ranks
def _rank_check(
    name: str,
    x: TensorLike,
    ranks: Sequence[Any],
    holds: Callable[[int, int], bool],
    compare: str,
    words: str,
    data: Iterable[TensorLike] | None,
    summarize: int | None,
    message: str | None,
    op_name: str | None,
) -> Operation:
    with name_scope(op_name, name, [x] if isinstance(x, Tensor) else None):
        tensor = convert_to_tensor(x, name="x")
        wanted_ranks = [_rank_tensor(r) for r in ranks]
        known = [constant_value(r) for r in wanted_ranks]
        actual_rank = tensor.shape.ndims
        if actual_rank is not None and all(r is not None for r in known):
            wanted = [int(r) for r in known if r is not None]
            if any(holds(actual_rank, r) for r in wanted):
                return no_op(name="static_checks_determined_all_ok")
            text = "" if message is None else f"{message} "
            listed = wanted[0] if len(wanted) == 1 else tuple(wanted)
            raise ValueError(
                f"{text}Tensor {tensor.name} must have rank {words}{listed}.  "
                f"Received rank {actual_rank}, shape {tensor.shape}"
            )
        actual = raw.Rank(tensor)
        scalar = [
            Assert(raw.Equal(raw.Rank(r), 0), ["Rank must be a scalar"]) for r in wanted_ranks if r.shape.ndims is None
        ]
        with control_dependencies(scalar):
            flags = [getattr(raw, compare)(actual, r) for r in wanted_ranks]
        condition = flags[0]
        for flag in flags[1:]:
            condition = raw.LogicalOr(condition, flag)
        default = [f"Tensor {tensor.name} must have rank {words}", *ranks, "Received shape: ", raw.Shape(tensor)]
        return _checked([actual, *wanted_ranks], condition, _described(data, message, default), summarize)


def _rank_tensor(rank: TensorLike) -> Tensor:
    tensor = convert_to_tensor(rank, name="rank")
    assert_type(tensor, dtypes.int32)
    if tensor.shape.ndims not in (None, 0):
        raise ValueError(f"Rank must be a scalar, got {tensor.name} of shape {tensor.shape}")
    return tensor


def assert_rank(
    x: TensorLike,
    rank: TensorLike,
    data: Iterable[TensorLike] | None = None,
    summarize: int | None = None,
    message: str | None = None,
    name: str | None = None,
) -> Operation:
    """Asserts that `x` has `rank` dimensions; raises ValueError at once where that is known to be wrong."""
    return _rank_check("assert_rank", x, [rank], lambda a, b: a == b, "Equal", "", data, summarize, message, name)


def assert_rank_at_least(
    x: TensorLike,
    rank: TensorLike,
    data: Iterable[TensorLike] | None = None,
    summarize: int | None = None,
    message: str | None = None,
    name: str | None = None,
) -> Operation:
    """Asserts that `x` has at least `rank` dimensions; see `assert_rank`."""
    return _rank_check(
        "assert_rank_at_least",
        x,
        [rank],
        lambda a, b: a >= b,
        "GreaterEqual",
        "at least ",
        data,
        summarize,
        message,
        name,
    )


def assert_rank_in(
    x: TensorLike,
    ranks: TensorLike,
    data: Iterable[TensorLike] | None = None,
    summarize: int | None = None,
    message: str | None = None,
    name: str | None = None,
) -> Operation:
    """Asserts that the number of dimensions of `x` is one of `ranks`; see `assert_rank`."""
    return _rank_check(
        "assert_rank_in", x, list(ranks), lambda a, b: a == b, "Equal", "in ", data, summarize, message, name
    )


def assert_scalar(tensor: TensorLike, name: str | None = None, message: str | None = None) -> Tensor:
    """`tensor`; raises ValueError where it is known not to be a scalar."""
    with name_scope(name, "assert_scalar", [tensor] if isinstance(tensor, Tensor) else None):
        value = convert_to_tensor(tensor, name="tensor")
        if value.shape.ndims not in (None, 0):
            text = "" if message is None else f"{message} "
            raise ValueError(f"{text}Expected scalar shape for {value.name}, saw shape: {value.shape}.")
        return value


# ---------------------------------------------------------------------- types
def assert_type(
    tensor: TensorLike, tf_type: DTypeLike, message: str | None = None, name: str | None = None
) -> Operation:
    """Raises TypeError unless `tensor` has dtype `tf_type`; returns an operation that does nothing."""
    with name_scope(name, "assert_type", None):
        value = tensor if isinstance(tensor, SparseTensor) else convert_to_tensor(tensor, name="tensor")
        if value.dtype.base_dtype is not as_dtype(tf_type).base_dtype:
            text = "" if message is None else f"{message} "
            raise TypeError(f"{text}{value.op.name} must be of type {as_dtype(tf_type)}, got {value.dtype}")
        return no_op(name="statically_determined_correct_type")


def assert_integer(x: TensorLike, message: str | None = None, name: str | None = None) -> Operation:
    """Raises TypeError unless `x` is of an integer dtype; returns an operation that does nothing."""
    with name_scope(name, "assert_integer", None):
        value = convert_to_tensor(x, name="x")
        if not value.dtype.is_integer:
            text = "" if message is None else f"{message} "
            raise TypeError(f'{text}Expected "x" to be integer type.  Found: {value.dtype!r} ({value.name})')
        return no_op(name="statically_determined_was_integer")


def assert_same_float_dtype(
    tensors: Iterable[TensorLike] | None = None, dtype: DTypeLike | None = None
) -> dtypes.DType:
    """The floating-point dtype that all `tensors` have (float32 where there are none).

    Args:
        tensors: tensors, sparse or not; None among them are left out.
        dtype: what it must be; default: that of the first tensor.

    Raises:
        ValueError: they differ, or the dtype is not a floating one.
    """
    wanted = None if dtype is None else as_dtype(dtype).base_dtype
    for tensor in [t for t in tensors or () if t is not None]:
        actual = tensor.dtype.base_dtype
        if wanted is None:
            wanted = actual
        elif actual is not wanted:
            raise ValueError(f"Tensor {tensor} has dtype {actual.name}, expected {wanted.name}; use tf.cast")
    wanted = wanted or dtypes.float32
    if not wanted.is_floating:
        raise ValueError(f"Expected floating point type, got {wanted.name}.")
    return wanted


def assert_proper_iterable(values: object) -> None:
    """Raises TypeError for tensors, arrays, text, and what cannot be iterated over."""
    if isinstance(values, Tensor | SparseTensor | SparseTensorValue | np.ndarray | str | bytes):
        raise TypeError(f'Expected argument "values" to be a "proper" iterable.  Found: {type(values)}')
    if not isinstance(values, Iterable):
        raise TypeError(f'Expected argument "values" to be iterable.  Found: {type(values)}')


def is_numeric_tensor(tensor: TensorLike) -> bool:
    """Whether `tensor` is a tensor of numbers."""
    return isinstance(tensor, Tensor) and tensor.dtype.base_dtype in dtypes.NUMBERS


# ---------------------------------------------------------------------- order
def _ordered(x: TensorLike, name: str | None, default_name: str, compare: str) -> Tensor:
    with name_scope(name, default_name, [x] if isinstance(x, Tensor) else None):
        tensor = convert_to_tensor(x, name="x")
        if not is_numeric_tensor(tensor):
            raise TypeError(f"Expected x to be numeric, instead found: {tensor}")
        flat = raw.Reshape(tensor, [-1])
        later = raw.StridedSlice(flat, [1], [0], [1], end_mask=1)
        earlier = raw.StridedSlice(flat, [0], [-1], [1], begin_mask=1)
        return _all(getattr(raw, compare)(earlier, later))


def is_non_decreasing(x: TensorLike, name: str | None = None) -> Tensor:
    """Whether no element is smaller than the one before it; a scalar boolean."""
    return _ordered(x, name, "is_non_decreasing", "LessEqual")


def is_strictly_increasing(x: TensorLike, name: str | None = None) -> Tensor:
    """Whether every element is greater than the one before it; a scalar boolean."""
    return _ordered(x, name, "is_strictly_increasing", "Less")
