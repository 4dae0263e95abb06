"""What tests of oneDNN's kernels share: the library is turned on, or the test skipped."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator

import pytest

from anabranch.kernels import onednn
from anabranch.xla.kernel_choice import chooser


@pytest.fixture
def native(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Turns the library on."""
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


def need_bfloat16() -> None:
    """Skips the test where the processor has no instructions for it."""
    library = onednn.library()
    assert library is not None
    if not library.computes("bfloat16"):
        pytest.skip("this processor has no instructions for bfloat16")
