"""Uses of operations that few programs have, for `make_operation_fixture.py` and the tests beside what it records."""

from __future__ import annotations

from typing import Any

import numpy as np
from google.protobuf import descriptor_pool, message_factory, text_format
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorSet

Inputs = np.random.RandomState


# ---------------------------------------------------------------------- rows
def rows_in_place(tf: Any) -> Any:
    r = Inputs(1)
    fetched = []
    for dtype in (np.float32, np.float64, np.int32, np.int64):
        x, v = (r.randint(-9, 9, (rows, 3)).astype(dtype) for rows in (4, 5))
        for name in ("InplaceUpdate", "InplaceAdd", "InplaceSub"):
            apply = getattr(tf.raw_ops, name)
            # TensorFlow writes into x itself, so each has its own
            fetched += [apply(x=tf.constant(x + 0), i=[0, 3, -1, 0, 6], v=v), apply(x=tf.constant(x), i=[2], v=v[:1])]
    return fetched


def rows_for_several_lists(tf: Any) -> Any:
    lists = [
        tf.raw_ops.TensorListReserve(element_shape=[2], num_elements=count, element_dtype=tf.float32)
        for count in (0, 1, 2)
    ]
    longer = tf.raw_ops.TensorListPushBackBatch(input_handles=tf.stack(lists), tensor=Inputs(2).randn(3, 2).astype("f"))
    return [
        tf.raw_ops.TensorListStack(input_handle=one, element_shape=[2], element_dtype=tf.float32)
        for one in tf.unstack(longer)
    ]


# ---------------------------------------------------------------------- dual coordinate ascent
def fingerprints_of_examples(tf: Any) -> Any:
    r = Inputs(3)
    sizes = [0, 1, 3, 4, 7, 8, 9, 15, 16, 17, 23, 31, 32, 33, 47, 63, 64, 100, 127, 128, 143, 144, 145, 271, 272, 500]
    return [tf.raw_ops.SdcaFprint(input=[bytes(r.randint(0, 256, n).astype(np.uint8)) for n in sizes])]


LOSSES = ("logistic_loss", "squared_loss", "hinge_loss", "smooth_hinge_loss", "poisson_loss")


def _own(tf: Any, state: Any) -> Any:
    """A tensor that is no other's: TensorFlow writes the new state into the memory of the old one."""
    return tf.constant(state, tf.float32) + tf.cast(tf.timestamp() * 0, tf.float32)


def examples_that_share_no_feature(tf: Any) -> Any:
    """Their order, which is random, does not matter."""
    r = Inputs(4)
    fetched = []
    for loss in LOSSES:
        for version, adaptive in (("", "adaptative"), ("V2", "adaptive")):
            found = getattr(tf.raw_ops, f"SdcaOptimizer{version}")(
                sparse_example_indices=[np.arange(4), np.array([0, 1, 1, 3])],
                sparse_feature_indices=[np.array([10, 20, 30, 40]), np.array([1, 2, 3, 4])],
                sparse_feature_values=[r.randn(4).astype(np.float32)],
                dense_features=[],
                example_weights=r.rand(4).astype(np.float32) + 0.1,
                example_labels=np.array([0, 1, 1, 0], np.float32),
                sparse_indices=[np.array([40, 10, 20, 30]), np.array([1, 2, 3, 4, 5])],
                sparse_weights=[r.randn(4).astype(np.float32), r.randn(5).astype(np.float32)],
                dense_weights=[],
                example_state_data=_own(tf, np.zeros((4, 4))),
                loss_type=loss,
                l1=0.3 if version else 0.0,
                l2=0.7,
                num_loss_partitions=2,
                num_inner_iterations=1,
                **{adaptive: False},
            )
            fetched += [found[0], *found[1]]
    return fetched


def one_dense_example(tf: Any) -> Any:
    r = Inputs(5)
    fetched = []
    for loss in LOSSES:
        for l1 in (0.0, 0.3):
            found = tf.raw_ops.SdcaOptimizerV2(
                sparse_example_indices=[],
                sparse_feature_indices=[],
                sparse_feature_values=[],
                dense_features=[r.randn(1, 3).astype(np.float32), r.randn(1, 1).astype(np.float32)],
                example_weights=[0.6],
                example_labels=[1.0],
                sparse_indices=[],
                sparse_weights=[],
                dense_weights=[r.randn(3).astype(np.float32), r.randn(1).astype(np.float32)],
                example_state_data=_own(tf, [[0.2, 0, 0, 0]]),
                loss_type=loss,
                l1=l1,
                l2=0.7,
                num_loss_partitions=1,
                num_inner_iterations=1,
                adaptive=False,
            )
            fetched += [found[0], *found[2]]
    return fetched


# ---------------------------------------------------------------------- clusters
def centres(tf: Any) -> Any:
    r = Inputs(8)
    fetched = []
    for count in (1, 7, 40, 64):
        points = r.randn(count, 3).astype(np.float32)
        for seed, retries in ((0, 0), (1, 0), (2, -1), (2**40 + 3, 2)):
            fetched.append(
                tf.raw_ops.KmeansPlusPlusInitialization(
                    points=points,
                    num_to_sample=np.int64(min(count, 6)),
                    seed=np.int64(seed),
                    num_retries_per_sample=np.int64(retries),
                )
            )
            distances = r.rand(count).astype(np.float32)
            fetched.append(tf.raw_ops.KMC2ChainInitialization(distances=distances, seed=np.int64(seed)))
        for k in (0, 1, 3, 9):
            found = tf.raw_ops.NearestNeighbors(points=points, centers=r.randn(5, 3).astype(np.float32), k=np.int64(k))
            fetched += [found.nearest_center_indices, found.nearest_center_distances]
    return fetched


# ---------------------------------------------------------------------- messages
_KINDS = (
    *("DOUBLE", "FLOAT", "INT64", "UINT64", "INT32", "FIXED64", "FIXED32", "BOOL", "STRING", "BYTES", "UINT32"),
    *("SFIXED32", "SFIXED64", "SINT32", "SINT64"),
)
_WIDER = {"FLOAT": "float64", "FIXED32": "uint64", "UINT32": "uint64", "SINT32": "int64", "SFIXED32": "int64"}
_OWN = {
    "DOUBLE": "float64",
    "FLOAT": "float32",
    "BOOL": "bool",
    "STRING": "string",
    "BYTES": "string",
    **dict.fromkeys(("INT64", "SFIXED64", "SINT64"), "int64"),
    **dict.fromkeys(("INT32", "SFIXED32", "SINT32"), "int32"),
    **dict.fromkeys(("UINT64", "FIXED64"), "uint64"),
    **dict.fromkeys(("UINT32", "FIXED32"), "uint32"),
}


def described() -> FileDescriptorSet:
    """A message with a field of each kind: one value, several, several packed; an enum, messages, a group."""
    known = FileDescriptorSet()
    file = known.file.add(name="case.proto", package="case", syntax="proto2")
    message = file.message_type.add(name="M")
    for i, kind in enumerate(_KINDS):
        for j, (label, packed) in enumerate((("OPTIONAL", False), ("REPEATED", False), ("REPEATED", True))):
            if packed and kind in ("STRING", "BYTES"):
                continue
            field = message.field.add(name=f"{kind.lower()}_{j}", number=1 + 3 * i + j)
            field.type = getattr(FieldDescriptorProto, f"TYPE_{kind}")
            field.label = getattr(FieldDescriptorProto, f"LABEL_{label}")
            if packed:
                field.options.packed = True
            if label == "OPTIONAL" and kind not in ("STRING", "BYTES"):  # of these TensorFlow keeps no copy
                field.default_value = "true" if kind == "BOOL" else "7"
    choice = message.enum_type.add(name="E")
    choice.value.add(name="A", number=2)
    choice.value.add(name="B", number=5)
    own = FieldDescriptorProto
    message.field.add(name="e", number=100, type=own.TYPE_ENUM, type_name=".case.M.E", label=own.LABEL_OPTIONAL)
    message.field.add(name="m", number=101, type=own.TYPE_MESSAGE, type_name=".case.M", label=own.LABEL_REPEATED)
    group = message.nested_type.add(name="Grp")
    group.field.add(name="a", number=1, type=own.TYPE_INT32, label=own.LABEL_OPTIONAL)
    message.field.add(name="grp", number=102, type=own.TYPE_GROUP, type_name=".case.M.Grp", label=own.LABEL_REPEATED)
    return known


SOURCE = b"bytes://" + described().SerializeToString(deterministic=True)


def _message_class() -> Any:
    pool = descriptor_pool.DescriptorPool()
    for file in described().file:
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("case.M"))


def _value(kind: str, r: Inputs) -> Any:
    if kind in ("DOUBLE", "FLOAT"):
        return float(np.float32(r.randn()))
    if kind == "BOOL":
        return bool(r.randint(2))
    if kind == "STRING":
        return "s" * r.randint(5)
    if kind == "BYTES":
        return bytes(r.randint(0, 256, r.randint(4)).astype(np.uint8))
    bits = 64 if "64" in kind else 32
    least, most = (0, 2**bits) if kind.startswith(("U", "F")) else (-(2 ** (bits - 1)), 2 ** (bits - 1))
    return int(least + int(r.randint(0, 2**31)) * (most - least) // 2**31 if r.rand() < 0.5 else r.randint(0, 200))


def _filled(cls: Any, r: Inputs, depth: int = 1) -> Any:
    message = cls()
    for kind in _KINDS:
        if r.rand() < 0.6:
            setattr(message, f"{kind.lower()}_0", _value(kind, r))
        for j in (1, 2):
            if hasattr(message, f"{kind.lower()}_{j}"):
                getattr(message, f"{kind.lower()}_{j}").extend([_value(kind, r) for _ in range(r.randint(4))])
    if r.rand() < 0.5:
        message.e = 5
    for _ in range(r.randint(3)):
        if depth:
            message.m.append(_filled(cls, r, 0))
        message.grp.add(a=int(r.randint(100)))
    return message


def fields_of_messages(tf: Any) -> Any:
    """Whole numbers in int64 that are packed are left out: TensorFlow reads negative ones as if they had no sign."""
    cls, fetched = _message_class(), []
    for trial, form in enumerate(("binary", "text", "binary")):
        r = Inputs(trial)
        messages = [_filled(cls, r) for _ in range(4)] + [cls()] * 2
        if form == "text":
            given = [text_format.MessageToString(message).encode() for message in messages]
        else:
            given = [message.SerializeToString(deterministic=True) for message in messages]
        names = [field.name for field in cls.DESCRIPTOR.fields]
        r.shuffle(names)
        types = [_type_of(name, trial == 2) for name in names]
        packed = np.array(given, object).reshape(2, 3)
        known = {"descriptor_source": SOURCE}
        found = tf.io.decode_proto(
            packed, "case.M", names, [getattr(tf, t) for t in types], message_format=form, sanitize=trial == 2, **known
        )
        fetched += [found.sizes, *found.values, tf.io.encode_proto(found.sizes, found.values, names, "case.M", **known)]
    example = tf.train.Example()
    example.features.feature["a"].int64_list.value.append(4)
    fetched += tf.io.decode_proto([example.SerializeToString()], "tensorflow.Example", ["features"], [tf.string]).values
    return fetched


def _type_of(name: str, wider: bool) -> str:
    kind = name.rpartition("_")[0].upper()
    if name in ("e", "m", "grp"):
        return "int32" if name == "e" else "string"
    may_be_wider = wider and not (name.endswith("_2") and kind in ("INT32", "SINT32", "SFIXED32"))
    return _WIDER.get(kind, _OWN[kind]) if may_be_wider else _OWN[kind]


CASES = {
    case.__name__: case
    for case in (
        rows_in_place,
        rows_for_several_lists,
        fingerprints_of_examples,
        examples_that_share_no_feature,
        one_dense_example,
        centres,
        fields_of_messages,
    )
}
