"""What `tf.raw_ops` is made of: functions of operation types, their signatures and their help."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any, Final

from anabranch.core.op_def import MISSING, ArgDef, AttrDef
from anabranch.core.registry import all_op_defs, find_op_def
from anabranch.frontend.raw_calls import build_call
from anabranch.graph.building import Argument, OpFunction
from anabranch.graph.call_types import call_names, call_type
from anabranch.graph.older_operations import build, takes_references
from anabranch.graph.older_types import ALSO_VALUES, older_names, older_type

_AXIS: Final = {"reduction_indices": "axis"}
#: arguments that TensorFlow's functions call otherwise than the definitions of the operations do
_RENAMED: Final = {
    "All": _AXIS,
    "Any": _AXIS,
    "EuclideanNorm": _AXIS,
    "ExpandDims": {"dim": "axis"},
    "Max": _AXIS,
    "Mean": _AXIS,
    "Min": _AXIS,
    "Prod": _AXIS,
    "Select": {"t": "x", "e": "y"},
    "Split": {"split_dim": "axis"},
    "SplitV": {"split_dim": "axis"},
    "Squeeze": {"squeeze_dims": "axis"},
    "Sum": _AXIS,
    "Where": {"input": "condition"},
}
#: what an attribute of a kind is given as
_ATTRIBUTE_TYPES: Final = {
    "int": "int",
    "float": "float",
    "bool": "bool",
    "string": "str | bytes",
    "type": "DTypeLike",
    "shape": "ShapeLike",
    "tensor": "TensorLike",
    "func": "FuncAttr | NameAttrList | str | Callable[..., object]",
}


def public_operations() -> list[OpFunction]:
    """The operation types that programs may use, by name: those of TensorFlow, older ones and calls among them."""
    op_defs = {name: op for name, op in all_op_defs().items() if name[0] != "_" and isinstance(op, OpFunction)}
    older = (older_type(name) for name in older_names())
    op_defs |= {found.definition.name: found.definition for found in older if found is not None}
    calls = (call_type(name) for name in call_names())
    op_defs |= {found.name: found for found in calls if found is not None}
    return [op_defs[name] for name in sorted(op_defs)]


def generated_function(op: OpFunction) -> Callable[..., Any]:
    """An operation type as modules like `gen_math_ops` have it: its arguments may also be given by position."""
    defined = {public: name for name, public in _RENAMED.get(op.name, {}).items()}
    older = older_type(op.name)

    def apply(*args: Argument, **kwargs: Argument) -> Any:
        if call_type(op.name) is not None:
            return build_call(op, args, kwargs)
        if older is not None and (op.name not in ALSO_VALUES or takes_references(older, args, kwargs)):
            return build(older, args, kwargs)
        return op(*args, **{defined.get(key, key): value for key, value in kwargs.items()})

    apply.__name__ = apply.__qualname__ = op.name
    apply.__doc__ = _help_of(op)
    return apply


def keyword_function(name: str) -> Callable[..., Any] | None:
    """The function of an operation type that takes keywords only; None where programs may use none of that name."""
    op = None if name.startswith("_") else find_op_def(name)
    if op is None and (older := older_type(name)) is not None:
        op = older.definition
    op = op or call_type(name)
    if not isinstance(op, OpFunction):
        return None
    function = generated_function(op)
    signature = signature_of(op)

    def apply(*args: Argument, **kwargs: Argument) -> Any:
        if args:
            raise TypeError(
                f"{name} only takes keyword args (possible keys: {list(signature.parameters)}). "
                "Please pass these args as kwargs instead."
            )
        return function(**kwargs)

    apply.__name__ = apply.__qualname__ = name
    apply.__doc__ = function.__doc__
    apply.__signature__ = signature  # type: ignore[attr-defined]
    return apply


# ---------------------------------------------------------------------- what help and type checkers show
def signature_of(op: OpFunction) -> inspect.Signature:
    """How the function of an operation type is called, with annotations as the stub has them."""
    inputs = {arg.name: arg for arg in op.inputs}
    renamed = _RENAMED.get(op.name, {})
    parameters = [
        _input_parameter(renamed.get(name, name), inputs[name])
        if name in inputs
        else _attribute_parameter(renamed.get(name, name), op.attrs[name])
        for name in op.parameters()
    ]
    parameters.append(_keyword("name", "str | None", None))
    return inspect.Signature(parameters, return_annotation=_result_type(op))


def _keyword(name: str, annotation: str, default: object = inspect.Parameter.empty) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _input_parameter(name: str, arg: ArgDef) -> inspect.Parameter:
    return _keyword(name, "Sequence[TensorLike]" if arg.is_list else "TensorLike")


def _attribute_parameter(name: str, attr: AttrDef) -> inspect.Parameter:
    scalar = _ATTRIBUTE_TYPES[attr.kind.removeprefix("list(").removesuffix(")")]
    annotation = f"Sequence[{scalar}]" if attr.kind.startswith("list(") else scalar
    if attr.default is MISSING:
        return _keyword(name, annotation)
    return _keyword(name, annotation, attr.default.decode() if isinstance(attr.default, bytes) else attr.default)


def _result_type(op: OpFunction) -> str:
    if not op.outputs:
        return "Operation"
    return f"_{op.name}" if len(op.outputs) > 1 else output_type(op.outputs[0])


def output_type(arg: ArgDef) -> str:
    """What one output of an operation type gives."""
    return "list[Tensor]" if arg.is_list else "Tensor"


def _help_of(op: OpFunction) -> str:
    renamed = _RENAMED.get(op.name, {})
    lines = [f"Adds an operation of type `{op.name}` to the graph of its inputs, or to the default graph.", ""]
    lines += ["Args:", *(f"    {renamed.get(arg.name, arg.name)}: {_described(arg)}." for arg in op.inputs)]
    free = [op.attrs[name] for name in op.parameters() if name in op.attrs]
    lines += [f"    {renamed.get(attr.name, attr.name)}: {attr.kind}{_restrictions(attr)}." for attr in free]
    lines += ["    name: the operation's name.", "", "Returns:"]
    lines += [f"    {arg.name}: {_described(arg)}." for arg in op.outputs] or ["    The operation."]
    types = [f"    {name}: {op.attrs[name].kind}{_restrictions(op.attrs[name])}." for name in sorted(op.inferred)]
    if types:
        lines += ["", "What follows from the inputs:", *types]
    return "\n".join(lines)


def _described(arg: ArgDef) -> str:
    if arg.type_list_attr is not None:
        return f"tensors of the dtypes {arg.type_list_attr}"
    dtype = arg.type_attr or (arg.dtype.name if arg.dtype is not None else "")
    return f"tensor of dtype {dtype}" if arg.number_attr is None else f"{arg.number_attr} tensors of dtype {dtype}"


def _restrictions(attr: AttrDef) -> str:
    return "".join(_each_restriction(attr))


def _each_restriction(attr: AttrDef) -> Iterator[str]:
    if attr.allowed is not None:
        names = sorted(a.decode() if isinstance(a, bytes) else getattr(a, "name", str(a)) for a in attr.allowed)
        yield f", one of {', '.join(names)}"
    if attr.minimum is not None:
        yield f", at least {attr.minimum}{' items' if attr.kind.startswith('list(') else ''}"
