"""oneDNN's convolutions compute what XLA's do, are offered only where they can, and fail as their operation.

What needs the extra `native` is skipped without it.
"""

from __future__ import annotations

import importlib.metadata
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import anabranch as tf
from anabranch.core.kernels import candidates, immediate
from anabranch.kernels import native_calls, native_convolutions, onednn, onednn_stages, pool_handler, pool_stages
from anabranch.ops.nn.conv import Geometry
from anabranch.xla.variants import compile_log
from tests.device.kernels.conftest import need_bfloat16
from tests.device.kernels.test_convolutions import DEPTHWISE, TOLERANCES, case_of, check_agreement, operations

NATIVE = {"onednn", "onednn blocked"}


# ---------------------------------------------------------------------- agreement
@st.composite
def any_convolutions(draw: Any, kind: int) -> tuple[int, tuple[int, ...], tuple[int, ...], dict[str, Any], str]:
    """Which of the operations, the shapes of data and filter, attributes, dtype: all formats, groups, all windows."""
    rank = 3 if kind == 1 else 2
    ones = (1,) * rank
    lengths = draw(st.tuples(*[st.integers(1, 13 if rank == 2 else 5)] * rank))
    size = draw(st.tuples(*[st.integers(1, 4)] * rank))
    strides, dilations = (draw(st.one_of(st.just(ones), st.tuples(*[st.integers(1, 3)] * rank))) for _ in range(2))
    padding = draw(st.sampled_from(["SAME", "VALID"] if rank == 3 else ["SAME", "VALID", "EXPLICIT"]))
    groups = draw(st.sampled_from([1, 1, 2, 3])) if kind == 0 else 1
    inner, each = draw(st.sampled_from([1, 2, 3, 8, 16, 17])), draw(st.sampled_from([1, 2, 5, 8, 16]))
    first = draw(st.booleans())
    order = (0, rank + 1, *range(1, rank + 1)) if first else tuple(range(rank + 2))
    pads = [0, 0, *draw(st.lists(st.integers(0, 3), min_size=2 * rank, max_size=2 * rank)), 0, 0]
    attrs: dict[str, Any] = {
        "strides": [(1, *strides, 1)[a] for a in order],
        "dilations": [(1, *dilations, 1)[a] for a in order],
        "padding": padding,
        "data_format": {2: ("NHWC", "NCHW"), 3: ("NDHWC", "NCDHW")}[rank][first],
    }
    if padding == "EXPLICIT":
        attrs["explicit_paddings"] = [pads[2 * a + end] for a in order for end in (0, 1)]
    shape = (draw(st.integers(1, 3)), *lengths, inner * groups)
    depth = each if kind == DEPTHWISE else each * groups
    return kind, tuple(shape[a] for a in order), (*size, inner, depth), attrs


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("kind", range(3))
def test_results_are_those_of_xla(native: None, kind: int, dtype: str) -> None:
    """Of a convolution and its gradients. (The examples are the same in every run.)"""
    if dtype == "bfloat16":
        need_bfloat16()
    compared: set[tuple[str, str]] = set()

    @settings(max_examples=4)
    @given(any_convolutions(kind))
    def compare(drawn: Any) -> None:
        with tf.Graph().as_default():
            for op, values in operations(*drawn, dtype):
                compared.update(check_agreement(op, values, TOLERANCES[dtype]))

    compare()
    # to filters of volumes it is not offered in bfloat16
    left_out = 1 if kind == 1 and dtype == "bfloat16" else 0
    assert len({op_type for op_type, name in compared if name in NATIVE}) == 3 - left_out


# ---------------------------------------------------------------------- where they are offered
def offered(*drawn: Any) -> list[set[str]]:
    """For a convolution and its two gradients, which of the library's kernels are candidates."""
    with tf.Graph().as_default():
        return [{one.name for one in candidates(case_of(op, v))} & NATIVE for op, v in operations(*drawn)]


PLAIN: dict[str, Any] = {"strides": [1, 1, 1, 1], "padding": "SAME"}


def test_what_the_library_cannot_do_is_not_offered(native: None) -> None:
    """Other types; windows that lie in the padding alone, and strided filters of one tap, which it computes wrongly."""
    assert offered(0, (2, 9, 9, 8), (3, 3, 8, 16), PLAIN, "float32") == [NATIVE] * 3
    assert offered(0, (2, 9, 9, 8), (3, 3, 8, 16), PLAIN, "float64") == [set()] * 3
    outside = {"strides": [1, 1, 1, 1], "padding": "EXPLICIT", "explicit_paddings": [0, 0, 3, 2, 3, 0, 0, 0]}
    assert offered(0, (1, 1, 9, 1), (2, 2, 1, 8), outside, "float32") == [set()] * 3
    strided = {"strides": [1, 3, 1, 1], "padding": "SAME"}
    assert offered(0, (3, 12, 2, 1), (1, 1, 1, 32), strided, "float32")[2] <= {"onednn blocked"}


def test_bfloat16_is_offered_where_the_processor_multiplies_it(native: None, monkeypatch: pytest.MonkeyPatch) -> None:
    library = onednn.library()
    assert library is not None
    need_bfloat16()
    # with AMX there is one layout for both: the two kernels are one
    wanted = {"onednn"} if library.has_tiles else NATIVE
    assert offered(0, (2, 9, 9, 8), (3, 3, 8, 16), PLAIN, "bfloat16") == [wanted] * 3
    monkeypatch.setattr(library, "instruction_set", "AVX512")
    assert offered(0, (2, 9, 9, 8), (3, 3, 8, 16), PLAIN, "bfloat16") == [set()] * 3
    assert offered(0, (2, 9, 9, 8), (3, 3, 8, 16), PLAIN, "float32") == [NATIVE] * 3


def test_gradients_to_filters_that_are_wrong_in_bfloat16_are_not_offered(native: None) -> None:
    """Of volumes, and of windows with dilations, or with strides and few positions along the last axis."""
    need_bfloat16()
    strided = {"strides": [1, 1, 2, 1], "padding": "SAME"}
    assert offered(0, (4, 7, 1, 5), (4, 2, 5, 1), strided, "bfloat16")[2] == set()
    assert offered(0, (4, 7, 1, 5), (4, 2, 5, 1), strided, "float32")[2] == NATIVE
    dilated = {**PLAIN, "dilations": [1, 2, 1, 1]}
    assert offered(0, (2, 18, 34, 2), (2, 2, 2, 64), dilated, "bfloat16")[2] == set()
    volumes = {"strides": [1, 1, 1, 1, 1], "padding": "SAME"}
    assert offered(1, (2, 3, 3, 1, 48), (4, 3, 3, 48, 64), volumes, "bfloat16")[2] == set()


def test_nothing_is_offered_where_it_is_turned_off() -> None:
    onednn.loaded.cache_clear()
    assert onednn.library_state().missing == "turned off (ANABRANCH_NATIVE is 0)"
    assert offered(0, (2, 9, 9, 8), (3, 3, 8, 16), PLAIN, "float32") == [set()] * 3


def test_a_library_that_is_not_there_is_said_to_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_files(name: str) -> list[Any]:
        return []

    monkeypatch.setenv(onednn.NATIVE_VARIABLE, "1")
    monkeypatch.setattr(importlib.metadata, "files", no_files)
    onednn.loaded.cache_clear()
    missing = onednn.library_state().missing
    onednn.loaded.cache_clear()
    assert onednn.DISTRIBUTION in missing or "Linux" in missing


# ---------------------------------------------------------------------- in a session
def small_convolution() -> tuple[tf.Tensor, dict[Any, Any], np.ndarray[Any, Any]]:
    """A convolution that the estimates give to the library, what to feed, and its result as a matrix product."""
    rng = np.random.default_rng(0)
    data, filter = (rng.random(shape, np.float32) for shape in ((4, 28, 28, 64), (1, 1, 64, 64)))
    x, w = tf.placeholder(tf.float32, data.shape), tf.placeholder(tf.float32, filter.shape)
    y = tf.nn.conv2d(x, w, strides=[1, 1, 1, 1], padding="SAME", name="layer/conv")
    return y, {x: data, w: filter}, data @ filter[0, 0]


def test_a_step_runs_explains_and_survives_a_failure(native: None, monkeypatch: pytest.MonkeyPatch) -> None:
    fetch, fed, wanted = small_convolution()

    def fails(self: Any, name: str, *arguments: object) -> None:
        raise onednn.NativeError(f"{name}: it failed while it ran")

    with tf.Session() as session:
        np.testing.assert_allclose(session.run(fetch, fed), wanted, rtol=1e-5)
        assert compile_log.events[-1].kernels["layer/conv"].chosen.name == "onednn"
        # a process that finds the program in the compile cache has to make the computation when it is called
        native_calls.forget()
        np.testing.assert_allclose(session.run(fetch, fed), wanted, rtol=1e-5)
        with monkeypatch.context() as patch:
            patch.setattr(onednn.Library, "call", fails)
            with pytest.raises(tf.errors.InternalError, match=r"'layer/conv'.*it failed while it ran") as failure:
                session.run(fetch, fed)
        assert failure.value.op is fetch.op
        np.testing.assert_allclose(session.run(fetch, fed), wanted, rtol=1e-5)


def test_no_signal_reaches_the_library(native: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception that entered the callback would be lost, and the result with it."""
    fetch, fed, _ = small_convolution()
    threads: set[threading.Thread] = set()
    run = onednn_stages.Computation.run

    def noted(self: Any, *arguments: Any) -> None:
        threads.add(threading.current_thread())
        run(self, *arguments)

    monkeypatch.setattr(onednn_stages.Computation, "run", noted)
    with tf.Session() as session:
        for _ in range(3):
            session.run(fetch, fed)
    assert threads
    assert threading.main_thread() not in threads


@pytest.mark.parametrize(
    ("channels", "strides", "dilations", "trusted"),
    [
        (48, (1, 1), (1, 1), True),
        (48, (1, 2), (1, 1), False),
        (48, (2, 1), (1, 1), True),
        (64, (2, 2), (1, 1), True),
        (64, (3, 1), (1, 1), False),
        (64, (2, 1), (2, 1), False),
        (3, (4, 4), (1, 1), True),
    ],
)
def test_convolutions_that_tiles_compute_wrongly_are_not_trusted(
    monkeypatch: pytest.MonkeyPatch,
    channels: int,
    strides: tuple[int, int],
    dilations: tuple[int, int],
    trusted: bool,
) -> None:
    """In bfloat16, with AMX, the convolution itself: what random ones showed."""
    attrs = {"strides": [1, *strides, 1], "dilations": [1, *dilations, 1], "padding": b"SAME", "data_format": b"NHWC"}
    geometry = Geometry({**attrs, "explicit_paddings": []}, (2, 12, 12, channels), [3, 3, channels, 32], False)
    monkeypatch.setattr(native_convolutions, "_has_tiles", lambda: True)
    assert native_convolutions.Convolution.of(geometry, 0, False, onednn.BFLOAT16).trusted is trusted
    assert native_convolutions.Convolution.of(geometry, 0, False, onednn.FLOAT32).trusted
    monkeypatch.setattr(native_convolutions, "_has_tiles", lambda: False)
    assert native_convolutions.Convolution.of(geometry, 0, False, onednn.BFLOAT16).trusted


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    ("shape", "filter_shape", "stride"),
    [
        ((4, 64, 64, 3), (7, 7, 3, 64), 2),
        ((4, 28, 28, 32), (3, 3, 32, 64), 1),
        ((4, 28, 28, 64), (1, 1, 64, 64), 2),
        ((4, 28, 28, 64), (1, 1, 64, 64), 1),
        ((4, 17, 17, 64), (1, 7, 64, 64), 1),
    ],
)
def test_a_kernel_for_a_first_step_is_chosen_without_a_compiler(
    native: None,
    monkeypatch: pytest.MonkeyPatch,
    shape: tuple[int, ...],
    filter_shape: tuple[int, ...],
    stride: int,
    dtype: str,
) -> None:
    """The handlers are compiled in the background: a first step, which calls kernels directly, does not wait."""
    if dtype == "bfloat16":
        need_bfloat16()

    def asked(*_: Any) -> str:
        raise AssertionError("the C compiler would be called")

    for name in ("missing", "failure", "loaded", "compiled"):
        monkeypatch.setattr(pool_handler, name, asked)
    monkeypatch.setattr(pool_stages, "in_parts", asked)
    attrs = {"strides": [1, stride, stride, 1], "padding": "SAME"}
    with tf.Graph().as_default():
        for op, values in operations(0, shape, filter_shape, attrs, dtype):
            kernel = immediate(case_of(op, values))
            assert kernel is not None
            assert kernel.name in NATIVE
