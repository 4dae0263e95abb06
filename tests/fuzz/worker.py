"""A process that builds programs and runs graphs with one front end, as the fuzzer asks it through a pipe::

    python -m tests.fuzz.worker anabranch
    .venv-peers/bin/python -m tests.fuzz.worker tensorflow

Requests come as frames on standard input, answers go as frames to what was standard output; whatever else is printed
goes to standard error. `wire.py` says what a frame is.
"""

from __future__ import annotations

import base64
import importlib
import os
import re
import sys
import warnings
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
os.environ.setdefault("ANABRANCH_KERNELS", "estimate")
# every program is compiled for a few runs: quick compilation is worth more than quick programs
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true")

import numpy as np

from tests.fuzz.programs import Builder
from tests.fuzz.wire import decode_array, encode_array, serve

_NODE = re.compile(r"\{\{node ([\w./]+)\}\}")


def _genuine() -> tuple[Any, Any]:
    from tests.oracles.genuine import front_end

    return front_end()


def _anabranch() -> tuple[Any, Any]:
    import anabranch as tf
    from anabranch.ops import raw

    return tf, raw


class Worker:
    """Graphs and sessions by number; one method for each request."""

    def __init__(self, name: str) -> None:
        self.genuine = name == "tensorflow"
        self.tf, self.raw = _genuine() if self.genuine else _anabranch()
        self.executable: Any = None if self.genuine else importlib.import_module("anabranch.xla.executable")
        self._graphs: dict[int, Any] = {}
        self._sessions: dict[int, Any] = {}
        self._next = 0

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        method = getattr(self, request.pop("request"))
        found: dict[str, Any] = method(**request)
        return found

    def operations(self) -> dict[str, Any]:
        """TensorFlow's kernels by operation type."""
        return {"operations": self.raw.kernels()}

    def build(self, program: dict[str, Any]) -> dict[str, Any]:
        """Builds a program; gives the graph's number, its GraphDef, what was refused, and the tensors' names."""
        graph = self.tf.Graph()
        with graph.as_default():
            builder = Builder(self.tf, self.raw)
            if self.genuine:
                self._set_control_flow(program["control_flow_v2"])
                # gradients that it refuses half way leave it within a conditional or a loop
                builder.recover = lambda: graph._set_control_flow_context(None)
            builder.build(program)
            initializer = self.tf.global_variables_initializer().name
        top = {node["id"] for node in program["nodes"]}
        tensors = {
            ref: None if t is None else self._described(t)
            for ref, t in builder.tensors.items()
            if ref.rpartition(":")[0] in top
        }
        try:
            # meta graphs that savers write say the shapes of all outputs, which the reader checks
            message = graph.as_graph_def(add_shapes=program["index"] % 2 == 1)
            graph_def = base64.b64encode(message.SerializeToString()).decode()
        except Exception as error:
            return {"error": [type(error).__name__, f"as_graph_def: {error}"]}
        return {
            "graph": self._keep(graph),
            "graph_def": graph_def,
            "initializer": initializer,
            "tensors": tensors,
            "refusals": builder.refusals,
        }

    def _set_control_flow(self, second: bool) -> None:
        if second:
            self.tf.enable_control_flow_v2()
        else:
            self.tf.disable_control_flow_v2()

    def _described(self, tensor: Any) -> dict[str, Any]:
        try:
            shape = tensor.shape
        except ValueError:  # TensorFlow's sum of lengths that are too large is a negative one
            shape = self.tf.TensorShape(None)
        known = None if shape.ndims is None else [None if d is None else int(d) for d in shape.as_list()]
        return {"name": tensor.name, "dtype": tensor.dtype.base_dtype.name, "shape": known}

    def load(self, graph_def: str) -> dict[str, Any]:
        """Imports a GraphDef; gives the graph's number."""
        graph = self.tf.Graph()
        with graph.as_default():
            message = self.tf.GraphDef.FromString(base64.b64decode(graph_def))
            try:
                self.tf.import_graph_def(message, name="")
            except Exception as error:
                return {"error": [type(error).__name__, str(error)]}
        return {"graph": self._keep(graph)}

    def _keep(self, graph: Any) -> int:
        self._next += 1
        self._graphs[self._next] = graph
        return self._next

    def open(self, graph: int) -> dict[str, Any]:
        """Opens a session with fresh variables."""
        self._next += 1
        if self.genuine:
            config = self.tf.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1)
            # it loses control edges where tensors between are fed (docs/differences.md)
            off = config.graph_options.rewrite_options.OFF
            config.graph_options.rewrite_options.dependency_optimization = off
            self._sessions[self._next] = self.tf.Session(graph=self._graphs[graph], config=config)
        else:
            made = self._graphs[graph]
            # too few runs for a compilation otherwise; a graph's size decides, so that a finding can be repeated
            self.executable.FIRST_DIRECT_CALLS = len(made.get_operations()) % 2
            self.executable.MOST_DIRECT_CALLS = 1
            self._sessions[self._next] = self.tf.Session(graph=made)
        return {"session": self._next}

    def run(self, session: int, fetches: list[str], feeds: dict[str, Any]) -> dict[str, Any]:
        """Runs a step; gives the values, or the error's class, message and node."""
        values = {name: decode_array(value) for name, value in feeds.items()}
        try:
            found = self._sessions[session].run(fetches, values)
        except Exception as error:
            # TensorFlow tells the whole stack before it says what is wrong
            message = re.split(r"Node: '[^']*'\n", getattr(error, "message", None) or str(error))[-1]
            return {"error": [type(error).__name__, message], "node": self._guilty(error)}
        return {"values": [None if value is None else encode_array(value) for value in found]}

    def _guilty(self, error: Exception) -> str | None:
        node = getattr(error, "op", None)
        if node is not None:
            return str(node.name)
        match = _NODE.search(str(error))
        return match.group(1) if match else None

    def close(self) -> dict[str, Any]:
        """Forgets all graphs and sessions."""
        for session in self._sessions.values():
            session.close()
        self._sessions.clear()
        self._graphs.clear()
        return {}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    serve(lambda: Worker(sys.argv[1]).answer)
