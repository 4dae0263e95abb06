"""Records anew what genuine TensorFlow and PyTorch give, and compares it with the fixtures that the tests use.

    python -m tests.oracles [NAMES ...]

The scripts of this folder write into a copy of `tests`, so that the fixtures stay as they are. What differs is printed:
the fixtures are then not what these versions give. Recordings that need packages which `make bench-env` does not
install (boosted trees, heads, linear models, LMDB), and those that differ each time (SavedModels, checkpoints,
databases, random programs) are left out; their scripts say how they are made.
"""

from __future__ import annotations

import argparse
import base64
import gzip
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from rich.console import Console
from rich.table import Table

from anabranch.proto.graph_pb2 import GraphDef

ROOT: Final = Path(__file__).parents[2]
PEERS: Final = ROOT / ".venv-peers" / "bin" / "python"
FIXTURES: Final = Path("tests") / "fixtures"
#: how far numbers may lie apart, as a share: libraries choose other kernels on other processors
TOLERANCE: Final = 1e-4
#: differences of a recording that are printed
MOST_SHOWN: Final = 5


@dataclass(frozen=True)
class Recording:
    """A script of this folder.

    Attributes:
        files: what it writes, as patterns in the folder of fixtures.
        ours: whether it runs in this environment, and starts TensorFlow itself.
        varies: what may differ, by how the place begins, and why; it is counted apart.
    """

    files: tuple[str, ...]
    ours: bool = False
    varies: Mapping[str, str] = field(default_factory=dict)


RECORDINGS: Final = {
    "make_control_flow_fixtures": Recording(("tensorflow/*.npz",)),
    "make_dataset_graphs_fixture": Recording(("tensorflow/dataset_graphs.json.gz",)),
    "make_feature_column_fixture": Recording(("tensorflow/feature_columns.json",)),
    "make_jpeg_fixture": Recording(("tensorflow/jpeg.npz",)),
    "make_kernel_fixtures": Recording(
        ("tensorflow/quantised.json.gz", "tensorflow/nn.json.gz"),
        varies={"quantised.json.gz['convolutions": "without instructions for bytes (VNNI) oneDNN's sums saturate"},
    ),
    "make_loss_scale_fixture": Recording(("tensorflow/loss_scale.json",)),
    "make_model_graph_fixtures": Recording(("tensorflow/model_*.npz",)),
    "make_older_fixture": Recording(("tensorflow/older_programs.npz",)),
    "make_operation_fixture": Recording(
        tuple(f"tensorflow/{name}.json.gz" for name in ("generators", "images", "rare", "sounds"))
    ),
    "make_proto_fixtures": Recording(
        ("proto_fields.json", "tensorflow/op_signatures.json.gz", "tensorflow/tensors.json")
    ),
    "make_public_function_fixture": Recording(("tensorflow/public_functions.json.gz", "tensorflow/autograph.json.gz")),
    "make_refused_shapes_fixture": Recording(("refused_shapes.json",), ours=True),
    "make_stacked_rnn_fixture": Recording(("stacked_rnn.npz",)),
    "make_step_fixture": Recording(("tensorflow/steps.json.gz",)),
    "make_string_fixture": Recording(("tensorflow/strings.json",)),
    "make_structure_fixtures": Recording(("tensorflow/structures.json",)),
    "make_sync_replicas_fixture": Recording(("tensorflow/sync_replicas.json",)),
    "make_training_fixture": Recording(("tensorflow/training_ops.npz",)),
}


def main(names: list[str], seconds: float) -> int:
    """Records and compares; returns how many recordings failed or differ."""
    console = Console()
    if not PEERS.exists():
        console.print("There is no environment with TensorFlow: `make bench-env` creates it.")
        return 1
    table = Table("recording", "values", "that differ", "as expected", "seconds", title="Recorded anew")
    failed = 0
    for name in names:
        start = time.monotonic()
        with console.status(f"{name} ..."), tempfile.TemporaryDirectory() as folder:
            error = record(name, Path(folder), seconds)
            count, every = (0, [error]) if error else compare(name, Path(folder))
        varies = RECORDINGS[name].varies
        differing = [place for place in every if not place.startswith(tuple(varies))]
        failed += bool(differing)
        expected = len(every) - len(differing)
        table.add_row(name, *map(str, (count, len(differing), expected)), f"{time.monotonic() - start:.0f}")
        if expected:
            console.print(f"{name}: {expected} may differ: {'; '.join(varies.values())}", markup=False)
        for place in differing[:MOST_SHOWN]:
            console.print(f"{name}: {place}", markup=False, highlight=False)
    console.print(table)
    return failed


def record(name: str, folder: Path, seconds: float) -> str:
    """Runs a script in a copy of this repository's tests; returns what went wrong, if something did."""
    shutil.copytree(ROOT / "tests", folder / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    for linked in ("anabranch", ".venv", ".venv-peers", "pyproject.toml"):
        if (ROOT / linked).exists():
            (folder / linked).symlink_to(ROOT / linked)
    recording = RECORDINGS[name]
    files = [path for pattern in recording.files for path in (folder / FIXTURES).glob(pattern)]
    for path in files:
        os.utime(path, (0, 0))
    environment = os.environ | {"PYTHONPATH": str(folder)}
    if recording.ours:
        command, where = [sys.executable, "-m", f"tests.oracles.{name}"], folder
    else:
        where = folder / "tests" / "oracles"
        command = [str(PEERS), f"{name}.py"]
    try:
        done = subprocess.run(
            command, cwd=where, env=environment, capture_output=True, errors="replace", timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired:
        return f"it took more than {seconds:.0f} s"
    if done.returncode:
        return f"it failed: {(done.stderr.strip() or done.stdout.strip())[-500:]}"
    if not any(path.stat().st_mtime for path in files):
        return "it wrote none of its files"
    return ""


def compare(name: str, folder: Path) -> tuple[int, list[str]]:
    """How many values the new files hold, and where they differ from those of the repository."""
    count, differing = 0, []
    for pattern in RECORDINGS[name].files:
        for path in sorted((folder / FIXTURES).glob(pattern)):
            if not path.stat().st_mtime:
                continue
            kept = ROOT / FIXTURES / path.relative_to(folder / FIXTURES)
            new, old = contents(path), contents(kept)
            count += sum(1 for _ in leaves(new))
            differing += [f"{path.name}{place}" for place in differences(old, new)]
    return count, differing


def contents(path: Path) -> Any:
    """What a fixture holds: nested lists and dictionaries of plain values and arrays."""
    if path.name.endswith(".json.gz"):
        return json.loads(gzip.decompress(path.read_bytes()))
    if path.suffix == ".json":
        return json.loads(path.read_text())
    with np.load(path) as arrays:
        return {name: arrays[name] for name in arrays.files}


def leaves(value: Any) -> Iterator[Any]:
    """The plain values of nested ones."""
    if isinstance(value, dict):
        for inner in value.values():
            yield from leaves(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from leaves(inner)
    else:
        yield value


def differences(old: Any, new: Any, place: str = "") -> Iterator[str]:
    """Where two nested values differ, and how."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(old.keys() | new.keys()):
            if key in old and key in new:
                yield from differences(old[key], new[key], f"{place}[{key!r}]")
            else:
                yield f"{place}[{key!r}] is {'new' if key in new else 'gone'}"
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for at, (one, other) in enumerate(zip(old, new, strict=True)):
            yield from differences(one, other, f"{place}[{at}]")
    elif not _same(old, new, place.endswith("graph']")):
        yield f"{place}: {_short(old)} is now {_short(new)}"


def _same(old: Any, new: Any, graphs: bool = False) -> bool:
    if graphs:
        return _graph(old) == _graph(new)
    if isinstance(old, np.ndarray) or isinstance(new, np.ndarray):
        one, other = np.asarray(old), np.asarray(new)
        if (one.shape, one.dtype) != (other.shape, other.dtype):
            return False
        if one.dtype.kind in "fc":
            return bool(np.allclose(one, other, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True))
        return one.tobytes() == other.tobytes()
    if isinstance(old, float) and isinstance(new, float):
        if math.isnan(old) and math.isnan(new):
            return True
        return math.isclose(old, new, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    return type(old) is type(new) and old == new


def _graph(value: Any) -> GraphDef:
    """A serialized graph, as text of base64 or as bytes: TensorFlow writes attributes in an order of its own."""
    return GraphDef.FromString(base64.b64decode(value) if isinstance(value, str) else value.tobytes())


def _short(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else f"{text[:57]}..."


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.oracles", description=__doc__.split("\n", 1)[0])  # type: ignore[union-attr]
    parser.add_argument("names", nargs="*", choices=[*RECORDINGS, []], help="scripts; all of them by default")
    parser.add_argument("--seconds", type=float, default=1800, help="for each; default: %(default)s")
    given = parser.parse_args()
    sys.exit(1 if main(given.names or list(RECORDINGS), given.seconds) else 0)
