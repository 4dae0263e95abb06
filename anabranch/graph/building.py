"""Applying an operation type: Python arguments in, a new operation of the graph out."""

from __future__ import annotations

import contextlib
import inspect
import operator
import sys
from collections import namedtuple
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, Unpack

import numpy as np

from anabranch.core.attrs import AttributeValue, FuncAttr, single_precision
from anabranch.core.dtypes import DType, as_dtype
from anabranch.core.op_def import MISSING, ArgDef, AttrDef, OpDef, OpFlags
from anabranch.core.op_signatures import parse_op_def
from anabranch.core.registry import register_op
from anabranch.core.shapes import TensorShape
from anabranch.core.values import TensorLike, to_array
from anabranch.graph.conversion import convert_to_tensor, is_tensor_like
from anabranch.graph.graph import Graph, get_default_graph
from anabranch.graph.operation import Operation, Tensor, group_by_argument
from anabranch.proto.attr_values import attr_from_proto
from anabranch.proto.graph_pb2 import AttrValue, NameAttrList

#: What an operation type is called with: an input, or the value of an attribute.
Argument: TypeAlias = TensorLike | AttributeValue


class OpFunction(OpDef):
    """An operation type that can be called to add an operation to the default graph.

    ``MatMul(a, b, transpose_a=True, name="m")``: inputs come first, in the order of the signature, then attributes;
    all may be given by keyword. Attributes that follow from the inputs need not be given.

    Returns:
        The operation itself when it has no outputs, its output when it has one (a list for a variadic one), else a
        named tuple by output argument.
    """

    __slots__ = ("_parameters", "_result_type")
    _parameters: tuple[str, ...]
    _result_type: Any

    def __call__(self, *args: Argument, name: str | None = None, **kwargs: Argument) -> Any:
        op = apply_op(self, self.bind(args, kwargs), name)
        return self.result_of(op)

    def result_of(self, op: Operation) -> Any:
        """The outputs of an operation of this type, in the form that calling the type returns."""
        return self.arranged(op.outputs, op.attrs) if self.outputs else op

    def arranged(self, outputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Any:
        """Flat outputs in the form that calling the type returns."""
        grouped = group_by_argument(self.outputs, attrs, outputs)
        if len(grouped) == 1:
            return grouped[0]
        return self._tuple_type()(*grouped)

    def _tuple_type(self) -> Any:
        try:
            return self._result_type
        except AttributeError:
            self._result_type = namedtuple(self.name, [arg.name for arg in self.outputs])  # type: ignore[misc]  # noqa: PYI024 - names are data
            return self._result_type

    def parameters(self) -> tuple[str, ...]:
        """The names that a call takes, in order: inputs, then attributes that are not inferred (required first)."""
        try:
            return self._parameters
        except AttributeError:
            free = [a for a in self.attrs.values() if a.name not in self.inferred]
            free.sort(key=lambda a: a.has_default)
            self._parameters = (*(arg.name for arg in self.inputs), *(a.name for a in free))
            return self._parameters

    @property
    def __signature__(self) -> inspect.Signature:
        """What `inspect.signature` and `help` show."""
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        needed = {arg.name for arg in self.inputs} | {a.name for a in self.attrs.values() if not a.has_default}
        shown = [
            inspect.Parameter(n, kind) if n in needed else inspect.Parameter(n, kind, default=self.attrs[n].default)
            for n in self.parameters()
        ]
        return inspect.Signature([*shown, inspect.Parameter("name", kind, default=None)])

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The arguments of a call by their names.

        Raises:
            TypeError: there are too many, one is given twice, or there is none of that name.
        """
        names = self.parameters()
        if len(args) > len(names):
            raise TypeError(f"{self.name}() takes {len(names)} arguments {names}, got {len(args)}")
        bound = dict(zip(names, args, strict=False))
        for key, value in kwargs.items():
            if key in bound:
                raise TypeError(f"{self.name}() got several values for the argument {key!r}")
            if key not in names and key not in self.attrs:
                raise TypeError(f"{self.name}() has no argument {key!r}; it has {[*names, 'name']}")
            bound[key] = value
        return bound

    def __repr__(self) -> str:
        return f"<operation type {self.name}>"


def define_op(name: str, signature: str, attrs: str = "", **flags: Unpack[OpFlags]) -> OpFunction:
    """Defines and registers an operation type; see `core.op_def` for the language and the rules to attach.

    Raises:
        ValueError: malformed signature, or the name is taken.
    """
    op_function = parse_op_def(name, signature, attrs, factory=OpFunction, **flags)
    frame = sys._getframe(1)
    op_function.defined_at = f"{frame.f_code.co_filename}:{frame.f_lineno}"
    register_op(op_function)
    return op_function


# ---------------------------------------------------------------------- applying
def apply_op(op_def: OpDef, bound: dict[str, Any], name: str | None = None) -> Operation:
    """Adds an operation of type `op_def` to the graph of its inputs.

    Args:
        bound: input values and attributes by name.

    Raises:
        TypeError: a missing argument, or a dtype that the operation does not take.
        ValueError: shapes or attribute values that the operation does not take, inputs of different graphs.
    """
    attrs = _given_attrs(op_def, bound)
    values = [_argument(op_def, arg, bound) for arg in op_def.inputs]
    name = name or op_def.name.lstrip("_")
    graph = _graph_for(values)
    with _entered(graph):
        if all(_is_ready(value) for value in values):
            inputs = _convert_inputs(op_def, values, attrs)
        else:
            with graph.name_scope(name) as name:
                inputs = _convert_inputs(op_def, values, attrs)
        complete_attrs(op_def, attrs)
        if attrs.get("container") == b"" and graph.current_container:
            attrs["container"] = graph.current_container.encode()
        captured = [t if t._op._graph is graph else graph.capture(t) for t in inputs]
        return graph.create_op(op_def, captured, attrs, name=name)


def read_arguments(op_def: OpDef, bound: dict[str, Any]) -> tuple[list[Tensor], dict[str, Any]]:
    """The flat inputs and the attributes of an operation of type `op_def` that is not created; raises as `apply_op`."""
    attrs = _given_attrs(op_def, bound)
    inputs = _convert_inputs(op_def, [_argument(op_def, arg, bound) for arg in op_def.inputs], attrs)
    complete_attrs(op_def, attrs)
    return inputs, attrs


def _entered(graph: Graph) -> contextlib.AbstractContextManager[Any]:
    return contextlib.nullcontext() if graph is get_default_graph() else graph.as_default()


def _argument(op_def: OpDef, arg: ArgDef, bound: dict[str, Any]) -> Any:
    try:
        value = bound[arg.name]
    except KeyError:
        raise TypeError(f"operation {op_def.name} needs the input {arg.name!r}") from None
    if arg.is_list:
        if not isinstance(value, list | tuple):
            raise TypeError(f"Expected list for {arg.name!r} argument to {op_def.name!r} Op, not {value!r}.")
        return list(value)
    return value


def _is_ready(value: object) -> bool:
    return isinstance(value, Tensor) or (isinstance(value, list) and all(isinstance(v, Tensor) for v in value))


def _graph_for(values: list[Any]) -> Graph:
    """The default graph if it builds a function (outer tensors are captured), else the graph of the inputs."""
    default = get_default_graph()
    if default.building_function:
        return default
    for value in values:
        for item in value if isinstance(value, list) else (value,):
            graph = item._op._graph if isinstance(item, Tensor) else getattr(item, "graph", None)
            if isinstance(graph, Graph):
                _check_not_in_body(item, graph)
                return graph
    return default


def _check_not_in_body(item: Tensor, graph: Graph) -> None:
    if graph.building_function:
        raise ValueError(
            f"{item.name} (created at {item.op.site}) is in the body of a loop, a branch or a function, and cannot be "
            "used outside of it; let the body return it"
        )


def _convert_inputs(op_def: OpDef, values: list[Any], attrs: dict[str, Any]) -> list[Tensor]:
    _types_from_tensors(op_def, values, attrs)
    inputs: list[Tensor] = []
    for arg, value in zip(op_def.inputs, values, strict=True):
        if arg.type_list_attr is not None:
            inputs.extend(_convert_type_list(op_def, arg, value, attrs))
            continue
        dtype = _expected_dtype(arg, attrs)
        if arg.number_attr is None:
            tensor = _convert_one(op_def, arg, value, dtype, arg.name, attrs)
            inputs.append(tensor)
        else:
            _set_number(op_def, arg, len(value), attrs)
            for i, item in enumerate(value):
                tensor = _convert_one(op_def, arg, item, _expected_dtype(arg, attrs), f"{arg.name}_{i}", attrs)
                inputs.append(tensor)
    return inputs


def _types_from_tensors(op_def: OpDef, values: list[Any], attrs: dict[str, Any]) -> None:
    """A type attribute is decided by the first input that has a dtype; plain Python values follow it."""
    for arg, value in zip(op_def.inputs, values, strict=True):
        if arg.type_attr is None or arg.type_attr in attrs:
            continue
        for item in value if arg.is_list else (value,):
            if is_tensor_like(item) and getattr(item, "dtype", None) is not None:
                attrs[arg.type_attr] = as_dtype(item.dtype).base_dtype
                break


def _expected_dtype(arg: ArgDef, attrs: dict[str, Any]) -> DType | None:
    return arg.dtype if arg.type_attr is None else attrs.get(arg.type_attr)


def _default_type(op_def: OpDef, arg: ArgDef, value: TensorLike) -> DType | None:
    """The dtype of a plain value where nothing else decides its type attribute.

    An array of NumPy's keeps a dtype of another kind, which the attribute allows, and one that the default is too
    narrow for: otherwise a number would lose its fraction, or its higher bits.
    """
    attr = op_def.attrs[arg.type_attr] if arg.type_attr is not None else None
    if attr is None or not attr.has_default:
        return None
    default: DType = attr.default
    if not isinstance(value, np.ndarray | np.generic) or value.dtype == default.as_numpy_dtype:
        return default
    own = as_dtype(value.dtype)
    if attr.allowed is not None and own not in attr.allowed:
        return default
    alike = np.can_cast(value.dtype, default.as_numpy_dtype, "same_kind")
    return default if alike and np.array_equal(value, value.astype(default.as_numpy_dtype)) else own


def _convert_one(
    op_def: OpDef, arg: ArgDef, value: TensorLike, dtype: DType | None, name: str, attrs: dict[str, Any]
) -> Tensor:
    try:
        if dtype is None:
            tensor = convert_to_tensor(value, name=name, preferred_dtype=_default_type(op_def, arg, value))
        else:
            tensor = convert_to_tensor(value, dtype, name=name)
    except ValueError as error:
        if is_tensor_like(value) and dtype is not None:
            raise TypeError(_mismatch(op_def, arg, value, dtype)) from error
        raise ValueError(f"Tried to convert {arg.name!r} to a tensor and failed. Error: {error}") from error
    if dtype is not None and tensor.dtype.base_dtype is not dtype:
        raise TypeError(_mismatch(op_def, arg, tensor, dtype))
    if arg.type_attr is not None:
        attrs.setdefault(arg.type_attr, tensor.dtype.base_dtype)
    return tensor


def _mismatch(op_def: OpDef, arg: ArgDef, value: TensorLike, expected: DType) -> str:
    got = as_dtype(value.dtype).base_dtype
    origin = f" ({value.name}, created at {value.op.site})" if isinstance(value, Tensor) else ""
    if arg.type_attr is None:
        return (
            f"Input {arg.name!r} of {op_def.name!r} Op has type {got.name} that does not match expected type of "
            f"{expected.name}{origin}; use tf.cast"
        )
    other = next((a.name for a in op_def.inputs if a.type_attr == arg.type_attr and a is not arg), arg.type_attr)
    return (
        f"Input {arg.name!r} of {op_def.name!r} Op has type {got.name} that does not match type {expected.name} "
        f"of argument {other!r}{origin}; use tf.cast"
    )


def _convert_type_list(op_def: OpDef, arg: ArgDef, values: list[Any], attrs: dict[str, Any]) -> list[Tensor]:
    types = attrs.get(arg.type_list_attr or "")
    if types is not None and len(types) != len(values):
        raise TypeError(f"operation {op_def.name} needs {len(types)} tensors for {arg.name!r}, got {len(values)}")
    tensors = [
        convert_to_tensor(v, None if types is None else types[i], name=f"{arg.name}_{i}") for i, v in enumerate(values)
    ]
    attrs.setdefault(arg.type_list_attr or "", [t.dtype.base_dtype for t in tensors])
    return tensors


def _set_number(op_def: OpDef, arg: ArgDef, count: int, attrs: dict[str, Any]) -> None:
    number = arg.number_attr or ""
    minimum = op_def.attrs[number].minimum
    if count < (0 if minimum is None else minimum):
        raise ValueError(
            f"List argument {arg.name!r} to {op_def.name!r} Op with length {count} shorter than "
            f"minimum length {minimum}."
        )
    if attrs.setdefault(number, count) != count:
        raise ValueError(
            f"List argument {arg.name!r} to {op_def.name!r} Op with length {count} must match length {attrs[number]} "
            "of the other list arguments."
        )


# ---------------------------------------------------------------------- attributes
def _given_attrs(op_def: OpDef, bound: dict[str, Any]) -> dict[str, Any]:
    values = {}
    for name, value in bound.items():
        attr = op_def.attrs.get(name)
        if attr is not None and value is not None:
            values[name] = attr_value(op_def.name, attr, value)
        elif attr is not None and attr.kind == "shape":
            values[name] = TensorShape(None)
    return values


def complete_attrs(op_def: OpDef, attrs: dict[str, Any]) -> None:
    """Fills in defaults.

    Raises:
        TypeError: an attribute without one is missing, or a type is not among those allowed.
    """
    for attr in op_def.attrs.values():
        if attr.name not in attrs:
            if attr.default is MISSING:
                raise TypeError(f"operation {op_def.name} needs the attribute {attr.name!r} ({attr.kind})")
            attrs[attr.name] = list(attr.default) if isinstance(attr.default, list) else attr.default
        elif attr.allowed is not None and attr.kind in {"type", "list(type)"}:
            _check_types(op_def, attr, attrs[attr.name])


def _check_types(op_def: OpDef, attr: AttrDef, value: AttributeValue) -> None:
    for dtype in value if isinstance(value, list) else (value,):
        if dtype not in (attr.allowed or ()):
            parameter = next((a.name for a in op_def.inputs if attr.name in (a.type_attr, a.type_list_attr)), attr.name)
            names = ", ".join(sorted(d.name for d in attr.allowed or ()))
            raise TypeError(
                f"Value passed to parameter {parameter!r} has DataType {dtype.name} not in list of allowed values: "
                f"{names} (operation {op_def.name})"
            )


def attr_value(op_name: str, attr: AttrDef, value: AttributeValue) -> Any:
    """A Python value in the form in which operations hold attributes of that kind.

    Raises:
        TypeError: it is not of that kind.
        ValueError: it is not among the allowed values, or below the minimum.
    """
    if attr.kind.startswith("list("):
        if not isinstance(value, list | tuple | TensorShape):
            raise TypeError(f"Expected list for attr {attr.name!r} of {op_name}, got {value!r}")
        result: Any = [_scalar_attr(op_name, attr, attr.kind[5:-1], v) for v in value]
    else:
        result = _scalar_attr(op_name, attr, attr.kind, value)
    if attr.minimum is not None:
        size = len(result) if isinstance(result, list) else result
        if size < attr.minimum:
            raise ValueError(f"Attr {attr.name!r} of {op_name!r} Op passed {size} less than minimum {attr.minimum}.")
    if attr.allowed is not None and "string" in attr.kind:
        for item in result if isinstance(result, list) else (result,):
            if item not in attr.allowed:
                raise ValueError(
                    f"Attr {attr.name!r} of {op_name!r} Op passed string {item.decode()!r} not in: {_quoted(attr)}."
                )
    return result


def _quoted(attr: AttrDef) -> str:
    return ", ".join(f'"{allowed.decode()}"' for allowed in attr.allowed or ())


def _scalar_attr(op_name: str, attr: AttrDef, kind: str, value: AttributeValue) -> Any:
    try:
        return _ATTR_READERS[kind](value)
    except (TypeError, ValueError, AttributeError) as error:
        raise TypeError(f"Expected {kind} for attr {attr.name!r} of {op_name!r} Op, got {value!r}: {error}") from error


def _read_bool(value: object) -> bool:
    if isinstance(value, bool | np.bool_ | int | np.integer):
        return bool(value)
    raise TypeError("not a bool")


def _read_string(value: object) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode("utf-8")
    raise TypeError("not a string")


def _read_int(value: AttributeValue) -> int:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return operator.index(value) if not hasattr(value, "value") or value.value is None else int(value)


def _read_type(value: object) -> DType:
    return as_dtype(value).base_dtype


def _read_func(value: object) -> FuncAttr:
    if isinstance(value, FuncAttr):
        return value
    if isinstance(value, str):
        return FuncAttr(value, {})
    if isinstance(value, NameAttrList):
        return attr_from_proto(AttrValue(func=value), "func")  # type: ignore[no-any-return]
    add = getattr(value, "add_to_graph", None)
    if add is not None:
        return FuncAttr(add(get_default_graph()), {})
    raise TypeError("not a function name")


def _read_tensor(value: TensorLike) -> np.ndarray[Any, Any]:
    return to_array(value)


_ATTR_READERS: dict[str, Any] = {
    "int": _read_int,
    "float": single_precision,
    "bool": _read_bool,
    "string": _read_string,
    "type": _read_type,
    "shape": TensorShape,
    "tensor": _read_tensor,
    "func": _read_func,
}
