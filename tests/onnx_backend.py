"""Runs the node cases of the onnx package's backend tests: here, in onnxruntime and in the reference evaluator.

`python -m tests.onnx_backend` prints a table of operators; `--peers` runs the other two beside it.
"""

from __future__ import annotations

import argparse
import collections
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
from onnx import numpy_helper

import anabranch as tf
import anabranch.onnx
from anabranch.onnx import element_types
from anabranch.onnx.rules import NeedsConstantError

DATA = Path(onnx.__file__).parent / "backend" / "test" / "data"
Value = np.ndarray | list[np.ndarray] | None


@dataclass(frozen=True)
class Case:
    """A model with values for its inputs and what must come out."""

    name: str
    model: onnx.ModelProto
    inputs: list[Value]
    outputs: list[Value]
    #: The same as the onnx package reads them: elements of its narrow types are bits, or numbers in later versions.
    read_inputs: list[Value]
    read_outputs: list[Value]

    @property
    def operator(self) -> str:
        types = [node.op_type for node in self.model.graph.node if node.op_type != "Constant"]
        return max(types or ["Constant"], key=lambda t: (t.lower() in self.name.replace("_", ""), types.count(t)))


def cases(kind: str = "node", only: str = "", first: int = 0, every: int = 1) -> Iterator[Case]:
    """The plain cases, without those that spell an operator's definition out; or one of so many of them."""
    named = (folder for folder in sorted((DATA / kind).iterdir()) if only in folder.name)
    plain = [f for f in named if "_expanded" not in f.name and (f / "model.onnx").is_file()]
    for folder in plain[first::every]:
        model = onnx.load(folder / "model.onnx")
        data = folder / "test_data_set_0"
        inputs = [_values(data / f"input_{i}.pb", entry) for i, entry in enumerate(model.graph.input)]
        outputs = [_values(data / f"output_{i}.pb", entry) for i, entry in enumerate(model.graph.output)]
        here, read = (([v[i] for v in inputs], [v[i] for v in outputs]) for i in range(2))
        yield Case(folder.name, model, *here, *read)


def light_models(only: str = "") -> Iterator[Case]:
    """The light models (all weights of one value), with the input and the outputs that the package's runner has."""
    for path in sorted((DATA / "light").glob("*.onnx")):
        if only not in path.name:
            continue
        model = onnx.load(path)
        initializers = {tensor.name for tensor in model.graph.initializer}
        fed = [entry for entry in model.graph.input if entry.name not in initializers]
        inputs: list[Value] = []
        for entry in fed:
            shape = [d.dim_value for d in entry.type.tensor_type.shape.dim]
            count = int(np.prod(shape))
            inputs.append((np.arange(count) / count).astype(np.float32).reshape(shape))
        outputs = [_values(path.with_name(f"{path.stem}_output_0.pb"), model.graph.output[0])[0]]
        del model.graph.input[:]
        model.graph.input.extend(fed)
        yield Case(path.stem, model, inputs, outputs, inputs, outputs)


def _values(path: Path, entry: onnx.ValueInfoProto) -> tuple[Value, Value]:
    """What a file holds, and the same as the onnx package reads it."""
    value = _value(path, entry)
    tensor = entry.type.tensor_type.elem_type
    narrow = element_types.narrow(tensor)
    if narrow is None or not isinstance(value, np.ndarray):
        return value, value
    if value.dtype == np.dtype(narrow.numpy):
        return value, value
    bits = np.array(value, value.dtype.base).view(np.uint8).view(np.ndarray)
    return narrow.from_bits(bits).astype(narrow.numpy), value


def _value(path: Path, entry: onnx.ValueInfoProto) -> Value:
    data = path.read_bytes()
    kind = entry.type.WhichOneof("value")
    if kind == "optional_type":
        optional = onnx.OptionalProto.FromString(data)
        return numpy_helper.to_optional(optional)
    if kind == "sequence_type":
        return numpy_helper.to_list(onnx.SequenceProto.FromString(data))
    tensor = onnx.TensorProto.FromString(data)
    array = numpy_helper.to_array(tensor)
    if entry.type.tensor_type.elem_type == onnx.TensorProto.BFLOAT16 and array.dtype == np.uint16:
        return array.view(ml_dtypes.bfloat16)  # Some files hold the bits as integers.
    return array.astype(ml_dtypes.bfloat16) if tensor.data_type == onnx.TensorProto.BFLOAT16 else array


def run_here(case: Case) -> list[Value]:
    """Imports the model and runs it; where an operator needs values of inputs, with these as constants."""
    names = [entry.name for entry in case.model.graph.input]
    given = dict(zip(names, case.inputs, strict=True))
    whole = {name: value for name, value in given.items() if not isinstance(value, np.ndarray)}
    with tf.Graph().as_default(), tf.Session() as sess:
        try:
            model = anabranch.onnx.import_model(case.model, constants=whole)
        except NeedsConstantError:
            model = _with_constants(case.model, given, whole)
        fetches = {name: value for name, value in model.outputs.items() if value is not None and value != []}
        found = sess.run(fetches, {tensor: _carried(given[name], tensor) for name, tensor in model.inputs.items()})
    for name in found.keys() & model.narrow.keys():
        found[name] = _narrow(found[name], model.narrow[name])
    return [found.get(name, [] if value == [] else None) for name, value in model.outputs.items()]


def _carried(value: Value, tensor: tf.Tensor) -> Value:
    """What is fed for a value: those of a type that TensorFlow has not as numbers of a wider one."""
    if not isinstance(value, np.ndarray) or value.dtype.kind in "OSU":
        return value
    return value.astype(tensor.dtype.as_numpy_dtype, casting="safe") if value.dtype in _narrow_types() else value


def _narrow(values: np.ndarray, name: str) -> np.ndarray:
    """Results in the narrow type that the model says they have; each must be a value of that type."""
    narrow = element_types.narrow(onnx.TensorProto.DataType.Value(name))
    assert narrow is not None
    result: np.ndarray = values.astype(narrow.numpy)
    np.testing.assert_array_equal(result.astype(values.dtype), values)
    return result


def _narrow_types() -> set[np.dtype]:
    found = map(element_types.narrow, onnx.TensorProto.DataType.values())
    return {np.dtype(narrow.numpy) for narrow in found if narrow is not None}


def _with_constants(
    model: onnx.ModelProto, given: Mapping[str, Value], whole: Mapping[str, Value]
) -> anabranch.onnx.ImportedModel:
    """The model with all inputs but the first as constants; where that is not enough, all of them."""
    but_first = {name: value for i, (name, value) in enumerate(given.items()) if i or name in whole}
    try:
        return anabranch.onnx.import_model(model, constants=but_first)
    except NeedsConstantError:
        return anabranch.onnx.import_model(model, constants=given)


def run_onnxruntime(case: Case) -> list[Value]:
    """The same in onnxruntime, on the CPU."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(case.model.SerializeToString(), options, ["CPUExecutionProvider"])
    names = [entry.name for entry in case.model.graph.input]
    return list(session.run(None, dict(zip(names, case.read_inputs, strict=True))))


def run_reference(case: Case) -> list[Value]:
    """The same in the onnx package's own evaluator."""
    from onnx.reference import ReferenceEvaluator

    names = [entry.name for entry in case.model.graph.input]
    return list(ReferenceEvaluator(case.model).run(None, dict(zip(names, case.read_inputs, strict=True))))


def same(found: Sequence[Value], wanted: Sequence[Value]) -> str:
    """Why results differ, or nothing. The tolerances are those of the onnx package's runner."""
    if len(found) != len(wanted):
        return f"{len(found)} results for {len(wanted)}"
    for a, b in zip(found, wanted, strict=True):
        if b is None or a is None:
            if a is not b:
                return f"{type(a).__name__} for {type(b).__name__}"
            continue
        if isinstance(b, list):
            if reason := same(list(a), b):
                return reason
            continue
        if reason := _same_array(np.asarray(a), np.asarray(b)):
            return reason
    return ""


def _same_array(a: np.ndarray, b: np.ndarray) -> str:
    if a.shape != b.shape:
        return f"shape {a.shape} for {b.shape}"
    if b.dtype.kind in "OUS":
        texts = [[v.decode() if isinstance(v, bytes) else str(v) for v in x.reshape(-1)] for x in (a, b)]
        return "" if texts[0] == texts[1] else "other strings"
    if a.dtype != b.dtype:
        return f"dtype {a.dtype} for {b.dtype}"
    if b.dtype in _narrow_types():
        a, b = a.astype(np.float32), b.astype(np.float32)
        same_bits = np.array_equal(a, b, equal_nan=True) and np.array_equal(
            np.signbit(a[b == 0]), np.signbit(b[b == 0])
        )
        return "" if same_bits else f"{a.reshape(-1).tolist()} for {b.reshape(-1).tolist()}"
    if b.dtype == ml_dtypes.bfloat16:
        a, b = a.astype(np.float32), b.astype(np.float32)
    close = np.allclose(a, b, rtol=1e-3, atol=1e-7, equal_nan=b.dtype.kind in "fc")
    return "" if close else f"values differ by up to {np.max(np.abs(a.astype(float) - b.astype(float))):.3g}"


#: Cases whose results are random.
RANDOM = ("bernoulli", "training_dropout")


def judge(case: Case, runner: Callable[[Case], list[Value]]) -> str:
    """Why a case fails, or nothing."""
    try:
        found = runner(case)
    except Exception as error:  # Whatever a runner raises is a case that does not pass.
        return f"{type(error).__name__}: {error}"
    if any(part in case.name for part in RANDOM):
        pairs = zip(found, case.outputs, strict=True)
        return "" if all(np.shape(a) == np.shape(b) for a, b in pairs) else "shapes differ"
    return same(found, case.outputs if runner is run_here else case.read_outputs)


def main(arguments: Sequence[str]) -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", action="store_true")
    parser.add_argument(
        "--kind", default="node", choices=["node", "light", "simple", "pytorch-operator", "pytorch-converted"]
    )
    parser.add_argument("--only", default="")
    parser.add_argument("--every", type=int, default=1, help="run one case of so many")
    parser.add_argument("--first", type=int, default=0, help="where these begin")
    options = parser.parse_args(arguments)
    runners: dict[str, Callable[[Case], list[Value]]] = {"anabranch": run_here}
    if options.peers:
        runners.update(onnxruntime=run_onnxruntime, reference=run_reference)
    passed: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    light = options.kind == "light"
    chosen = light_models(options.only) if light else cases(options.kind, options.only, options.first, options.every)
    for case in chosen:
        row = case.name if light else case.operator
        passed[row]["cases"] += 1
        for name, runner in runners.items():
            reason = judge(case, runner)
            passed[row][name] += not reason
            if reason and name == "anabranch":
                print(f"{case.name}: {' '.join(reason.split())[:170]}", flush=True)
    columns = ["cases", *runners]
    for operator, counts in sorted(passed.items()):
        print(f"{operator:28}" + "".join(f"{counts[c]:>13}" for c in columns))
    print(f"{'all':28}" + "".join(f"{sum(c[k] for c in passed.values()):>13}" for k in columns))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
