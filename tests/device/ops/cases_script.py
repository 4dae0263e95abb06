"""Calls of Python functions, which a row of the op table cannot hold: test_script.py tests them."""

from __future__ import annotations

from anabranch.testing.op_cases import OpCase

CASES: list[OpCase] = []
TESTED_ELSEWHERE = dict.fromkeys(("PyFunc", "PyFuncStateless"), "tests/device/ops/test_script.py")
