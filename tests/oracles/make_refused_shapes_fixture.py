"""Records when TensorFlow refuses calls with a changed shape: `python -m tests.oracles.make_refused_shapes_fixture`.

Every operation of the op tables is called with its first row's inputs, one of them changed (`perturbed_inputs`). Once
all inputs are fed, of unknown shape, so that TensorFlow's kernels decide; what these refuse is built again with known
shapes. Calls at which its process ends count as refused.
"""

from __future__ import annotations

import json
from typing import Any

from anabranch.core.registry import find_op_def
from anabranch.testing.op_cases import OpCase
from tests.fuzz.op_rows import coded_attr, input_arrays, rows_by_operation
from tests.fuzz.perturbed_shapes import BUILT, NEVER, REFUSED, RUN, Inputs, perturbed_inputs
from tests.fuzz.sides import Side, SideDiedError
from tests.fuzz.wire import encode_array


def program_of(case: OpCase, inputs: Inputs, known: bool) -> dict[str, Any]:
    """The call as a program of the fuzzer: placeholders of known or unknown shape, and the node "n"."""
    op = find_op_def(case.op)
    assert op is not None
    nodes: list[dict[str, Any]] = []
    feed: dict[str, Any] = {}

    def fed(value: Any) -> str:
        name, coded = f"x{len(nodes)}", encode_array(value)
        shape = coded["shape"] if known else None
        nodes.append({"id": name, "kind": "placeholder", "dtype": coded["dtype"], "shape": shape})
        feed[name] = coded
        return f"{name}:0"

    given = {
        arg.name: [fed(v) for v in value] if isinstance(value, list) else fed(value)
        for arg, value in zip(op.inputs, inputs, strict=True)
    }
    attrs = {n: coded_attr(value, op.attrs[n].kind) for n, value in case.attrs.items() if n not in op.inferred}
    nodes.append({"id": "n", "kind": "op", "op": case.op, "inputs": given, "attrs": attrs})
    return {"seed": 0, "index": 0, "control_flow_v2": False, "feeds": [feed], "nodes": nodes}


def is_refused_when_run(case: OpCase, inputs: Inputs, side: Side) -> bool | None:
    """TensorFlow's verdict on fed values; None where it does not know the operation, or has no kernel for it."""
    program = program_of(case, inputs, known=False)
    try:
        built = side.ask("build", program=program)
        if "error" in built or built["refusals"]:
            return None
        session = side.ask("open", graph=built["graph"])["session"]
        names = {ref: t["name"] for ref, t in built["tensors"].items()}
        feeds = {names[f"{name}:0"]: value for name, value in program["feeds"][0].items()}
        answer = side.ask("run", session=session, fetches=[names["n:0"]], feeds=feeds)
        side.ask("close")
    except SideDiedError:
        return True
    if "error" not in answer:
        return False
    return None if "No OpKernel was registered" in answer["error"][1] else True


def is_refused_when_built(case: OpCase, inputs: Inputs, side: Side) -> bool:
    """Whether TensorFlow refuses to build the call where all shapes are known."""
    try:
        built = side.ask("build", program=program_of(case, inputs, known=True))
        side.ask("close")
    except SideDiedError:
        return False
    return "n" in built.get("refusals", ())


def verdicts(case: OpCase, side: Side) -> dict[str, str]:
    """By label of a call, when TensorFlow refuses it; nothing where it refuses the row itself."""
    if is_refused_when_run(case, list(input_arrays(case)), side) is not False:
        return {}
    found = {}
    for label, inputs in perturbed_inputs(case):
        refused = is_refused_when_run(case, inputs, side)
        if refused is not None:
            found[label] = NEVER if not refused else BUILT if is_refused_when_built(case, inputs, side) else RUN
    return found


def main() -> None:
    side = Side("tensorflow")
    try:
        every = {name: verdicts(case, side) for name, (case, *_) in rows_by_operation().items()}
    finally:
        side.stop()
    found = {name: calls for name, calls in every.items() if calls}
    REFUSED.write_text(json.dumps(found, indent=1) + "\n")
    counts = {when: sum(list(calls.values()).count(when) for calls in found.values()) for when in (BUILT, RUN, NEVER)}
    print(f"{len(found)} operations, refused {counts}")


if __name__ == "__main__":
    main()
