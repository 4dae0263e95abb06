"""Import rules of operators on strings and words."""

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


@rule("TfIdfVectorizer", 9)
def _tf_idf_vectorizer(node: OnnxNode) -> tf.Tensor:
    """How often each n-gram of the pool is found, in each row; an n-gram may skip so many elements between its own."""
    x = node.tensor()
    rows = x if node.rank() > 1 else tf.expand_dims(x, 0)
    places = node.ints("ngram_indexes", default=[]) or []
    counts: list[tf.Tensor] = []
    for pool in _pools(node):
        length, wanted = pool.shape[1], tf.constant(pool, x.dtype)
        found = tf.zeros([tf.shape(rows)[0], pool.shape[0]], tf.float32)
        if pool.shape[0] and node.integer("min_gram_length", 1) <= length <= node.integer("max_gram_length", 1):
            for skipped in range(node.integer("max_skip_count") + 1 if length > 1 else 1):
                found += _occurrences(rows, wanted, length, skipped + 1)
        counts.append(found)
    found = tf.concat(counts, 1)
    if len(places) != sum(pool.shape[0] for pool in _pools(node)):
        raise ValueError(f"{node.label}: ngram_indexes must have an element for each n-gram of the pool")
    mode = node.text("mode", "TF")
    if mode == "IDF":
        found = tf.minimum(found, 1)
    if mode != "TF" and node.attr("weights") is not None:
        found = found * tf.constant(node.attr("weights"), tf.float32)
    spread = np.zeros((len(places), max(places, default=-1) + 1), np.float32)
    spread[np.arange(len(places)), places] = 1
    result = tf.matmul(found, spread)
    return result if node.rank() > 1 else tf.squeeze(result, [0])


def _pools(node: OnnxNode) -> list[HostArray]:
    """The n-grams of the pool by their lengths, each a table with an n-gram in a row."""
    texts = node.attr("pool_strings")
    whole = np.array(texts, object) if texts is not None else np.array(node.ints("pool_int64s", default=[]), np.int64)
    starts = node.ints("ngram_counts", default=[]) or []
    pools = []
    for length, (start, end) in enumerate(zip(starts, [*starts[1:], whole.size], strict=True), 1):
        if not 0 <= start <= end <= whole.size or (end - start) % length:
            raise ValueError(f"{node.label}: the {length}-grams of its pool are from {start} to {end}")
        pools.append(whole[start:end].reshape(-1, length))
    return pools


def _occurrences(rows: tf.Tensor, wanted: tf.Tensor, length: int, apart: int) -> tf.Tensor:
    """How often each n-gram is in each row, with its elements so far apart."""
    windows = tf.maximum(tf.shape(rows)[1] - (length - 1) * apart, 0)
    same = None
    for i in range(length):
        here = tf.equal(
            tf.expand_dims(rows[:, i * apart : i * apart + windows], 2), tf.reshape(wanted[:, i], [1, 1, -1])
        )
        same = here if same is None else tf.logical_and(same, here)
    return tf.reduce_sum(tf.cast(same, tf.float32), 1)
