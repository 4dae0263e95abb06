"""What the generator knows of the operation types: the rows of the op tables that can stand in a random graph."""

from __future__ import annotations

import functools
import importlib
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from anabranch.core.dtypes import DType
from anabranch.core.registry import find_op_def
from anabranch.core.shapes import TensorShape
from anabranch.core.values import to_array
from anabranch.testing.op_cases import OpCase
from tests.fuzz.wire import Array, encode_array

#: Operation types that no random graph has, and why. Random, stateful and resource operations are left out by rule.
LEFT_OUT = {
    "EncodeJpeg": "every encoder writes other bytes",
    "EncodePng": "every encoder writes other bytes",
    "DecodeJpeg": "decoders differ in rounding; recorded pictures are checked elsewhere",
    "HistogramSummary": "serialized messages",
    "ImageSummary": "serialized messages",
    "AudioSummaryV2": "serialized messages",
    "AudioSummary": "serialized messages",
    "MergeSummary": "serialized messages",
    "TensorSummary": "serialized messages",
    "TensorSummaryV2": "serialized messages",
    "Placeholder": "has its own kind of node",
    "PlaceholderV2": "has its own kind of node",
    "Const": "has its own kind of node",
    "ReadFile": "reads files",
    "WriteFile": "writes files",
    "MatchingFiles": "reads files",
    "Assert": "has no output",
    "NoOp": "has no output",
    "AdjustContrast": "TensorFlow takes it in old graphs only",
    "BoostedTreesAggregateStats": "TensorFlow 2.21 has no kernel",
    "BoostedTreesBucketize": "TensorFlow 2.21 has no kernel",
    "BoostedTreesCalculateBestFeatureSplit": "TensorFlow 2.21 has no kernel",
    "BoostedTreesCalculateBestGainsPerFeature": "TensorFlow 2.21 has no kernel",
    "BoostedTreesMakeQuantileSummaries": "TensorFlow 2.21 has no kernel",
    "BoostedTreesMakeStatsSummary": "TensorFlow 2.21 has no kernel",
    "BoostedTreesSparseAggregateStats": "TensorFlow 2.21 has no kernel",
    "BoostedTreesSparseCalculateBestFeatureSplit": "TensorFlow 2.21 has no kernel",
    "SelfAdjointEig": "TensorFlow refuses it in new graphs",
    "TileGrad": "TensorFlow refuses it in new graphs",
    "CompareAndBitpack": "TensorFlow 2.21 does not register it",
    "GenerateBoundingBoxProposals": "TensorFlow has no kernel for processors",
    "InplaceAdd": "TensorFlow writes into its input, which the other takers then see",
    "InplaceSub": "TensorFlow writes into its input, which the other takers then see",
    "InplaceUpdate": "TensorFlow writes into its input, which the other takers then see",
}


@functools.cache
def rows_by_operation() -> dict[str, list[OpCase]]:
    """The rows that can stand in a random graph, by operation type."""
    folder = Path(__file__).resolve().parents[1] / "device" / "ops"
    found: dict[str, list[OpCase]] = defaultdict(list)
    for path in sorted(folder.glob("cases_*.py")):
        for case in importlib.import_module(f"tests.device.ops.{path.stem}").CASES:
            if _usable(case):
                found[case.op].append(case)
    return dict(sorted(found.items()))


def refused_rows() -> list[OpCase]:
    """The rows that end in an error, of operation types that can stand in a random graph."""
    folder = Path(__file__).resolve().parents[1] / "device" / "ops"
    names = (f"tests.device.ops.{path.stem}" for path in sorted(folder.glob("cases_*.py")))
    rows = (case for name in names for case in importlib.import_module(name).CASES)
    return [case for case in rows if case.error is not None and _fits(case)]


def _usable(case: OpCase) -> bool:
    return case.error is None and _fits(case)


def _fits(case: OpCase) -> bool:
    op = find_op_def(case.op)
    if op is None or case.op in LEFT_OUT or op.name.startswith("_"):
        return False
    if op.name.startswith("Stateless"):  # random numbers are other ones here (docs/decisions/0008)
        return False
    if op.defined_at.rpartition(":")[0].endswith("older_linalg.py") and op.name.startswith("Batch"):  # refused there
        return False
    if op.stateful or op.random or not op.outputs:
        return False
    if case.op in {"AvgPool", "AvgPoolGrad"} and _pools_channels(case):
        return False
    fixed = [arg.dtype.name for arg in (*op.inputs, *op.outputs) if arg.dtype is not None]
    return not {"resource", "variant"} & set(fixed) and all(a.kind != "func" for a in op.attrs.values())


def _pools_channels(case: OpCase) -> bool:
    """Whether the window has several channels, over which TensorFlow does not average (docs/differences.md)."""
    return any(
        case.attrs[name][1 if case.attrs.get("data_format") == "NCHW" else 3] != 1 for name in ("ksize", "strides")
    )


def input_arrays(case: OpCase) -> list[Array | list[Array]]:
    """The row's inputs as arrays; a list for a variadic one."""
    op = find_op_def(case.op)
    assert op is not None
    return [
        [_as_array(v, arg.dtype) for v in value] if arg.is_list else _as_array(value, arg.dtype)
        for arg, value in zip(op.inputs, case.inputs, strict=True)
    ]


def _as_array(value: Any, dtype: DType | None) -> Array:
    own = isinstance(value, np.ndarray | np.generic)
    return np.asarray(to_array(value, None if own else dtype))


def coded_attr(value: Any, kind: str) -> Any:
    """An attribute of an operation as `programs.Builder` reads it."""
    if isinstance(value, list | tuple) and kind.startswith("list("):
        return [coded_attr(v, kind[5:-1]) for v in value]
    if kind == "type":
        return {
            "type": value.name
            if isinstance(value, DType)
            else np.dtype(value).name
            if not isinstance(value, str)
            else value
        }
    if kind == "shape":
        shape = TensorShape(value)
        return {"shape": None if shape.rank is None else shape.as_list()}
    if kind == "string":
        text = value.encode() if isinstance(value, str) else bytes(value)
        return {"bytes": encode_array(text)["data"][0]}
    if kind == "tensor":
        raise ValueError("attributes that are tensors are not generated")
    return value.item() if isinstance(value, np.generic) else value
