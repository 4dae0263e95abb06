"""What tests of oneDNN's kernels share: the library is turned on, or the test skipped."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from anabranch.kernels import (
    onednn,
    pool_convolutions,
    pool_handler,
    pool_normalization,
    pool_pooling,
    pool_stages,
    pool_updates,
)
from anabranch.xla import library_updates
from anabranch.xla.kernel_choice import KERNELS_VARIABLE, chooser

#: what the fixtures replace
_IN_PARTS = pool_stages.in_parts


def _in_no_parts(text: str) -> None:
    pass


@pytest.fixture
def native(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Turns the library on; its own threads compute what could be cut into parts for XLA's."""
    monkeypatch.setattr(pool_stages, "in_parts", _in_no_parts)
    try:
        importlib.metadata.version(onednn.DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("the extra native is not installed")
    monkeypatch.setenv(onednn.NATIVE_VARIABLE, "1")
    onednn.loaded.cache_clear()
    assert onednn.library_state().missing == ""
    yield
    onednn.loaded.cache_clear()
    chooser.forget()


@pytest.fixture
def compiled(native: None) -> Iterator[None]:
    """The handler is compiled and loaded, or the test skipped; `tests/native_tests.py` counts both."""
    pool_handler.failure.cache_clear()
    if pool_handler.missing():
        pytest.skip(pool_handler.missing())
    yield
    pool_handler.failure.cache_clear()


@pytest.fixture
def parts(compiled: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Has everything cut into parts that can be, however small, as on two cores."""
    monkeypatch.setattr(pool_stages, "in_parts", _IN_PARTS)
    monkeypatch.setattr(pool_stages, "has_wide_vectors", lambda: True)
    monkeypatch.setattr(pool_convolutions, "LEAST_PRODUCTS", 1)
    monkeypatch.setattr(pool_pooling, "LEAST_SEEN", 1)
    monkeypatch.setattr(pool_normalization, "LEAST_ELEMENTS", 1)
    for module in (pool_stages, pool_convolutions, pool_pooling, pool_normalization):
        monkeypatch.setattr(module, "core_count", lambda: 2)
    _IN_PARTS.cache_clear()
    yield
    _IN_PARTS.cache_clear()


@pytest.fixture
def updates_handler(compiled: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The handler, compiled and loaded, on a processor that can; a few variables are enough."""
    if not pool_updates.is_usable():
        pytest.skip("this processor has no vectors of 512 bits")
    monkeypatch.setattr(library_updates, "LEAST_UPDATES", 4)
    monkeypatch.setattr(library_updates, "LEAST_ELEMENTS", 1)
    # programs with calls and without them compute all else by the same kernels
    monkeypatch.setenv(KERNELS_VARIABLE, "estimate")
    chooser.forget()


@pytest.fixture
def update_calls(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """The names of the operations that are traced as calls, by what they do."""
    found: dict[str, list[str]] = {"updated": [], "narrowed": []}

    def counted(name: str) -> Callable[..., Any]:
        own: Callable[..., Any] = getattr(pool_updates, name)

        def call(node: str, *args: Any) -> Any:
            found[name].append(node)
            return own(node, *args)

        return call

    for name in found:
        monkeypatch.setattr(pool_updates, name, counted(name))
    return found


def need_bfloat16() -> None:
    """Skips the test where the processor has no instructions for it."""
    library = onednn.library()
    assert library is not None
    if not library.computes("bfloat16"):
        pytest.skip("this processor has no instructions for bfloat16")
