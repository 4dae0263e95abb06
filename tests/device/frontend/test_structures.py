"""In which structures loops, conditionals and functions over rows return their results, beside TensorFlow."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import anabranch as tf
from tests.oracles.structure_cases import cases, form

RECORDED = json.loads((Path(__file__).parents[2] / "fixtures" / "tensorflow" / "structures.json").read_text())


@pytest.mark.parametrize(("label", "make"), [pytest.param(label, make, id=label) for label, make in cases(tf)])
def test_the_form_is_tensorflows(label: str, make: Callable[[], Any]) -> None:
    """That of its first version of control flow; where that refuses a limit, as without one; else of the second."""
    first, second = RECORDED[label]
    unlimited = RECORDED[label.replace(" {'maximum_iterations': 2}", "")][0]
    wanted = first or unlimited or second
    if wanted is None:
        with pytest.raises((TypeError, ValueError)):
            make()
    else:
        assert form(make()) == wanted
