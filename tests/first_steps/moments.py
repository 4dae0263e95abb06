"""What is kept of one first step: the state before it, what came in, and the gradients. Needs NumPy only."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

#: a gradient is compared relative to its largest number, or to this share of the step's largest where it has only
#: smaller ones: biases before a batch normalization have gradients of nothing but rounding
_LEAST_SHARE = 1e-4


@dataclass(eq=False)
class Moment:
    """The first step of one optimizer, or of one call of `tf.gradients`.

    Attributes:
        kind: "optimizer" or "gradients".
        names: what the gradients are with respect to; those without a gradient are left out.
        variables: values before the step, by name.
        fed: values of the program's feeds, by tensor.
        drawn: what operations gave that give something else each time, by operation and output.
        kinds: types of these operations.
        within: types of those among them whose outputs nobody can fetch, in loops and conditionals.
        gradients: in the order of `names`; sparse ones are made dense.
        unknown: what the other side had no place for.
        made_from: the number of the other side's moment whose state this one had; -1 where there was none.
    """

    kind: str
    names: list[str]
    variables: dict[str, Array] = field(default_factory=dict)
    fed: dict[str, Array] = field(default_factory=dict)
    drawn: dict[str, list[Array]] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)
    within: list[str] = field(default_factory=list)
    gradients: list[Array] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    made_from: int = -1

    @property
    def label(self) -> str:
        return f"{self.kind}: {' '.join(self.names)}"


def dense(shape: Iterable[int] | None, indices: Array, values: Array) -> Array:
    """The gradient that pairs of rows and their numbers stand for; a row may come several times."""
    rows = int(indices.max(initial=-1)) + 1
    result = np.zeros((rows, *values.shape[1:]) if shape is None else tuple(shape), values.dtype)
    np.add.at(result, indices, values)
    return result


def write(path: Path, moments: dict[int, Moment]) -> None:
    """Writes them into one file of arrays."""
    arrays: dict[str, Array] = {}
    told: dict[str, Any] = {}
    for number, moment in moments.items():
        plain = asdict(moment)
        for name in ("variables", "fed"):
            for i, array in enumerate(plain[name].values()):
                arrays[f"{number}/{name}/{i}"] = array
            plain[name] = list(plain[name])
        for i, outputs in enumerate(plain["drawn"].values()):
            for j, array in enumerate(outputs):
                arrays[f"{number}/drawn/{i}/{j}"] = array
        plain["drawn"] = {name: len(outputs) for name, outputs in moment.drawn.items()}
        for i, array in enumerate(moment.gradients):
            arrays[f"{number}/gradients/{i}"] = array
        plain["gradients"] = len(moment.gradients)
        told[str(number)] = plain
    half = path.with_suffix(".half.npz")
    np.savez(half, told=np.array(json.dumps(told)), **arrays)  # type: ignore[arg-type]
    half.replace(path)


def read(path: Path) -> dict[int, Moment]:
    """What `write` wrote; nothing where there is no file."""
    if not path.exists():
        return {}
    found: dict[int, Moment] = {}
    with np.load(path) as arrays:
        for number, plain in json.loads(str(arrays["told"])).items():
            for name in ("variables", "fed"):
                plain[name] = {key: arrays[f"{number}/{name}/{i}"] for i, key in enumerate(plain[name])}
            plain["drawn"] = {
                key: [arrays[f"{number}/drawn/{i}/{j}"] for j in range(count)]
                for i, (key, count) in enumerate(plain["drawn"].items())
            }
            plain["gradients"] = [arrays[f"{number}/gradients/{i}"] for i in range(plain["gradients"])]
            found[int(number)] = Moment(**plain)
    return found


def difference(ours: Moment, theirs: Moment) -> tuple[float, str]:
    """The largest relative difference of two moments' gradients, and which gradient has it."""
    largest = max((float(np.abs(g).max(initial=0.0)) for g in theirs.gradients), default=0.0)
    worst, which = 0.0, ""
    for name, a, b in zip(theirs.names, ours.gradients, theirs.gradients, strict=True):
        found = _difference(a, b, largest * _LEAST_SHARE)
        if found > worst or np.isnan(found):
            worst, which = found, name
        if np.isnan(worst):
            break
    return worst, which


def _difference(a: Array, b: Array, least: float) -> float:
    rows = max(a.shape[0], b.shape[0]) if a.ndim and a.shape[1:] == b.shape[1:] else 0
    a, b = (np.pad(g, [(0, rows - g.shape[0])] + [(0, 0)] * (g.ndim - 1)) if rows else g for g in (a, b))
    if a.shape != b.shape:
        return float("nan")
    strange = ~np.isfinite(b)
    if not np.array_equal(a[strange], b[strange], equal_nan=True):
        return float("nan")
    a, b = a[~strange].astype(np.complex128), b[~strange].astype(np.complex128)
    size = max(float(np.abs(b).max(initial=0.0)), least, np.finfo(np.float32).tiny)
    return float(np.abs(a - b).max(initial=0.0)) / size
