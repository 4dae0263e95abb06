"""`tf.contrib.text`: words with words around them (Mikolov et al. 2013)."""

from __future__ import annotations

import csv

import anabranch as tf
from anabranch.contrib.arguments import PassedOn, TensorLike


def skip_gram_sample(
    input_tensor: TensorLike,
    min_skips: TensorLike = 1,
    max_skips: TensorLike = 5,
    start: TensorLike = 0,
    limit: TensorLike = -1,
    emit_self_as_target: TensorLike = False,
    vocab_freq_table: PassedOn = None,
    vocab_min_count: TensorLike | None = None,
    vocab_subsampling: float | None = None,
    corpus_size: TensorLike | None = None,
    batch_size: int | None = None,
    batch_capacity: int | None = None,
    seed: int | None = None,
    name: str | None = None,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Pairs of each word and those around it, as far as a distance that is drawn for each word.

    Args:
        input_tensor: the words, of one dimension.
        min_skips, max_skips: the least and the largest distance that is drawn.
        start: the first word that counts.
        limit: how many words count; -1: all others.
        emit_self_as_target: whether a word is also paired with itself.
        vocab_freq_table: a table that says how often words occur; those that it lacks are left out first.
        vocab_min_count: words that occur less often are left out, too.
        vocab_subsampling: of words that are a larger part of the corpus, some are left out, by chance.
        corpus_size: how many words the corpus has.
        batch_size: puts the pairs into a queue, and takes so many out of it; None: as many as there are.
        batch_capacity: of that queue; default: 100 batches.
        seed: of what is drawn.
        name: of the operations.

    Returns:
        (the words, the words around), each of one dimension.

    Raises:
        ValueError: settings of a vocabulary without one, only one of `vocab_subsampling` and `corpus_size`, or the
            former is not between 0 and 1.
        InvalidArgumentError: (in the step) distances are negative or in the wrong order, or `start` is no word.

    Example:
        >>> words, around = tf.contrib.text.skip_gram_sample(["a", "b", "c"], max_skips=1)
        >>> sess.run([words, around])[1].tolist()
        [b'b', b'a', b'c', b'b']
    """
    settings = (vocab_min_count, vocab_subsampling, corpus_size)
    if vocab_freq_table is None and any(one is not None for one in settings):
        raise ValueError(
            f"vocab_freq_table is not provided, but vocab_min_count={vocab_min_count}, "
            f"vocab_subsampling={vocab_subsampling}, or corpus_size={corpus_size} is not None"
        )
    if (vocab_subsampling is None) != (corpus_size is None):
        raise ValueError(
            f"vocab_subsampling is {vocab_subsampling} while corpus_size is {corpus_size} - both must be provided in "
            "order for subsampling to work."
        )
    with tf.name_scope(name, "skip_gram_sample", [input_tensor, min_skips, max_skips, start, limit]):
        words = tf.convert_to_tensor(input_tensor)
        words.shape.assert_has_rank(1)
        if vocab_freq_table is not None:
            words = _known_words(words, vocab_freq_table, vocab_min_count, vocab_subsampling, corpus_size, seed)
        pairs = _pairs(words, (min_skips, max_skips), start, limit, emit_self_as_target, seed)
        if batch_size is None or batch_size <= 0:
            return pairs
        capacity = batch_capacity if batch_capacity is not None and batch_capacity > 0 else 100 * batch_size
        tokens, labels = tf.train.batch(list(pairs), batch_size, capacity=capacity, enqueue_many=True)
        return tokens, labels


def _pairs(
    words: tf.Tensor,
    skips: tuple[TensorLike, TensorLike],
    start: TensorLike,
    limit: TensorLike,
    emit_self: TensorLike,
    seed: int | None,
) -> tuple[tf.Tensor, tf.Tensor]:
    least, largest, first = (tf.convert_to_tensor(value, tf.int32) for value in (*skips, start))
    checks = [
        tf.Assert(tf.logical_and(least >= 0, largest >= 0), ["Both min_skips and max_skips must be >= 0.", *skips]),
        tf.Assert(least <= largest, ["min_skips must be <= max_skips.", *skips]),
        tf.Assert(
            tf.logical_and(first >= 0, first <= tf.size(words)), ["start must be a position of input_tensor.", first]
        ),
    ]
    with tf.control_dependencies(checks):
        later = words[first:]
    largest = tf.maximum(largest, 0)
    counted = tf.convert_to_tensor(limit, tf.int32)
    counted = tf.where(counted < 0, tf.size(later), tf.minimum(counted, tf.size(later)))
    later = later[:counted]
    reach = tf.random_uniform([counted], tf.minimum(least, largest), largest + 1, tf.int32, seed)[:, tf.newaxis]
    distances = tf.range(-largest, largest + 1)[tf.newaxis]
    places = tf.range(counted)[:, tf.newaxis] + distances
    kept = tf.logical_and(tf.abs(distances) <= reach, tf.logical_and(places >= 0, places < counted))
    kept = tf.logical_and(kept, tf.logical_or(tf.not_equal(distances, 0), emit_self))
    pairs = tf.where(kept)
    chosen = tf.gather_nd(places, pairs)
    return tf.gather(later, pairs[:, 0]), tf.gather(later, chosen)


def _known_words(
    words: tf.Tensor,
    table: PassedOn,
    least: TensorLike | None,
    subsampling: float | None,
    corpus_size: TensorLike | None,
    seed: int | None,
) -> tf.Tensor:
    counts = table.lookup(words)
    kept = tf.not_equal(counts, table.default_value)
    if least is not None:
        kept = tf.logical_and(kept, counts >= tf.cast(least, counts.dtype))
    words, counts = tf.boolean_mask(words, kept), tf.boolean_mask(counts, kept)
    if not subsampling:
        return words
    if not 0 <= subsampling <= 1:
        raise ValueError(f"Invalid vocab_subsampling={subsampling} - it should be within range [0, 1].")
    # how much more often a word occurs than a word that is never left out
    often = tf.cast(counts, tf.float64) / (subsampling * tf.cast(corpus_size, tf.float64))
    drawn = tf.random_uniform(tf.shape(often), dtype=tf.float64, seed=seed)
    result: tf.Tensor = tf.boolean_mask(words, drawn <= (tf.sqrt(often) + 1.0) / often)
    return result


def skip_gram_sample_with_text_vocab(
    input_tensor: TensorLike,
    vocab_freq_file: str,
    vocab_token_index: int = 0,
    vocab_token_dtype: tf.DType = tf.string,
    vocab_freq_index: int = 1,
    vocab_freq_dtype: tf.DType = tf.float64,
    vocab_delimiter: str = ",",
    vocab_min_count: TensorLike = 0,
    vocab_subsampling: float | None = None,
    corpus_size: float | None = None,
    min_skips: TensorLike = 1,
    max_skips: TensorLike = 5,
    start: TensorLike = 0,
    limit: TensorLike = -1,
    emit_self_as_target: TensorLike = False,
    batch_size: int | None = None,
    batch_capacity: int | None = None,
    seed: int | None = None,
    name: str | None = None,
) -> tuple[tf.Tensor, tf.Tensor]:
    """`skip_gram_sample` with the vocabulary of a file, whose lines are columns between delimiters.

    Args:
        vocab_freq_file: its path.
        vocab_token_index, vocab_freq_index: the columns of words, and of how often they occur.
        vocab_token_dtype, vocab_freq_dtype: what they hold.
        vocab_delimiter: between columns.
        corpus_size: default: the sum of how often the words of the file occur, than which it must not be less.

    The other arguments, and the results, are those of `skip_gram_sample`.

    Raises:
        ValueError: a column is negative, missing, or named twice, or a number in the file is negative.
    """
    if vocab_token_index < 0 or vocab_freq_index < 0:
        raise ValueError(
            f"vocab_token_index={vocab_token_index} and vocab_freq_index={vocab_freq_index} must both be >= 0."
        )
    if vocab_token_index == vocab_freq_index:
        raise ValueError(
            f"vocab_token_index and vocab_freq_index should be different, but are both {vocab_token_index}."
        )
    with tf.gfile.GFile(vocab_freq_file) as file:
        rows = list(csv.reader(file, delimiter=vocab_delimiter))
    counts = [_count(row, vocab_token_index, vocab_freq_index, vocab_freq_dtype) for row in rows]
    total = float(sum(counts))
    if corpus_size and total - corpus_size > 1e-6:
        raise ValueError(
            f"`corpus_size`={corpus_size} must be greater than or equal to the sum of all the frequency counts "
            f"({total}) of `vocab_freq_file` ({vocab_freq_file})."
        )
    source = tf.lookup.TextFileInitializer(
        vocab_freq_file,
        vocab_token_dtype,
        vocab_token_index,
        vocab_freq_dtype,
        vocab_freq_index,
        vocab_size=len(rows),
        delimiter=vocab_delimiter,
    )
    return skip_gram_sample(
        input_tensor,
        min_skips,
        max_skips,
        start,
        limit,
        emit_self_as_target,
        tf.contrib.lookup.HashTable(source, -1),
        vocab_min_count,
        vocab_subsampling,
        None if vocab_subsampling is None else corpus_size or total,
        batch_size,
        batch_capacity,
        seed,
        name,
    )


def _count(row: list[str], token: int, count: int, dtype: tf.DType) -> float:
    if max(token, count) >= len(row):
        raise ValueError(
            f"Row in vocab file only has {len(row)} columns, so vocab_token_index={token} or vocab_freq_index={count} "
            f"is out of bounds. Row content: {row}"
        )
    value = float(dtype.as_numpy_dtype(row[count]))
    if value < 0:
        raise ValueError(f"Row in vocab file has negative frequency of {value}. Row content: {row}")
    return value
