"""Runs the rows of `tests/device/ops/cases_refusals.py` with TensorFlow, and tells which ones it answers differently.

Run from the repository's root in an environment that has TensorFlow beside what anabranch needs (`make bench-env`):
`python -m tests.oracles.check_refusals`.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from anabranch import Graph, placeholder
from anabranch.testing.op_cases import OpCase, input_arrays, op_function
from tests.device.ops.cases_refusals import CASES


def is_refused(case: OpCase) -> bool:
    """TensorFlow's verdict on the same graph, with fed values of unknown shape, so that its kernel decides."""
    op = op_function(case.op)
    feeds: dict[str, Any] = {}

    def fed(value: Any) -> Any:
        made = placeholder(value.dtype)
        feeds[made.name] = value
        return made

    with Graph().as_default() as ours:
        values = input_arrays(op, case.inputs)
        op(*[[fed(item) for item in v] if isinstance(v, list) else fed(v) for v in values], **case.attrs)
    target = ours.get_operations()[-1].name
    theirs = tf.compat.v1.GraphDef.FromString(ours.as_graph_def().SerializeToString())
    with tf.Graph().as_default() as graph, tf.compat.v1.Session() as session:
        tf.import_graph_def(theirs, name="")
        try:
            session.run(graph.get_operation_by_name(target), feeds)
        except tf.errors.OpError:
            return True
    return False


def main() -> None:
    different = [case for case in CASES if is_refused(case) != (case.error is not None)]
    print(f"{len(CASES)} rows, {len(different)} that TensorFlow answers differently", *map(str, different), sep="\n")


if __name__ == "__main__":
    main()
