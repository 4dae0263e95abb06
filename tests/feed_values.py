"""What programs feed: values by the expression that makes them, and the dtypes of placeholders."""

from __future__ import annotations

from typing import Any

import numpy as np

DTYPES = (
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128", "bool", "string"),
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
)

EXPRESSIONS = (
    *(
        "3",
        "-1",
        "True",
        "2.0",
        "2.5",
        "-1.5",
        "float('nan')",
        "float('inf')",
        "300",
        "2**31",
        "2**40",
        "2**63",
        "2**64",
    ),
    *("-(2**63)", "1e300", "1j", "1+0j", "'a'", "b'a'", "'3'", "b'3'", "'2.5'", "'ü'", "None"),
    *("[1, 2]", "(1, 2)", "[1.5, 2]", "[-1.5]", "[True, False]", "[1, True]", "[300]", "[-1]", "[2**31]", "[2**63]"),
    *("[2**64]", "[float('nan')]", "[1e300]", "[1j]", "['a', 'b']", "[b'a']", "['3']", "[]", "[[]]", "[[1], [2, 3]]"),
    *(
        "[None]",
        "[1, None]",
        "['a', 1]",
        "['a', None]",
        "[b'a', 'b']",
        "{}",
        "{1: 2}",
        "{1, 2}",
        "range(3)",
        "object()",
    ),
    *("[object()]", "bytearray(b'ab')", "memoryview(b'ab')", "np.str_('a')", "np.bytes_(b'a')", "np.zeros((0,))"),
    *(
        "np.array([], object)",
        "np.array([1, 2], object)",
        "np.array([1.5, 2], object)",
        "np.array(['a', b'b'], object)",
    ),
    *(
        "np.array(['a', 1], object)",
        "np.array([None], object)",
        "np.array([True], object)",
        "np.array([2**64], object)",
    ),
    *("np.array([[1], [1, 2]], object)", "np.array(['a', 'bc'])", "np.array([b'a', b'bc'])", "np.array(['3'])"),
    *("np.array(['2020-01-01'], 'M8[D]')", "np.array([3], 'm8[s]')", "np.zeros(1, [('a', np.int32)])"),
    *("np.array([1.5], np.longdouble)", "np.array([1, 2], '>i4')", "np.array([1.5], '>f8')"),
    *("np.ma.array([1, 2], mask=[0, 1])", "np.matrix([[1.5, 2]])", "np.arange(6.).reshape(2, 3).T"),
    *("np.array([1e300, -1e300])", "np.array([-1.5])"),
    *(f"np.{name}(1)" for name in (*DTYPES[2:6], *DTYPES[8:], "float16", "bool_")),
    *(f"np.array([0, 1, 100], {name!r})" for name in DTYPES if name not in ("string", "bfloat16")),
    *(f"np.{name}(2.5)" for name in ("float16", "float32", "float64")),
    *(f"np.array([2.5, -2.5], {name!r})" for name in ("float16", "float32", "float64")),
    *(f"np.array([{np.iinfo(n).min}, {np.iinfo(n).max}, -1], {n!r})" for n in ("int8", "int16", "int32", "int64")),
    *(f"np.array([{np.iinfo(n).max}], {n!r})" for n in ("uint8", "uint16", "uint32", "uint64")),
)


def made(expression: str) -> Any:
    """The value of one of these expressions."""
    assert expression in EXPRESSIONS
    return eval(expression, {"np": np, "float": float})  # noqa: S307 (one of the constants above)


def told(array: Any) -> list[Any]:
    """An array as a list that JSON can hold: dtype, shape, values as text."""
    return [str(array.dtype), list(array.shape), repr(array.tolist())]
