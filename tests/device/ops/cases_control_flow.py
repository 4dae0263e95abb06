"""Conditionals call function graphs, which a row of the op table cannot hold: other files test them."""

from __future__ import annotations

from anabranch.testing.op_cases import OpCase

CASES: list[OpCase] = []
TESTED_ELSEWHERE = {
    **dict.fromkeys(("If", "StatelessIf", "FakeParam"), "tests/device/ops/test_control_flow.py"),
    **dict.fromkeys(("Case", "StatelessCase"), "tests/device/frontend/test_switch_case.py"),
}
