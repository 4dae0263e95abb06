"""Runs the tests of conditionals and loops both ways: compiled whole, and lowered to primitives for the executor."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from anabranch.pipeline import lowering_everything

#: modules whose tests run both ways
BOTH_WAYS = frozenset(
    {
        *("test_while_loop", "test_functional", "test_tensor_array", "test_rnn"),
        *("test_conditional", "test_while", "test_inside_bodies", "test_switch_case", "test_cond_results"),
    }
)
#: tests that say how often something is compiled
COMPILED_ONLY = frozenset({"test_one_compilation_whatever_the_count", "test_value_structure_and_one_compilation"})


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    both = metafunc.module.__name__.rsplit(".", 1)[-1] in BOTH_WAYS
    if both and metafunc.function.__name__ not in COMPILED_ONLY:
        metafunc.parametrize("lowered", [False, True], indirect=True, ids=["compiled", "lowered"])


@pytest.fixture(autouse=True)
def lowered(request: pytest.FixtureRequest) -> Iterator[bool]:
    """Whether all conditionals and loops are lowered in this test."""
    if not getattr(request, "param", False):
        yield False
        return
    with lowering_everything():
        yield True
