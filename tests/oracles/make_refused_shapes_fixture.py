"""Records which calls with a changed shape TensorFlow refuses: `python -m tests.oracles.make_refused_shapes_fixture`.

Every operation of the op tables is called with its first row's inputs, one of them changed (`perturbed_inputs`). All
inputs are fed, of unknown shape, so that TensorFlow's kernels decide. Calls at which its process ends count as refused.
"""

from __future__ import annotations

import base64
import json
from typing import Any

from anabranch import Graph, placeholder
from anabranch.testing.op_cases import OpCase, op_function
from tests.fuzz.op_rows import input_arrays, rows_by_operation
from tests.fuzz.perturbed_shapes import REFUSED, Inputs, perturbed_inputs
from tests.fuzz.sides import Side, SideDiedError
from tests.fuzz.wire import encode_array


def graph_of(case: OpCase, inputs: Inputs) -> tuple[str, str, dict[str, Any]]:
    """The call as a GraphDef, the name of its first output, and what is fed."""
    feeds: dict[str, Any] = {}

    def fed(value: Any) -> Any:
        coded = encode_array(value)
        made = placeholder(coded["dtype"])
        feeds[made.name] = coded
        return made

    with Graph().as_default() as graph:
        op_function(case.op)(*[[fed(v) for v in a] if isinstance(a, list) else fed(a) for a in inputs], **case.attrs)
    output = next(o for o in reversed(graph.get_operations()) if o.type == case.op).outputs[0]
    return base64.b64encode(graph.as_graph_def().SerializeToString()).decode(), output.name, feeds


def is_refused(case: OpCase, inputs: Inputs, side: Side) -> bool:
    """TensorFlow's verdict; False where it does not know the operation or has no kernel for it."""
    graph_def, output, feeds = graph_of(case, inputs)
    try:
        loaded = side.ask("load", graph_def=graph_def)
        if "error" in loaded:
            return False
        session = side.ask("open", graph=loaded["graph"])["session"]
        answer = side.ask("run", session=session, fetches=[output], feeds=feeds)
        side.ask("close")
    except SideDiedError:
        return True
    return "error" in answer and "No OpKernel was registered" not in answer["error"][1]


def main() -> None:
    side = Side("tensorflow")
    found: dict[str, list[str]] = {}
    try:
        for name, (case, *_) in rows_by_operation().items():
            if is_refused(case, list(input_arrays(case)), side):
                continue  # what is refused as it is says nothing
            refused = [label for label, inputs in perturbed_inputs(case) if is_refused(case, inputs, side)]
            if refused:
                found[name] = refused
    finally:
        side.stop()
    REFUSED.write_text(json.dumps(found, indent=1) + "\n")
    print(f"{sum(map(len, found.values()))} refusals of {len(found)} operations")


if __name__ == "__main__":
    main()
