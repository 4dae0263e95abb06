"""Operations that few programs have: beside what TensorFlow recorded, and what they refuse."""

from __future__ import annotations

import contextlib
import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf import text_format

import anabranch as tf
from tests.device.frontend.test_recorded_functions import same
from tests.oracles.rare_cases import CASES, LOSSES, SOURCE

FIXTURE = Path(__file__).parents[2] / "fixtures" / "tensorflow" / "rare.json.gz"
RECORDED: dict[str, list[dict[str, Any]]] = json.loads(gzip.decompress(FIXTURE.read_bytes()))


def value(tensor: Any, feeds: Any = None) -> Any:
    with tf.Session() as session:
        return session.run(tensor, feeds)


def test_each_case_is_recorded() -> None:
    assert sorted(RECORDED) == sorted(CASES)


@pytest.mark.parametrize("name", CASES)
def test_values_are_those_that_tensorflow_recorded(name: str) -> None:
    with tf.Graph().as_default():
        values = value(CASES[name](tf))
    assert len(values) == len(RECORDED[name])
    for index, (found, entry) in enumerate(zip(values, RECORDED[name], strict=True)):
        same(np.asarray(found), entry, f"value {index} of {name}")


# ---------------------------------------------------------------------- dual coordinate ascent
def ascent(**changed: Any) -> Any:
    given: dict[str, Any] = {
        "sparse_example_indices": [np.array([0, 1])],
        "sparse_feature_indices": [np.array([3, 5])],
        "sparse_feature_values": [],
        "dense_features": [np.ones((2, 1), np.float32)],
        "example_weights": [1.0, 1.0],
        "example_labels": [0.0, 1.0],
        "sparse_indices": [np.array([3, 5])],
        "sparse_weights": [np.zeros(2, np.float32)],
        "dense_weights": [np.zeros(1, np.float32)],
        "example_state_data": np.zeros((2, 4), np.float32),
        "loss_type": "logistic_loss",
        "l1": 0.0,
        "l2": 1.0,
        "num_loss_partitions": 1,
        "num_inner_iterations": 1,
    }
    return tf.train.sdca_optimizer(**{**given, **changed})


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("adaptive", [False, True])
def test_ascent_finds_the_optimum(loss: str, adaptive: bool) -> None:
    """Where primal and dual meet: the duality gap closes, whatever the random order is."""
    r = np.random.RandomState(6)
    rows, labels = r.randn(12, 3).astype(np.float32), r.randint(0, 2, 12).astype(np.float32)
    weights, state = np.zeros(3, np.float32), np.zeros((12, 4), np.float32)
    with tf.Graph().as_default(), tf.Session() as session:
        w, s = tf.placeholder(tf.float32, [3]), tf.placeholder(tf.float32, [12, 4])
        found = ascent(
            sparse_example_indices=[], sparse_feature_indices=[], sparse_indices=[], sparse_weights=[],
            dense_features=[rows], example_weights=np.ones(12, np.float32), example_labels=labels, dense_weights=[w],
            example_state_data=s, loss_type=loss, l2=4.0, adaptative=adaptive,
        )  # fmt: skip
        for _ in range(400):
            state, delta = session.run([found[0], found[2][0]], {w: weights, s: state})
            weights = weights + delta
        state, delta = session.run([found[0], found[2][0]], {w: weights, s: state})
    gap = state[:, 1].sum() + state[:, 2].sum() + 4.0 * (weights @ weights)
    assert abs(gap) < 1e-3


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"example_labels": [0.5, 1.0]}, "Only labels of 0.0 or 1.0"),
        ({"example_labels": [-1.0, 1.0], "loss_type": "poisson_loss"}, "Only non-negative labels"),
        ({"example_labels": [0.0]}, "Expected 2 example labels"),
        ({"sparse_feature_indices": [np.array([3, 4])]}, r"out of valid range: \[4\]"),
        ({"sparse_example_indices": [np.array([0, 0])], "sparse_feature_indices": [np.array([3, 3])]}, "Duplicate"),
        ({"dense_features": [np.ones((2, 2), np.float32)]}, "More dense features"),
        ({"example_state_data": np.zeros((2, 3), np.float32)}, "Expected shape"),
        ({"sparse_example_indices": [np.array([0, 7])]}, "examples"),
    ],
)
def test_what_ascent_refuses(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        value(ascent(**changed)[0])


def test_variables_shrink() -> None:
    first, second = tf.Variable([1.0, -2.0, 0.3]), tf.Variable([[0.1, 5.0]], use_resource=True)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(tf.train.sdca_shrink_l1([first, second], l1=0.5, l2=1.0))
        np.testing.assert_allclose(session.run(first), [0.5, -1.5, 0.0])
        np.testing.assert_allclose(session.run(second), [[0.0, 4.5]])
    with pytest.raises(TypeError, match="l-value"):
        tf.train.sdca_shrink_l1([tf.constant([1.0])], 0.5, 1.0)  # type: ignore[list-item]


def test_an_imported_graph_shrinks_its_reference_variable() -> None:
    """SdcaShrinkL1 and DebugGradientRefIdentity as nodes of a graph that an older program wrote."""
    graph_def = tf.GraphDef()
    text_format.Parse(
        """
        node { name: "w" op: "VariableV2" attr { key: "dtype" value { type: DT_FLOAT } }
               attr { key: "shape" value { shape { dim { size: 2 } } } } }
        node { name: "v" op: "Const" attr { key: "dtype" value { type: DT_FLOAT } }
               attr { key: "value" value { tensor { dtype: DT_FLOAT tensor_shape { dim { size: 2 } }
                                                    float_val: 1.0 float_val: -0.25 } } } }
        node { name: "set" op: "Assign" input: "w" input: "v" attr { key: "T" value { type: DT_FLOAT } } }
        node { name: "same" op: "DebugGradientRefIdentity" input: "w" attr { key: "T" value { type: DT_FLOAT } } }
        node { name: "shrink" op: "SdcaShrinkL1" input: "same" attr { key: "num_features" value { i: 1 } }
               attr { key: "l1" value { f: 0.5 } } attr { key: "l2" value { f: 1.0 } } }
        """,
        graph_def,
    )
    with tf.Graph().as_default(), tf.Session() as session:
        tf.import_graph_def(graph_def, name="")
        session.run("set")
        session.run("shrink")
        np.testing.assert_array_equal(session.run("w:0"), [0.5, 0.0])


# ---------------------------------------------------------------------- messages
def decoded(data: bytes, **changed: Any) -> Any:
    given: dict[str, Any] = {
        "message_type": "case.M",
        "field_names": ["int64_0", "double_1", "grp", "string_0"],
        "output_types": [tf.int64, tf.float64, tf.string, tf.string],
        "descriptor_source": SOURCE,
    }
    return value(tf.io.decode_proto([data], **{**given, **changed}).values)


@pytest.mark.parametrize(
    "data",
    [
        b"\x38",  # a tag of int64_0 without a number
        b"\x0a\xff",  # more bytes announced than there are
        b"\x07",  # no kind of value
        b"\xff" * 11 + b"\x01",  # a number of more than 64 bits
        b"\xb3\x06",  # a group that does not end
        b"\xb4\x06",  # one that did not begin
        b"\xfb\x07" * 200,  # groups in groups
        b"\x00",  # no field
    ],
)
def test_what_is_no_message(data: bytes) -> None:
    with pytest.raises(tf.errors.DataLossError, match=r"case\.M"):
        decoded(data)


def test_random_bytes_are_messages_or_errors() -> None:
    chosen = np.random.RandomState(7)
    data = tf.placeholder(tf.string, [1])
    values = tf.io.decode_proto(data, "case.M", ["int32_2", "grp"], [tf.int32, tf.string], descriptor_source=SOURCE)
    with tf.Session() as session:
        for _ in range(200):
            given = bytes(chosen.randint(0, 256, chosen.randint(1, 40)).astype(np.uint8))
            with contextlib.suppress(tf.errors.DataLossError):
                session.run(values, {data: [given]})


def test_whole_numbers_keep_their_sign_in_a_wider_dtype() -> None:
    field = b"\x7a" + b"\x0a" + b"\xff" * 9 + b"\x01"  # int32_2, packed: -1
    (found,) = decoded(field, field_names=["int32_2"], output_types=[tf.int64])
    assert found.tolist() == [[-1]]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"message_type": "case.N"}, "No descriptor found for message type case.N"),
        ({"field_names": ["a", "double_1", "grp", "string_0"]}, "Unknown field: a in message type case.M"),
        ({"output_types": [tf.int32, tf.float64, tf.string, tf.string]}, "Unexpected output type for case.M.int64_0"),
        ({"descriptor_source": b"bytes://no"}, "FileDescriptorSet"),
        ({"message_format": "json"}, "binary or text"),
    ],
)
def test_what_a_decoder_refuses(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        decoded(b"", **changed)


def test_a_file_of_descriptors(tmp_path: Path) -> None:
    path = tmp_path / "descriptors"
    path.write_bytes(SOURCE.removeprefix(b"bytes://"))
    assert decoded(b"\x38\x05", descriptor_source=str(path))[0].tolist() == [[5]]
    with pytest.raises(tf.errors.NotFoundError):
        decoded(b"", descriptor_source=str(tmp_path / "nosuch"))


@pytest.mark.parametrize(
    ("sizes", "values", "message"),
    [
        ([[3]], [[1, 2]], "must not be larger"),
        ([[-1]], [[1, 2]], "must not be larger"),
        ([[1], [1]], [[1, 2]], "sizes should be|must be equal|not compatible"),
    ],
)
def test_what_an_encoder_refuses(sizes: Any, values: Any, message: str) -> None:
    values = tf.constant(values, tf.int64)
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError), match=message):
        value(tf.io.encode_proto(sizes, [values], ["int64_1"], "case.M", descriptor_source=SOURCE))
