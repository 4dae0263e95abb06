"""What of a tensor's values may differ between the two sides: what is undefined, open, or rounding.

docs/differences.md has the reasons.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from anabranch.proto.example_pb2 import Example
from tests.fuzz.comparison import ROUNDING, TOLERANCE, projections
from tests.fuzz.corners import CORNERS
from tests.fuzz.programs import Node, needed, producer, used, within
from tests.fuzz.undefined import repeated, undefined
from tests.fuzz.wire import Array, decode_array

#: outputs that hold eigenvectors or singular vectors
_VECTORS = {"SelfAdjointEigV2": {"1"}, "Svd": {"1", "2"}}
#: operations in whose gradients the terms that cancel are as large as the inverse of what they divide by
_QUOTIENTS = {"RealDiv", "Div", "DivNoNan", "Xdivy", "Reciprocal", "Inv"}
#: operations whose results are rounded as numbers near 1, however small they are, how often
_ROUNDED_AS_ONE = {"Elu": 1, "Erfinv": 1, "Selu": 1, "MatrixLogarithm": 8}
#: operations that TensorFlow computes in single precision, whatever the dtype (docs/differences.md)
_IN_SINGLE_PRECISION_THERE = {"CTCLoss", "CTCBeamSearchDecoder"}


class Allowances:
    """Of the nodes of one program. `ours` are the values here in one step, by tensor."""

    def __init__(self, program: dict[str, Any]) -> None:
        self.program = program
        self.nodes: dict[str, Node] = {node["id"]: node for node in program["nodes"]}

    def comparable(self, ref: str, value: Array, ours: dict[str, Array]) -> Array:
        """The value, or of eigenvectors what must be the same, given our eigenvalues; of messages what they say."""
        name, _, output = ref.rpartition(":")
        if self.nodes[name].get("op") == "DecodeJSONExample":
            return np.vectorize(_example, otypes=[np.object_])(value)
        if output not in _VECTORS.get(self.nodes[name].get("op", ""), ()) or f"{name}:0" not in ours:
            return value
        values = ours[f"{name}:0"]
        return projections(value, values) if value.ndim == values.ndim + 1 else value

    def inputs(self, ref: str, ours: dict[str, Array], step: int) -> list[Array]:
        """The values here of what the node uses; of an operation in the order of its inputs."""
        node = self.nodes[producer(ref)]
        given = node["inputs"].values() if node["kind"] == "op" else sorted(used(node))
        sources = (source for refs in given for source in (refs if isinstance(refs, list) else [refs]))
        found = (self.value_of(source, ours, step) for source in sources)
        return [value for value in found if value is not None]

    def finds_nothing(self, ref: str, ours: dict[str, Array], step: int) -> bool:
        """Whether TensorFlow finds no feature in any record, since a key stands twice (docs/differences.md)."""
        node = self.nodes[producer(ref)]
        if node.get("op") == "ParseExample":
            refs = [*node["inputs"]["sparse_keys"], *node["inputs"]["dense_keys"]]
            found = [self.value_of(key, ours, step) for key in refs]
            return repeated([value.item() for value in found if value is not None])
        if node.get("op") == "ParseSingleExample":
            return repeated([key["bytes"] for name in ("sparse_keys", "dense_keys") for key in node["attrs"][name]])
        return False

    def undefined(self, ref: str, inputs: list[Array], result: Array, there: Array) -> Array:
        """The elements of which the operation says nothing (docs/differences.md)."""
        node, output = self.nodes[producer(ref)], int(ref.rpartition(":")[2])
        return undefined(node.get("op", ""), node.get("attrs", {}), output, inputs, result, there)

    def open(self, ref: str, ours: dict[str, Array], step: int, answer: Array) -> Array:
        """The elements of a gradient that TensorFlow leaves open, or has another opinion of (`CORNERS`)."""
        node, _, output = ref.rpartition(":")
        found = np.array(False)
        if self.nodes[node]["kind"] != "gradients":
            return found
        behind = needed(self.program, set(self.nodes[node]["ys"]))
        x = producer(self.nodes[node]["xs"][int(output)])
        second = any(self.nodes[name]["kind"] == "gradients" for name in behind)
        taken = set(self.nodes[node]["ys"]).union(*(used(self.nodes[name]) for name in behind))
        for name in behind:
            corner = CORNERS.get(self.nodes[name].get("op", ""))
            if corner is None or (corner.order > 1 and not second and f"{name}:{corner.through}" not in taken):
                continue
            by = f"{name}:0" if corner.by is None else self.nodes[name]["inputs"][corner.by]
            if x in needed(self.program, {by}) and corner.holds(self.inputs(f"{name}:0", ours, step)):
                found = found | (np.isnan(answer) if corner.nan else True)
        return np.asarray(found)

    def least(self, ref: str, inputs: list[Array], dtype: str) -> float:
        """Below what a gradient's elements are rounding: it is a sum of terms that cancel, as large as its inputs."""
        if dtype in ROUNDING and (found := self.operations(producer(ref)) & set(_ROUNDED_AS_ONE)):
            times = max(map(_ROUNDED_AS_ONE.__getitem__, found)) if self.nodes[producer(ref)]["kind"] == "op" else 8
            return times * ROUNDING[dtype]
        if self.nodes[producer(ref)]["kind"] != "gradients" or dtype not in ROUNDING:
            return 0.0
        numbers = [value[np.isfinite(value)] for value in inputs if value.dtype.name in ROUNDING]
        size = max((np.abs(value).max(initial=0.0) for value in numbers), default=0.0)
        terms = max((value.size for value in numbers), default=0)
        # errors of a sum of them grow as a random walk; what cancels in a second gradient is larger than its inputs
        behind = needed(self.program, set(self.nodes[producer(ref)]["ys"]))
        second = any(self.nodes[name]["kind"] == "gradients" for name in behind)
        if second and any(self.operations(name) & _QUOTIENTS for name in behind):
            size = max(size, *(1 / np.abs(value[value != 0]).min(initial=np.inf) for value in numbers))
        times = 32 if second else 8
        return times * ROUNDING[dtype] * float(size) * max(1.0, terms**0.5)

    def operations(self, name: str) -> set[str]:
        """The operation types of a node, those within its blocks included."""
        return {inner["op"] for inner in within(self.nodes[name]) if inner["kind"] == "op"}

    def tolerance(self, ref: str, inputs: list[Array], dtype: str, cast: dict[str, str]) -> float | None:
        """Of a gradient that of the lowest precision among what it is of, with respect to and on the way.

        TensorFlow takes no value for the result of a loop of version 2, so that what is made of one by a cast is as
        rounded as that. So is what control flow computes by an operation of single precision. Else there is none.
        """
        node = self.nodes[producer(ref)]
        if dtype not in TOLERANCE:
            return None
        if node.get("op") == "Cast" and any("body" in self.nodes[producer(taken)] for taken in used(node)):
            return max(TOLERANCE[name] for name in (dtype, cast.get(producer(ref), dtype)))
        if node["kind"] not in {"op", "gradients"} and self.operations(node["id"]) & _IN_SINGLE_PRECISION_THERE:
            return max(TOLERANCE[name] for name in (dtype, "float32"))
        if node["kind"] != "gradients":
            return None
        behind = needed(self.program, set(node["ys"]))
        between = [cast.get(name, dtype) for name in behind]
        if any(self.operations(name) & _IN_SINGLE_PRECISION_THERE for name in behind):
            between.append("float32")
        return max(TOLERANCE.get(name, 0.0) for name in (dtype, *(value.dtype.name for value in inputs), *between))

    def value_of(self, ref: str, ours: dict[str, Array], step: int) -> Array | None:
        source = self.nodes[producer(ref)]
        if source["kind"] == "const":
            return decode_array(source["value"])
        if source["kind"] == "placeholder":
            return decode_array(self.program["feeds"][step][source["id"]])
        return ours.get(ref)


def _example(serialized: bytes) -> bytes:
    """An example with its lists packed and its features in order, however it was written."""
    return bytes(Example.FromString(serialized).SerializeToString(deterministic=True))
