"""Worker: training steps on the accelerator that JAX finds, of all systems in turn, in one process.

    accelerator.py MODEL PRECISION [BATCH] [compiled]

MODEL: `lstm` or `transformer` of those workers, or a network of `benchmarks/networks.py`. PRECISION: `float32`, `tf32`
(float32 whose products may be rounded to TensorFloat-32) or `bfloat16` (mixed precision: weights and sums in float32;
in PyTorch by its autocast). Systems: `anabranch`; `jax` (by hand: one jitted function); `torch` (eager, channels last);
with `compiled` also `torch compiled`. Every step is fed NumPy arrays and fetches the loss.

Prints system -> measurement -> seconds, and the losses of the first steps, which tell whether all compute the same.
Where JAX finds no accelerator, all of it runs on the processor, and the transformer is the small one.
"""

from __future__ import annotations

import dataclasses
import gc
import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import lstm
import networks
import numpy as np
import transformer

import anabranch as tf
from benchmarks.networks import NETWORKS

#: each system takes so many turns, of so many steps or seconds
TURNS, STEPS, SECONDS = 7, 20, 0.7
Step = Callable[[], object]


def makers(model: str, precision: str, batch: int | None, compiled: bool) -> dict[str, Callable[[], Step]]:
    """What makes a system's step."""
    half = "bfloat16" if precision == "bfloat16" else None
    device = "cpu" if jax.default_backend() == "cpu" else "cuda"
    made: dict[str, Callable[..., Step]]
    if model == "lstm":
        made = {
            "anabranch": lambda: lstm.graph_steps(tf, half)["step"],
            "jax": lambda: lstm.jax_steps(half)["step"],
            "torch": lambda: lstm.torch_steps(device, half)["step"],
        }
    elif model == "transformer":
        size = transformer.SIZES["small" if device == "cpu" else "base"]
        size = dataclasses.replace(size, batch=batch or size.batch)
        made = {
            "anabranch": lambda: transformer.graph_steps(tf, size, half)["step"],
            "jax": lambda: transformer.jax_steps(size, half)["step"],
            "torch": lambda: transformer.torch_steps(size, device, half)["step"],
            "torch compiled": lambda: transformer.torch_steps(size, device, half, compiled=True)["step"],
        }
    else:
        network = dataclasses.replace(NETWORKS[model], batch=batch or NETWORKS[model].batch)
        made = {
            "anabranch": lambda: networks.graph_step(tf, network, True, half),
            "jax": lambda: networks.jax_step(network, True, half),
            "torch": lambda: networks.torch_step(network, True, device, half),
            "torch compiled": lambda: networks.torch_step(network, True, device, half, compiled=True),
        }
    if not compiled:
        made.pop("torch compiled", None)
    return made


def set_precision(precision: str) -> None:
    """What each system may round products of float32 to."""
    allowed = precision != "float32"
    tf.config.experimental.enable_tensor_float_32_execution(allowed)
    jax.config.update("jax_default_matmul_precision", "tensorfloat32" if allowed else "float32")
    try:
        import torch
    except ModuleNotFoundError:
        return
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = allowed
    torch.backends.cudnn.benchmark = True


def loss_in(fetched: Any) -> float:
    """The loss among what a step fetched."""
    return float(np.ravel(fetched[0] if isinstance(fetched, list) else fetched)[0])


def main(model: str, precision: str, batch: str = "0", *options: str) -> None:
    set_precision(precision)
    steps: dict[str, Step] = {}
    rows: dict[str, dict[str, float]] = {}
    losses: dict[str, list[float]] = {}
    what = f"{model}, {precision}"
    for system, make in makers(model, precision, int(batch), "compiled" in options).items():
        try:
            with tf.Graph().as_default():
                step = make()
        except ModuleNotFoundError:
            continue
        start = time.perf_counter()
        losses[system] = [loss_in(step())]
        rows[system] = {f"{what}, first step": time.perf_counter() - start}
        losses[system] += [loss_in(step()) for _ in range(4)]
        steps[system] = step
    times: dict[str, list[float]] = {system: [] for system in steps}
    gc.collect()
    gc.disable()
    for _ in range(TURNS):
        for system, step in steps.items():
            step()
            began, count = time.perf_counter(), 0
            while count < STEPS and time.perf_counter() - began < SECONDS:
                step()
                count += 1
            times[system].append((time.perf_counter() - began) / count)
    for system, seen in times.items():
        rows[system][what] = statistics.median(seen)
    print(json.dumps({"rows": rows, "losses": losses, "device": jax.devices()[0].device_kind}))


if __name__ == "__main__":
    main(*sys.argv[1:])
