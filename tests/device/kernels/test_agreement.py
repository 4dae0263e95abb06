"""A short run of the tool that compares all kernels with each other, `python -m tests.fuzz.kernels`; what it finds.

Kernels of oneDNN are among them where the extra `native` is installed, as a program would have them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
import pytest
from jax import numpy as jnp

from anabranch.core.arrays import Array
from anabranch.core.kernels import OWN_KERNEL, register_kernel, unregister_kernel
from anabranch.kernels import MODULES, onednn, pool_handler, pool_stages
from anabranch.xla.kernel_choice import chooser
from tests.fuzz.kernel_agreement import examine, furthest_of
from tests.fuzz.kernel_calls import FOLLOWING, MAKERS, SPECIAL, Call, call_of, derived, random_call
from tests.fuzz.kernel_networks import cases_of

#: random calls of each kind, by the index of the first; none of their arrays is large
CALLS, FIRST, MOST_BYTES = 3, 100, 1 << 17
SEED = 1


@pytest.fixture
def as_offered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Kernels are offered as in a process that has asked for nothing."""
    monkeypatch.setenv(onednn.NATIVE_VARIABLE, "1")
    caches = onednn.loaded, pool_handler.failure, pool_stages.in_parts
    for cache in caches:
        cache.cache_clear()
    yield
    for cache in caches:
        cache.cache_clear()
    chooser.forget()


@pytest.mark.parametrize("op_types", [["Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter", "_Conv2DBiasRelu"],
                                      ["MatMul", "BatchMatMulV2"], ["_MaxPoolWithPlaces", "AvgPoolGrad"],
                                      ["_FusedBatchNormRelu", "FusedBatchNormGradV3"]])  # fmt: skip
def test_kernels_agree(as_offered: None, op_types: list[str]) -> None:
    """On a few small random calls, which are the same in every run."""
    for index in range(FIRST, FIRST + CALLS):
        call = random_call(SEED, index, op_types, MOST_BYTES)
        assert not examine(call).findings, (index, str(call))


def test_calls_are_made_of_all_operations_that_have_several_kernels() -> None:
    """And each time the same."""
    assert {*MAKERS, *FOLLOWING} == {op_type for op_types in MODULES.values() for op_type in op_types}
    for index, op_type in enumerate(MAKERS):
        call, again = (random_call(SEED, index, [op_type], 1 << 14) for _ in range(2))
        assert call.operation().type == op_type
        assert str(call) == str(again)
        assert [value.tobytes() for value in call.values] == [value.tobytes() for value in again.values]


def test_programs_bring_their_cases_without_being_compiled() -> None:
    """Two products of a network are in loops, in which one factor stays the same. What one asks for no other gets."""
    cases_of("LSTM/bfloat16")
    cases = cases_of("LSTM/float32")
    assert {(case.op_type, str(one.dtype)) for case in cases for one in case.inputs} == {("MatMul", "float32")}
    calls = [call_of(case, np.random.default_rng(0)) for case in cases]
    assert sum(call.repeated == {1} for call in calls) == 2


# ---------------------------------------------------------------------- what it has found
def test_a_mean_of_infinities_is_infinite(parts: None) -> None:
    """In whichever part of the rows they are; it was no number in a kernel that merges the means of parts."""
    random = np.random.default_rng(0)
    for places in ([3], [95], [3, 40, 95]):
        x, vector = random.normal(size=(2, 6, 8, 16)).astype(np.float32), np.ones(16, np.float32)
        x.reshape(-1, 16)[places, 5] = -np.inf
        call = Call("FusedBatchNormV3", {"epsilon": 1e-3, "data_format": "NHWC"}, (x, *[vector] * 4), is_finite=False)
        assert not examine(call).findings, places


def test_an_infinite_scale_makes_an_infinite_gradient(parts: None) -> None:
    """Of the sign that a large one makes; it was no number in a kernel that multiplied each summand by it."""
    grad, x = np.random.default_rng(0).normal(size=(2, 2, 6, 8, 16)).astype(np.float32)
    scale, vector = np.ones(16, np.float32), np.ones(16, np.float32)
    scale[5] = -np.inf
    values = (grad, x, scale, vector, vector, np.zeros(0, np.float32))
    call = derived(Call("FusedBatchNormGradV3", {"epsilon": 1e-3, "data_format": "NHWC"}, values, is_finite=False))
    assert not examine(call).findings


# ---------------------------------------------------------------------- what it finds
def product(values: Any, dtype: Any = np.float32) -> Call:
    return Call("MatMul", {"transpose_a": False, "transpose_b": False}, tuple(map(dtype, values)), terms=8)


FACTORS = np.random.default_rng(3).normal(size=(2, 8, 8))
#: what a kernel gives, how often it was called before, and the kind of what is wrong with it
WRONG: dict[str, tuple[Callable[[Any, int], Any], str]] = {
    "a number is off": (lambda y, _: y.at[3, 4].add(1e-4), "value"),
    "a part is missing": (lambda y, _: y.at[6:].set(np.nan), "value"),
    "it is turned": (lambda y, _: y.T, "value"),
    "it has another shape": (lambda y, _: y[:7], "value"),
    "it varies": (lambda y, calls: y + np.float32(1e-7) * calls, "varies"),
    "it fails": (lambda y, _: jnp.reshape(y, (3, 3)), "error"),
}


@pytest.fixture(params=WRONG)
def wrong(request: pytest.FixtureRequest) -> Iterator[str]:
    """The kind of what is wrong with a kernel that is registered meanwhile."""
    spoil, kind = WRONG[request.param]
    calls = itertools.count()

    @register_kernel("MatMul", "wrong", device_type="CPU", applies=lambda case: case.inputs[0].shape == (8, 8))
    def _(a: Array, b: Array) -> Any:
        counted = jax.pure_callback(lambda: np.float32(next(calls)), jax.ShapeDtypeStruct((), np.float32))  # type: ignore[no-untyped-call]
        return spoil(jnp.asarray(a) @ b, counted)

    yield kind
    unregister_kernel("MatMul", "wrong", "CPU")


def test_what_is_wrong_with_a_kernel_is_found(wrong: str) -> None:
    findings = examine(product(FACTORS)).findings
    assert [(one.kernel, one.kind) for one in findings] == [("wrong", wrong)]


def test_of_runs_that_vary_the_furthest_off_counts() -> None:
    """Infinities that are the same in a run and in what is wanted are not far from each other."""
    wanted = [np.array([1.0, np.inf, np.nan, -np.inf])]
    near, far, wrong = (
        [np.array(values, np.float32)]
        for values in ([1.1, np.inf, np.nan, -np.inf], [1.2, np.inf, np.nan, -np.inf], [1.0, np.inf, np.nan, np.inf])
    )
    assert furthest_of([near, far, near], wanted) is far
    assert furthest_of([near, far, wrong], wanted) is wrong


def test_numbers_that_are_not_finite_are_found_and_have_to_stay() -> None:
    """A kernel that makes zeros of them is wrong."""

    @register_kernel("MatMul", "wrong", device_type="CPU", applies=lambda case: case.inputs[0].shape == (8, 8))
    def _(a: Array, b: Array) -> Any:
        return jnp.nan_to_num(jnp.asarray(a) @ b, nan=0.0, posinf=0.0, neginf=0.0)

    try:
        for special in SPECIAL:
            spoiled = FACTORS.copy()
            spoiled[0, 2, 5] = special
            findings = examine(product(spoiled)).findings
            assert [(one.kernel, one.kind) for one in findings] == [("wrong", "value")]
        found = examine(product(FACTORS))
        assert not found.findings
        assert set(found.off) >= {f"MatMul {name}" for name in (OWN_KERNEL, "wrong", f"{OWN_KERNEL} at once")}
    finally:
        unregister_kernel("MatMul", "wrong", "CPU")
