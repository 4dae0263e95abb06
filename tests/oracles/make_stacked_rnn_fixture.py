"""Writes tests/fixtures/stacked_rnn.npz: what PyTorch computes with stacked recurrent networks, weights as cuDNN's.

TensorFlow has kernels of `CudnnRNN` for graphics processors only; PyTorch's networks are defined by cuDNN's equations
and run anywhere. Run in an environment that has PyTorch (`make bench-env`), from this folder. Of each network there are
inputs, the weights in one vector, outputs and last states, gradients with respect to these, and those that follow.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

FIXTURE = Path(__file__).parents[1] / "fixtures" / "stacked_rnn.npz"
KINDS = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU, "rnn_tanh": torch.nn.RNN, "rnn_relu": torch.nn.RNN}
GATES = {"lstm": 4, "gru": 3}
LAYERS, INPUTS, UNITS, TIME, LENGTHS = 2, 3, 4, 5, [5, 3]


def networks() -> Any:
    for mode in KINDS:
        for both in (False, True):
            for projection in (0, 2) if mode == "lstm" else (0,):
                for padded in (False, True) if not projection else (False,):
                    yield mode, both, projection, padded


def weights_of(network: Any, mode: str, both: bool, projection: int) -> tuple[np.ndarray, np.ndarray]:
    """All weights and their gradients: matrices first, then biases."""
    found: list[list[np.ndarray]] = [[], [], [], []]
    for layer in range(LAYERS):
        for ending in [f"_l{layer}", f"_l{layer}_reverse"][: 1 + both]:
            for name in ("weight_ih", "weight_hh", *(["weight_hr"] if projection else [])):
                parameter = getattr(network, name + ending)
                pieces = 1 if name == "weight_hr" else GATES.get(mode, 1)
                found[0] += [piece.detach().numpy().ravel() for piece in parameter.chunk(pieces)]
                found[1] += [piece.numpy().ravel() for piece in parameter.grad.chunk(pieces)]
            for name in ("bias_ih", "bias_hh"):
                parameter = getattr(network, name + ending)
                found[2].append(parameter.detach().numpy().ravel())
                found[3].append(parameter.grad.numpy().ravel())
    return np.concatenate(found[0] + found[2]), np.concatenate(found[1] + found[3])


def main() -> None:
    torch.manual_seed(0)
    r, recorded = np.random.RandomState(0), {}
    for mode, both, projection, padded in networks():
        more: dict[str, Any] = {"proj_size": projection} if projection else {}
        if mode == "rnn_relu":
            more["nonlinearity"] = "relu"
        network = KINDS[mode](INPUTS, UNITS, num_layers=LAYERS, bidirectional=both, **more).double()
        cells = LAYERS * (1 + both)
        x = torch.tensor(r.randn(TIME, 2, INPUTS), requires_grad=True)
        h = torch.tensor(r.randn(cells, 2, projection or UNITS), requires_grad=True)
        c = torch.tensor(r.randn(cells, 2, UNITS), requires_grad=True)
        given = torch.nn.utils.rnn.pack_padded_sequence(x, torch.tensor(LENGTHS)) if padded else x
        y, state = network(given, (h, c) if mode == "lstm" else h)
        if padded:
            y, _ = torch.nn.utils.rnn.pad_packed_sequence(y)
        last_h, last_c = state if mode == "lstm" else (state, torch.zeros(()))
        flowing = [torch.tensor(r.randn(*t.shape)) for t in (y, last_h, last_c)]
        sum((t * g).sum() for t, g in zip((y, last_h, last_c), flowing, strict=True)).backward()
        params, params_grad = weights_of(network, mode, both, projection)
        values = {
            "x": x,
            "h": h,
            "c": c,
            "y": y,
            "last_h": last_h,
            "last_c": last_c,
            **dict(zip(("y_grad", "last_h_grad", "last_c_grad"), flowing, strict=True)),
            "x_grad": x.grad,
            "h_grad": h.grad,
            "c_grad": torch.zeros(()) if c.grad is None else c.grad,
        }
        name = f"{mode} {int(both)} {projection} {int(padded)}"
        recorded |= {f"{name}/{key}": value.detach().numpy() for key, value in values.items()}
        recorded |= {f"{name}/params": params, f"{name}/params_grad": params_grad}
    np.savez_compressed(FIXTURE, **recorded)


if __name__ == "__main__":
    main()
