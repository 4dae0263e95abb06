"""The choice among an operation's kernels: by estimate, by measurement, by what was measured earlier. No clock runs."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anabranch.core import dtypes
from anabranch.core.kernels import KernelCandidate, KernelCase, KernelInput, register_kernel, unregister_kernel
from anabranch.errors import InvalidArgumentError
from anabranch.frontend.platform import version
from anabranch.xla import kernel_choice
from anabranch.xla.kernel_choice import KernelChoice, KernelChooser, case_key, kernel_mode
from anabranch.xla.kernel_costs import CostMemory
from anabranch.xla.kernel_timing import Run, seconds_in_turns


@dataclass
class Machine:
    """A machine on which kernels take the times that a test says, and measuring them takes as long as it says."""

    seconds: dict[str, float]
    effort: float = 0.0
    now: float = 0.0
    measured: list[str] = field(default_factory=list)

    def clock(self) -> float:
        return self.now

    def measure(self, candidate: KernelCandidate) -> Run:
        self.now += self.effort
        self.measured.append(candidate.name)
        if candidate.name not in self.seconds:
            raise RuntimeError("this kernel cannot run alone")
        return lambda: self.seconds[candidate.name]

    def chooser(self, mode: str, folder: Path | None = None, budget: float = 2.0) -> KernelChooser:
        memory = None if folder is None else CostMemory(folder)
        return KernelChooser(lambda: memory, lambda: mode, self.clock, budget)


@pytest.fixture
def estimates() -> Iterator[Callable[..., None]]:
    """Registers kernels of `Softplus` with these costs."""
    made: list[str] = []

    def register(**costs: float) -> None:
        for name, cost in costs.items():
            register_kernel("Softplus", name, device_type="CPU", cost=cost)(lambda features: features)
            made.append(name)

    yield register
    for name in made:
        unregister_kernel("Softplus", name, "CPU")


def case(*shape: int, **attrs: Any) -> KernelCase:
    given = KernelInput(shape or (1000, 1000), np.dtype(np.float32))
    return KernelCase("Softplus", {"T": dtypes.float32, **attrs}, (given,), ("CPU",))


def chosen(choice: KernelChoice | None) -> tuple[str, str]:
    assert choice is not None
    return choice.chosen.name, choice.why


def test_an_operation_with_its_own_kernel_only_has_no_choice() -> None:
    machine = Machine({})
    assert machine.chooser("measure").choose(case(), None, machine.measure) is None


@pytest.mark.parametrize(
    ("costs", "seconds", "wanted", "measured"),
    [
        ({"quick": 0.5}, {}, ("quick", "the estimates are clear"), []),
        ({"slow": 1.5}, {}, ("own", "the estimates are clear"), []),
        ({"near": 0.9}, {"own": 2.0, "near": 1.0}, ("near", "measured: the quickest"), ["near", "own"]),
        ({"near": 0.9}, {"own": 1.0, "near": 2.0}, ("own", "measured: the quickest"), ["near", "own"]),
        ({"near": 0.9}, {"own": 0.95, "near": 1.0}, ("near", "measured: no other is clearly quicker"), ["near", "own"]),
        ({"near": 1.2}, {"own": 1.0, "near": 0.8}, ("near", "measured: the quickest"), ["own", "near"]),
        ({"a": 0.5, "b": 0.6}, {"a": 1.0, "b": 0.5}, ("b", "measured: the quickest"), ["a", "b"]),
        ({"near": 0.9}, {"own": 1.0}, ("own", "measured: the quickest"), ["near", "own"]),
        (
            {"near": 0.9}, {}, ("near", "by estimate: every candidate failed when it was measured alone"),
            ["near", "own"],
        ),
    ],
)  # fmt: skip
def test_what_estimates_leave_open_is_measured(
    estimates: Any, costs: dict[str, float], seconds: dict[str, float], wanted: tuple[str, str], measured: list[str]
) -> None:
    estimates(**costs)
    machine = Machine(seconds)
    assert chosen(machine.chooser("auto").choose(case(), None, machine.measure)) == wanted
    assert machine.measured == measured


@pytest.mark.parametrize(
    ("rough", "settled", "measured"),
    [
        (0.3, {}, ["library", "own"]),
        (0.3, {"form": 0.5}, ["library", "form"]),
        (0.9, {"form": 0.5}, ["form", "library"]),
        (2.1, {"form": 0.5}, []),
    ],
)
def test_rough_estimates_are_measured(
    estimates: Any, rough: float, settled: dict[str, float], measured: list[str]
) -> None:
    """With the best of the others, unless they say that it is hopeless."""
    estimates(**settled)
    names = {"own": 1.0, "form": 1.0, "library": 0.5}
    machine = Machine(names)
    register_kernel("Softplus", "library", device_type="CPU", cost=rough, rough=True)(lambda features: features)
    try:
        choice = machine.chooser("auto").choose(case(), None, machine.measure)
    finally:
        unregister_kernel("Softplus", "library", "CPU")
    assert machine.measured == measured
    assert chosen(choice)[0] == ("library" if measured else "form")


@pytest.mark.parametrize(
    ("first", "second", "wanted", "kept"),
    [
        (0.6, None, "library", {"own": 1.0, "library": 0.6}),
        # another process had a core meanwhile, or the estimate is worth nothing
        (3.9, 0.6, "library", {"own": 1.0, "library": 0.6}),
        (3.9, 4.0, "own", {}),
    ],
)
def test_what_is_hard_to_believe_is_measured_twice(
    estimates: Any, tmp_path: Path, first: float, second: float | None, wanted: str, kept: dict[str, float]
) -> None:
    """And not kept where it stays so: the next process measures again."""
    estimates()
    register_kernel("Softplus", "library", device_type="CPU", cost=0.5, rough=True)(lambda features: features)
    memory = CostMemory(tmp_path)
    chooser = KernelChooser(lambda: memory, lambda: "auto")
    # each kernel takes so long that a measurement has one turn
    asked = iter([first] if second is None else [first, second])
    try:
        choice = chooser.choose(case(), None, lambda one: lambda: next(asked) if one.name == "library" else 1.0)
    finally:
        unregister_kernel("Softplus", "library", "CPU")
    assert chosen(choice)[0] == wanted
    assert not list(asked)
    assert memory.load(case_key(case())) == kept


@pytest.mark.parametrize(
    ("other", "wanted", "kept"),
    [
        # quicker in each turn, though somebody had the cores in some of them
        ([0.010, 0.100, 0.010, 0.100], ("own", "measured: the quickest"), True),
        # one of its runs was the quickest, but most were not; and what is found on disk would say that it is quicker
        ([0.010, 0.013, 0.013, 0.013], ("near", "measured: no other is clearly quicker"), False),
    ],
)
def test_kernels_run_in_turns_and_one_run_alone_decides_nothing(
    estimates: Any, tmp_path: Path, other: list[float], wanted: tuple[str, str], kept: bool
) -> None:
    estimates(near=0.9)
    near = [0.012 * (10 if seconds == 0.1 else 1) for seconds in other]
    times = {"own": itertools.cycle(other), "near": itertools.cycle(near)}
    order: list[str] = []

    def measure(candidate: KernelCandidate) -> Run:
        def run() -> float:
            order.append(candidate.name)
            return next(times[candidate.name])

        return run

    memory = CostMemory(tmp_path)
    choice = KernelChooser(lambda: memory, lambda: "auto").choose(case(), None, measure)
    assert chosen(choice) == wanted
    assert order[:4] == ["near", "own", "near", "own"]
    assert bool(memory.load(case_key(case()))) == kept


def test_turns_end_when_enough_time_is_spent_and_what_fails_is_left_out() -> None:
    def failing() -> float:
        raise RuntimeError("no memory")

    def counted(seconds: float) -> int:
        return len(seconds_in_turns({"one": lambda: seconds, "other": failing})["one"])

    assert [counted(seconds) for seconds in (1e-6, 0.01, 0.02, 0.1, 1.0)] == [15, 6, 3, 3, 1]
    assert seconds_in_turns({"other": failing}) == {}


def test_a_rough_estimate_that_leaves_no_doubt_is_not_measured(estimates: Any) -> None:
    """Time for measurements is kept for what is open."""
    machine = Machine({"own": 1.0, "library": 0.1})
    estimates()
    register_kernel("Softplus", "library", device_type="CPU", cost=0.1, rough=True)(lambda features: features)
    try:
        choice = machine.chooser("auto").choose(case(), None, machine.measure)
    finally:
        unregister_kernel("Softplus", "library", "CPU")
    assert not machine.measured
    assert chosen(choice) == ("library", "the estimates are clear")


def test_estimates_alone_or_everything_measured_if_asked(estimates: Any) -> None:
    estimates(near=0.9, far=0.1)
    machine = Machine({"own": 1.0, "near": 2.0, "far": 3.0}, effort=100.0)
    assert chosen(machine.chooser("estimate").choose(case(), None, machine.measure)) == (
        "far", "by estimate alone, as asked",
    )  # fmt: skip
    assert not machine.measured
    choice = machine.chooser("measure").choose(case(), None, machine.measure)
    assert chosen(choice) == ("own", "measured: the quickest")
    assert choice is not None
    assert choice.measured == machine.seconds
    assert machine.measured == ["far", "near", "own"]


def test_a_process_keeps_its_choices(estimates: Any) -> None:
    """Whatever is measured or stored later; until somebody registers another kernel, or lets the choices go."""
    estimates(near=0.9)
    machine = Machine({"own": 1.0, "near": 2.0})
    chooser = machine.chooser("auto")
    first = chooser.choose(case(), None, machine.measure)
    machine.seconds = {"own": 2.0, "near": 1.0}
    assert chooser.choose(case(), None, machine.measure) is first
    assert machine.measured == ["near", "own"]
    assert chosen(chooser.choose(case(2000, 1000), None, machine.measure)) == ("near", "measured: the quickest")
    estimates(new=0.1)
    assert chosen(chooser.choose(case(), None, machine.measure)) == ("new", "the estimates are clear")
    chooser.forget()
    assert chooser.choose(case(), None, machine.measure) is not first


def test_the_choices_kept_are_bounded(estimates: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_choice, "MAX_CHOICES", 2)
    estimates(near=0.9)
    machine = Machine({"own": 1.0, "near": 2.0})
    chooser = machine.chooser("auto")
    found = [chooser.choose(case(size, 1000), None, machine.measure) for size in (100, 200, 300)]
    assert chooser.choose(case(300, 1000), None, machine.measure) is found[2]
    assert chooser.choose(case(100, 1000), None, machine.measure) is not found[0]


def test_measurements_that_nobody_asked_for_end(estimates: Any) -> None:
    """None begins when the budget is spent, neither of this operation nor of a later one."""
    estimates(near=0.9)
    machine = Machine({"own": 1.0, "near": 2.0}, effort=1.5)
    chooser = machine.chooser("auto", budget=4.0)
    spent = "by estimate: the time for measurements is used up"
    assert chosen(chooser.choose(case(), None, machine.measure)) == ("own", "measured: the quickest")
    assert chosen(chooser.choose(case(500, 500), None, machine.measure)) == ("near", spent)  # one measured, not both
    assert machine.measured == ["near", "own", "near"]
    assert chosen(chooser.choose(case(400, 500), None, machine.measure)) == ("near", spent)
    assert machine.measured == ["near", "own", "near"]


@pytest.mark.parametrize(
    ("shape", "why"), [((10, 10), "it is too small to matter"), ((1 << 14, 1 << 14), "it is too large to be measured")]
)
def test_what_is_too_small_or_too_large_is_measured_if_asked_only(
    estimates: Any, shape: tuple[int, ...], why: str
) -> None:
    estimates(near=0.9)
    machine = Machine({"own": 1.0, "near": 2.0})
    assert chosen(machine.chooser("auto").choose(case(*shape), None, machine.measure)) == (
        "near",
        f"by estimate: {why}",
    )
    assert chosen(machine.chooser("measure").choose(case(*shape), None, machine.measure))[0] == "own"


def test_what_cannot_be_measured_alone_is_estimated(estimates: Any) -> None:
    estimates(near=0.9)
    for mode in ("auto", "measure"):
        choice = Machine({}).chooser(mode).choose(case(), None, None)
        assert chosen(choice) == ("near", "by estimate: it cannot be measured alone")


# ---------------------------------------------------------------------- what was measured earlier
def test_another_process_need_not_measure(estimates: Any, tmp_path: Path) -> None:
    estimates(near=0.9, far=2.0)
    machine = Machine({"own": 1.0, "near": 2.0})
    machine.chooser("auto", tmp_path).choose(case(), None, machine.measure)
    later = Machine({"own": 2.0, "near": 1.0})
    choice = later.chooser("auto", tmp_path).choose(case(), None, later.measure)
    assert chosen(choice) == ("own", "measured earlier: the quickest")
    assert not later.measured
    assert chosen(later.chooser("estimate", tmp_path).choose(case(), None, later.measure))[0] == "near"


def test_measured_costs_win_over_clear_estimates(estimates: Any, tmp_path: Path) -> None:
    estimates(quick=0.1)
    machine = Machine({"own": 1.0, "quick": 2.0})
    machine.chooser("measure", tmp_path).choose(case(), None, machine.measure)
    assert chosen(Machine({}).chooser("auto", tmp_path).choose(case(), None, machine.measure)) == (
        "own", "measured earlier: the quickest",
    )  # fmt: skip


def test_only_what_is_missing_is_measured(estimates: Any, tmp_path: Path) -> None:
    estimates(near=0.9)
    machine = Machine({"own": 1.0, "near": 2.0, "new": 0.5})
    machine.chooser("auto", tmp_path).choose(case(), None, machine.measure)
    estimates(new=0.95)
    machine.measured.clear()
    choice = machine.chooser("auto", tmp_path).choose(case(), None, machine.measure)
    assert chosen(choice) == ("new", "measured: the quickest")
    assert machine.measured == ["new"]
    assert CostMemory(tmp_path).load(case_key(case())) == machine.seconds


def test_a_failure_is_not_remembered(estimates: Any, tmp_path: Path) -> None:
    estimates(near=0.9)
    machine = Machine({"own": 1.0})
    assert chosen(machine.chooser("auto", tmp_path).choose(case(), None, machine.measure))[0] == "own"
    machine.seconds["near"] = 0.5
    machine.measured.clear()
    assert chosen(machine.chooser("auto", tmp_path).choose(case(), None, machine.measure))[0] == "near"
    assert machine.measured == ["near"]


def test_a_damaged_file_is_measured_anew(estimates: Any, tmp_path: Path) -> None:
    estimates(near=0.9)
    machine = Machine({"own": 1.0, "near": 2.0})
    machine.chooser("auto", tmp_path).choose(case(), None, machine.measure)
    for path in tmp_path.iterdir():
        path.write_text("{", "utf-8")
    later = Machine({"own": 1.0, "near": 2.0})
    later.chooser("auto", tmp_path).choose(case(), None, later.measure)
    assert later.measured == ["near", "own"]


def test_everything_that_a_cost_depends_on_is_in_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    def sized(value: Any) -> KernelCase:
        return KernelCase("Softplus", {}, (KernelInput((2,), np.dtype(np.int32), np.array(value)),), ("CPU",))

    cases = [
        case(), case(10), case(padding=b"SAME"), case(padding=b"VALID"), case(strides=[1, 2]), case(strides=[2, 1]),
        sized([1, 2]), sized([2, 2]), KernelCase("Exp", {}, (), ("CPU",)), KernelCase("Exp", {}, (), ("ODD", "CPU")),
        KernelCase("Exp", {}, (KernelInput((2,), np.dtype(np.int32)),), ("CPU",)),
        KernelCase("Exp", {}, (KernelInput((2,), np.dtype(np.int64)),), ("CPU",)),
    ]  # fmt: skip
    keys = {case_key(one) for one in cases}
    assert len(keys) == len(cases)
    assert case_key(case(_class=[b"loc:@v"])) == case_key(case())  # what is not the kernel's business
    monkeypatch.setattr(kernel_choice, "VERSION", f"{version.VERSION}.1")
    newer = {case_key(one) for one in cases}
    monkeypatch.setattr(kernel_choice, "device_kind", lambda device: "another processor")
    elsewhere = {case_key(one) for one in cases}
    assert len(keys | newer | elsewhere) == 3 * len(cases)


# ---------------------------------------------------------------------- the environment
@pytest.mark.parametrize(
    ("environment", "mode"),
    [
        ({}, "auto"),
        ({"ANABRANCH_KERNELS": ""}, "auto"),
        ({"ANABRANCH_KERNELS": "measure"}, "measure"),
        ({"ANABRANCH_KERNELS": "estimate"}, "estimate"),
        ({"TF_DETERMINISTIC_OPS": "1"}, "estimate"),
        ({"TF_DETERMINISTIC_OPS": "0"}, "auto"),
        ({"TF_CUDNN_DETERMINISTIC": "true"}, "estimate"),
        ({"TF_CUDNN_USE_AUTOTUNE": "0"}, "estimate"),
        ({"TF_CUDNN_USE_AUTOTUNE": "1"}, "auto"),
        ({"TF_DETERMINISTIC_OPS": "1", "ANABRANCH_KERNELS": "measure"}, "measure"),
    ],
)
def test_the_environment_says_how(environment: dict[str, str], mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANABRANCH_KERNELS", "TF_DETERMINISTIC_OPS", "TF_CUDNN_DETERMINISTIC", "TF_CUDNN_USE_AUTOTUNE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert kernel_mode() == mode


def test_another_mode_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANABRANCH_KERNELS", "fast")
    with pytest.raises(InvalidArgumentError, match="must be one of auto, estimate, measure, got 'fast'"):
        kernel_mode()


def test_costs_lie_beside_the_compiled_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANABRANCH_CACHE_DIR", str(tmp_path))
    memory = kernel_choice.cost_memory()
    assert memory is not None
    assert memory.path("a").parent == tmp_path / "kernels"
    monkeypatch.setenv("ANABRANCH_CACHE_DIR", "")
    assert kernel_choice.cost_memory() is None
