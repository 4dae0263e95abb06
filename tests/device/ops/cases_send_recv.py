"""Transfers between devices, which a row of the op table cannot hold: test_devices.py tests them."""

from __future__ import annotations

from anabranch.testing.op_cases import OpCase

CASES: list[OpCase] = []
TESTED_ELSEWHERE = dict.fromkeys(("_Send", "_Recv"), "tests/device/test_devices.py")
