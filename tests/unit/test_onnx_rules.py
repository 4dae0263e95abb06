"""Import rules of ONNX's operators, against NumPy and the onnx package's own evaluator."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest

import anabranch as tf

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

import anabranch.onnx  # noqa: E402
from anabranch.onnx import element_types  # noqa: E402

_NARROW_FLOATS = {
    TensorProto.FLOAT8E4M3FN: ml_dtypes.float8_e4m3fn,
    TensorProto.FLOAT8E4M3FNUZ: ml_dtypes.float8_e4m3fnuz,
    TensorProto.FLOAT8E5M2: ml_dtypes.float8_e5m2,
    TensorProto.FLOAT8E5M2FNUZ: ml_dtypes.float8_e5m2fnuz,
    TensorProto.FLOAT4E2M1: ml_dtypes.float4_e2m1fn,
}


def _message(nodes, inputs, outputs, initializers=(), opset=21, domain=""):
    """A model; inputs are arrays by name, outputs element types by name."""
    given = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for name, x in inputs.items()
    ]
    made = [helper.make_tensor_value_info(name, number, None) for name, number in outputs.items()]
    graph = helper.make_graph(nodes, "g", given, made, initializer=list(initializers))
    imports = [helper.make_opsetid("", opset)] + ([helper.make_opsetid(domain, 5)] if domain else [])
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def _run(message, inputs, constants=()):
    fixed = {name: inputs[name] for name in constants}
    with tf.Graph().as_default(), tf.Session() as sess:
        model = anabranch.onnx.import_model(message, constants=fixed)
        results = sess.run(model.outputs, {tensor: inputs[name] for name, tensor in model.inputs.items()})
    return list(results.values())


def _check_against_reference(message, inputs, constants=(), rtol=1e-5):
    wanted = ReferenceEvaluator(message).run(None, inputs)
    for a, b in zip(_run(message, inputs, constants), wanted, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-6)


def _numbers():
    rng = np.random.default_rng(3)
    spread = rng.standard_normal(4000) * 2.0 ** rng.integers(-20, 18, 4000)
    every = [np.arange(256, dtype=np.uint8).view(t).astype(np.float64) for t in list(_NARROW_FLOATS.values())[:4]]
    exact = np.concatenate(every)
    between = (exact[1:] + exact[:-1]) / 2  # Ties.
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e300, -1e300, 5e-324])
    return np.concatenate([spread, exact, between, special])


@pytest.mark.parametrize("number", _NARROW_FLOATS, ids=TensorProto.DataType.Name)
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_casts_to_narrow_types_give_their_nearest_values(number, dtype):
    with np.errstate(over="ignore"):
        x = _numbers().astype(dtype)
        # float64 goes by float32 in ml_dtypes, which rounds twice; those few are left out.
        once = np.isnan(x) | (x.astype(np.float32) == x)
    node = helper.make_node("Cast", ["x"], ["y"], to=number, saturate=0)
    (found,) = _run(_message([node], {"x": x}, {"y": number}), {"x": x})
    narrow = _NARROW_FLOATS[number]
    with np.errstate(over="ignore", invalid="ignore"):
        wanted = x.astype(narrow).astype(np.float32)
    if number == TensorProto.FLOAT4E2M1:
        wanted = np.where(np.isnan(x), np.float32(6), wanted)
    np.testing.assert_array_equal(found[once], wanted[once])
    zeros = once & (wanted == 0)
    np.testing.assert_array_equal(np.signbit(found[zeros]), np.signbit(wanted[zeros]))


@pytest.mark.parametrize("number", list(_NARROW_FLOATS)[:4], ids=TensorProto.DataType.Name)
def test_saturated_casts_stay_within_the_type(number):
    x = np.array([1e9, -1e9, np.inf, -np.inf, np.nan], np.float32)
    node = helper.make_node("Cast", ["x"], ["y"], to=number)
    (found,) = _run(_message([node], {"x": x}, {"y": number}), {"x": x})
    most = float(ml_dtypes.finfo(_NARROW_FLOATS[number]).max)
    np.testing.assert_array_equal(found, np.array([most, -most, most, -most, np.nan], np.float32))


def test_weights_of_four_bits_are_dequantized():
    values = np.array([[-8, -3, 0], [7, 1, -1], [2, 3, 4]])
    weight = helper.make_tensor("w", TensorProto.INT4, values.shape, values.reshape(-1).tolist())
    scale = numpy_helper.from_array(np.array([0.5, 2, 3], np.float32), "s")
    nodes = [
        helper.make_node("Transpose", ["w"], ["t"]),
        helper.make_node("Reshape", ["t", "shape"], ["r"]),
        helper.make_node("DequantizeLinear", ["r", "s"], ["d"], axis=1),
        helper.make_node("Add", ["d", "x"], ["y"]),
    ]
    shape = numpy_helper.from_array(np.array([-1, 3], np.int64), "shape")
    x = np.ones((3, 3), np.float32)
    message = _message(nodes, {"x": x}, {"y": TensorProto.FLOAT}, [weight, scale, shape])
    (found,) = _run(message, {"x": x})
    np.testing.assert_array_equal(found, values.T * np.array([0.5, 2, 3], np.float32) + 1)


def test_what_is_narrow_is_named():
    x = np.array([1.5, 300], np.float32)
    node = helper.make_node("Cast", ["x"], ["y"], to=TensorProto.UINT4)
    with tf.Graph().as_default():
        model = anabranch.onnx.import_model(_message([node], {"x": x}, {"y": TensorProto.UINT4}))
        assert model.narrow == {"y": "UINT4"}
        assert model.outputs["y"].dtype == tf.uint8


def test_operators_that_compute_refuse_narrow_values():
    x = np.ones(2, np.float32)
    nodes = [
        helper.make_node("Cast", ["x"], ["c"], to=TensorProto.INT4),
        helper.make_node("Add", ["c", "c"], ["y"]),
    ]
    with tf.Graph().as_default(), pytest.raises(tf.errors.UnimplementedError, match="element type INT4"):
        anabranch.onnx.import_model(_message(nodes, {"x": x}, {"y": TensorProto.INT4}))


def test_packed_weights_of_a_wrong_length_are_refused():
    weight = TensorProto(name="w", data_type=TensorProto.INT4, dims=[3], raw_data=b"\x21")
    with pytest.raises(tf.errors.InvalidArgumentError, match="2 bytes, and holds 1"):
        anabranch.onnx.models.array_of(weight)
    np.testing.assert_array_equal(
        anabranch.onnx.models.array_of(TensorProto(data_type=TensorProto.INT4, dims=[3], raw_data=b"\xf1\x08")),
        np.array([1, -1, -8], np.int8),
    )
    assert element_types.narrow(TensorProto.FLOAT) is None


def _trees(rng, count):
    """Attributes of so many trees of three nodes and four leaves."""
    modes = rng.integers(0, 7, 3 * count)
    members = [[*rng.integers(1, 4, rng.integers(0, 3)).astype(float), np.nan] for m in modes if m == 6]
    base = np.repeat(np.arange(count), 3)
    within = np.tile(np.arange(3), count)
    leaf = 4 * base + 2 * (within - 1)
    return {
        "nodes_modes": helper.make_tensor("m", TensorProto.UINT8, [3 * count], modes.tolist()),
        "nodes_splits": helper.make_tensor("s", TensorProto.FLOAT, [3 * count], rng.integers(-2, 3, 3 * count)),
        "nodes_featureids": rng.integers(0, 4, 3 * count).tolist(),
        "nodes_truenodeids": np.where(within == 0, 3 * base + 1, leaf).tolist(),
        "nodes_falsenodeids": np.where(within == 0, 3 * base + 2, leaf + 1).tolist(),
        "nodes_trueleafs": (within > 0).astype(int).tolist(),
        "nodes_falseleafs": (within > 0).astype(int).tolist(),
        "nodes_missing_value_tracks_true": rng.integers(0, 2, 3 * count).tolist(),
        "leaf_targetids": rng.integers(0, 2, 4 * count).tolist(),
        "leaf_weights": helper.make_tensor("w", TensorProto.FLOAT, [4 * count], rng.standard_normal(4 * count)),
        "tree_roots": (3 * np.arange(count)).tolist(),
        "n_targets": 2,
        **(
            {
                "membership_values": helper.make_tensor(
                    "v", TensorProto.FLOAT, [sum(map(len, members))], [value for values in members for value in values]
                )
            }
            if members
            else {}
        ),
    }


@pytest.mark.parametrize("aggregate", range(4))
def test_ensembles_of_trees(aggregate):
    rng = np.random.default_rng(aggregate)
    x = rng.integers(-2, 3, (30, 4)).astype(np.float32)
    x[rng.random(x.shape) < 0.1] = np.nan
    node = helper.make_node(
        "TreeEnsemble", ["x"], ["y"], domain="ai.onnx.ml", aggregate_function=aggregate, **_trees(rng, 9)
    )
    message = _message([node], {"x": x}, {"y": TensorProto.FLOAT}, domain="ai.onnx.ml")
    wanted = ReferenceEvaluator(message).run(None, {"x": x})[0]
    np.testing.assert_allclose(_run(message, {"x": x})[0], wanted, rtol=1e-5, atol=1e-6)


def test_trees_in_a_circle_are_refused():
    attributes = _trees(np.random.default_rng(0), 1)
    attributes.update(nodes_trueleafs=[0, 0, 1], nodes_truenodeids=[1, 0, 0])
    node = helper.make_node("TreeEnsemble", ["x"], ["y"], domain="ai.onnx.ml", **attributes)
    x = np.zeros((1, 4), np.float32)
    with tf.Graph().as_default(), pytest.raises(ValueError, match="circle"):
        anabranch.onnx.import_model(_message([node], {"x": x}, {"y": TensorProto.FLOAT}, domain="ai.onnx.ml"))


@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
@pytest.mark.parametrize("skipped", [0, 2, 9])
def test_n_grams(mode, skipped):
    rng = np.random.default_rng(skipped)
    node = helper.make_node(
        "TfIdfVectorizer",
        ["x"],
        ["y"],
        mode=mode,
        min_gram_length=1,
        max_gram_length=3,
        max_skip_count=skipped,
        ngram_counts=[0, 2, 6],
        ngram_indexes=[4, 0, 1, 2, 3] if mode == "TF" else [0, 1, 2, 3, 4],
        pool_int64s=[0, 1, 1, 2, 0, 0, 2, 1, 0],
        weights=[0.5, 1, 2, 3, 4],
    )
    x = rng.integers(0, 3, (4, 6))
    _check_against_reference(_message([node], {"x": x}, {"y": TensorProto.FLOAT}), {"x": x})


@pytest.mark.parametrize(("parts", "onesided"), [(1, 0), (2, 0), (1, 1)])
def test_short_time_transforms(parts, onesided):
    rng = np.random.default_rng(parts)
    inputs = {
        "x": rng.standard_normal((2, 29, parts)).astype(np.float32),
        "step": np.array(5, np.int64),
        "window": rng.random(8).astype(np.float32),
    }
    node = helper.make_node("STFT", ["x", "step", "window"], ["y"], onesided=onesided)
    (found,) = _run(_message([node], inputs, {"y": TensorProto.FLOAT}), inputs, ["step"])
    signal = inputs["x"] @ np.array([1, 1j])[:parts]
    frames = np.stack([signal[:, i : i + 8] for i in range(0, 22, 5)], 1) * inputs["window"]
    wanted = np.fft.fft(frames)[..., : 5 if onesided else 8]
    np.testing.assert_allclose(found, np.stack([wanted.real, wanted.imag], -1), atol=1e-4)


@pytest.mark.parametrize(
    ("mode", "half", "ratio"), list(itertools.product(["avg", "max"], ["half_pixel", "output_half_pixel"], [0, 3]))
)
def test_regions(mode, half, ratio):
    rng = np.random.default_rng(ratio)
    corner = rng.uniform(-2, 10, (7, 2))
    inputs = {
        "x": rng.standard_normal((2, 3, 6, 7)).astype(np.float32),
        "rois": np.concatenate([corner, corner + rng.uniform(0.2, 9, (7, 2))], 1).astype(np.float32),
        "batch": rng.integers(0, 2, 7),
    }
    node = helper.make_node(
        "RoiAlign",
        list(inputs),
        ["y"],
        mode=mode,
        coordinate_transformation_mode=half,
        output_height=3,
        output_width=2,
        sampling_ratio=ratio,
        spatial_scale=0.75,
    )
    message = _message([node], inputs, {"y": TensorProto.FLOAT})
    _check_against_reference(message, inputs, ["rois"] if ratio == 0 else [], rtol=1e-4)


@pytest.mark.parametrize("groups", [1, 2])
def test_deformed_convolutions(groups):
    rng = np.random.default_rng(groups)
    inputs = {
        "x": rng.standard_normal((2, 4, 6, 7)).astype(np.float32),
        "w": rng.standard_normal((6, 4 // groups, 3, 2)).astype(np.float32),
        "offset": rng.uniform(-1.5, 1.5, (2, 24, 3, 6)).astype(np.float32),
        "b": rng.standard_normal(6).astype(np.float32),
        "mask": rng.random((2, 12, 3, 6)).astype(np.float32),
    }
    node = helper.make_node(
        "DeformConv",
        list(inputs),
        ["y"],
        group=groups,
        offset_group=2,
        strides=[2, 1],
        pads=[1, 0, 1, 1],
        dilations=[1, 2],
        kernel_shape=[3, 2],
    )
    _check_against_reference(_message([node], inputs, {"y": TensorProto.FLOAT}), inputs, rtol=1e-3)


def test_slices_with_bounds_that_are_computed():
    x = np.arange(60, dtype=np.float32).reshape(3, 4, 5)
    for starts, ends, steps in (([1, -9], [99, -1], [1, 2]), ([9, -1], [-99, 0], [-1, -2]), ([-2, 3], [2, 1], [1, 1])):
        inputs = {"x": x, "starts": np.array(starts), "ends": np.array(ends)}
        initializers = [numpy_helper.from_array(np.array(v), n) for n, v in (("axes", [0, -1]), ("steps", steps))]
        node = helper.make_node("Slice", [*inputs, "axes", "steps"], ["y"])
        _check_against_reference(_message([node], inputs, {"y": TensorProto.FLOAT}, initializers), inputs)


def test_scans_of_set_8_stop_at_the_lengths():
    body = helper.make_graph(
        [helper.make_node("Add", ["s", "e"], ["t"]), helper.make_node("Identity", ["t"], ["o"])],
        "body",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in ("s", "e")],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in ("t", "o")],
    )
    inputs = {
        "lengths": np.array([3, 1], np.int64),
        "start": np.array([[1, 2], [3, 4]], np.float32),
        "x": np.arange(12, dtype=np.float32).reshape(2, 3, 2),
    }
    node = helper.make_node("Scan", list(inputs), ["last", "all"], num_scan_inputs=1, body=body, directions=[1])
    last, sums = _run(_message([node], inputs, {"last": 1, "all": 1}, opset=8), inputs)
    first = inputs["start"][0] + np.cumsum(inputs["x"][0][::-1], 0)
    second = inputs["start"][1] + inputs["x"][1][:1]
    np.testing.assert_array_equal(sums, [first, np.concatenate([second, np.zeros((2, 2))])])
    np.testing.assert_array_equal(last, [first[-1], second[-1]])
