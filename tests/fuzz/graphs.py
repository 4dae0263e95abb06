"""Random programs of twenty to sixty operations, the same ones for the same seed and index.

A program grows one node at a time. What a node may take is known from *shadows*: graphs of this package, one for each
set of feeds, in which every placeholder has the shape that it will be fed. A node that a shadow refuses is tried with
other inputs; now and then it stays, as a leaf, to see whether the other side refuses it too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from anabranch.core.op_def import OpDef
from anabranch.core.registry import find_op_def
from anabranch.testing.op_cases import OpCase
from tests.fuzz.op_rows import coded_attr, input_arrays, rows_by_operation
from tests.fuzz.programs import Node
from tests.fuzz.shadows import FEEDS, Kernels, Shadows, Shape
from tests.fuzz.undefined import MAY_LACK_FACTOR, RESERVED
from tests.fuzz.wire import Array, encode_array, numpy_dtype

_FLOATS = ("float32", "float32", "float32", "float64", "float16", "bfloat16")
_OTHERS = ("int32", "int64", "bool", "complex64", "uint8", "int8", "int16", "string", "complex128")
#: steps of the generator for each operation that is wanted
_STEPS_OF_EACH = 50
_DIMENSIONS = ((2, 3, 4), (3, 2, 5), (4, 4, 4), (2, 2, 2), (3, 3, 3), (1, 1, 1), (1, 3, 2), (2, 1, 0), (5, 0, 2))
_SPECIAL = (np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-30, 1e30)
#: inputs that are given as the op tables have them: TensorFlow does not return from others (docs/differences.md)
_TAME = {("AdjustHue", "delta")}


@dataclass(eq=False)
class Value:
    """A tensor that nodes may use: for each set of feeds its shape, None where that is not known."""

    ref: str
    dtype: str
    shapes: tuple[Shape | None, ...]
    differentiable: bool = False
    ancestors: frozenset[str] = frozenset()

    @property
    def known(self) -> bool:
        return all(shape is not None for shape in self.shapes)


@dataclass(eq=False)
class Scope:
    """Nodes of the program or of a block, and the values that its next node may use."""

    nodes: list[Node]
    values: list[Value]
    depth: int = 0
    own: list[Value] = field(default_factory=list)

    def enter(self, value: Value) -> Value:
        self.values.append(value)
        self.own.append(value)
        return value


class Generator:
    """Makes one program.

    Args:
        kernels: of the other side, by operation type: the values that attributes may have.
        loops: whether to make much control flow and always gradients, of plain operations that have gradients.
        one_type: whether all operations are of one type, the one whose turn it is by the index, with gradients always.
    """

    def __init__(self, seed: int, index: int, kernels: Kernels, loops: bool = False, one_type: bool = False) -> None:
        self.random = np.random.default_rng([seed, index])
        self.loops = loops
        self.operations = sorted(name for name in rows_by_operation() if kernels.get(name))
        if loops:
            self.operations = [name for name in self.operations if _is_plain(name)]
        if one_type:
            self.operations = [self.operations[index % len(self.operations)]]
        self.one_type = one_type
        self.shadows = Shadows(kernels)
        self.program: dict[str, Any] = {
            "seed": seed,
            "index": index,
            "control_flow_v2": bool(self.random.integers(2)),
            "feeds": [{} for _ in range(FEEDS)],
            "nodes": [],
        }
        #: half of the programs compute from constants, which are folded, the others from what is fed
        self.fed = self._chance(0.5)
        self.top = Scope(self.program["nodes"], [])
        self.count = 0
        self.operation_count = 0
        self.last_change: dict[str, str] = {}

    # ------------------------------------------------------------------ the whole
    def make(self, operations: int | None = None) -> dict[str, Any]:
        """The program, with that number of operations; without it, a random one between 20 and 60."""
        for _ in range(self.random.integers(2, 6)):
            self._input()
        for _ in range(self.random.integers(3)):
            self._variable()
        wanted = int(self.random.integers(20, 61)) if operations is None else operations
        self._with_gradients = self.loops or self.one_type or self.random.random() < 0.5
        # more steps than operations: of some types few rows suit what there is
        for _ in range(_STEPS_OF_EACH * wanted):
            if self.operation_count >= wanted:
                break
            self._step(self.top)
        if self._with_gradients:
            self._gradients()
        self.program["fetch_all"] = bool(self.random.random() < 0.6)
        return self.program

    def _step(self, scope: Scope) -> None:
        compound: list[Callable[[Scope], None]] = [
            self._cond,
            self._while,
            self._map,
            self._scan,
            self._fold,
            self._array_loop,
        ]
        draw = self.random.random() * (0.3 if self.loops and scope.depth == 0 else 1.0)
        if draw < 0.06 and scope.depth < 2:
            compound[self.random.integers(len(compound))](scope)
        elif draw < 0.12 and scope.depth == 0 and self.last_change:
            self._update()
        elif draw < 0.16:
            self._cast(scope)
        else:
            self._operation(scope)

    def _name(self) -> str:
        self.count += 1
        return f"n{self.count}"

    def _choose(self, items: Any) -> Any:
        return items[int(self.random.integers(len(items)))]

    def _chance(self, probability: float) -> bool:
        return bool(self.random.random() < probability)

    # ------------------------------------------------------------------ leaves
    def _input(self) -> None:
        dtype = self._choose(_FLOATS) if self._chance(0.75) else self._choose(_OTHERS)
        sizes = [self._choose(_DIMENSIONS) for _ in range(self.random.choice(4, p=[0.1, 0.3, 0.45, 0.15]))]
        shapes = tuple(tuple(size[k] for size in sizes) for k in range(FEEDS))
        if self.fed:
            self._placeholder([self._array(dtype, shape) for shape in shapes])
        else:
            source = self._constant(self.top, self._array(dtype, shapes[0]))
            source.differentiable = dtype in {"float32", "float64"}

    def _placeholder(self, arrays: list[Array]) -> Value:
        """A placeholder that is fed these arrays, with a static shape that fits all of them."""
        name = f"x{len(self.program['feeds'][0])}"
        coded = [encode_array(a) for a in arrays]
        for feed, array in zip(self.program["feeds"], coded, strict=True):
            feed[name] = array
        shapes = tuple(tuple(a.shape) for a in arrays)
        dtype = coded[0]["dtype"]
        node = {"id": name, "kind": "placeholder", "dtype": dtype, "shape": self._static_shape(shapes)}
        self.top.nodes.append(node)
        self.shadows.known(f"{name}:0", dtype, shapes)
        return self.top.enter(
            Value(f"{name}:0", dtype, shapes, dtype in {"float32", "float64"}, frozenset([f"{name}:0"]))
        )

    def _static_shape(self, shapes: tuple[Shape, ...]) -> list[int | None] | None:
        if len({len(shape) for shape in shapes}) > 1 or self._chance(0.1):
            return None
        return [None if len(set(dims)) > 1 or self._chance(0.3) else dims[0] for dims in zip(*shapes, strict=True)]

    def _array(self, dtype: str, shape: Shape) -> Array:
        kind = numpy_dtype(dtype)
        if dtype == "string":
            words = [b"", b"a", b"bc", b"12", b"-3.5", b"a b", b"\xc3\xa4x"]
            found = np.empty(shape, np.object_)
            found.reshape(-1)[:] = [self._choose(words) for _ in range(found.size)]
            return found
        if dtype == "bool":
            return np.asarray(self.random.integers(2, size=shape), bool)
        if kind.kind in "iu":
            low = 0 if kind.kind == "u" else -5
            found = np.asarray(self.random.integers(low, 8, size=shape)).astype(kind)
            return self._with_specials(found, [np.iinfo(kind).min, np.iinfo(kind).max])
        found = np.asarray(self.random.normal(size=shape) * 1.5)
        if dtype.startswith("complex"):
            return np.asarray(found + 1j * self.random.normal(size=shape)).astype(kind)
        return self._with_specials(found.astype(kind), _SPECIAL)

    def _with_specials(self, array: Array, specials: Any) -> Array:
        if array.size and self._chance(0.06):
            with np.errstate(all="ignore"):
                array.reshape(-1)[self.random.integers(array.size)] = array.dtype.type(self._choose(specials))
        return array

    def _constant(self, scope: Scope, array: Array) -> Value:
        name = self._name()
        coded = encode_array(array)
        scope.nodes.append({"id": name, "kind": "const", "value": coded})
        shapes = (tuple(array.shape),) * FEEDS
        self.shadows.known(f"{name}:0", coded["dtype"], shapes, array)
        return scope.enter(Value(f"{name}:0", coded["dtype"], shapes, ancestors=frozenset([f"{name}:0"])))

    # ------------------------------------------------------------------ state
    def _variable(self) -> None:
        shape = tuple(int(n) for n in self.random.integers(1, 4, size=self.random.integers(1, 3)))
        array = self._array(self._choose(("float32", "float64", "int32")), shape)
        name = self._name()
        node = {"id": name, "kind": "variable", "value": encode_array(array), "resource": self._chance(0.5)}
        self.top.nodes.append(node)
        self._enter_state(name, array.dtype.name, shape)
        self.last_change[name] = name

    def _enter_state(self, name: str, dtype: str, shape: Shape) -> None:
        self.shadows.known(f"{name}:0", dtype, (shape,) * FEEDS)
        self.top.enter(Value(f"{name}:0", dtype, (shape,) * FEEDS))

    def _update(self) -> None:
        """Changes a variable, after the change before, and reads it."""
        variable = self._choose(sorted(self.last_change))
        state = next(v for v in self.top.values if v.ref == f"{variable}:0")
        shape = state.shapes[0]
        assert shape is not None
        method = self._choose(["assign", "assign_add", "assign_sub", "scatter_add", "scatter_update", "scatter_sub"])
        if method.startswith("assign"):
            same = [v for v in self.top.values if v.dtype == state.dtype and v.shapes == state.shapes]
            inputs = [self._bounded(self._choose(same))]
        else:
            rows = self.random.permutation(shape[0])[: self.random.integers(1, shape[0] + 1)]
            indices = self._constant(self.top, rows.astype(np.int32))
            updates = self._constant(self.top, self._array(state.dtype, (len(rows), *shape[1:])))
            inputs = [indices.ref, updates.ref]
        name = self._name()
        self.top.nodes.append(
            {
                "id": name,
                "kind": "update",
                "variable": variable,
                "method": method,
                "inputs": inputs,
                "control": [self.last_change[variable]],
            }
        )
        self.last_change[variable] = name
        self._enter_state(name, state.dtype, shape)

    def _bounded(self, value: Value) -> str:
        """A value that stays small from step to step."""
        if value.dtype not in {"float32", "float64"}:
            return value.ref
        return self._emit(self.top, "Tanh", {"x": value.ref}, {})[0].ref

    # ------------------------------------------------------------------ operations
    def _emit(self, scope: Scope, op: str, inputs: dict[str, Any], attrs: dict[str, Any]) -> list[Value]:
        """Adds an operation that the shadows are known to accept."""
        found = self._try(scope, op, inputs, attrs)
        if found is None:
            raise AssertionError(f"{op} refuses {inputs} {attrs}")
        return found

    def _try(
        self, scope: Scope, op: str, inputs: dict[str, Any], attrs: dict[str, Any], keep: bool = False
    ) -> list[Value] | None:
        node = {"id": self._name(), "kind": "op", "op": op, "inputs": inputs, "attrs": attrs}
        outputs = self.shadows.operation(node)
        if outputs is None:
            if keep:
                scope.nodes.append(node)
            else:
                self.count -= 1
            return None
        scope.nodes.append(node)
        self.operation_count += 1
        if False in (attrs.get("compute_v"), attrs.get("compute_uv")):
            outputs = outputs[:1]  # of vectors that are not there TensorFlow has another shape (docs/differences.md)
        if op in RESERVED and not attrs.get("is_training", True):
            outputs = outputs[:3]  # the others hold nothing then, and no one is to compute with them
        return self._entered(scope, node["id"], outputs, inputs)

    def _entered(self, scope: Scope, name: str, outputs: Any, inputs: dict[str, Any]) -> list[Value]:
        refs = {r for ref in inputs.values() for r in (ref if isinstance(ref, list) else [ref])}
        sources = [v for v in scope.values if v.ref in refs]
        ancestors = frozenset().union(*(v.ancestors for v in sources)) if sources else frozenset()
        smooth = any(v.differentiable for v in sources)
        return [
            scope.enter(
                Value(
                    f"{name}:{i}",
                    dtype,
                    shapes,
                    smooth and dtype in {"float32", "float64"},
                    ancestors | {f"{name}:{i}"},
                )
            )
            for i, (dtype, shapes) in enumerate(outputs)
            if dtype not in {"resource", "variant"}
        ]

    def _operation(self, scope: Scope) -> None:
        name = self._choose(self.operations)
        if scope.depth and name in MAY_LACK_FACTOR:
            return  # nobody can ask the other side for the factors within a loop or a branch
        case = self._choose(rows_by_operation()[name])
        op = find_op_def(name)
        assert op is not None
        try:
            attrs = {
                key: coded_attr(value, op.attrs[key].kind)
                for key, value in case.attrs.items()
                if key not in op.inferred
            }
        except ValueError:
            return
        arrays = self._retyped(op, case, input_arrays(case))
        for attempt in range(3):
            inputs = {
                arg.name: self._argument(scope, op, arg.name, array, 0.7 - 0.3 * attempt)
                for arg, array in zip(op.inputs, arrays, strict=True)
            }
            keep = scope.depth == 0 and self._chance(0.05)
            if self._try(scope, name, inputs, attrs, keep) is not None or keep:
                return

    def _retyped(self, op: OpDef, case: OpCase, arrays: list[Any]) -> list[Any]:
        """The inputs, now and then in another dtype that the signature allows."""
        attr = op.inputs[0].type_attr if op.inputs else None
        if attr is None or attr in case.attrs or not self._chance(0.35):
            return arrays
        allowed = op.attrs[attr].allowed
        first = arrays[0][0] if isinstance(arrays[0], list) else arrays[0]
        names = [d.name for d in allowed] if allowed is not None else [*dict.fromkeys(_FLOATS), *_OTHERS]
        kind = "c" if first.dtype.kind == "c" else "O" if first.dtype.kind == "O" else "r"
        fitting = sorted(n for n in names if _castable(n, kind))
        if not fitting:
            return arrays
        chosen = numpy_dtype(self._choose(fitting))
        with np.errstate(all="ignore"):
            return [
                a
                if arg.type_attr != attr
                else [x.astype(chosen) for x in a]
                if isinstance(a, list)
                else a.astype(chosen)
                for arg, a in zip(op.inputs, arrays, strict=True)
            ]

    def _argument(self, scope: Scope, op: OpDef, name: str, array: Any, reuse: float) -> Any:
        if isinstance(array, list):
            return [self._argument(scope, op, name, a, reuse) for a in array]
        if name in op.static or (op.name, name) in _TAME:
            return self._constant(scope, array).ref
        arg = op.input_arg(name)
        main = arg.type_attr is not None and any(o.type_attr == arg.type_attr for o in op.outputs)
        dtype = encode_array(array)["dtype"]
        if self._chance(reuse) and (main or array.dtype.kind not in "iu"):
            found = self._similar(scope, dtype, array.shape)
            if found is not None:
                return found.ref
        if self.fed and scope.depth == 0 and self._chance(0.5):
            return self._placeholder([array] * FEEDS).ref
        constant = self._constant(
            scope, self._with_specials(array.copy(), _SPECIAL) if array.dtype.kind == "f" else array
        )
        return self._coupled(scope, constant).ref

    def _similar(self, scope: Scope, dtype: str, shape: Shape) -> Value | None:
        """A value of that dtype, of that rank where there is one."""
        typed = [v for v in scope.values if v.dtype == dtype]
        ranked = [v for v in typed if v.known and all(len(s or ()) == len(shape) for s in v.shapes)]
        choice = ranked if ranked and self._chance(0.7) else typed
        return self._choose(choice[-12:]) if choice else None

    def _coupled(self, scope: Scope, constant: Value) -> Value:
        """The constant, changed a little in proportion by another value: so that gradients flow through it."""
        others = [v for v in scope.values if v.dtype == constant.dtype and v.differentiable]
        if constant.dtype not in {"float32", "float64"} or not others or not self._chance(0.5):
            return constant
        other = self._choose(others)
        flat = self._emit(
            scope,
            "Reshape",
            {"tensor": other.ref, "shape": self._constant(scope, np.array([-1], np.int32)).ref},
            {},
        )
        axes = self._constant(scope, np.array([0], np.int32)).ref
        squashed = self._emit(scope, "Tanh", {"x": flat[0].ref}, {})
        total = self._emit(scope, "Sum", {"input": squashed[0].ref, "reduction_indices": axes}, {})
        small = self._constant(scope, np.array(0.01, numpy_dtype(constant.dtype)))
        scaled = self._emit(scope, "Mul", {"x": total[0].ref, "y": small.ref}, {})
        one = self._constant(scope, np.array(1, numpy_dtype(constant.dtype)))
        factor = self._emit(scope, "AddV2", {"x": scaled[0].ref, "y": one.ref}, {})
        return self._emit(scope, "Mul", {"x": constant.ref, "y": factor[0].ref}, {})[0]

    def _cast(self, scope: Scope) -> None:
        value = self._choose(scope.values)
        if value.dtype == "string":
            return
        dtype = self._choose([*_FLOATS, "int32", "int64", "bool", "uint8", "complex64"])
        if value.dtype.startswith("complex") and not dtype.startswith("complex"):
            return
        if not dtype.startswith(("float", "bfloat", "complex", "bool")) and "float" in value.dtype:
            return  # what a number out of range becomes is not defined
        self._try(scope, "Cast", {"x": value.ref}, {"DstT": {"type": dtype}})

    # ------------------------------------------------------------------ control flow
    def _smooth_values(self, scope: Scope, rank: int = 0) -> list[Value]:
        return [
            v
            for v in scope.values
            if v.dtype in {"float32", "float64"} and v.known and all(len(s or ()) >= rank for s in v.shapes)
        ]

    def _block(self, scope: Scope, parameters: list[Value], wanted: list[Value]) -> dict[str, Any]:
        """A block whose outputs are like `wanted`."""
        inner = Scope([], [*scope.values, *parameters, *parameters], scope.depth + 1, list(parameters))
        for _ in range(self.random.integers(1, 6)):
            self._step(inner)
        outputs = []
        for like in wanted:
            alike = [v for v in inner.own if v.dtype == like.dtype and v.shapes == like.shapes]
            chosen = self._choose(alike[-4:]) if alike else like
            outputs.append(self._emit(inner, "Tanh", {"x": chosen.ref}, {})[0].ref)
        return {"parameters": [producer_of(p) for p in parameters], "nodes": inner.nodes, "outputs": outputs}

    def _parameter(self, dtype: str, shapes: tuple[Shape | None, ...], ancestors: frozenset[str]) -> Value:
        value = Value(f"{self._name()}:0", dtype, shapes, True, ancestors)
        self.shadows.known(value.ref, dtype, shapes)
        return value

    def _finish(self, scope: Scope, node: Node, likes: list[tuple[str, Any]], sources: list[Value]) -> None:
        scope.nodes.append(node)
        self.operation_count += 1
        ancestors = frozenset().union(*(v.ancestors for v in sources))
        for i, (dtype, shapes) in enumerate(likes):
            ref = f"{node['id']}:{i}"
            self.shadows.known(ref, dtype, shapes)
            scope.enter(Value(ref, dtype, shapes, True, ancestors | {ref}))

    def _predicate(self, scope: Scope) -> Value:
        value = self._choose(self._smooth_values(scope) or [self._constant(scope, np.array([0.5], np.float32))])
        flat = self._emit(
            scope,
            "Reshape",
            {"tensor": value.ref, "shape": self._constant(scope, np.array([-1], np.int32)).ref},
            {},
        )[0]
        axes = self._constant(scope, np.array([0], np.int32)).ref
        total = self._emit(scope, "Sum", {"input": flat.ref, "reduction_indices": axes}, {})[0]
        limit = self._constant(scope, np.array(self.random.normal(), numpy_dtype(value.dtype)))
        return self._emit(scope, "Greater", {"x": total.ref, "y": limit.ref}, {})[0]

    def _cond(self, scope: Scope) -> None:
        values = self._smooth_values(scope)
        if not values:
            return
        predicate = self._predicate(scope)
        name = self._name()
        likes = [self._choose(values) for _ in range(self.random.integers(1, 3))]
        node = {
            "id": name,
            "kind": "cond",
            "predicate": predicate.ref,
            "then": self._block(scope, [], likes),
            "else": self._block(scope, [], likes),
        }
        self._finish(scope, node, [(v.dtype, v.shapes) for v in likes], likes)

    def _while(self, scope: Scope) -> None:
        values = self._smooth_values(scope)
        if not values:
            return
        start = [self._choose(values) for _ in range(self.random.integers(1, 3))]
        limit = self._constant(scope, np.array(self.random.integers(5), np.int32))
        name = self._name()
        counter = self._parameter("int32", ((),) * FEEDS, frozenset())
        counter.differentiable = False
        parameters = [self._parameter(v.dtype, v.shapes, v.ancestors) for v in start]
        node = {
            "id": name,
            "kind": "while",
            "limit": limit.ref,
            "start": [v.ref for v in start],
            "unknown_shapes": True,
            "body": self._block(scope, [counter, *parameters], parameters),
        }
        self._finish(scope, node, [(v.dtype, v.shapes) for v in start], start)

    def _rows(self, scope: Scope) -> tuple[Value, Value] | None:
        """Elements to loop over, and the parameter for one of them."""
        values = self._smooth_values(scope, rank=1)
        if not values:
            return None
        elements = self._choose(values)
        rows = tuple(shape[1:] for shape in elements.shapes)
        return elements, self._parameter(elements.dtype, rows, elements.ancestors)

    def _map(self, scope: Scope) -> None:
        found = self._rows(scope)
        if found is None:
            return
        elements, row = found
        node = {
            "id": self._name(),
            "kind": "map",
            "elements": elements.ref,
            "dtype": elements.dtype,
            "body": self._block(scope, [row], [row]),
        }
        self._finish(scope, node, [(elements.dtype, elements.shapes)], [elements])

    def _scan(self, scope: Scope) -> None:
        self._with_state(scope, "scan")

    def _fold(self, scope: Scope) -> None:
        self._with_state(scope, "fold")

    def _array_loop(self, scope: Scope) -> None:
        self._with_state(scope, "array_loop")

    def _with_state(self, scope: Scope, kind: str) -> None:
        found = self._rows(scope)
        if found is None:
            return
        elements, row = found
        values = [v for v in self._smooth_values(scope) if v.dtype == elements.dtype]
        start = self._choose(values)
        state = self._parameter(start.dtype, start.shapes, start.ancestors)
        parameters, wanted = ([row, state], [row, state]) if kind == "array_loop" else ([state, row], [state])
        node = {
            "id": self._name(),
            "kind": kind,
            "elements": elements.ref,
            "start": start.ref,
            "body": self._block(scope, parameters, wanted),
        }
        stacked = tuple((e[:1] + s) for e, s in zip(elements.shapes, start.shapes, strict=True))
        likes = {
            "scan": [(start.dtype, stacked)],
            "fold": [(start.dtype, start.shapes)],
            "array_loop": [(elements.dtype, elements.shapes), (start.dtype, start.shapes)],
        }[kind]
        self._finish(scope, node, likes, [elements, start])

    # ------------------------------------------------------------------ gradients
    def _gradients(self) -> None:
        smooth = [v for v in self.top.values if v.differentiable and len(v.ancestors) > 1]
        for _ in range(self.random.integers(1, 4)):
            if not smooth:
                return
            ys = [self._choose(smooth[-15:]) for _ in range(self.random.integers(1, 3))]
            reached = frozenset().union(*(y.ancestors for y in ys))
            sources = [v for v in self.top.values if v.ref in reached and v.differentiable and v.known]
            leaves = [v for v in sources if len(v.ancestors) == 1]
            if not leaves:
                continue
            xs = list(dict.fromkeys([self._choose(leaves).ref, self._choose(leaves).ref, self._choose(sources).ref]))
            first = self._gradient_node([y.ref for y in ys], xs)
            if self._chance(0.6):
                self._gradient_node([f"{first}:{i}" for i in range(len(xs))], xs)

    def _gradient_node(self, ys: list[str], xs: list[str]) -> str:
        name = self._name()
        self.top.nodes.append({"id": name, "kind": "gradients", "ys": ys, "xs": xs})
        return name


def producer_of(value: Value) -> str:
    """The id of the node or parameter that the value comes from."""
    return value.ref.rpartition(":")[0]


def _castable(name: str, kind: str) -> bool:
    """Whether an array of that kind ("r"eal, "c"omplex, "O"bjects) can be given in the dtype."""
    if kind == "O":
        return name == "string"
    if kind == "c":
        return name in {"complex64", "complex128"}
    return name in {*_FLOATS, *_OTHERS, "uint16", "uint32", "uint64"} and name != "string"


def _is_plain(name: str) -> bool:
    """Whether an operation has a gradient, and nothing to choose but the dtype of its inputs."""
    op = find_op_def(name)
    return op is not None and op.gradient_rule is not None and not op.static and set(op.attrs) <= op.inferred


def make_program(
    seed: int,
    index: int,
    kernels: Kernels,
    operations: int | None = None,
    loops: bool = False,
    one_type: bool = False,
) -> dict[str, Any]:
    """The program of that seed and index; with `loops`, one of control flow and gradients; with `one_type`, one of the
    operation type whose turn it is.
    """
    return Generator(seed, index, kernels, loops, one_type).make(operations)
