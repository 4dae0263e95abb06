"""Worker: training steps of models that are mostly large tables, the same mathematics in every system.

``word2vec``: skip-grams with noise-contrastive estimation, as in TensorFlow's tutorial: 50,000 words of 128 numbers,
128 pairs a step, 64 classes drawn log-uniformly for all of them, gradient descent. (TensorFlow and anabranch draw
distinct classes; PyTorch and JAX here draw with replacement, which is less work.) ``DeepFM``: a factorization machine
and a small network over 39 fields, with one weight and 8 numbers for each of 10,000, 1,000,000 and 10,000,000 features,
batch 1,024, Adagrad (Guo et al., 2017). Every step is fed NumPy arrays of its own and fetches the loss.
"""

from __future__ import annotations

import itertools
import json
import math
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from timing import seconds_per_call

Step = Callable[[], object]

WORDS, WORD_WIDTH, PAIRS, SAMPLED, DESCENT = 50_000, 128, 128, 64, 1.0
FIELDS, WIDTH, HIDDEN, EXAMPLES, RATE, INITIAL = 39, 8, (32, 32), 1024, 0.01, 0.1
FEATURES = {"10,000": 10_000, "1,000,000": 1_000_000, "10,000,000": 10_000_000}
FEEDS = 64


def numbers(*shape: int, deviation: float = 0.01) -> np.ndarray:
    """Normal numbers in float32."""
    return np.float32(deviation) * np.random.default_rng(0).standard_normal(shape, np.float32)


def word_pairs() -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Words [pairs] and their neighbours [pairs, 1], int32, as often as a text of Zipf's distribution has them."""
    rng = np.random.default_rng(1)

    def words(*shape: int) -> np.ndarray:
        return (np.exp(rng.random(shape) * math.log(WORDS + 1)) - 1).astype(np.int32)

    return itertools.cycle([(words(PAIRS), words(PAIRS, 1)) for _ in range(FEEDS)])


def examples(features: int) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Features' numbers [batch, fields], int32, each field with its own; their values; labels [batch], 0 or 1."""
    rng = np.random.default_rng(1)
    of_field = features // FIELDS
    first = np.arange(FIELDS, dtype=np.int32) * of_field

    def batch() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        ids = rng.integers(0, of_field, (EXAMPLES, FIELDS), np.int32) + first
        values = rng.random((EXAMPLES, FIELDS), np.float32)
        return ids, values, rng.integers(0, 2, EXAMPLES).astype(np.float32)

    return itertools.cycle([batch() for _ in range(FEEDS)])


def dense_shapes() -> list[tuple[int, int]]:
    widths = (FIELDS * WIDTH, *HIDDEN, 1)
    return list(itertools.pairwise(widths))


# ---------------------------------------------------------------------- anabranch and TensorFlow: one program
def graph_word2vec(tf: Any) -> Step:
    words, labels = tf.placeholder(tf.int32, [PAIRS]), tf.placeholder(tf.int32, [PAIRS, 1])
    table = tf.get_variable("words", initializer=numbers(WORDS, WORD_WIDTH), use_resource=True)
    weights = tf.get_variable("weights", initializer=numbers(WORDS, WORD_WIDTH), use_resource=True)
    biases = tf.get_variable("biases", [WORDS], initializer=tf.zeros_initializer(), use_resource=True)
    embedded = tf.nn.embedding_lookup(table, words)
    loss = tf.reduce_mean(tf.nn.nce_loss(weights, biases, labels, embedded, SAMPLED, WORDS))
    train = tf.train.GradientDescentOptimizer(DESCENT).minimize(loss)
    session, pairs = tf.Session(), word_pairs()
    session.run(tf.global_variables_initializer())
    return lambda: session.run([train, loss], dict(zip((words, labels), next(pairs), strict=True)))


def graph_deepfm(tf: Any, features: int) -> Step:
    ids = tf.placeholder(tf.int32, [None, FIELDS])
    values, labels = tf.placeholder(tf.float32, [None, FIELDS]), tf.placeholder(tf.float32, [None])
    linear = tf.get_variable("linear", initializer=numbers(features, 1), use_resource=True)
    table = tf.get_variable("table", initializer=numbers(features, WIDTH), use_resource=True)
    first = tf.reduce_sum(tf.nn.embedding_lookup(linear, ids)[:, :, 0] * values, 1)
    rows = tf.nn.embedding_lookup(table, ids) * values[:, :, None]
    pairs = 0.5 * tf.reduce_sum(tf.square(tf.reduce_sum(rows, 1)) - tf.reduce_sum(tf.square(rows), 1), 1)
    deep = tf.reshape(rows, [-1, FIELDS * WIDTH])
    for i, shape in enumerate(dense_shapes()):
        w = tf.get_variable(f"w{i}", initializer=numbers(*shape, deviation=0.1), use_resource=True)
        b = tf.get_variable(f"b{i}", [shape[1]], initializer=tf.zeros_initializer(), use_resource=True)
        deep = tf.matmul(deep, w) + b
        deep = tf.nn.relu(deep) if shape[1] > 1 else deep
    logits = first + pairs + deep[:, 0]
    loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits))
    train = tf.train.AdagradOptimizer(RATE, INITIAL).minimize(loss)
    session, batches = tf.Session(), examples(features)
    session.run(tf.global_variables_initializer())
    return lambda: session.run([train, loss], dict(zip((ids, values, labels), next(batches), strict=True)))


# ---------------------------------------------------------------------- JAX
def jax_word2vec() -> Step:
    """Only rows are changed: the arrays are given away, so that XLA overwrites them."""
    import jax
    import jax.numpy as jnp

    def log_of_expected(classes: Any) -> Any:
        chance = jnp.log((classes + 2.0) / (classes + 1.0)) / math.log(WORDS + 1)
        return jnp.log(chance * SAMPLED)

    def loss_of(embedded: Any, true: Any, noise: Any, classes: tuple[Any, Any]) -> Any:
        (true_w, true_b), (noise_w, noise_b) = true, noise
        true_logits = (embedded * true_w).sum(1) + true_b - log_of_expected(classes[0])
        noise_logits = embedded @ noise_w.T + noise_b - log_of_expected(classes[1])
        return (jax.nn.softplus(-true_logits) + jax.nn.softplus(noise_logits).sum(1)).mean()

    def step(state: Any, key: Any, words: Any, labels: Any) -> Any:
        table, weights, biases = state
        key, used = jax.random.split(key)
        drawn = (jnp.exp(jax.random.uniform(used, (SAMPLED,)) * math.log(WORDS + 1)) - 1).astype(jnp.int32)
        labels = labels[:, 0]
        rows = table[words], (weights[labels], biases[labels]), (weights[drawn], biases[drawn])
        loss, (embedded, true, noise) = jax.value_and_grad(loss_of, (0, 1, 2))(*rows, (labels, drawn))
        table = table.at[words].add(-DESCENT * embedded)
        weights = weights.at[labels].add(-DESCENT * true[0]).at[drawn].add(-DESCENT * noise[0])
        biases = biases.at[labels].add(-DESCENT * true[1]).at[drawn].add(-DESCENT * noise[1])
        return (table, weights, biases), key, loss

    jitted = jax.jit(step, donate_argnums=(0, 1))
    arrays = (numbers(WORDS, WORD_WIDTH), numbers(WORDS, WORD_WIDTH), np.zeros(WORDS, np.float32))
    held: list[Any] = [tuple(map(jax.device_put, arrays)), jax.random.key(0)]
    pairs = word_pairs()

    def run() -> float:
        *held[:], loss = jitted(*held, *next(pairs))
        return float(loss)

    return run


def jax_deepfm(features: int) -> Step:
    """Only rows are changed, those of equal features by the sum of their gradients, as the others do it."""
    import jax
    import jax.numpy as jnp

    def loss_of(rows: Any, dense: Any, values: Any, labels: Any) -> Any:
        first = (rows[0][:, :, 0] * values).sum(1)
        embedded = rows[1] * values[:, :, None]
        pairs = 0.5 * (embedded.sum(1) ** 2 - (embedded**2).sum(1)).sum(1)
        deep = embedded.reshape(-1, FIELDS * WIDTH)
        for i, (w, b) in enumerate(dense):
            deep = deep @ w + b
            deep = jax.nn.relu(deep) if i < len(dense) - 1 else deep
        logits = first + pairs + deep[:, 0]
        return (jax.nn.softplus(logits) - labels * logits).mean()

    def step(tables: Any, dense: Any, ids: Any, values: Any, labels: Any) -> Any:
        rows = [table[ids] for table, _ in tables]
        parameters = [p for p, _ in dense]
        loss, (of_rows, of_dense) = jax.value_and_grad(loss_of, (0, 1))(rows, parameters, values, labels)
        distinct, places = jnp.unique(ids, return_inverse=True, size=ids.size, fill_value=features)
        changed = []
        for (table, slot), gradient in zip(tables, of_rows, strict=True):
            total = jax.ops.segment_sum(gradient.reshape(ids.size, -1), places.reshape(-1), ids.size)
            squares = slot.at[distinct].get(mode="clip") + total**2
            slot = slot.at[distinct].set(squares, mode="drop")
            changed.append((table.at[distinct].add(-RATE * total / jnp.sqrt(squares), mode="drop"), slot))
        slots = jax.tree.map(lambda s, g: s + g**2, [s for _, s in dense], of_dense)
        updated = jax.tree.map(lambda p, g, s: p - RATE * g / jnp.sqrt(s), parameters, of_dense, slots)
        return changed, list(zip(updated, slots, strict=True)), loss

    def held_with_slot(array: np.ndarray) -> tuple[Any, Any]:
        return jax.device_put(array), jnp.full(array.shape, INITIAL, np.float32)

    def dense_with_slot(shape: tuple[int, int]) -> tuple[Any, Any]:
        pairs = [held_with_slot(numbers(*shape, deviation=0.1)), held_with_slot(np.zeros(shape[1], np.float32))]
        weights, slots = zip(*pairs, strict=True)
        return weights, slots

    jitted = jax.jit(step, donate_argnums=(0, 1))
    tables = [held_with_slot(numbers(features, width)) for width in (1, WIDTH)]
    held: list[Any] = [tables, [dense_with_slot(shape) for shape in dense_shapes()]]
    batches = examples(features)

    def run() -> float:
        *held[:], loss = jitted(*held, *next(batches))
        return float(loss)

    return run


# ---------------------------------------------------------------------- PyTorch
def torch_word2vec() -> Step:
    import torch
    from torch.nn import functional

    table, weights = (torch.from_numpy(numbers(WORDS, WORD_WIDTH)).requires_grad_() for _ in range(2))
    biases = torch.zeros(WORDS, 1, requires_grad=True)
    optimizer = torch.optim.SGD([table, weights, biases], DESCENT)
    pairs = word_pairs()

    def log_of_expected(classes: Any) -> Any:
        return torch.log(torch.log((classes + 2.0) / (classes + 1.0)) / math.log(WORDS + 1) * SAMPLED)

    def run() -> float:
        words, labels = (torch.from_numpy(a.reshape(-1)) for a in next(pairs))
        drawn = (torch.exp(torch.rand(SAMPLED) * math.log(WORDS + 1)) - 1).int()
        embedded = functional.embedding(words, table, sparse=True)
        classes = torch.cat([labels, drawn])
        rows, offsets = (functional.embedding(classes, p, sparse=True) for p in (weights, biases))
        offsets = offsets[:, 0] - log_of_expected(classes)
        true = (embedded * rows[:PAIRS]).sum(1) + offsets[:PAIRS]
        noise = embedded @ rows[PAIRS:].T + offsets[PAIRS:]
        loss = (functional.softplus(-true) + functional.softplus(noise).sum(1)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return float(loss)

    return run


def torch_deepfm(features: int) -> Step:
    import torch
    from torch.nn import functional

    linear, table = (torch.from_numpy(numbers(features, width)).requires_grad_() for width in (1, WIDTH))
    dense = [
        (torch.from_numpy(numbers(*shape, deviation=0.1)).requires_grad_(), torch.zeros(shape[1], requires_grad=True))
        for shape in dense_shapes()
    ]
    parameters = [linear, table, *itertools.chain(*dense)]
    optimizer = torch.optim.Adagrad(parameters, RATE, initial_accumulator_value=INITIAL, eps=0)
    batches = examples(features)

    def run() -> float:
        ids, values, labels = map(torch.from_numpy, next(batches))
        first = (functional.embedding(ids, linear, sparse=True)[:, :, 0] * values).sum(1)
        rows = functional.embedding(ids, table, sparse=True) * values[:, :, None]
        pairs = 0.5 * (rows.sum(1) ** 2 - (rows**2).sum(1)).sum(1)
        deep = rows.reshape(-1, FIELDS * WIDTH)
        for i, (w, b) in enumerate(dense):
            deep = torch.addmm(b, deep, w)
            deep = torch.relu(deep) if i < len(dense) - 1 else deep
        loss = functional.binary_cross_entropy_with_logits(first + pairs + deep[:, 0], labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return float(loss)

    return run


def step_of(system: str, features: int | None) -> Step:
    """A step of DeepFM with so many features, or of word2vec."""
    if system in ("jax", "torch"):
        name = f"{system}_{'word2vec' if features is None else 'deepfm'}"
        return globals()[name](*([] if features is None else [features]))
    if system == "anabranch":
        import anabranch as tf
    else:
        import tensorflow.compat.v1 as tf

        tf.disable_v2_behavior()
    tf.reset_default_graph()
    return graph_word2vec(tf) if features is None else graph_deepfm(tf, features)


def main(system: str) -> None:
    row = {"word2vec, NCE": seconds_per_call(step_of(system, None), 200)}
    for name, features in FEATURES.items():
        row[f"DeepFM, {name} features"] = seconds_per_call(step_of(system, features), 20)
    print(json.dumps(row))


if __name__ == "__main__":
    main(sys.argv[1])
