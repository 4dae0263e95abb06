"""The registry of chains: which kernel computes operations together, and when its module is imported."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from anabranch.core import kernel_chains
from anabranch.core.kernel_chains import chain_kernel, chains_ending_with, load_chains_from, register_chain
from anabranch.core.kernels import KernelCase, KernelInput


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_chains, "_registry", kernel_chains._Announced())


def cases(*op_types: str, device: str = "CPU") -> list[KernelCase]:
    given = (KernelInput((3,), np.dtype(np.float32)),)
    return [KernelCase(op_type, {}, given, (device,)) for op_type in op_types]


def test_the_longest_chain_comes_first() -> None:
    for op_types in (("Softplus", "Relu"), ("Conv2D", "Softplus", "Relu")):
        register_chain(op_types, device_type="CPU", applies=lambda _: True)(lambda inputs, ops: [])
    assert list(chains_ending_with("Relu")) == [("Conv2D", "Softplus", "Relu"), ("Softplus", "Relu")]
    assert not chains_ending_with("Softplus")


def test_a_kernel_is_taken_that_applies_to_the_device_and_the_cases() -> None:
    seen: list[Any] = []

    def applies(given: Any) -> bool:
        seen.append([one.op_type for one in given])
        return len(seen) > 1

    register_chain(("Softplus", "Relu"), device_type="CPU", applies=applies, main=1)(lambda inputs, ops: [])
    assert chain_kernel(cases("Softplus", "Relu", device="GPU")) is None
    assert chain_kernel(cases("Softplus", "Elu")) is None
    assert not seen
    assert chain_kernel(cases("Softplus", "Relu")) is None
    found = chain_kernel(cases("Softplus", "Relu"))
    assert found is not None
    assert found.main == 1
    assert seen == [["Softplus", "Relu"]] * 2


def test_a_module_is_imported_when_a_chain_of_it_is_met_and_what_it_needs_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    usable = [False]
    monkeypatch.setitem(sys.modules, "needed_by_chains", SimpleNamespace(is_usable=lambda: usable[0]))
    load_chains_from("no_such_module_of_chains", [("Softplus", "Relu")], "needed_by_chains")
    assert list(chains_ending_with("Relu")) == [("Softplus", "Relu")]
    assert chain_kernel(cases("Softplus", "Relu")) is None
    usable[0] = True
    with pytest.raises(ModuleNotFoundError, match="no_such_module_of_chains"):
        chain_kernel(cases("Softplus", "Relu"))
