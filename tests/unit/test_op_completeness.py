"""Every registered operation is complete, and its signature is TensorFlow's (design D2, D3)."""

from __future__ import annotations

import functools
import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np

import anabranch.frontend.control_flow.eager_functions  # the gradient of EagerPyFunc  # noqa: F401
from anabranch.core.dtypes import DType
from anabranch.core.op_def import MISSING, ArgDef, AttrDef, OpDef
from anabranch.core.registry import all_op_defs, find_op_def
from anabranch.core.shapes import TensorShape
from anabranch.graph.call_types import call_names, call_type
from anabranch.graph.older_types import older_names, older_type
from tests.device.ops.table import table_rows
from tests.device.ops.tested_elsewhere import TESTED_ELSEWHERE

TESTS = Path(__file__).resolve().parent.parent
SIGNATURES = TESTS / "fixtures" / "tensorflow" / "op_signatures.json.gz"

#: Types that TensorFlow added after the API that we follow, or that no kernel of ours computes with.
LEFT_OUT = frozenset(
    (
        "qint8",
        "quint8",
        "qint16",
        "quint16",
        "qint32",
        "variant",
        "resource",
        "float8_e5m2",
        "float8_e4m3fn",
        "int4",
        "uint4",
    )
)

OPS = all_op_defs()


@functools.cache
def rows() -> frozenset[str]:
    """The operations of the rows that `test_table.py` runs to the end."""
    return frozenset(row.op for row in table_rows() if row.error is None)


@functools.cache
def signatures() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(gzip.decompress(SIGNATURES.read_bytes()))["ops"]
    return found


# ------------------------------------------------------------------------------------------------ completeness
def lacking(op: OpDef) -> list[str]:
    """What an operation has to have and this one has not."""
    parts = {
        "has no shape rule": op.shape_rule,
        "has no kernel": op.compiled_rule or op.host_rule,
        "has no gradient; or say `.not_differentiable()`": op.differentiable,
    }
    return [f"{op.name} ({op.defined_at}) {lack}" for lack, part in parts.items() if part is None]


def test_every_operation_is_complete() -> None:
    problems = [problem for _, op in sorted(OPS.items()) for problem in lacking(op)]
    assert not problems, "\n".join(problems)


def unrun(name: str) -> list[str]:
    """Why an operation is run neither by a row of the table nor by the tests of a file."""
    where = "" if name in rows() else TESTED_ELSEWHERE.get(name)
    if where is None:
        return [f"{name} has no row in tests/device/ops/cases_*.py; or tested_elsewhere.py says what runs it"]
    return [] if (TESTS.parent / where).exists() else [f"{where} is said to run {name}, and does not exist"]


def test_every_operation_is_run() -> None:
    """By a row of the table, or by the tests of a file, which `tests/operations_run.py` holds to it."""
    problems = [problem for name in sorted(OPS) for problem in unrun(name)]
    assert not problems, "\n".join(problems)


def test_the_table_names_operations_that_exist() -> None:
    unknown = sorted(name for name in {*rows(), *TESTED_ELSEWHERE} if find_op_def(name) is None)
    assert not unknown


def test_no_operation_is_said_to_be_tested_elsewhere_that_has_a_row() -> None:
    assert not sorted(rows() & TESTED_ELSEWHERE.keys())


# ------------------------------------------------------------------------------------------------- signatures
def foreign(ours: OpDef, name: str) -> list[str]:
    """In what the signature of an operation differs from TensorFlow's."""
    theirs = signatures().get(name)
    if theirs is None:
        return [f"TensorFlow has no {name}; operations of our own begin with an underscore"]
    problems = [
        *compare_args("input", ours.inputs, theirs["inputs"]),
        *compare_args("output", ours.outputs, theirs["outputs"]),
        *compare_attrs(ours, theirs["attrs"]),
    ]
    return [f"{name} ({ours.defined_at}): {problem}" for problem in problems]


def test_signatures_are_tensorflows() -> None:
    problems = [
        problem for name, op in sorted(OPS.items()) if not name.startswith("_") for problem in foreign(op, name)
    ]
    assert not problems, "\n".join(problems)


def foreign_older_type(name: str) -> list[str]:
    """In what an older type of operation differs from TensorFlow's."""
    older, theirs = older_type(name), signatures()[name]
    assert older is not None, name
    references = {a["name"] for a in theirs["outputs"] if a.get("is_ref") and a.get("type") != "string"}
    handles = {a["name"] for a in theirs["inputs"] if a.get("is_ref")}
    problems = [f"{name} is registered under this name"] if name in OPS else []
    if older.references != references:
        problems.append(f"{name}: references are {sorted(older.references)}, TensorFlow's are {sorted(references)}")
    if not older.handles >= handles:
        problems.append(f"{name}: handles are {sorted(older.handles)}, TensorFlow's are {sorted(handles)}")
    return [*problems, *foreign(older.definition, name)]


def test_signatures_of_older_types_are_tensorflows() -> None:
    assert older_names()
    problems = [problem for name in older_names() for problem in foreign_older_type(name)]
    assert not problems, "\n".join(problems)


def test_signatures_of_calls_are_tensorflows() -> None:
    calls = {name: call_type(name) for name in call_names()}
    assert calls
    assert calls.keys().isdisjoint(OPS)
    problems = [problem for name, ours in calls.items() for problem in foreign(ours, name)]  # type: ignore[arg-type]
    assert not problems, "\n".join(problems)


def compare_args(what: str, ours: tuple[ArgDef, ...], theirs: list[dict[str, Any]]) -> list[str]:
    if [a.name for a in ours] != [a["name"] for a in theirs]:
        return [f"{what}s {[a.name for a in ours]}, TensorFlow's are {[a['name'] for a in theirs]}"]
    return [
        f"{what} {mine.name} is {arg_facts(mine)}, TensorFlow's is {other}"
        for mine, other in zip(ours, theirs, strict=True)
        if arg_facts(mine) != {k: v for k, v in other.items() if k not in {"name", "is_ref"}}
    ]


def arg_facts(arg: ArgDef) -> dict[str, Any]:
    facts = {
        "type": arg.dtype.name if arg.dtype is not None else None,
        "type_attr": arg.type_attr,
        "type_list_attr": arg.type_list_attr,
        "number_attr": arg.number_attr,
    }
    return {key: value for key, value in facts.items() if value is not None}


def compare_attrs(op: OpDef, theirs: list[dict[str, Any]]) -> list[str]:
    problems = []
    by_name = {attr["name"]: attr for attr in theirs}
    for attr in op.attrs.values():
        other = by_name.get(attr.name)
        if other is None:
            problems.append(f"TensorFlow has no attribute {attr.name}")
        else:
            problems += compare_attr(attr, other)
    for other in theirs:
        if other["name"] not in op.attrs and "default" not in other:
            problems.append(f"the attribute {other['name']} is missing")
    return problems


def compare_attr(ours: AttrDef, theirs: dict[str, Any]) -> list[str]:
    if ours.kind != theirs["type"]:
        return [f"{ours.name} is of kind {ours.kind}, TensorFlow's of {theirs['type']}"]
    problems = []
    if not same_default(default_as_json(ours), theirs.get("default", MISSING)):
        problems.append(
            f"{ours.name} = {default_as_json(ours)}, TensorFlow's default is {theirs.get('default', MISSING)}"
        )
    if ours.allowed is not None:
        mine = {item.name if isinstance(item, DType) else item.decode() for item in ours.allowed}
        missing = set(theirs.get("allowed", mine)) - mine - LEFT_OUT
        if missing or "allowed" not in theirs:
            problems.append(f"{ours.name} does not allow {sorted(missing) or 'everything'}, as TensorFlow's does")
    return problems


def same_default(ours: Any, theirs: Any) -> bool:
    if isinstance(ours, float) and isinstance(theirs, float | int):
        return bool(np.float32(ours) == np.float32(theirs))
    return bool(ours == theirs) and isinstance(ours, bool) == isinstance(theirs, bool)


def default_as_json(attr: AttrDef) -> Any:
    """The default as the fixture writes it: types by name, text as str, shapes as lists, infinity as text."""
    return MISSING if attr.default is MISSING else as_json(attr.default)


def as_json(value: Any) -> Any:
    if isinstance(value, DType):
        return value.name
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, TensorShape):
        return None if value.dims_tuple is None else list(value.dims_tuple)
    if isinstance(value, list):
        return [as_json(item) for item in value]
    if isinstance(value, np.ndarray):
        return {"dtype": value.dtype.name, "shape": list(value.shape), "values": value.tolist()}
    if isinstance(value, float) and not np.isfinite(value):
        return str(value)
    return value
