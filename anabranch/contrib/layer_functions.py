"""What `tf.contrib.layers` has beside regularizers: initializers, flatten, vectors for numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import anabranch as tf
from anabranch.contrib.arguments import DTypeLike, PassedOn, ScopeLike, TensorLike


def flatten(
    inputs: TensorLike, outputs_collections: str | Iterable[str] | None = None, scope: str | None = None
) -> tf.Tensor:
    """Makes a matrix: the first dimension stays, all others become one.

    Args:
        inputs: a tensor of shape [batch, ...], of known rank.
        outputs_collections: the collections that the result joins.
        scope: name scope of the operations.

    Returns:
        A tensor of shape [batch, product of the other sizes].

    Raises:
        ValueError: the rank of `inputs` is not known, or 0.

    Example:
        >>> tf.contrib.layers.flatten(tf.zeros([2, 3, 4])).shape
        TensorShape([Dimension(2), Dimension(12)])
    """
    with tf.name_scope(scope, "Flatten", [inputs]):
        outputs = tf.layers.flatten(tf.convert_to_tensor(inputs))
    if outputs_collections is not None:
        tf.add_to_collections(outputs_collections, outputs)
    return outputs


def embedding_lookup_unique(
    params: TensorLike, ids: TensorLike, partition_strategy: str = "mod", name: str | None = None
) -> tf.Tensor:
    """`tf.nn.embedding_lookup`, where equal numbers are looked up once.

    Args:
        params: a variable [number, ...], or a list of its parts.
        ids: int32 or int64, of any shape.
        partition_strategy: "mod" or "div": how numbers are spread over parts.
        name: of the operations.

    Returns:
        [shape of ids, ...].

    Raises:
        ValueError: there are no parameters.
    """
    with tf.name_scope(name, "EmbeddingLookupUnique", [ids]):
        ids = tf.convert_to_tensor(ids)
        once, places = tf.unique(tf.reshape(ids, [-1]))
        found = tf.gather(tf.nn.embedding_lookup(params, once, partition_strategy), places)
        result = tf.reshape(found, tf.concat([tf.shape(ids), tf.shape(found)[1:]], 0))
        result.set_shape(ids.shape.concatenate(found.shape[1:]))
        return result


def bow_encoder(
    ids: TensorLike,
    vocab_size: int,
    embed_dim: int,
    sparse_lookup: bool = True,
    initializer: PassedOn = None,
    regularizer: PassedOn = None,
    trainable: bool = True,
    scope: ScopeLike | None = None,
    reuse: bool | None = None,
) -> tf.Tensor:
    """The mean of the vectors of some numbers: a bag of words.

    Args:
        ids: int32 or int64, [batch, length], or a `SparseTensor`.
        vocab_size, embed_dim: how many numbers there are, and how long the vectors.
        sparse_lookup: whether a 0 of dense `ids` stands for nothing.
        initializer, regularizer, trainable: of the variable `embeddings`.
        scope, reuse: of the variable.

    Returns:
        [batch, embed_dim].

    Raises:
        TypeError: `ids` is sparse, and `sparse_lookup` is False.
    """
    with tf.variable_scope(scope, "bow_encoder", [] if isinstance(ids, tf.SparseTensor) else [ids], reuse=reuse):
        embeddings = tf.get_variable(
            "embeddings", [vocab_size, embed_dim], None, initializer, regularizer, trainable=trainable
        )
        if not sparse_lookup:
            if isinstance(ids, tf.SparseTensor):
                raise TypeError(f"ids are expected to be dense Tensor, got: {ids}")
            return tf.reduce_mean(tf.nn.embedding_lookup(embeddings, ids), axis=1)
        sparse = ids if isinstance(ids, tf.SparseTensor) else _without_zeros(tf.convert_to_tensor(ids))
        return tf.nn.safe_embedding_lookup_sparse([embeddings], sparse, combiner="mean", default_id=0)


def _without_zeros(ids: tf.Tensor) -> tf.SparseTensor:
    indices = tf.where(tf.not_equal(ids, tf.zeros([], ids.dtype)))
    return tf.SparseTensor(indices, tf.gather_nd(ids, indices), tf.shape(ids, out_type=tf.int64))


def embed_sequence(
    ids: TensorLike,
    vocab_size: int | None = None,
    embed_dim: int | None = None,
    unique: bool = False,
    initializer: PassedOn = None,
    regularizer: PassedOn = None,
    trainable: bool = True,
    scope: ScopeLike | None = None,
    reuse: bool | None = None,
) -> tf.Tensor:
    """A vector for each of some numbers.

    Args:
        ids: int32 or int64, [batch, length].
        vocab_size, embed_dim: how many numbers there are, and how long the vectors; both, unless a variable is reused.
        unique: whether equal numbers are looked up once; the result is the same.
        initializer, regularizer, trainable: of the variable `embeddings`.
        scope, reuse: of the variable.

    Returns:
        [batch, length, embed_dim].

    Raises:
        ValueError: a new variable has no size.

    Example:
        >>> tf.contrib.layers.embed_sequence([[0, 2]], vocab_size=3, embed_dim=4).shape
        TensorShape([Dimension(1), Dimension(2), Dimension(4)])
    """
    if not (reuse or (vocab_size and embed_dim)):
        raise ValueError(
            f"Must specify vocab size and embedding dimension when not reusing. Got vocab_size={vocab_size} and "
            f"embed_dim={embed_dim}"
        )
    with tf.variable_scope(scope, "EmbedSequence", [ids], reuse=reuse):
        shape: list[int | None] | None = [vocab_size, embed_dim]
        if reuse and (vocab_size is None or embed_dim is None):
            shape = None
        table = tf.get_variable(
            "embeddings", shape, initializer=initializer, regularizer=regularizer, trainable=trainable
        )
        looked_up: tf.Tensor = tf.nn.embedding_lookup(table, ids)
        return looked_up


def xavier_initializer(
    uniform: bool = True, seed: int | None = None, dtype: DTypeLike = tf.float32
) -> Callable[..., tf.Tensor]:
    """Glorot and Bengio (2010): keeps the scale of gradients alike in all layers.

    Args:
        uniform: whether the distribution is uniform, or a cut-off normal one.
        seed: of the random numbers.
        dtype: of the variable, where it does not say; floating.

    Returns:
        An initializer: a function from a shape to a tensor of it.

    Raises:
        TypeError: `dtype` is not floating.

    Example:
        >>> initializer = tf.contrib.layers.xavier_initializer()
        >>> bool((abs(sess.run(initializer([3, 3]))) <= 1.0).all())
        True
    """
    return variance_scaling_initializer(1.0, "FAN_AVG", uniform, seed, dtype)


def variance_scaling_initializer(
    factor: float = 2.0,
    mode: str = "FAN_IN",
    uniform: bool = False,
    seed: int | None = None,
    dtype: DTypeLike = tf.float32,
) -> Callable[..., tf.Tensor]:
    """Weights of variance `factor` / n, where n is the number of inputs, of outputs, or their mean.

    Args:
        factor: a positive number.
        mode: "FAN_IN" (n = inputs of a unit), "FAN_OUT" (its outputs) or "FAN_AVG" (their mean).
        uniform: whether the distribution is uniform, or a cut-off normal one.
        seed: of the random numbers.
        dtype: of the variable, where it does not say; floating.

    Returns:
        An initializer: a function from a shape to a tensor of it.

    Raises:
        TypeError: `dtype` is not a floating-point type.
        ValueError: `mode` is unknown.

    Example:
        >>> initializer = tf.contrib.layers.variance_scaling_initializer(uniform=True)
        >>> bool((abs(sess.run(initializer([6, 3]))) <= 1.0).all())
        True
    """
    if not tf.as_dtype(dtype).is_floating:
        raise TypeError("Cannot create initializer for non-floating point type.")
    if mode not in {"FAN_IN", "FAN_OUT", "FAN_AVG"}:
        raise ValueError(f"Unknown mode {mode} [FAN_IN, FAN_OUT, FAN_AVG]")
    distribution = "uniform" if uniform else "truncated_normal"
    return tf.variance_scaling_initializer(factor, mode.lower(), distribution, seed, dtype)
