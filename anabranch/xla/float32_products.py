"""How accelerators multiply float32 numbers: as such, or rounded to TensorFloat-32 (docs/decisions/0077).

Matrix units of GPUs take float32 numbers only with 10 of their 23 bits of fraction, and are about eight times as fast
then; those of TPUs round further. XLA does so by default. A float32 product is one of float32 numbers here, as in
TensorFlow 1.15; a program that can do with less says so, or `ANABRANCH_TF32=1` does where the program must not be
changed. Processors have no such units, so that nothing of this concerns them.
"""

from __future__ import annotations

import contextlib
import os
import threading
from typing import Final

import jax

#: environment variable that allows TensorFloat-32 from the start ("1") or does not ("0", and where it is not set)
TF32_VARIABLE: Final = "ANABRANCH_TF32"


class _Allowance:
    """What this process allows; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._allowed: bool | None = None

    def get(self) -> bool:
        with self._lock:
            return os.environ.get(TF32_VARIABLE, "0") == "1" if self._allowed is None else self._allowed

    def set(self, allowed: bool) -> None:
        with self._lock:
            self._allowed = allowed


_allowance: Final = _Allowance()


def enable_tensor_float_32_execution(enabled: bool) -> None:
    """Says whether products and convolutions of float32 tensors may be computed in TensorFloat-32 on accelerators.

    It holds for steps that are compiled from now on; those that are compiled stay what they are. At first it is not
    allowed, unless the environment variable `ANABRANCH_TF32` is 1. (TensorFlow, since version 2.4, allows it at first.)

    Args:
        enabled: whether it is allowed. Results then agree with float32's to about three digits.
    """
    _allowance.set(bool(enabled))


def tensor_float_32_execution_enabled() -> bool:
    """Whether products of float32 tensors may be computed in TensorFloat-32; see `enable_tensor_float_32_execution`."""
    return _allowance.get()


def product_precision(platform: str) -> contextlib.AbstractContextManager[object]:
    """The scope in which a program for an XLA platform ("cpu", "gpu", ...) is traced."""
    if platform == "cpu" or _allowance.get():
        return contextlib.nullcontext()
    scope: contextlib.AbstractContextManager[object] = jax.default_matmul_precision("float32")
    return scope
