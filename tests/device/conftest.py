"""Runs the tests of conditionals and loops both ways: compiled whole, and lowered to primitives for the executor.

Tests of graphs rather than of the code that is generated for them are compiled quickly: in a third of the time.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from dataclasses import replace

import jax
import pytest

from anabranch.core import devices
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
#: modules whose programs are compiled as users' are: they check what kernels compute, or what the compiler makes
COMPILED_AS_USERS_DO = frozenset(
    {
        *("test_table", "test_direct_kernels", "test_incomplete_gamma", "test_script"),
        "test_choice",
        *(
            "test_compile_cache",
            "test_first_decompositions",
            "test_first_runs",
            "test_known_values",
            "test_shapes_that_change",
        ),
        *("test_bounds", "test_explain", "test_good_guest", "test_island_call", "test_kernel_profile", "test_memory"),
        *("test_soak", "test_whole_loops", "test_session", "test_sizes"),
        *("test_image", "test_math_functions", "test_nn", "test_pool_updates", "test_pool_update_steps"),
    }
)
#: modules whose programs are compiled at their first call: they check what the compiler makes, and when it is asked
COMPILED_AT_ONCE = COMPILED_AS_USERS_DO - {"test_first_decompositions", "test_first_runs", "test_image", "test_nn"} | {
    "test_interrupts",
    "test_random_graphs",
    "test_random_programs",
    *("test_native_convolutions", "test_native_normalization", "test_native_pooling", "test_native_products"),
    "test_pool_stages",
    "test_convolutions",
    "test_random",
    "test_winograd",
}
#: modules whose tests run both ways: compiled at once, and by the operations' own kernels
DIRECTLY_AS_WELL = frozenset({"test_state", "test_training"})
#: modules whose tests say what a session does that has nothing but processors: where operations go, which kernels there
#: are, what runs before it is compiled
OF_PROCESSORS = frozenset(
    {
        *("test_choice", "test_convolutions", "test_native_calls", "test_quantised_kernels", "test_winograd"),
        *("test_devices", "test_explain", "test_half_precision", "test_loss_scale", "test_placement", "test_summary"),
        *(
            "test_direct_kernels",
            "test_first_decompositions",
            "test_first_runs",
            "test_kernel_profile",
            "test_shapes_that_change",
        ),
        *("test_registered_devices", "test_step_stats", "test_stopping_loops"),
        *("test_host_convolutions", "test_lent_tensors", "test_loop_products"),
        *("test_native_convolutions", "test_native_normalization", "test_native_pooling", "test_native_products"),
        "test_pool_stages",
        *(
            "test_native_chains",
            "test_native_halves",
            "test_pool_stages",
            "test_pool_updates",
            "test_pool_update_steps",
        ),
    }
)
#: tests that say how often something is compiled
COMPILED_ONLY = frozenset(
    {
        *("test_one_compilation_whatever_the_count", "test_value_structure_and_one_compilation"),
        "test_nothing_is_planned_or_compiled_again",
    }
)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    both = metafunc.module.__name__.rsplit(".", 1)[-1] in BOTH_WAYS
    if both and metafunc.function.__name__ not in COMPILED_ONLY:
        metafunc.parametrize("lowered", [False, True], indirect=True, ids=["compiled", "lowered"])
    if metafunc.module.__name__.rsplit(".", 1)[-1] in DIRECTLY_AS_WELL:
        metafunc.parametrize("_at_once", [True, False], indirect=True, ids=["compiled", "direct"])


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
def compiled_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where shapes do not change, no program of this test runs by its operations' own kernels before it is compiled."""
    monkeypatch.setattr(executable, "FIRST_DIRECT_CALLS", 0)


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small programs are compiled at the third call: tests make too few to see them compiled otherwise."""
    monkeypatch.setattr(executable, "MOST_DIRECT_CALLS", executable.FIRST_DIRECT_CALLS)


@pytest.fixture(autouse=True)
def _at_once(request: pytest.FixtureRequest) -> None:
    asked = request.module.__name__.rsplit(".", 1)[-1] in COMPILED_AT_ONCE or request.node.originalname in COMPILED_ONLY
    if getattr(request, "param", asked):
        request.getfixturevalue("compiled_at_once")


@pytest.fixture(autouse=True)
def _without_accelerators(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    of_processors = request.module.__name__.rsplit(".", 1)[-1] in OF_PROCESSORS
    # what a test computes itself, by JAX alone, is computed on the processor likewise
    with jax.default_device(jax.devices("cpu")[0]) if of_processors else contextlib.nullcontext():
        if of_processors:
            _hide_accelerators(monkeypatch)
        yield


def _hide_accelerators(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {
        name: kind if kind.priority < devices.ACCELERATOR_PRIORITY else replace(kind, factory=lambda count: ())
        for name, kind in devices._types.items()
    }
    monkeypatch.setattr(devices, "_types", known)
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")  # of the processes that a test starts


@pytest.fixture(autouse=True)
def _compiled_quickly(request: pytest.FixtureRequest) -> None:
    """In place of what all other folders have."""
    if request.module.__name__.rsplit(".", 1)[-1] not in COMPILED_AS_USERS_DO:
        request.getfixturevalue("compiled_quickly")


@pytest.fixture(autouse=True)
def own_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a program that runs in this process adds to the path of its children is gone with the test."""
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    monkeypatch.setattr(sys, "path", sys.path[:])
