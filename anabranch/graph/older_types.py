"""How the operation types are called that exist as nodes of older programs only  (docs/decisions/0062).

They work on references: tensors of a `ref` type, which stand for the buffer of a variable, or for a queue, a table or a
reader. Here these are resources, and `graph.ref_variables` and `graph.ref_handles` say what becomes of a node of such a
type. No operation of these types is ever created, so they stand in no registry: a definition is a signature without
rules, and most are the signatures of the newer types with references in the places of handles.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from anabranch.core.dtypes import resource, string
from anabranch.core.op_def import ArgDef, AttrDef
from anabranch.core.op_signatures import parse_op_def
from anabranch.core.registry import find_op_def
from anabranch.graph import ref_handles, ref_variables
from anabranch.graph.building import OpFunction

_LOCKED: Final = "use_locking: bool = True"
_UNLOCKED: Final = "use_locking: bool = False"
_SHARED: Final = "container: string = '', shared_name: string = ''"
_VARIABLE: Final = ("-> ref: &dtype", f"shape: shape, dtype: any, {_SHARED}")
_CHANGE: Final = "ref: &T, value: T -> output_ref: &T"
_SCATTER: Final = "ref: &T, indices: Tindices, updates: T -> output_ref: &T"
_POLICY: Final = "bad_indices_policy: string = ''"
_LOOP: Final = "T: any, frame_name: string, is_constant: bool = False, parallel_iterations: int = 10"
_MASKS: Final = ", ".join(f"{n}_mask: int = 0" for n in ("begin", "end", "ellipsis", "new_axis", "shrink_axis"))

#: type -> its signature and attributes; & marks references to variables
_VARIABLES: Final[Mapping[str, tuple[str, str]]] = {
    "Variable": _VARIABLE,
    "VariableV2": _VARIABLE,
    "TemporaryVariable": ("-> ref: &dtype", "shape: shape, dtype: any, var_name: string = ''"),
    "DestroyTemporaryVariable": ("ref: &T -> value: T", "T: any, var_name: string"),
    "Assign": (_CHANGE, f"T: any, validate_shape: bool = True, {_LOCKED}"),
    "AssignAdd": (_CHANGE, f"T: numbers, {_UNLOCKED}"),
    "AssignSub": (_CHANGE, f"T: numbers, {_UNLOCKED}"),
    "IsVariableInitialized": ("ref: &dtype -> is_initialized: bool", "dtype: any"),
    "CountUpTo": ("ref: &T -> output: T", "limit: int, T: index"),
    "ScatterUpdate": (_SCATTER, f"T: any, Tindices: index, {_LOCKED}"),
    **{
        f"Scatter{how}": (_SCATTER, f"T: numbers, Tindices: index, {_UNLOCKED}") for how in ("Add", "Sub", "Mul", "Div")
    },
    **{f"Scatter{how}": (_SCATTER, f"T: real, Tindices: index, {_UNLOCKED}") for how in ("Min", "Max")},
    "ScatterNdUpdate": (_SCATTER, f"T: any, Tindices: index, {_LOCKED}, {_POLICY}"),
    **{
        f"ScatterNd{how}": (_SCATTER, f"T: numbers, Tindices: index, {_UNLOCKED}, {_POLICY}")
        for how in ("Add", "Sub", "Min", "Max")
    },
    "StridedSliceAssign": (
        "ref: &T, begin: Index, end: Index, strides: Index, value: T -> output_ref: &T",
        f"T: any, Index: index, {_MASKS}",
    ),
    "RefIdentity": ("input: &T -> output: &T", "T: any"),
    "DebugGradientRefIdentity": ("input: &T -> output: &T", "T: any"),
    "RefSelect": ("index: int32, inputs: N * &T -> output: &T", "T: any, N: int >= 1"),
    "RefSwitch": ("data: &T, pred: bool -> output_false: &T, output_true: &T", "T: any"),
    "RefMerge": ("inputs: N * &T -> output: &T, value_index: int32", "T: any, N: int >= 1"),
    "RefEnter": ("data: &T -> output: &T", _LOOP),
    "RefExit": ("data: &T -> output: &T", "T: any"),
    "RefNextIteration": ("data: &T -> output: &T", "T: any"),
    "SdcaShrinkL1": ("weights: num_features * &float ->", "num_features: int >= 0, l1: float, l2: float"),
}

_ARRAY: Final = "handle: string, flow_in: float32"

#: types that have no newer one of the same form -> their signatures and attributes
_ARRAYS: Final[Mapping[str, tuple[str, str]]] = {
    "TensorArrayPack": (f"{_ARRAY} -> value: dtype", "dtype: any, element_shape: shape = unknown"),
    "TensorArrayUnpack": ("handle: string, value: T, flow_in: float32 -> flow_out: float32", "T: any"),
}

#: attributes, inputs and outputs that only the newer type has
_NEW: Final[Mapping[str, str]] = {
    "FixedLengthRecordReader": "encoding",
    "MutableDenseHashTable": "deleted_key",
    **dict.fromkeys(("TensorArrayGrad", "TensorArrayGradV2"), "flow_out"),
}
_NEW_OF_ARRAYS: Final = ("identical_element_shapes", "flow")

#: types of which there are operations on ordinary tensors as well
ALSO_VALUES: Final = frozenset({"RefSwitch", "RefMerge", "RefEnter", "RefExit", "RefNextIteration"})


@dataclass(frozen=True, slots=True)
class OlderType:
    """An operation type of older programs.

    Attributes:
        definition: its signature; its name, inputs, outputs and attributes are TensorFlow's.
        handles: the inputs that are references, for which handles stand here.
        references: the outputs that are references to variables.
    """

    definition: OpFunction
    handles: frozenset[str]
    references: frozenset[str] = frozenset()


def older_names() -> list[str]:
    """The names of all of them, in alphabetical order; those that are operations as well are not among them."""
    names = {*_VARIABLES, *_updating(), *ref_handles.RENAMED, *_ARRAYS, ref_handles.FAKE_QUEUE}
    return sorted(names - ALSO_VALUES)


@functools.cache
def older_type(name: str) -> OlderType | None:
    """The type of that name; None where older programs have none of that name, or it is an operation here."""
    if name in _VARIABLES:
        return _read(name, *_VARIABLES[name])
    if name in _updating():
        return _of_update(name, ref_variables.UPDATES[name].op)
    if name in _ARRAYS:
        return OlderType(_read(name, *_ARRAYS[name]).definition, frozenset({"handle"}))
    if name == ref_handles.FAKE_QUEUE:
        return OlderType(_read(name, "resource: resource -> handle: string", "").definition, frozenset({"resource"}))
    if name in ref_handles.RENAMED:
        return _of_handle(name, ref_handles.RENAMED[name])
    return None


def _updating() -> frozenset[str]:
    return frozenset(name for name in ref_variables.UPDATES if "Apply" in name)


def _read(name: str, signature: str, attrs: str) -> OlderType:
    before, _, after = signature.partition("->")
    definition = parse_op_def(name, signature.replace("&", ""), attrs, factory=OpFunction)
    handles = _marked(definition.inputs, before)
    return OlderType(definition, handles, _marked(definition.outputs, after))


def _marked(args: Iterable[ArgDef], text: str) -> frozenset[str]:
    marked = {part.partition(":")[0].strip() for part in text.split(",") if "&" in part}
    return frozenset(arg.name for arg in args if arg.name in marked)


def _of_update(name: str, newer: str) -> OlderType:
    """The update of an optimizer, which gives the variable back."""
    op = find_op_def(newer)
    assert op is not None, newer
    inputs = [ArgDef(arg.name, type_attr="T") if arg.dtype is resource else arg for arg in op.inputs]
    handles = frozenset(arg.name for arg in op.inputs if arg.dtype is resource)
    out = ArgDef("out", type_attr="T")
    return OlderType(_definition(name, inputs, [out], op.attrs), handles, frozenset({"out"}))


def _of_handle(name: str, newer: str) -> OlderType:
    op = find_op_def(newer)
    assert op is not None, newer
    new = {_NEW.get(name, ""), *(_NEW_OF_ARRAYS if name in {"TensorArray", "TensorArrayV2"} else ())}
    inputs = [ArgDef(arg.name, dtype=string) if arg.dtype is resource else arg for arg in op.inputs]
    outputs = [ArgDef(arg.name, dtype=string) if arg.dtype is resource else arg for arg in op.outputs]
    handles = frozenset(arg.name for arg in op.inputs if arg.dtype is resource)
    attrs = {key: attr for key, attr in op.attrs.items() if key not in new}
    inputs, outputs = ([arg for arg in args if arg.name not in new] for args in (inputs, outputs))
    return OlderType(_definition(name, inputs, outputs, attrs), handles)


def _definition(
    name: str, inputs: Iterable[ArgDef], outputs: Iterable[ArgDef], attrs: Mapping[str, AttrDef]
) -> OpFunction:
    held = tuple(inputs)
    inferred = {a for arg in held for a in (arg.type_attr, arg.number_attr, arg.type_list_attr) if a}
    return OpFunction(name, held, tuple(outputs), dict(attrs), inferred=frozenset(inferred))
