"""cuDNN's recurrent networks as operations: beside those of PyTorch, which cuDNN's equations define."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anabranch as tf

Array = np.ndarray[Any, Any]

_FILE = np.load(Path(__file__).parents[2] / "fixtures" / "stacked_rnn.npz")
RECORDED: dict[str, dict[str, Array]] = {}
for _key in _FILE.files:
    _name, _, _part = _key.partition("/")
    RECORDED.setdefault(_name, {})[_part] = _FILE[_key]
LAYERS, INPUTS, UNITS = 2, 3, 4


def kinds(name: str) -> tuple[dict[str, Any], int, bool]:
    mode, both, projection, padded = name.split()
    direction = "bidirectional" if both == "1" else "unidirectional"
    return {"rnn_mode": mode, "direction": direction}, int(projection), padded == "1"


def versions(name: str) -> list[str]:
    """All of one network; of the others, which take long to compile, the one that takes them."""
    return ["", "V2", "V3"] if name == "lstm 0 0 0" else ["V3"] if name.endswith(("1", "2 0")) else [""]


@pytest.mark.parametrize(("name", "version"), [(name, version) for name in RECORDED for version in versions(name)])
def test_outputs_states_and_gradients(name: str, version: str) -> None:
    given, (kind, projection, padded) = RECORDED[name], kinds(name)
    is_lstm = kind["rnn_mode"] == "lstm"
    with tf.Graph().as_default(), tf.Session() as session:
        x, h, params = (tf.constant(given[key]) for key in ("x", "h", "params"))
        c = tf.constant(given["c"]) if is_lstm else tf.zeros([], tf.float64)
        arguments: dict[str, Any] = {"input": x, "input_h": h, "input_c": c, "params": params, **kind}
        if version == "V3":
            arguments |= {"sequence_lengths": [5, 3] if padded else [5, 5], "num_proj": projection}
        made = getattr(tf.raw_ops, f"CudnnRNN{version}")(**arguments)
        results = [made.output, made.output_h, *([made.output_c] if is_lstm else [])]
        flowing = [given[f"{key}_grad"] for key in ("y", "last_h", "last_c")][: len(results)]
        sources = [x, h, params, *([c] if is_lstm else [])]
        found = session.run([*results, *tf.gradients(results, sources, flowing)])
        assert [t.shape.as_list() for t in results] == [list(value.shape) for value in found[: len(results)]]
    expected = [given[key] for key in ("y", "last_h", "last_c")][: len(results)]
    expected += [given[f"{key}_grad"] for key in ("x", "h", "params", *(["c"] if is_lstm else []))]
    for value, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(value, wanted, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", ["lstm 1 0 1", "lstm 0 2 0", "gru 0 0 0"])
def test_the_batch_may_come_first(name: str) -> None:
    given, (kind, projection, padded) = RECORDED[name], kinds(name)
    swapped = {key: np.swapaxes(given[key], 0, 1) for key in ("x", "h", "c")}
    with tf.Graph().as_default(), tf.Session() as session:
        made = tf.raw_ops.CudnnRNNV3(
            input=swapped["x"],
            input_h=swapped["h"],
            input_c=swapped["c"] if kind["rnn_mode"] == "lstm" else np.float64(0),
            params=given["params"],
            sequence_lengths=[5, 3] if padded else [5, 5],
            num_proj=projection,
            time_major=False,
            **kind,
        )
        np.testing.assert_allclose(session.run(made.output), np.swapaxes(given["y"], 0, 1), rtol=1e-10)


@pytest.mark.parametrize("name", ["lstm 1 0 0", "lstm 0 2 0", "gru 1 0 0", "rnn_relu 0 0 0"])
def test_weights_apart_and_together(name: str) -> None:
    given, (kind, projection, _) = RECORDED[name], kinds(name)
    gates = {"lstm": 4, "gru": 3}.get(kind["rnn_mode"], 1)
    cells = LAYERS * (2 if kind["direction"] == "bidirectional" else 1)
    biases, matrices = 2 * gates * cells, 2 * gates * cells + (cells if projection else 0)
    sizes: dict[str, Any] = {"num_layers": LAYERS, "num_units": UNITS, "input_size": INPUTS}
    params = tf.constant(given["params"])
    size = tf.raw_ops.CudnnRNNParamsSize(**sizes, T=tf.float64, S=tf.int32, num_proj=projection, **kind)
    apart = tf.raw_ops.CudnnRNNParamsToCanonicalV2(
        **sizes, params=params, num_params_weights=matrices, num_params_biases=biases, num_proj=projection, **kind
    )
    together = tf.raw_ops.CudnnRNNCanonicalToParamsV2(
        **sizes, weights=apart.weights, biases=apart.biases, num_proj=projection, **kind
    )
    fetched = [size, apart.weights[0], together, tf.gradients(together * given["params"], params)[0]]
    if not projection:
        older = tf.raw_ops.CudnnRNNParamsToCanonical(**sizes, params=params, num_params=biases, **kind)
        fetched.append(
            tf.raw_ops.CudnnRNNCanonicalToParams(**sizes, weights=older.weights, biases=older.biases, **kind)
        )
    with tf.Session() as session:
        count, first, *whole = session.run(fetched)
    assert count.tolist() == [given["params"].size]
    np.testing.assert_array_equal(first, given["params"][: UNITS * INPUTS].reshape(UNITS, INPUTS))
    for vector in whole:
        np.testing.assert_array_equal(vector, given["params"])


def small(**changed: Any) -> Any:
    given: dict[str, Any] = {
        "input": tf.ones([3, 2, 4]),
        "input_h": tf.ones([2, 2, 4]),
        "input_c": tf.ones([2, 2, 4]),
        "params": tf.fill([2 * 2 * 4 * (4 * 4 + 4)], 0.1),
    }
    return tf.raw_ops.CudnnRNN(**{**given, **changed})


def test_dropout_between_layers_is_kept_for_the_gradients() -> None:
    made = small(dropout=0.5, seed=3)
    params = made.output.op.inputs[3]
    gradients = tf.gradients(made.output, params)
    unchanged = small(dropout=0.5, seed=3, is_training=False)
    with tf.Session() as session:
        masks, grads = session.run([made.reserve_space, gradients[0]])
        assert set(masks.tolist()) == {0.0, 2.0}
        assert grads.shape == (320,)
        plain, none = session.run([unchanged.output, unchanged.reserve_space])
        np.testing.assert_allclose(plain, session.run(small().output), rtol=1e-6)
        assert none.shape == (0,)
    with pytest.raises(ValueError, match="training mode"):
        tf.gradients(unchanged.output, unchanged.output.op.inputs[3])


def test_an_input_may_skip_its_matrix() -> None:
    """A layer of identity matrices for the input gives the same."""
    r = np.random.RandomState(1)
    states, biases = r.randn(4 * 16).astype(np.float32), r.randn(8 * 4).astype(np.float32)
    whole = np.concatenate([np.tile(np.eye(4, dtype=np.float32).ravel(), 4), states, biases])
    state = {"input_h": tf.ones([1, 2, 4]), "input_c": tf.ones([1, 2, 4])}
    plain = small(params=tf.constant(whole), **state)
    skipping = [
        small(params=tf.constant(np.concatenate([states, biases])), input_mode=mode, **state)
        for mode in ("skip_input", "auto_select")
    ]
    with tf.Session() as session:
        first, *others = session.run([plain.output, *(made.output for made in skipping)])
    for other in others:
        np.testing.assert_allclose(other, first, rtol=1e-6)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"params": tf.ones([7])}, "params must be a vector of 320 numbers"),
        ({"input_h": tf.ones([2, 5, 4])}, "does not fit"),
        ({"input": tf.ones([3, 2, 5]), "input_mode": "skip_input"}, "cannot skip"),
        ({"direction": "bidirectional", "input_h": tf.ones([3, 2, 4])}, "does not fit"),
    ],
)
def test_sizes_that_do_not_fit(changed: dict[str, Any], message: str) -> None:
    graph = next(v.graph for v in changed.values() if isinstance(v, tf.Tensor))
    with (
        graph.as_default(),
        tf.Session(graph=graph) as session,
        pytest.raises(tf.errors.InvalidArgumentError, match=message),
    ):
        session.run(small(**changed).output)
