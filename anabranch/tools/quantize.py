"""Quantise a frozen graph: rewrite it for numbers of 8 bits, with ranges measured on samples.

The samples are a file of NumPy's (`numpy.savez`) whose arrays are named as the tensors to feed ("images:0", or
"images"); each is cut into batches along its first axis.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence

import numpy as np

from anabranch.core.arrays import HostArray
from anabranch.errors import AlreadyExistsError, InvalidArgumentError
from anabranch.proto.graph_pb2 import GraphDef
from anabranch.serving.quantizing import quantize_graph


def main(arguments: Sequence[str]) -> int:
    """`anabranch quantize graph.pb target.pb --outputs NAME --samples FILE`"""
    parser = argparse.ArgumentParser(
        prog="anabranch quantize",
        description="Rewrites a frozen GraphDef for numbers of 8 bits. What exists is never replaced.",
    )
    parser.add_argument("graph", help="a frozen GraphDef, a binary file")
    parser.add_argument("target", help="the file to write")
    parser.add_argument("--outputs", required=True, help="the nodes to compute, between commas")
    parser.add_argument("--samples", required=True, help="a .npz file with usual inputs, named as the tensors to feed")
    parser.add_argument("--batch", type=int, default=64, help="how many samples are run at a time (64)")
    options = parser.parse_args(arguments)
    if os.path.exists(options.target):
        raise AlreadyExistsError(None, None, f"{options.target!r} exists; take another name for the target")
    with open(options.graph, "rb") as file:
        definition = GraphDef.FromString(file.read())
    with np.load(options.samples, allow_pickle=False) as archive:
        arrays = {name if ":" in name else f"{name}:0": archive[name] for name in archive.files}
    try:
        result = quantize_graph(definition, options.outputs.split(","), _batches(arrays, max(1, options.batch)))
    except (ValueError, AssertionError) as error:
        raise InvalidArgumentError(None, None, str(error)) from error
    data = result.SerializeToString()
    with open(options.target, "xb") as file:
        file.write(data)
    count = sum(node.op.startswith("Quantized") for node in result.node)
    print(
        f"{options.target}: {count} quantised operations, {len(data)} bytes instead of {os.path.getsize(options.graph)}"
    )
    return 0


def _batches(arrays: dict[str, HostArray], size: int) -> Iterator[dict[str, HostArray]]:
    lengths = {len(array) if array.ndim else 0 for array in arrays.values()}
    if len(lengths) != 1:
        raise ValueError(f"the arrays of the samples have {sorted(lengths)} rows; they must have as many as each other")
    for start in range(0, lengths.pop(), size):
        yield {name: array[start : start + size] for name, array in arrays.items()}
