"""How the operation types are called that call a function of the graph's library  (docs/decisions/0055, 0062).

No operation of these types is ever created: a call copies the function in (`frontend.raw_calls`). So they stand in no
registry, and a definition is a signature without rules. The same goes for the two that turn a dataset into the graph
that makes it, and such a graph into a dataset.
"""

from __future__ import annotations

import functools
from typing import Final

from anabranch.core.op_signatures import parse_op_def
from anabranch.graph.building import OpFunction

_CALL: Final = (
    "args: Tin -> output: Tout",
    (
        "Tin: list(type) >= 0, Tout: list(type) >= 0, f: func, config: string = '', config_proto: string = '', "
        "executor_type: string = ''"
    ),
)
_SOME: Final = "Tin: list(type) >= 1, Tout: list(type) >= 1, f: func"

_CALLS: Final = {
    "PartitionedCall": _CALL,
    "StatefulPartitionedCall": _CALL,
    "DatasetFromGraph": ("graph_def: string -> handle: variant", ""),
    "DatasetToGraph": (
        "input_dataset: variant -> graph: string",
        (
            "stateful_whitelist: list(string) >= 0 = [], allow_stateful: bool = False, "
            "strip_device_assignment: bool = False"
        ),
    ),
    "RemoteCall": ("target: string, args: Tin -> output: Tout", _SOME),
    "SymbolicGradient": ("input: Tin -> output: Tout", _SOME),
    "For": (
        "start: int32, limit: int32, delta: int32, input: T -> output: T",
        "T: list(type) >= 0, body: func",
    ),
}


def call_names() -> list[str]:
    """The names of all of them, in alphabetical order."""
    return sorted(_CALLS)


@functools.cache
def call_type(name: str) -> OpFunction | None:
    """The definition of that name; None where it is no call."""
    return parse_op_def(name, *_CALLS[name], factory=OpFunction) if name in _CALLS else None
