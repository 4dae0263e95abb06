from __future__ import annotations

import importlib
import types

import pytest

from anabranch import errors

#: where the classes are defined; `tf.errors` lists them
DEFINED = importlib.import_module("anabranch.errors")
CODES = {
    "CANCELLED": (1, errors.CancelledError),
    "UNKNOWN": (2, errors.UnknownError),
    "INVALID_ARGUMENT": (3, errors.InvalidArgumentError),
    "DEADLINE_EXCEEDED": (4, errors.DeadlineExceededError),
    "NOT_FOUND": (5, errors.NotFoundError),
    "ALREADY_EXISTS": (6, errors.AlreadyExistsError),
    "PERMISSION_DENIED": (7, errors.PermissionDeniedError),
    "RESOURCE_EXHAUSTED": (8, errors.ResourceExhaustedError),
    "FAILED_PRECONDITION": (9, errors.FailedPreconditionError),
    "ABORTED": (10, errors.AbortedError),
    "OUT_OF_RANGE": (11, errors.OutOfRangeError),
    "UNIMPLEMENTED": (12, errors.UnimplementedError),
    "INTERNAL": (13, errors.InternalError),
    "UNAVAILABLE": (14, errors.UnavailableError),
    "DATA_LOSS": (15, errors.DataLossError),
    "UNAUTHENTICATED": (16, errors.UnauthenticatedError),
}


@pytest.mark.parametrize("name", CODES)
def test_code_class_and_constant_agree(name: str) -> None:
    code, cls = CODES[name]
    error = cls(None, None, "message")
    assert getattr(errors, name) == code
    assert error.error_code == code
    assert errors.exception_type_from_error_code(code) is cls
    assert errors.error_code_from_exception_type(cls) == code
    assert isinstance(error, errors.OpError)
    assert not isinstance(error, (ValueError, TypeError))


@pytest.mark.parametrize("name", CODES)
def test_the_drawn_hierarchy_holds_every_class_with_its_code(name: str) -> None:
    code, cls = CODES[name]
    line = next(line for line in str(DEFINED.__doc__).splitlines() if f"─ {cls.__name__} " in line)
    assert line.split()[2] == str(code)


def test_ok_has_no_class() -> None:
    assert errors.OK == 0
    with pytest.raises(KeyError):
        errors.exception_type_from_error_code(errors.OK)


def test_properties_are_what_was_given() -> None:
    node_def, op = object(), types.SimpleNamespace(name="a/MatMul")
    error = errors.InvalidArgumentError(node_def, op, "wrong shape")
    assert (error.node_def, error.op, error.message) == (node_def, op, "wrong shape")
    assert str(error) == "wrong shape"


def test_str_says_where_the_operation_was_created() -> None:
    op = types.SimpleNamespace(name="a/MatMul", creation_site="train.py:12")
    text = str(errors.InvalidArgumentError(None, op, "wrong shape"))
    assert text.startswith("wrong shape\n")
    assert "'a/MatMul'" in text
    assert "train.py:12" in text


def test_the_operation_can_be_named_later_but_only_once() -> None:
    ops = [types.SimpleNamespace(name=name, creation_site="train.py:12") for name in ("reader", "caller")]
    error = errors.DataLossError(None, None, "damaged")
    for op in ops:
        error.attribute_to(op)
    assert error.op is ops[0]
    assert "'reader' was created at train.py:12" in str(error)


def test_make_error_picks_the_class_and_keeps_foreign_codes() -> None:
    for code, cls in CODES.values():
        error = errors.make_error(code, None, None, "m")
        assert type(error) is cls
        assert error.error_code == code
    foreign = errors.make_error(99, None, None, "m")
    assert isinstance(foreign, errors.UnknownError)
    assert foreign.error_code == 99


def test_a_status_that_is_not_ok_is_raised() -> None:
    with errors.raise_exception_on_not_ok_status() as status:
        status.message = "all is well"
    with (
        pytest.raises(errors.NotFoundError, match="no such thing"),
        errors.raise_exception_on_not_ok_status() as status,
    ):
        status.code, status.message = errors.NOT_FOUND, "no such thing"


def test_what_the_block_raises_comes_before_its_status() -> None:
    context = errors.raise_exception_on_not_ok_status()
    context.__enter__().code = errors.NOT_FOUND
    context.__exit__(KeyError, KeyError("of the block"), None)
    with pytest.raises(errors.NotFoundError):
        context.__exit__(None, None, None)
