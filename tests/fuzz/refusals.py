"""What operations are declared to refuse, in the op tables, on both sides: does TensorFlow refuse it, too?

    python -m tests.fuzz.refusals --seconds 600
    python -m tests.fuzz.refusals --operations CTCLoss

Random graphs have no rows of the op tables that end in an error. Each such row is a graph of its own here, once with
constants and once with placeholders of which nothing is known, so that it is refused in a step. The classes of errors
are compared, too. What the two sides disagree about, and docs/differences.md does not know, is written down as by
`python -m tests.fuzz.differential`.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console

from anabranch.core.registry import find_op_def
from anabranch.testing.op_cases import OpCase
from tests.fuzz.differences import known_differences
from tests.fuzz.differential import Fuzzer
from tests.fuzz.op_rows import coded_attr, input_arrays, refused_rows
from tests.fuzz.shadows import Kernels
from tests.fuzz.sides import ROOT
from tests.fuzz.wire import encode_array


def programs(rows: list[OpCase], kernels: Kernels) -> Iterator[dict[str, Any]]:
    """Two graphs for each row that TensorFlow has a kernel for, numbered."""
    for index, case in enumerate(rows):
        if case.op not in kernels:
            continue
        for fed in (False, True):
            program = _program(case, fed)
            if program is not None:
                yield {"seed": "refused", "index": 2 * index + fed, **program}


def _program(case: OpCase, fed: bool) -> dict[str, Any] | None:
    op = find_op_def(case.op)
    assert op is not None
    nodes: list[dict[str, Any]] = []
    feeds: dict[str, Any] = {}

    def argument(array: Any, static: bool) -> Any:
        if isinstance(array, list):
            return [argument(each, static) for each in array]
        name, value = f"x{len(nodes)}", encode_array(array)
        if fed and not static:
            nodes.append({"id": name, "kind": "placeholder", "dtype": value["dtype"], "shape": None})
            feeds[name] = value
        else:
            nodes.append({"id": name, "kind": "const", "value": value})
        return f"{name}:0"

    try:
        attrs = {
            key: coded_attr(value, op.attrs[key].kind) for key, value in case.attrs.items() if key not in op.inferred
        }
        arrays = input_arrays(case)
        inputs = {
            arg.name: argument(array, arg.name in op.static) for arg, array in zip(op.inputs, arrays, strict=True)
        }
    except (TypeError, ValueError):
        return None  # what is no array, or no attribute that can be sent
    nodes.append({"id": "n", "kind": "op", "op": case.op, "inputs": inputs, "attrs": attrs})
    return {"control_flow_v2": False, "feeds": [feeds], "nodes": nodes, "fetch_all": True}


def main() -> int:
    """The command line; see the module."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.refusals", description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=3600.0, help="how long to go on (default: an hour)")
    parser.add_argument("--start", type=int, default=0, help="the number of the first graph")
    parser.add_argument("--operations", nargs="*", help="of these types only")
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "fuzz", help="where disagreements are written")
    options = parser.parse_args()
    console = Console()
    fuzzer = Fuzzer(options.out, known_differences())
    until = time.monotonic() + options.seconds
    rows = [row for row in refused_rows() if not options.operations or row.op in options.operations]
    try:
        for program in programs(rows, fuzzer.kernels()):
            if time.monotonic() > until:
                break
            if program["index"] < options.start:
                continue
            for found in fuzzer.examine(program):
                console.print(f"{program['index']} {rows[program['index'] // 2]}: {found}", markup=False)
    finally:
        fuzzer.stop()
    console.print(*fuzzer.summary(), fuzzer.progress(options.seconds))
    return min(fuzzer.disagreements.total(), 1)


if __name__ == "__main__":
    sys.exit(main())
