"""Runs the tests of conditionals and loops both ways: compiled whole, and lowered to primitives for the executor.

Tests of graphs rather than of the code that is generated for them are compiled quickly: in half of the time.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from anabranch.pipeline import lowering_everything
from anabranch.testing.copied_messages import over_bytes
from anabranch.xla import executable

#: modules whose tests run both ways
BOTH_WAYS = frozenset(
    {
        *("test_while_loop", "test_functional", "test_tensor_array", "test_rnn"),
        *("test_conditional", "test_while", "test_inside_bodies", "test_switch_case", "test_cond_results"),
    }
)
#: modules whose tests compare programs with each other, or gradients with differences: kernels are checked elsewhere
COMPILED_QUICKLY = frozenset(
    {
        *("test_random_loops", "test_random_placements", "test_loops_of_higher_order", "test_nesting"),
        *("test_random_programs", "test_random_primitives", "test_random_functions", "test_random_slices"),
        *("test_while", "test_conditional", "test_inside_bodies", "test_exchanged_loops", "test_loop_rewrites"),
        *("test_hidden_shapes", "test_refused_shapes", "test_training", "test_state"),
        *("test_rnn", "test_rnn_extras", "test_seq2seq", "test_list_declarations", "test_graphs_only_grow"),
        *("test_optimizers", "test_distributions", "test_functional", "test_tensor_array", "test_carried_objects"),
    }
)
#: XLA's options for that
QUICK = {"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False}
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


@pytest.fixture(autouse=True, scope="session")
def _over_bytes(request: pytest.FixtureRequest) -> Iterator[None]:
    """With `--over-bytes` nothing but messages passes between masters and workers."""
    if not request.config.getoption("--over-bytes"):
        yield
        return
    with over_bytes() as transport:
        yield
    assert transport.count, "no session was opened"


@pytest.fixture
def in_the_worker(request: pytest.FixtureRequest) -> None:
    """For tests that look on while a step runs, which only those can do who share its process."""
    if request.config.getoption("--over-bytes"):
        pytest.skip("what a step is told of is sent when it is over")


@pytest.fixture
def compiled_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs of this test are compiled without optimizations."""
    monkeypatch.setattr(executable, "COMPILER_OPTIONS", QUICK)


@pytest.fixture(autouse=True)
def _compiled_quickly(request: pytest.FixtureRequest) -> None:
    if request.module.__name__.rsplit(".", 1)[-1] in COMPILED_QUICKLY:
        request.getfixturevalue("compiled_quickly")
