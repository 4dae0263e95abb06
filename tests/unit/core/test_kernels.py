"""The registry of kernels: what can compute a case, in which order, and what is refused."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from anabranch.core import dtypes
from anabranch.core.kernels import (
    OWN_KERNEL,
    KernelCase,
    KernelInput,
    alternates,
    candidates,
    has_alternates,
    immediate,
    load_kernels_from,
    register_kernel,
    unregister_kernel,
)

Register = Callable[..., None]


@pytest.fixture
def register() -> Iterator[Register]:
    """Registers kernels of `Softplus` for the length of a test."""
    made: list[tuple[str, str, str]] = []

    def add(name: str, device_type: str = "CPU", **how: Any) -> None:
        register_kernel("Softplus", name, device_type=device_type, **how)(lambda features: features)
        made.append(("Softplus", name, device_type))

    yield add
    for one in made:
        unregister_kernel(*one)


def case(shape: tuple[int, ...] = (3,), dtype: Any = dtypes.float32, devices: tuple[str, ...] = ("CPU",)) -> KernelCase:
    return KernelCase("Softplus", {"T": dtype}, (KernelInput(shape, np.dtype(dtype.as_numpy_dtype)),), devices)


def names(of: KernelCase) -> list[str]:
    return [one.name for one in candidates(of)]


def test_the_cheapest_comes_first_and_the_own_kernel_is_always_there(register: Register) -> None:
    assert names(case()) == [OWN_KERNEL]
    register("slow", cost=1.5)
    register("quick", cost=0.25)
    register("even", cost=1.0)
    assert names(case()) == ["quick", OWN_KERNEL, "even", "slow"]
    assert [one.cost for one in candidates(case())] == [0.25, 1.0, 1.0, 1.5]


def test_a_cost_may_depend_on_the_case(register: Register) -> None:
    register("wide", cost=lambda of: 100 / of.inputs[0].shape[0])
    assert names(case((1000,))) == ["wide", OWN_KERNEL]
    assert names(case((10,))) == [OWN_KERNEL, "wide"]


def test_dtypes_and_predicates_restrict(register: Register) -> None:
    register("doubles", types={"T": [dtypes.float64, "float16"]})
    register("even", applies=lambda of: of.inputs[0].shape[0] % 2 == 0)
    assert names(case((3,))) == [OWN_KERNEL]
    assert names(case((4,))) == ["even", OWN_KERNEL]
    assert names(case((3,), dtypes.float16)) == ["doubles", OWN_KERNEL]
    assert names(case((4,), dtypes.float64)) == ["doubles", "even", OWN_KERNEL]


def test_kernels_belong_to_types_of_devices(register: Register) -> None:
    register("common", cost=0.5)
    register("common", "ODD", cost=0.75)
    register("odd", "ODD", cost=0.5)
    assert names(case(devices=("CPU",))) == ["common", OWN_KERNEL]
    assert names(case(devices=("GPU",))) == [OWN_KERNEL]
    found = candidates(case(devices=("ODD", "CPU")))
    assert [one.name for one in found] == ["odd", "common", OWN_KERNEL]
    assert [one.kernel and one.kernel.device_type for one in found] == ["ODD", "ODD", None]


def test_of_equal_cost_the_devices_own_come_first(register: Register) -> None:
    register("general")
    register("special", "ODD")
    assert names(case(devices=("ODD", "CPU"))) == ["special", "general", OWN_KERNEL]


@pytest.mark.parametrize(
    ("op_type", "how", "message"),
    [
        ("Sotfplus", {}, "no compiled operation is called 'Sotfplus'"),
        ("AsString", {}, "no compiled operation is called 'AsString'"),
        ("Softplus", {"types": {"Tidx": [dtypes.int32]}}, r"names \['Tidx'\], which Softplus does not have"),
        ("Softplus", {"device_type": "no type"}, "no type"),
        ("Softplus", {"name": "own"}, "already has a kernel 'own' for CPU"),
    ],
)
def test_what_cannot_be_registered_is_refused(op_type: str, how: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        register_kernel(op_type, **{"name": "x", "device_type": "CPU", **how})(lambda features: features)
    assert "x" not in [kernel.name for kernel in alternates(op_type)]


def test_attributes_that_the_operation_lacks_are_refused() -> None:
    def kernel(features: Any, *, strides: Any) -> Any:
        return features

    with pytest.raises(ValueError, match=r"the kernel 'x' names \['strides'\]"):
        register_kernel("Softplus", "x", device_type="CPU")(kernel)


def test_a_name_is_taken_once_for_a_type_of_device(register: Register) -> None:
    register("mine")
    with pytest.raises(ValueError, match="already has a kernel 'mine' for CPU"):
        register_kernel("Softplus", "mine", device_type="CPU")(lambda features: features)
    register("mine", "ODD")
    with pytest.raises(KeyError, match="no kernel 'mine' for GPU"):
        unregister_kernel("Softplus", "mine", "GPU")


@pytest.mark.parametrize("cost", [-1.0, float("nan")])
def test_an_estimate_must_be_a_share(register: Register, cost: float) -> None:
    register("odd", cost=cost)
    with pytest.raises(ValueError, match="the kernel 'odd' of Softplus estimates its cost as"):
        candidates(case())


def test_a_module_is_loaded_when_one_of_its_operations_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And once. What it registers counts for this very question."""
    (tmp_path / "kernels_of_softsign.py").write_text(
        "from anabranch.core.kernels import register_kernel\n"
        "register_kernel('Softsign', 'loaded', device_type='CPU')(lambda features: features)\n",
        "utf-8",
    )
    floats = {"T": dtypes.float32}
    assert not has_alternates("Softsign", floats)
    load_kernels_from("kernels_of_softsign", ["Softsign", "Elu"])
    load_kernels_from("math", ["Softsign"])  # an operation may have kernels in several modules
    assert has_alternates("Softsign", floats)
    with pytest.raises(ModuleNotFoundError):
        alternates("Softsign")
    monkeypatch.syspath_prepend(tmp_path)
    assert [kernel.name for kernel in alternates("Softsign")] == ["loaded"]
    (tmp_path / "kernels_of_softsign.py").unlink()
    monkeypatch.delitem(sys.modules, "kernels_of_softsign")
    assert not alternates("Elu")  # the module is not asked for again
    unregister_kernel("Softsign", "loaded", "CPU")


def test_a_module_may_have_kernels_for_some_dtypes_or_none_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    load_kernels_from("math", ["Softplus"], {"T": [dtypes.bfloat16]})
    monkeypatch.setitem(sys.modules, "library", SimpleNamespace(is_usable=lambda: False))
    load_kernels_from("math", ["Softsign"], needs="library")
    assert has_alternates("Softplus", {"T": dtypes.bfloat16})
    assert not has_alternates("Softplus", {"T": dtypes.float32})
    assert not has_alternates("Softsign", {"T": dtypes.bfloat16})
    assert not alternates("Softplus")  # nothing is left of it for other tests
    assert not alternates("Softsign")


def test_what_is_dear_to_find_out_is_asked_of_the_cheapest_alone(register: Register) -> None:
    """Where kernels run at once: whether a library has one, which takes as long as making it."""
    asked: list[str] = []

    def offered(name: str, answer: bool) -> Callable[[KernelCase], bool]:
        return lambda _: bool(asked.append(name)) or answer

    register("dear", cost=0.9, takes_numpy=True, offered=offered("dear", True))
    register("cheap", cost=0.1, takes_numpy=True, offered=offered("cheap", True))
    register("other", cost=0.05, takes_numpy=True, applies=lambda _: False, offered=offered("other", True))
    found = immediate(case())
    assert found is not None
    assert (found.name, asked) == ("cheap", ["cheap"])
    register("cheapest", cost=0.01, takes_numpy=True, offered=offered("cheapest", False))
    asked.clear()
    found = immediate(case())
    assert found is not None
    assert (found.name, asked) == ("cheap", ["cheapest", "cheap"])
    assert names(case()) == ["cheap", "dear", OWN_KERNEL]
