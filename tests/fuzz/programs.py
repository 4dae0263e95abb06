"""Programs as data, and the builder that makes a graph of one with either front end.

A program is JSON: ``{"nodes": [...], "feeds": [{placeholder: array}, ...], "control_flow_v2": bool, ...}``. A node has
an `id` and a `kind`; its outputs are called "ID:0", "ID:1", ... Nodes of control flow hold blocks,
``{"parameters": [...], "nodes": [...], "outputs": [...]}``, whose nodes may use everything that stands before them.

`Builder` calls the functions that `anabranch` and `tensorflow.compat.v1` have in common, so that one program becomes a
graph in each. A node that is refused is noted, and what depends on it is left out.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from typing import Any

from tests.fuzz.wire import decode_array

Node = dict[str, Any]


class LeftOutError(Exception):
    """A node uses something that was refused, or a gradient that is None."""


class Builder:
    """Builds the nodes of a program in the default graph of a front end.

    Attributes:
        tensors: by reference; None for a gradient that does not exist.
        refusals: class and message of the exception that building a node raised, by the node's id.
        recover: called after each refusal, to put right what the front end left half done.
    """

    def __init__(self, tf: Any, raw: Any, recover: Callable[[], None] = lambda: None) -> None:
        self.tf = tf
        self.raw = raw
        self.recover = recover
        self.tensors: dict[str, Any] = {}
        self.refusals: dict[str, tuple[str, str]] = {}
        self._variables: dict[str, Any] = {}
        self._updates: dict[str, Any] = {}

    def build(self, program: dict[str, Any]) -> None:
        """Builds every node that is not refused."""
        for node in program["nodes"]:
            try:
                self._add(node)
            except LeftOutError:
                continue
            except Exception as error:  # any error is an answer, which the comparison judges
                self.refusals[node["id"]] = (type(error).__name__, str(error))
                self.recover()

    def _add(self, node: Node) -> None:
        build: Callable[[Node], Any] = getattr(self, f"_{node['kind']}")
        with self.tf.control_dependencies([self._control(name) for name in node.get("control", ())]):
            self.enter(node, build(node))

    def enter(self, node: Node, outputs: Any) -> list[Any]:
        """Notes the outputs of a node; gives them as a flat list."""
        flat = _flat(outputs)
        for i, tensor in enumerate(flat):
            self.tensors[f"{node['id']}:{i}"] = tensor
        return flat

    def _control(self, name: str) -> Any:
        if name in self._updates:
            return self._updates[name]
        return self._get(f"{name}:0")

    def _get(self, ref: str) -> Any:
        tensor = self.tensors.get(ref)
        if tensor is None:
            raise LeftOutError(ref)
        return tensor

    # ------------------------------------------------------------------ values
    def _placeholder(self, node: Node) -> Any:
        return self.tf.placeholder(node["dtype"], node["shape"], name=node["id"])

    def _const(self, node: Node) -> Any:
        value = decode_array(node["value"])
        return self.tf.constant(value, dtype=node["value"]["dtype"], shape=value.shape, name=node["id"])

    def _op(self, node: Node) -> Any:
        return self.operation(node)

    def operation(self, node: Node) -> Any:
        """The outputs of a node of kind "op"."""
        arguments = {
            name: [self._get(r) for r in ref] if isinstance(ref, list) else self._get(ref)
            for name, ref in node["inputs"].items()
        }
        attrs = {name: self._attr(value) for name, value in node["attrs"].items()}
        return getattr(self.raw, node["op"])(**arguments, **attrs, name=node["id"])

    def _attr(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._attr(v) for v in value]
        if not isinstance(value, dict):
            return value
        ((kind, content),) = value.items()
        return base64.b64decode(content) if kind == "bytes" else content

    # ------------------------------------------------------------------ state
    def _variable(self, node: Node) -> Any:
        variable = self.tf.Variable(decode_array(node["value"]), name=node["id"], use_resource=node["resource"])
        self._variables[node["id"]] = variable
        return self._copied(variable)

    def _copied(self, variable: Any) -> Any:
        """A variable's value; the identity of a reference variable is its own memory, which a later node may change."""
        return self.tf.multiply(variable.read_value(), self.tf.constant(1, variable.dtype.base_dtype))

    def _update(self, node: Node) -> Any:
        variable = self._variables.get(node["variable"])
        if variable is None:
            raise LeftOutError(node["variable"])
        arguments = [self._get(ref) for ref in node["inputs"]]
        change = getattr(self.tf, node["method"])(variable, *arguments)
        with self.tf.control_dependencies([change]):
            return self._copied(variable)

    # ------------------------------------------------------------------ control flow
    def _block(self, block: dict[str, Any], arguments: list[Any]) -> list[Any]:
        for name, argument in zip(block["parameters"], arguments, strict=True):
            self.tensors[f"{name}:0"] = argument
        for node in block["nodes"]:
            self._add(node)
        return [self._get(ref) for ref in block["outputs"]]

    def _cond(self, node: Node) -> Any:
        return self.tf.cond(
            self._get(node["predicate"]),
            lambda: self._block(node["then"], []),
            lambda: self._block(node["else"], []),
            name=node["id"],
        )

    def _while(self, node: Node) -> Any:
        tf = self.tf
        start = [tf.constant(0), *(self._get(ref) for ref in node["start"])]
        limit = self._get(node["limit"])
        invariants = None
        if node["unknown_shapes"]:
            invariants = [tf.TensorShape([]), *(tf.TensorShape(None) for _ in start[1:])]

        def body(i: Any, *values: Any) -> list[Any]:
            return [i + 1, *self._block(node["body"], [i, *values])]

        found = tf.while_loop(lambda i, *_: i < limit, body, start, shape_invariants=invariants, name=node["id"])
        return found[1:]

    def _map(self, node: Node) -> Any:
        return self.tf.map_fn(
            lambda row: self._block(node["body"], [row])[0],
            self._get(node["elements"]),
            dtype=node["dtype"],
            name=node["id"],
        )

    def _scan(self, node: Node) -> Any:
        return self.tf.scan(
            lambda state, row: self._block(node["body"], [state, row])[0],
            self._get(node["elements"]),
            initializer=self._get(node["start"]),
            name=node["id"],
        )

    def _fold(self, node: Node) -> Any:
        return self.tf.foldl(
            lambda state, row: self._block(node["body"], [state, row])[0],
            self._get(node["elements"]),
            initializer=self._get(node["start"]),
            name=node["id"],
        )

    def _array_loop(self, node: Node) -> Any:
        """A loop that reads rows of a TensorArray and writes into another one."""
        tf = self.tf
        rows = self._get(node["elements"])
        count = tf.shape(rows)[0]
        source = tf.TensorArray(rows.dtype, count, name=f"{node['id']}_source", clear_after_read=False).unstack(rows)
        target = tf.TensorArray(rows.dtype, count, name=f"{node['id']}_target")

        def body(i: Any, state: Any, written: Any) -> list[Any]:
            row, new = self._block(node["body"], [source.read(i), state])
            return [i + 1, new, written.write(i, row)]

        start = [tf.constant(0), self._get(node["start"]), target]
        _, state, target = tf.while_loop(lambda i, *_: i < count, body, start, name=node["id"])
        return [target.stack(), state]

    # ------------------------------------------------------------------ gradients
    def _gradients(self, node: Node) -> Any:
        ys = [t for t in (self.tensors.get(ref) for ref in node["ys"]) if t is not None]
        if not ys:
            raise LeftOutError(node["id"])
        found = self.tf.gradients(ys, [self._get(ref) for ref in node["xs"]], name=f"gradients_{node['id']}")
        return [None if g is None else self.tf.convert_to_tensor(g) for g in found]


def _flat(outputs: Any) -> list[Any]:
    if outputs is None:
        return []
    if isinstance(outputs, list | tuple):
        return [t for output in outputs for t in ([None] if output is None else _flat(output))]
    return [outputs] if hasattr(outputs, "dtype") else []


def blocks(node: Node) -> Iterator[dict[str, Any]]:
    """The blocks of a node of control flow."""
    for key in ("then", "else", "body"):
        if key in node:
            yield node[key]


def within(node: Node) -> Iterator[Node]:
    """The node, and all that stand in its blocks."""
    yield node
    for block in blocks(node):
        for inner in block["nodes"]:
            yield from within(inner)


def names_within(node: Node) -> Iterator[str]:
    """The ids of the nodes and parameters in a node's blocks."""
    for inner in within(node):
        for block in blocks(inner):
            yield from block["parameters"]
            yield from (n["id"] for n in block["nodes"])


def used(node: Node) -> set[str]:
    """References to what a node takes from outside: inputs, and what its blocks use of their surroundings."""
    found: set[str] = set()
    for key in ("predicate", "limit", "elements"):
        if key in node:
            found.add(node[key])
    start = node.get("start", [])
    found.update([start] if isinstance(start, str) else start)
    inputs = node.get("inputs", {})
    for ref in inputs.values() if isinstance(inputs, dict) else inputs:
        found.update(ref if isinstance(ref, list) else [ref])
    found.update(node.get("ys", ()), node.get("xs", ()))
    found.update(f"{name}:0" for name in node.get("control", ()))
    if "variable" in node:
        found.add(f"{node['variable']}:0")
    for block in blocks(node):
        inside = {f"{name}:0" for name in block["parameters"]}
        names = set(block["parameters"]) | {n["id"] for n in block["nodes"]}
        wanted = set(block["outputs"]).union(*(used(n) for n in block["nodes"]))
        found.update(ref for ref in wanted - inside if ref.rpartition(":")[0] not in names)
    return found


def producer(ref: str) -> str:
    """The id of the node that a reference names an output of."""
    return ref.rpartition(":")[0]


def needed(program: dict[str, Any], refs: set[str]) -> set[str]:
    """The ids of the top-level nodes that the references depend on. A read of a variable depends on its updates."""
    nodes = {node["id"]: node for node in program["nodes"]}
    found: set[str] = set()
    left = [producer(ref) for ref in refs]
    while left:
        name = left.pop()
        if name in found or name not in nodes:
            continue
        found.add(name)
        left.extend(producer(ref) for ref in used(nodes[name]))
    return found
