"""`tf.contrib.training`: long sequences in segments, each of which begins with the state that the last one ended with.

Segments of many sequences stand in a barrier, each under a key that names its place ("00001_of_00003:key"). A segment
can be taken when it has a state: the first is given one at once, each other when the step that took the one before
saves its state. So a batch holds segments of different sequences, and none is taken before its turn. A queue of as
many tokens as sequences may be under way holds back further ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import anabranch as tf
from anabranch.contrib.arguments import PassedOn, TensorLike
from anabranch.contrib.barriers import Barrier

#: what a segment has beside its tensors: the steps of it and of its sequence, the next one's key, its place, how many
_FIXED = ("length", "total_length", "next_key", "sequence", "sequence_count")


class SequenceQueueingStateSaver:
    """Sequences cut into segments of `num_unroll` steps, and states that are kept from one to the next.

    Args:
        batch_size: int: how many segments a batch has.
        num_unroll: int: how many steps a segment has.
        input_length: int32 scalar: how many steps of the sequence count.
        input_key: string scalar: the name of the sequence, of which no two under way may have the same.
        input_sequences: name -> tensor [padded length, ...]; the padded length is a multiple of `num_unroll`.
        input_context: name -> tensor, the same for all segments of the sequence.
        initial_states: name -> tensor: the state at the beginning.
        capacity: int: how many sequences are under way at most; None: no limit.
        allow_small_batch: whether a batch may be smaller after `close`.
        name: of the operations.

    Raises:
        TypeError: a length is no int32, a key no string, or what is to be a dictionary is none.
        ValueError: there are no sequences or no states, a name has a colon, a shape (without the first dimension of a
            sequence) is not known, or `capacity` is less than `batch_size`.
    """

    def __init__(
        self,
        batch_size: TensorLike,
        num_unroll: int,
        input_length: TensorLike,
        input_key: TensorLike,
        input_sequences: Mapping[str, TensorLike],
        input_context: Mapping[str, TensorLike],
        initial_states: Mapping[str, TensorLike],
        capacity: TensorLike | None = None,
        allow_small_batch: bool = False,
        name: str | None = None,
    ) -> None:
        self._batch_size, self._num_unroll, self._allow_small_batch = batch_size, num_unroll, allow_small_batch
        self._prefetch_op: tf.Operation | None = None
        self._next_batch: NextQueuedSequenceBatch | None = None
        with tf.name_scope(name, "InputQueueingStateSaver") as scope:
            self._name = scope
            self._states = _named("state", initial_states)
            self._sequences = _named("sequence", input_sequences)
            self._context = _named("context", input_context, may_be_empty=True)
            for kind, tensors in (("state", self._states), ("context", self._context)):
                _check_known(kind, tensors, 0)
            _check_known("sequence", self._sequences, 1)
            self._key = _scalar("key", input_key, tf.string)
            self._padded, self._length = self._checked_lengths(_scalar("length", input_length, tf.int32))
            with tf.control_dependencies(_enough(capacity, batch_size)):
                self._key = tf.identity(self._key)
            self._tokens = tf.FIFOQueue(-1 if capacity is None else capacity, [tf.int32], [[]])
            self._parts = {f"{kind}/{key}": value for kind, key, value in self._all()}
            self._index = {key: index for index, key in enumerate((*_FIXED, *self._parts))}
            self._barrier = self._made_barrier()

    def _all(self) -> list[tuple[str, str, Any]]:
        """Kind, name and tensor of all that is queued."""
        kinds = (("sequence", self._sequences), ("context", self._context), ("state", self._states))
        return [(kind, key, value) for kind, tensors in kinds for key, value in tensors.items()]

    def _checked_lengths(self, length: tf.Tensor) -> tuple[Any, Any]:
        """The padded length and the length, once it is known that they fit the sequences."""
        first = tf.shape(next(iter(self._sequences.values())))[0]
        whole = tf.logical_and(tf.equal(first % self._num_unroll, 0), tf.not_equal(first, 0))
        said = f"The length of the sequences should be a multiple of: {self._num_unroll}, but saw value: "
        checks = [
            tf.Assert(whole, [tf.strings.join([said, tf.as_string(first), ". Consider setting pad=True."])]),
            tf.Assert(length <= first, ["Input length should be <= than length from sequences:", length, first]),
        ]
        for key, value in self._sequences.items():
            size = tf.shape(value)[0]
            told = [f"Dimension 0 of tensor labeled sorted_sequences_{key} should be: ", tf.as_string(first)]
            message = tf.strings.join([*told, ", shape received: ", tf.as_string(size)])
            checks.append(tf.Assert(tf.equal(size, first), [message]))
        with tf.control_dependencies(checks):
            return tf.identity(first, name="padded_length"), tf.identity(length)

    def _made_barrier(self) -> Barrier:
        fixed = [tf.string if name == "next_key" else tf.int32 for name in _FIXED]
        shapes = [
            [self._num_unroll, *value.shape.as_list()[1:]] if kind == "sequence" else value.shape
            for kind, _, value in self._all()
        ]
        return Barrier([*fixed, *(value.dtype for value in self._parts.values())], [[]] * len(_FIXED) + shapes)

    @property
    def name(self) -> str:
        """The scope of the operations."""
        return self._name

    @property
    def barrier(self) -> Barrier:
        """What holds the segments."""
        return self._barrier

    @property
    def batch_size(self) -> TensorLike:
        """How many segments a batch has."""
        return self._batch_size

    @property
    def num_unroll(self) -> int:
        """How many steps a segment has."""
        return self._num_unroll

    @property
    def prefetch_op(self) -> tf.Operation:
        """The operation that puts all segments of a sequence in, which a queue runner runs over and over."""
        if self._prefetch_op is None:
            with tf.name_scope(self._name):
                self._prefetch_op = self._inserted()
        return self._prefetch_op

    @property
    def next_batch(self) -> NextQueuedSequenceBatch:
        """The next segments, the same in each call; a step waits until there are enough."""
        if self._next_batch is None:
            with tf.name_scope(self._name):
                taken = self._barrier.take_many(self._batch_size, self._allow_small_batch, name="BarrierTakeMany")
                self._next_batch = NextQueuedSequenceBatch(self, *taken)
        return self._next_batch

    def close(self, cancel_pending_enqueues: bool = False, name: str | None = None) -> tf.Operation:
        """An operation after which no further sequence is put in.

        Args:
            cancel_pending_enqueues: whether segments that have no state yet, and runs that wait, are given up.
            name: of the operation.
        """
        with tf.name_scope(name, "SQSSClose") as scope:
            closed = [
                self._barrier.close(cancel_pending_enqueues, "BarrierClose"),
                self._tokens.close(cancel_pending_enqueues, "FIFOClose"),
            ]
            return tf.group(*closed, name=scope)

    # ------------------------------------------------------------------ putting a sequence in
    def _inserted(self) -> tf.Operation:
        count = self._padded // self._num_unroll
        places = tf.range(count)
        all_of_one = tf.ones([count], tf.int32)
        which = [
            tf.as_string(places, width=5, fill="0"),
            "_of_",
            tf.as_string(count, width=5, fill="0"),
            ":",
            self._key,
        ]
        keys = tf.strings.join(which, name="StringJoinCurrentKeys")
        stop = tf.strings.join(["STOP:", self._key], name="StringJoinStop")
        values = {
            "length": tf.clip_by_value(self._length - self._num_unroll * places, 0, self._num_unroll),
            "total_length": self._length * all_of_one,
            "next_key": tf.concat([keys[1:], [stop]], 0),
            "sequence": places,
            "sequence_count": count * all_of_one,
        }
        for name, value in self._sequences.items():
            shape = tf.concat([[count, self._num_unroll], value.shape.as_list()[1:]], 0)
            values[f"sequence/{name}"] = tf.reshape(value, shape)
        for name, value in self._context.items():
            values[f"context/{name}"] = tf.tile(value[None], [count] + [1] * value.shape.ndims)
        token = self._tokens.enqueue([0])
        inserts = {name: self._insert(name, keys, value) for name, value in values.items()}
        # the first state last: with it the first segment may be complete, and taken
        with tf.control_dependencies([token, inserts["sequence"]]):
            first = [self._insert(f"state/{name}", keys[:1], value[None]) for name, value in self._states.items()]
        return tf.group(token, *inserts.values(), *first, name="StateSaverPrefetchGroup")

    def _insert(self, name: str, keys: TensorLike, values: TensorLike) -> tf.Operation:
        return self._barrier.insert_many(
            self._index[name], keys, values, name=f"BarrierInsert_{name.replace('/', '_')}"
        )


class NextQueuedSequenceBatch:
    """A batch of segments, as `SequenceQueueingStateSaver.next_batch` gives it.

    Attributes:
        total_length: int32 [batch]: how many steps the sequences have.
        length: int32 [batch]: how many steps of each segment count.
        batch_size: int32 scalar.
        insertion_index: int64 [batch]: in which order keys first came.
        key: string [batch]: each segment's key.
        next_key: string [batch]: the key of the segment after it; "STOP:..." after the last.
        sequence: int32 [batch]: the places of the segments in their sequences.
        sequence_count: int32 [batch]: how many segments the sequences have.
        context: name -> tensor [batch, ...].
        sequences: name -> tensor [batch, num_unroll, ...].
    """

    def __init__(
        self, saver: SequenceQueueingStateSaver, indices: tf.Tensor, keys: tf.Tensor, values: list[tf.Tensor]
    ) -> None:
        self._saver = saver
        self.insertion_index, self.key = indices, keys
        self.length, self.total_length, self.next_key, self.sequence, self.sequence_count = values[: len(_FIXED)]
        self.batch_size = tf.shape(self.length)[0]
        parts = dict(zip(saver._parts, values[len(_FIXED) :], strict=True))
        self.sequences: dict[str, Any] = {key: parts[f"sequence/{key}"] for key in saver._sequences}
        self.context: dict[str, Any] = {key: parts[f"context/{key}"] for key in saver._context}
        is_last = self.sequence + 1 >= self.sequence_count
        self._going_on = tf.reshape(tf.where(tf.logical_not(is_last)), [-1])
        # sequences that end make room for others
        with tf.control_dependencies([saver._tokens.dequeue_many(tf.reduce_sum(tf.cast(is_last, tf.int32)))]):
            self._states = {key: tf.identity(parts[f"state/{key}"]) for key in saver._states}

    def state(self, state_name: str) -> tf.Tensor:
        """The state that each segment begins with, [batch, ...].

        Raises:
            KeyError: there is none of that name.
        """
        return self._states[state_name]

    def save_state(self, state_name: str, value: TensorLike, name: str | None = None) -> tf.Operation:
        """An operation that keeps the states with which segments end for those after them.

        Args:
            state_name: a name among the initial states.
            value: a tensor [batch, ...], like `state(state_name)`.
            name: of the operation.

        Raises:
            KeyError: there is none of that name.
            ValueError: the shape is known to be another.
        """
        if state_name not in self._states:
            raise KeyError(f"state was not declared: {state_name}")
        state = self._states[state_name]
        with tf.name_scope(name, "InputQueueingStateSaver_SaveState"):
            value = tf.identity(value, name=f"convert_{state_name}")
            try:
                value.set_shape(state.shape)
            except ValueError as e:
                raise ValueError(f"Rank check failed for {value.name}: {e}") from None
            same = tf.assert_equal(tf.shape(value), tf.shape(state), message=f"{value.name} must be like the state")
            with tf.control_dependencies([same]):
                going_on = tf.gather(value, self._going_on)
            keys = tf.gather(self.next_key, self._going_on)
            return self._saver._insert(f"state/{state_name}", keys, going_on)


# ---------------------------------------------------------------------- with a queue runner
def batch_sequences_with_states(
    input_key: TensorLike,
    input_sequences: Mapping[str, TensorLike],
    input_context: Mapping[str, TensorLike],
    input_length: TensorLike | None,
    initial_states: Mapping[str, TensorLike],
    num_unroll: int,
    batch_size: TensorLike,
    num_threads: int = 3,
    capacity: int = 1000,
    allow_small_batch: bool = True,
    pad: bool = True,
    make_keys_unique: bool = False,
    make_keys_unique_seed: int | None = None,
    name: str | None = None,
) -> NextQueuedSequenceBatch:
    """Batches of segments of sequences, for truncated backpropagation through time.

    A batch is handed to `tf.nn.static_state_saving_rnn`, which saves the states. A queue runner puts sequences in.

    Args:
        input_key: string scalar: the name of the sequence.
        input_sequences: name -> dense tensor [time, ...].
        input_context: name -> dense tensor.
        input_length: int32 scalar: how many steps count; None: all (`pad` must be set).
        initial_states: name -> tensor: the state at the beginning.
        num_unroll: int: how many steps a segment has.
        batch_size: int: how many segments a batch has.
        num_threads: how many threads put sequences in.
        capacity: how many sequences are under way at most.
        allow_small_batch: whether the last batches may be smaller.
        pad: whether sequences are filled up with zeros to a multiple of `num_unroll`.
        make_keys_unique: whether a random number follows each key, where keys may come again.
        make_keys_unique_seed: of these numbers.
        name: of the operations.

    Returns:
        A `NextQueuedSequenceBatch`.

    Raises:
        TypeError, ValueError: as `SequenceQueueingStateSaver`; sparse tensors are refused.
    """
    with tf.name_scope(name, "batch_sequences_with_states"):
        for value in (*input_sequences.values(), *input_context.values()):
            if isinstance(value, tf.SparseTensor | tf.SparseTensorValue):
                raise TypeError("sequences and context must be dense here: convert them by tf.sparse.to_dense")
        sequences = dict(input_sequences)
        if pad:
            length, sequences = padded(sequences, num_unroll)
            input_length = length if input_length is None else input_length
        if make_keys_unique:
            number = tf.random_uniform([], 0, 100_000_000, tf.int32, make_keys_unique_seed)
            input_key = tf.strings.join([input_key, tf.as_string(number)])
        saver = SequenceQueueingStateSaver(
            batch_size, num_unroll, input_length, input_key, sequences, input_context, initial_states, capacity,
            allow_small_batch,
        )  # fmt: skip
        ready = tf.cast(saver.barrier.ready_size(), tf.float32)
        tf.summary.scalar(f"queue/{saver.barrier.name}/ready_segment_batches_", ready)
        closing: Any = saver  # which is closed as a queue is
        runner = tf.train.QueueRunner(
            closing,
            [saver.prefetch_op] * num_threads,
            queue_closed_exception_types=(tf.errors.OutOfRangeError, tf.errors.CancelledError),
        )
        tf.train.add_queue_runner(runner)
        return saver.next_batch


def padded(sequences: Mapping[str, TensorLike], num_unroll: int) -> tuple[Any, dict[str, Any]]:
    """The length of sequences, and these filled up with zeros, or empty strings, to a multiple of a number.

    Raises:
        TypeError: `sequences` is no dictionary of names.
        ValueError: `num_unroll` is no int.
    """
    if not isinstance(num_unroll, int):
        raise ValueError(f"Unsupported num_unroll expected int, got: {num_unroll}")
    if not isinstance(sequences, Mapping) or not all(isinstance(key, str) for key in sequences):
        raise TypeError(f"Unsupported sequences expected dict of names, got: {sequences}")
    if not sequences:
        return 0, {}
    tensors = {key: tf.convert_to_tensor(value) for key, value in sorted(sequences.items())}
    lengths = [tf.shape(value)[0] for value in tensors.values()]
    message = "All sequence lengths must match, but received lengths"
    same = [tf.assert_equal(length, lengths[0], message=message) for length in lengths[1:]]
    with tf.control_dependencies(same):
        length = tf.identity(lengths[0])
    missing = -length % num_unroll
    return length, {key: _filled_up(value, missing) for key, value in tensors.items()}


def _filled_up(value: tf.Tensor, missing: tf.Tensor) -> Any:
    nothing = tf.fill(tf.concat([[missing], tf.shape(value)[1:]], 0), tf.zeros([], value.dtype))
    whole = tf.concat([value, nothing], 0)
    whole.set_shape([None, *value.shape.as_list()[1:]])
    return whole


# ---------------------------------------------------------------------- checks
def _named(kind: str, tensors: PassedOn, may_be_empty: bool = False) -> dict[str, Any]:
    """Tensors by name, in the order of the names."""
    if not isinstance(tensors, Mapping):
        raise TypeError(f"{kind}s must be a dict, got {tensors!r}")
    if not tensors and not may_be_empty:
        raise ValueError(f"there must be at least one {kind} tensor")
    for key in tensors:
        if not isinstance(key, str):
            raise TypeError(f"{kind} key must be string: {key}")
        if ":" in key:
            raise ValueError(f"{kind} key may not have a colon: '{key}'")
    return {key: tf.convert_to_tensor(tensors[key], name=f"{kind}_{key}") for key in sorted(tensors)}


def _check_known(kind: str, tensors: Mapping[str, tf.Tensor], first: int) -> None:
    for key, value in tensors.items():
        if not value.shape[first:].is_fully_defined():
            so_far = " (ignoring first dimension)" if first else ""
            raise ValueError(f"Shape for {kind} {key} is not fully defined{so_far}: {value.shape}")


def _scalar(what: str, value: TensorLike, dtype: tf.DType) -> Any:
    tensor = tf.convert_to_tensor(value, name=what)
    if tensor.dtype != dtype:
        raise TypeError(f"{what} dtype must be {dtype.name}, but received: {tensor.dtype.name}")
    with tf.control_dependencies([tf.assert_rank(tensor, 0)]):
        return tf.identity(tensor)


def _enough(capacity: TensorLike | None, batch_size: TensorLike) -> list[Any]:
    """Checks that so many sequences may be under way as a batch needs, since it takes one segment of each."""
    if capacity is None:
        return []
    if isinstance(batch_size, tf.Tensor) or isinstance(capacity, tf.Tensor):
        sizes = tf.cast(capacity, tf.int64), tf.cast(batch_size, tf.int64)
        return [tf.assert_greater_equal(*sizes, message="capacity needs to be >= batch_size.")]
    if capacity < batch_size:
        raise ValueError(f"capacity {capacity} needs to be >= batch_size {batch_size}")
    return []
