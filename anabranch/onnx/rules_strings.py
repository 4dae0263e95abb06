"""Import rules of operators on strings."""

from __future__ import annotations

import numpy as np

import anabranch as tf
from anabranch.core.arrays import HostArray
from anabranch.onnx.rules import OnnxNode, rule


@rule("StringConcat", 20)
def _string_concat(node: OnnxNode) -> tf.Tensor:
    return tf.add(node.tensor(0), node.tensor(1))


@rule("RegexFullMatch", 20)
def _regex_full_match(node: OnnxNode) -> tf.Tensor:
    return tf.strings.regex_full_match(node.tensor(), node.text("pattern"))


@rule("StringSplit", 20)
def _string_split(node: OnnxNode) -> tuple[tf.Tensor, ...]:
    delimiter, most = node.text("delimiter"), node.attr("maxsplit")

    def split(x: HostArray) -> tuple[HostArray, HostArray]:
        limit = -1 if most is None else int(most)  # type: ignore[call-overload]
        parts = [v.split(delimiter.encode() or None, limit) if v else [] for v in x.reshape(-1)]
        counts = np.array([len(p) for p in parts], np.int64).reshape(x.shape)
        width = int(counts.max()) if counts.size else 0
        table = np.array([p + [b""] * (width - len(p)) for p in parts], object)
        return table.reshape([*x.shape, width]), counts

    x = node.tensor()
    texts, counts = tf.py_func(split, [x], [tf.string, tf.int64], stateful=False)
    counts.set_shape(x.shape)
    return texts, counts


@rule("StringNormalizer", 10)
def _string_normalizer(node: OnnxNode) -> tf.Tensor:
    change, sensitive = node.text("case_change_action", "NONE"), bool(node.integer("is_case_sensitive"))
    listed = node.attr("stopwords") or []
    words = {w.decode() if isinstance(w, bytes) else str(w) for w in listed}  # type: ignore[attr-defined]
    words = words if sensitive else {w.lower() for w in words}

    def normalize(x: HostArray) -> HostArray:
        rows = x.reshape(-1, x.shape[-1])
        texts = [[v.decode() for v in row] for row in rows]
        kept = [[t for t in row if (t if sensitive else t.lower()) not in words] for row in texts]
        turned = {"LOWER": str.lower, "UPPER": str.upper}.get(change, str)
        result = [[turned(t).encode() for t in row] or [b""] for row in kept]
        return np.array(result, object).reshape([*x.shape[:-1], -1])

    return tf.py_func(normalize, [node.tensor()], tf.string, stateful=False)
