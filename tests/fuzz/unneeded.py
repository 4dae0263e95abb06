"""Programs in which what control flow computes for nothing is needed, to ask whether it is refused.

TensorFlow's second control flow runs all that stands in a branch or a body; here, and in its first, what no output
needs does not run.
"""

from __future__ import annotations

import re
from typing import Any

from tests.fuzz.programs import Node, blocks, within

_NAMED = re.compile(r"\{\{node ([\w./]+)\}\}")


def refused_within(node: Node, message: str) -> str | None:
    """The innermost node in the blocks of a node that a refusal names, or None where it names none."""
    inside = {inner["id"] for inner in within(node)} - {node["id"]}
    parts = (part for name in _NAMED.findall(message) for part in reversed(re.findall(r"[nx]\d+", name)))
    return next((part for part in parts if part in inside), None)


def needing(program: dict[str, Any], name: str, inner: str) -> dict[str, Any]:
    """The program with all outputs of the node of control flow after `inner`, which stands in its blocks."""
    return {**program, "nodes": [_node_needing(n, inner) if n["id"] == name else n for n in program["nodes"]]}


def _node_needing(node: Node, inner: str) -> Node:
    found = dict(node)
    for key in ("then", "else", "body"):
        block = node.get(key)
        if block is None:
            continue
        at = next((n for n in block["nodes"] if any(m["id"] == inner for m in within(n))), None)
        if at is None:
            continue
        nodes = [_node_needing(n, inner) if n is at and any(blocks(n)) else n for n in block["nodes"]]
        after = [
            {
                "id": f"{at['id']}{i:05}",
                "kind": "op",
                "op": "Identity",
                "inputs": {"input": ref},
                "attrs": {},
                "control": [at["id"]],
            }
            for i, ref in enumerate(block["outputs"])
        ]
        found[key] = {**block, "nodes": nodes + after, "outputs": [f"{n['id']}:0" for n in after]}
    return found
