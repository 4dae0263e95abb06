"""Records what genuine TensorFlow computes in a few dozen random programs, for a test that needs no TensorFlow.

Run from the repository's root, after `make venv bench-env`::

    .venv/bin/python -m tests.oracles.make_random_graphs_fixture

Kept are programs about which both sides agree without asking again, so that rounding plays no part in the test.
"""

from __future__ import annotations

import gzip
import json
from typing import Any

from tests.fuzz.graphs import make_program
from tests.fuzz.recorder import Recorder
from tests.fuzz.sides import ROOT, Side

FILE = ROOT / "tests" / "fixtures" / "tensorflow" / "random_graphs.json.gz"
SEED = 20
WANTED = 19
#: of each program
_OPERATIONS = 16
#: characters of JSON; larger programs are left out
_LARGEST = 60_000
#: of the programs that are fed, and so compiled
_FED = 2


def main() -> None:
    """Writes the fixture."""
    ours, genuine = Side("anabranch"), Side("tensorflow")
    kernels = genuine.ask("operations")["operations"]
    found: list[dict[str, Any]] = []
    fed = index = 0
    while len(found) < WANTED:
        program = make_program(SEED, index, kernels, operations=_OPERATIONS)
        index += 1
        is_fed = bool(program["feeds"][0])
        if is_fed and fed >= _FED:
            continue
        record = Recorder(program, ours, genuine).record()
        if record is None or len(json.dumps(record)) > _LARGEST:
            continue
        fed += is_fed
        found.append(record)
        FILE.write_bytes(gzip.compress(json.dumps(found).encode(), mtime=0))
        print(f"{len(found)} of {WANTED}: index {index - 1}", flush=True)
    ours.stop()
    genuine.stop()


if __name__ == "__main__":
    main()
