"""The cases that networks bring for which a kernel is chosen: those of the benchmarks, as their programs are traced.

The graph of a step is built, its variables get their values, and the step is traced as for the compiler; then it ends.
Nothing of it is compiled, and none of its kernels runs.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final
from unittest import mock

import jax
from jax import numpy as jnp

import anabranch as tf
from anabranch.core.kernels import KernelCase
from anabranch.xla import executable, lowering
from anabranch.xla.jax_settings import in_wide_types
from anabranch.xla.kernel_choice import KernelChoice, KernelChooser, case_key
from benchmarks.networks import NETWORKS
from tests.fuzz.kernel_calls import FOLLOWING

#: what a step is computed in
_WORKERS: Final = Path(__file__).parents[2] / "benchmarks" / "workers"
_HALF: Final = {"float32": None, "bfloat16": "bfloat16"}

Step = Callable[[], Any]


class _Recorder(KernelChooser):
    """Chooses by estimate, and keeps the cases."""

    def __init__(self) -> None:
        super().__init__(lambda: None, lambda: "estimate")
        self.cases: dict[str, KernelCase] = {}

    def choose(self, case: KernelCase, device: jax.Device | None, measure: Any) -> KernelChoice | None:
        if case.op_type not in FOLLOWING:
            self.cases.setdefault(case_key(case), case)
        return super().choose(case, device, None)


def _traced_only(self: executable.Executable, variant: Any, args: list[Any]) -> None:
    """In place of compiling: results are zeros of the traced program's shapes, by which no check has failed."""
    traced = variant.function.trace(*self._crossed(variant, args))

    def results(*_: Any) -> Any:
        return jax.tree_util.tree_map(_nothing, traced.out_info)

    variant.function = results


def _nothing(described: Any) -> Any:
    return in_wide_types(lambda: jnp.zeros(described.shape, described.dtype))


@contextmanager
def _recorded() -> Iterator[_Recorder]:
    recorder = _Recorder()
    with (
        mock.patch.object(lowering, "chooser", recorder),
        mock.patch.object(executable.Executable, "_compile", _traced_only),
        mock.patch.object(executable.Executable, "_direct_calls", return_value=(0, 0)),
    ):
        yield recorder


def _worker(name: str) -> Any:
    """A module of the benchmarks' workers, which are programs beside each other."""
    if str(_WORKERS) not in sys.path:
        sys.path.append(str(_WORKERS))
    return importlib.import_module(name)


def _network(name: str, kind: str) -> Step:
    half = _HALF.get(kind)
    step: Step = _worker("networks").graph_step(tf, NETWORKS[name], kind != "inference", half)
    return step


def _lstm(kind: str) -> Step:
    return _only(_worker("lstm").graph_steps(tf, _HALF[kind]))


def _transformer(size: str, kind: str) -> Step:
    worker = _worker("transformer")
    return _only(worker.graph_steps(tf, worker.SIZES[size], _HALF[kind]))


def _bert_block(kind: str) -> Step:
    step: Step = _worker("bert_block").graph_step(tf, _HALF[kind])
    return step


def _only(steps: dict[str, Step]) -> Step:
    (step,) = steps.values()
    return step


def _programs() -> dict[str, Callable[[], Step]]:
    kinds = ("float32", "bfloat16")
    found: dict[str, Callable[[], Step]] = {}
    for name in NETWORKS:
        found |= {f"{name}/{kind}": partial(_network, name, kind) for kind in (*kinds, "inference")}
    for kind in kinds:
        found[f"LSTM/{kind}"] = partial(_lstm, kind)
        found |= {f"transformer-{size}/{kind}": partial(_transformer, size, kind) for size in ("small", "base")}
        found[f"BERT-block/{kind}"] = partial(_bert_block, kind)
    return found


#: what builds the step of each
PROGRAMS: Final = _programs()


def cases_of(name: str) -> list[KernelCase]:
    """The cases of a program, each once."""
    try:
        with tf.Graph().as_default():
            step = PROGRAMS[name]()
            with _recorded() as recorder:
                step()
    finally:
        if name.endswith("/bfloat16"):  # it asked for that, which holds for all later sessions of a process
            tf.train.experimental.disable_mixed_precision_graph_rewrite()
    return list(recorder.cases.values())
