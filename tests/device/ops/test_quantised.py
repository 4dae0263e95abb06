"""Operations that compute with quantised tensors: beside what genuine TensorFlow recorded, and beside floats."""

from __future__ import annotations

import gzip
import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.xla import executable, islands
from anabranch.xla.islands import runs_on_host
from anabranch.xla.variants import compile_log
from tests.fed_data import fed_data
from tests.oracles.quantised_cases import CASES, FUSED, ends, frozen, images_and_filter, quantised

FIXTURE = Path(__file__).parents[2] / "fixtures" / "tensorflow" / "quantised.json.gz"
RECORDED: dict[str, list[list[dict[str, Any]]]] = json.loads(gzip.decompress(FIXTURE.read_bytes()))
BUILDS = {**CASES, **FUSED}
#: where floats are added in an order of their own, a number may be rounded to its neighbour
ONE_STEP = {*FUSED, "normalized_instances"} - {"matrix_products_with_bias"}
Array = np.ndarray[Any, Any]


def run(fetched: Any, feeds: dict[Any, Any] | None = None) -> list[Array]:
    with tf.Session() as session:
        return [np.asarray(value) for value in session.run(list(fetched), feeds)]


def test_each_case_is_recorded() -> None:
    assert sorted(RECORDED) == sorted(BUILDS)


@pytest.mark.parametrize("compiled", [False, True], ids=["by NumPy", "compiled"])
@pytest.mark.parametrize("name", BUILDS)
def test_values_are_those_that_tensorflow_recorded(name: str, compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not compiled:
        monkeypatch.setattr(islands, "runs_on_host", lambda op: op.op_def.takes_quantised or runs_on_host(op))
    else:
        monkeypatch.setattr(executable, "FIRST_DIRECT_CALLS", 0)
    for seed, entries in enumerate(RECORDED[name]):
        before = len(compile_log.events)
        with tf.Graph().as_default() as graph:
            fetched = BUILDS[name](tf, np.random.RandomState(seed))
            values = run(fetched, fed_data(graph) if compiled else None)
            takers = [op for op in graph.get_operations() if op.op_def.takes_quantised]
        assert len(values) == len(entries)
        if compiled and takers:
            assert sum(event.operations for event in compile_log.events[before:]) >= len(takers)
        for index, (value, entry) in enumerate(zip(values, entries, strict=True)):
            what = f"value {index} of {name}, seed {seed}"
            assert (value.dtype.name, list(value.shape)) == (entry["dtype"], entry["shape"]), what
            wanted = np.array(entry["elements"], value.dtype).reshape(value.shape)
            if value.dtype.kind in "iu":
                assert np.abs(value.astype(np.int64) - wanted).max(initial=0) <= (name in ONE_STEP), what
            else:
                np.testing.assert_allclose(value, wanted, rtol=1e-6, err_msg=what)


# ---------------------------------------------------------------------- beside floats
def floats(x: Array, most: Any) -> Array:
    """What steps around 0 stand for; those of the largest step for `most`."""
    last = 2**31 if x.dtype == np.int32 else np.iinfo(x.dtype).max
    return x.astype(np.float64) / last * np.asarray(most, np.float64)


def convolved(given: dict[str, Any], x: Array, w: Array) -> Array:
    image = tf.constant(floats(x, given["max_input"]))
    kernel = tf.constant(floats(w, given["max_filter"]))
    return run([tf.nn.conv2d(image, kernel, given["strides"], given["padding"])])[0]


def test_each_output_of_a_convolution_has_its_range() -> None:
    given = images_and_filter(tf, np.random.RandomState(3), channels=True)
    x, w = run([given["input"], given["filter"]])
    sums, least, most = run(tf.raw_ops.QuantizedConv2DPerChannel(**given))
    assert least.shape == most.shape == (4,)
    np.testing.assert_allclose(floats(sums, most), convolved(given, x, w), rtol=1e-5, atol=1e-6)


def test_a_sum_is_added_to_a_convolution() -> None:
    r = np.random.RandomState(4)
    given = images_and_filter(tf, r) | {"padding": "SAME"}
    x, w = run([given["input"], given["filter"]])
    bias, summand = r.randn(4).astype(np.float32), r.randn(2, 5, 6, 4).astype(np.float32)
    sums, _, most = run(tf.raw_ops.QuantizedConv2DWithBiasSumAndRelu(bias=bias, summand=summand, **given))
    wanted = np.maximum(convolved(given, x, w) + bias + summand, 0)
    np.testing.assert_allclose(floats(sums, most), wanted, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("signed", [False, True])
def test_a_quantised_sum_is_added_to_a_convolution(signed: bool) -> None:
    r = np.random.RandomState(5)
    given = images_and_filter(tf, r) | {"padding": "SAME", "bias": r.randn(4).astype(np.float32)}
    summand = quantised(tf, r, (2, 5, 6, 4), "qint8" if signed else "quint8")
    x, w, s = run([given["input"], given["filter"], summand])
    name = f"QuantizedConv2DWithBias{'Signed' if signed else ''}SumAndReluAndRequantize"
    out, least, most = run(
        getattr(tf.raw_ops, name)(
            summand=summand,
            min_summand=-2.0,
            max_summand=2.0,
            min_freezed_output=0.0,
            max_freezed_output=8.0,
            **given,
        )
    )
    assert (least, most) == (0, 8)
    wanted = convolved(given, x, w) + given["bias"] + floats(s, 2.0)
    np.testing.assert_allclose(floats(out, 8.0), np.clip(wanted, 0, 8), atol=0.51 * 8 / 255)


def test_a_first_step_below_zero_is_made_up_for() -> None:
    r = np.random.RandomState(6)
    a, b = r.randint(0, 256, (3, 7)).astype(np.uint8), r.randint(-127, 128, (7, 4)).astype(np.int8)
    bias = r.randn(4).astype(np.float32)
    sums, _, most = run(
        tf.raw_ops.QuantizedMatMulWithBias(
            a=tf.bitcast(a, tf.quint8),
            b=tf.bitcast(b, tf.qint8),
            bias=bias,
            min_a=-1.0,
            max_a=2.0,
            min_b=-0.5,
            max_b=0.5,
        )
    )
    wanted = (a * (3 / 255) - 1) @ floats(b, 0.5) + bias
    np.testing.assert_allclose(floats(sums, most), wanted, rtol=1e-4, atol=1e-3)


def test_bias_of_32_bits_is_added_as_it_is() -> None:
    r = np.random.RandomState(7)
    given = images_and_filter(tf, r) | frozen(r)
    end = float(given["max_input"]) * float(given["max_filter"]) / (255 * 127)
    bias = r.randint(-9000, 9000, 4).astype(np.int32)
    op = tf.raw_ops.QuantizedConv2DWithBiasAndReluAndRequantize
    with_integers = run(op(bias=tf.bitcast(bias, tf.qint32), **given))[0]
    with_floats = run(op(bias=(bias * end).astype(np.float32), **given))[0]
    assert np.abs(with_integers.astype(int) - with_floats).max() <= 1


def test_paddings_of_any_size() -> None:
    given = images_and_filter(tf, np.random.RandomState(8)) | {"padding": "VALID"}
    pads = [0, 0, 2, 1, 0, 3, 0, 0]
    padded = tf.bitcast(tf.pad(tf.bitcast(given["input"], tf.uint8), [[0, 0], [2, 1], [0, 3], [0, 0]]), tf.quint8)
    listed = tf.raw_ops.QuantizedConv2DAndRelu(padding_list=pads, **given)
    wanted = run(tf.raw_ops.QuantizedConv2DAndRelu(**(given | {"input": padded})))[0]
    assert listed[0].shape.as_list() == list(wanted.shape)
    np.testing.assert_array_equal(run(listed)[0], wanted)


def test_a_ceiling_of_its_own() -> None:
    x = np.arange(0, 250, 10).astype(np.uint8)
    given = {"min_features": -1.0, "max_features": 4.0}
    out, least, most = run(tf.raw_ops.QuantizedReluX(features=tf.bitcast(x, tf.quint8), max_value=2.0, **given))
    np.testing.assert_array_equal(out, np.clip(x, 51, 153))
    assert (least, most) == (-1, 4)


def test_tensorflow_2_joins_along_an_axis_that_comes_last() -> None:
    r = np.random.RandomState(9)
    values = [quantised(tf, r, (2, 3), "quint8"), quantised(tf, r, (2, 2), "quint8")]
    given = {"values": values, "input_mins": [-1.0, 0.5], "input_maxes": [1.0, 2.0]}
    old = run(tf.raw_ops.QuantizedConcat(concat_dim=1, **given))
    new = run(tf.raw_ops.QuantizedConcatV2(axis=1, **given))
    for a, b in zip(old, new, strict=True):
        np.testing.assert_array_equal(a, b)


# ---------------------------------------------------------------------- corners
def test_shapes_that_nobody_knows() -> None:
    r = np.random.RandomState(10)
    x, w = tf.placeholder(tf.quint8), tf.placeholder(tf.quint8)
    given = {"strides": [1, 2, 2, 1], "padding": "SAME"}
    spans = ends(r, "input", "filter")
    hidden = tf.raw_ops.QuantizedConv2D(input=x, filter=w, **spans, **given)
    assert hidden[0].shape.as_list() == [None] * 4
    known = quantised(tf, r, (1, 4, 5, 2), "quint8"), quantised(tf, r, (2, 2, 2, 3), "quint8")
    wanted = run(tf.raw_ops.QuantizedConv2D(input=known[0], filter=known[1], **spans, **given))
    with tf.Session() as session:
        feeds = dict(zip((x, w), session.run(known), strict=True))
    np.testing.assert_array_equal(run(hidden, feeds)[0], wanted[0])


def test_in_conditionals_and_loops_and_from_what_is_fed() -> None:
    fed, chosen = tf.placeholder(tf.uint8, [3, 4]), tf.placeholder(tf.bool)
    a = tf.transpose(tf.identity(tf.bitcast(fed, tf.quint8)))

    def product() -> Any:
        spans = {"min_a": 0.0, "max_a": 2.0, "min_b": -1.0, "max_b": 1.0}
        return tf.bitcast(tf.raw_ops.QuantizedMatMul(a=a, b=a, transpose_a=True, **spans)[0], tf.int32)

    alone, zeros = product(), tf.zeros([3, 3], tf.int32)
    either = tf.cond(chosen, product, lambda: zeros)
    _, total = tf.while_loop(lambda i, s: i < 3, lambda i, s: (i + 1, s + product()), [0, zeros])
    feeds = {fed: np.random.RandomState(11).randint(0, 256, (3, 4)), chosen: True}
    one, same, three = run([alone, either, total], feeds)
    np.testing.assert_array_equal(one, same)
    np.testing.assert_array_equal(3 * one, three)


def test_nothing_is_a_tensor_too() -> None:
    nothing = tf.bitcast(np.zeros((0, 3), np.uint8), tf.quint8)
    three = tf.bitcast(np.ones((3, 2), np.uint8), tf.quint8)
    spans = {"min_a": 0.0, "max_a": 1.0, "min_b": 0.0, "max_b": 1.0}
    assert run(tf.raw_ops.QuantizedMatMul(a=nothing, b=three, **spans))[0].shape == (0, 2)
    inner = tf.raw_ops.QuantizedMatMul(a=three, b=tf.bitcast(np.zeros((2, 0), np.uint8), tf.quint8), **spans)
    assert run(inner)[0].shape == (3, 0)
    features = tf.raw_ops.QuantizedRelu(features=nothing, min_features=-1.0, max_features=1.0)
    assert run(features)[0].shape == (0, 3)


def test_what_is_refused() -> None:
    x = tf.bitcast(np.zeros((2, 3), np.uint8), tf.quint8)
    spans = {"min_a": 0.0, "max_a": 1.0, "min_b": 0.0, "max_b": 1.0}
    with pytest.raises(ValueError, match="inner dimensions"):
        tf.raw_ops.QuantizedMatMul(a=x, b=x, **spans)
    with pytest.raises(ValueError, match="rank 0"):
        tf.raw_ops.QuantizedMatMul(a=x, b=x, transpose_b=True, **(spans | {"min_a": [0.0]}))
    empty = tf.raw_ops.QuantizedMatMul(a=x, b=x, transpose_b=True, **(spans | {"min_a": 1.0}))
    with pytest.raises(tf.errors.InvalidArgumentError, match="max_a must be larger than min_a"):
        run(empty)
    narrowed = tf.raw_ops.QuantizedRelu(features=x, min_features=-1.0, max_features=1.0, out_type=tf.qint8)
    with pytest.raises(tf.errors.InvalidArgumentError, match="Requantize changes it"):
        run(narrowed)
    wide = tf.bitcast(np.zeros((2, 3), np.int32), tf.qint32)
    with pytest.raises(tf.errors.InvalidArgumentError, match="must be qint8 or quint8"):
        run(tf.raw_ops.QuantizedMatMul(a=wide, b=x, transpose_b=True, **spans))
    given = {"input": wide, "input_min": -1.0, "input_max": 1.0, "out_type": tf.quint8}
    with pytest.raises(tf.errors.InvalidArgumentError, match="requested_output_min must be <= 0"):
        run(tf.raw_ops.Requantize(requested_output_min=0.5, requested_output_max=1.0, **given))


@pytest.mark.parametrize("use_resource", [False, True])
def test_variables_hold_quantised_numbers(tmp_path: Path, use_resource: bool) -> None:
    for dtype in (tf.qint8, tf.quint8, tf.qint16, tf.quint16, tf.qint32):
        with tf.Graph().as_default(), tf.Session() as session:
            given = np.array([[1, 2], [3, 4]], dtype.name[1:])
            plain = tf.placeholder(given.dtype, [2, 2])
            variable = tf.get_variable("v", [2, 2], dtype, tf.zeros_initializer(), use_resource=use_resource)
            update = tf.assign(variable, tf.bitcast(plain, dtype))
            rows = [partial(tf.gather, variable, row) for row in (0, 1)]
            chosen = tf.cond(tf.placeholder_with_default(True, []), *rows)
            saver = tf.train.Saver()
            session.run(variable.initializer)
            assert session.run(variable).tolist() == [[0, 0], [0, 0]]
            assert session.run(update, {plain: given}).tolist() == given.tolist()
            path = saver.save(session, str(tmp_path / dtype.name))
            assert tf.train.load_variable(path, "v").dtype == given.dtype
            variable.load(given[::-1], session)
            assert session.run(chosen).tolist() == [3, 4]
            integers = tf.cast(tf.bitcast(variable, dtype.name[1:]), tf.int32)
            assert session.run([tf.gather(variable, [1, 1]), integers + 1])[1].tolist() == [[4, 5], [2, 3]]
            assert session.run(tf.dequantize(variable, 0.0, 1.0)).shape == (2, 2)
            saver.restore(session, path)
            assert (session.run(variable).dtype, session.run(variable).tolist()) == (given.dtype, given.tolist())


def test_what_is_fetched_are_plain_integers() -> None:
    values = tf.quantize([1.0, 255.0], 0.0, 255.0, tf.quint8)
    with tf.Session() as session:
        fetched = session.run({"of each": values, "one": tf.cast(values.output[0], tf.int32)})
        assert type(fetched["of each"]).__name__ == type(values).__name__
        assert fetched["of each"].output.dtype == np.uint8
        assert fetched["of each"].output.tolist() == [1, 255]
        assert fetched["one"] == 1
        # which may be fed again
        widened = tf.cast(values.output, tf.int32)
        assert session.run(widened, {values.output: fetched["of each"].output + np.uint8(1)}).tolist() == [2, 0]
        narrow = session.make_callable(tf.constant(np.array([-3], np.int8), tf.qint8))()
        assert (narrow.dtype, narrow.tolist()) == (np.int8, [-3])
