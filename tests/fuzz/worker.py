"""A process that builds programs and runs graphs with one front end, as the fuzzer asks it through a pipe::

    python -m tests.fuzz.worker anabranch
    .venv-peers/bin/python -m tests.fuzz.worker tensorflow

Requests come as frames on standard input, answers go as frames to what was standard output; whatever else is printed
goes to standard error. `wire.py` says what a frame is.
"""

from __future__ import annotations

import base64
import functools
import os
import re
import sys
import warnings
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")

import numpy as np

from tests.fuzz.programs import Builder
from tests.fuzz.wire import decode_array, encode_array, receive, send

_NODE = re.compile(r"\{\{node ([\w./]+)\}\}")


class _RawOperations:
    """TensorFlow's operation types, called with the names of their definitions, which `tf.raw_ops` changes."""

    def __init__(self) -> None:
        from tensorflow import raw_ops
        from tensorflow.python.framework import dtypes, kernels, op_def_library, op_def_registry

        self._names = [name for name in dir(raw_ops) if not name.startswith("_")]
        self._kernels = kernels.get_registered_kernels_for_op
        self._apply = op_def_library.apply_op
        self._find = op_def_registry.get
        self._as_dtype = dtypes.as_dtype

    def __getattr__(self, name: str) -> Any:
        return functools.partial(self._call, name)

    def __dir__(self) -> list[str]:
        return self._names

    def kernels(self) -> dict[str, list[dict[str, list[str]]]]:
        """For each operation type that graphs of today may have, its kernels on processors: values by attribute."""
        found = {}
        for name in self._names:
            definition = self._find(name)
            if definition is None or definition.HasField("deprecation"):
                continue
            found[name] = [
                {c.name: self._allowed(c.allowed_values.list) for c in kernel.constraint}
                for kernel in self._kernels(name).kernel
                if kernel.device_type == "CPU"
            ]
        return found

    def _allowed(self, values: Any) -> list[str]:
        return [self._as_dtype(t).name for t in values.type] or [text.decode() for text in values.s]

    def _call(self, op: str, /, **arguments: Any) -> Any:
        definition = self._find(op)
        inferred = {n for a in definition.input_arg for n in (a.type_attr, a.number_attr, a.type_list_attr)}
        for attr in definition.attr:
            if attr.name not in {*arguments, *inferred} and attr.HasField("default_value"):
                arguments[attr.name] = self._python(attr.default_value)
        return self._apply(op, **arguments)

    def _python(self, value: Any) -> Any:
        kind = value.WhichOneof("value")
        if kind == "list":
            items = next((list(items) for _, items in value.list.ListFields()), [])
            return [self._as_dtype(v) for v in items] if value.list.type else items
        found = getattr(value, kind)
        return self._as_dtype(found) if kind == "type" else found


def _tensorflow() -> tuple[Any, Any]:
    import tensorflow.compat.v1 as tf

    tf.disable_v2_behavior()
    tf.get_logger().setLevel("FATAL")
    return tf, _RawOperations()


def _anabranch() -> tuple[Any, Any]:
    import anabranch as tf
    from anabranch.ops import raw

    return tf, raw


class Worker:
    """Graphs and sessions by number; one method for each request."""

    def __init__(self, name: str) -> None:
        self.genuine = name == "tensorflow"
        self.tf, self.raw = _tensorflow() if self.genuine else _anabranch()
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
            if self.genuine:
                self._set_control_flow(program["control_flow_v2"])
            builder = Builder(self.tf, self.raw)
            builder.build(program)
            initializer = self.tf.global_variables_initializer().name
        top = {node["id"] for node in program["nodes"]}
        tensors = {
            ref: None if t is None else self._described(t)
            for ref, t in builder.tensors.items()
            if ref.rpartition(":")[0] in top
        }
        try:
            graph_def = base64.b64encode(graph.as_graph_def().SerializeToString()).decode()
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
        shape = tensor.shape
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
            self._sessions[self._next] = self.tf.Session(graph=self._graphs[graph], config=config)
        else:
            self._sessions[self._next] = self.tf.Session(graph=self._graphs[graph])
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


def _serve(name: str) -> None:
    requests = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    worker = Worker(name)
    while True:
        try:
            request = receive(requests)
        except EOFError:
            return
        send(answers, worker.answer(request))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    _serve(sys.argv[1])
