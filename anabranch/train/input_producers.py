"""Queues at the beginning of an input pipeline: names of files, numbers, rows of tensors  (§4.2)."""

from __future__ import annotations

from anabranch.core.dtypes import float32, int64, string
from anabranch.core.nest import Structure
from anabranch.core.shapes import ShapeLike, TensorShape
from anabranch.core.values import TensorLike
from anabranch.frontend.arithmetic.random import random_shuffle
from anabranch.frontend.arrays.casting import cast
from anabranch.frontend.arrays.gathering import gather
from anabranch.frontend.arrays.identities import identity
from anabranch.frontend.arrays.shapes import shape, size
from anabranch.frontend.control_flow.checks import Assert
from anabranch.frontend.framework import control_dependencies, name_scope
from anabranch.frontend.resources.queues import FIFOQueue, QueueBase
from anabranch.frontend.storage import summary
from anabranch.frontend.storage.parsing import matching_files
from anabranch.frontend.variables.variables import Variable
from anabranch.graph.collections import GraphKeys
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.operation import Operation, Tensor
from anabranch.ops import raw
from anabranch.train.queue_runner import QueueRunner, add_queue_runner


def match_filenames_once(pattern: TensorLike, name: str | None = None) -> Variable:
    """The names of the files that match a pattern, as a local variable: looked for when it is initialized.

    Args:
        pattern: a pattern, or a vector of patterns.
    """
    with name_scope(name, "matching_filenames", [pattern]) as scope:
        return Variable(
            name=scope,
            initial_value=matching_files(pattern),
            trainable=False,
            validate_shape=False,
            collections=[GraphKeys.LOCAL_VARIABLES],
        )


def limit_epochs(tensor: TensorLike, num_epochs: int | None = None, name: str | None = None) -> Tensor:
    """`tensor`, which can be taken `num_epochs` times; after that `OutOfRangeError`. Counts in a local variable.

    Raises:
        ValueError: `num_epochs` is not positive.
    """
    if num_epochs is None:
        limited: Tensor = tensor
        return limited
    if num_epochs <= 0:
        raise ValueError(f"num_epochs must be > 0 not {num_epochs}.")
    with name_scope(name, "limit_epochs", [tensor]) as scope:
        epochs = Variable(cast(0, int64), name="epochs", trainable=False, collections=[GraphKeys.LOCAL_VARIABLES])
        with control_dependencies([epochs.count_up_to(num_epochs)]):
            result: Tensor = identity(tensor, name=scope)
            return result


def input_producer(
    input_tensor: TensorLike,
    element_shape: ShapeLike | None = None,
    num_epochs: int | None = None,
    shuffle: bool = True,
    seed: int | None = None,
    capacity: int = 32,
    shared_name: str | None = None,
    summary_name: str | None = None,
    name: str | None = None,
    cancel_op: Operation | None = None,
) -> QueueBase:
    """A queue of the rows of a tensor, filled by a queue runner.

    Args:
        input_tensor: its rows are the elements.
        element_shape: the shape of a row, where it is not known.
        num_epochs: how often all rows are put in; None: without end. Counted in a local variable.
        shuffle: whether the rows are put in in another random order each time.
        seed: of the random order.
        capacity: of the queue.
        shared_name: of the queue in the task.
        summary_name: of a summary of how full the queue is; None: no summary.
        name: of the queue.
        cancel_op: what cancels, in place of closing the queue.

    Raises:
        ValueError: the shape of a row is not known.
    """
    with name_scope(name, "input_producer", [input_tensor]):
        rows = convert_to_tensor(input_tensor, name="input_tensor")
        row_shape = rows.shape[1:].merge_with(TensorShape(element_shape))
        if not row_shape.is_fully_defined():
            raise ValueError(
                "Either `input_tensor` must have a fully defined shape or `element_shape` must be specified"
            )
        if shuffle:
            rows = random_shuffle(rows, seed=seed)
        rows = limit_epochs(rows, num_epochs)
        queue = FIFOQueue(
            capacity, [rows.dtype.base_dtype], [row_shape], shared_name=shared_name, name=name or "fifo_queue"
        )
        enqueued = queue.enqueue_many([rows])
        add_queue_runner(QueueRunner(queue, [enqueued], cancel_op=cancel_op))
        if summary_name is not None:
            summary.scalar(summary_name, fraction_full(queue, capacity))
        return queue


def fraction_full(queue: QueueBase, capacity: int) -> Tensor:
    """How full a queue is, between 0 and 1."""
    fraction: Tensor = cast(queue.size(), float32) * (1.0 / capacity)
    return fraction


def string_input_producer(
    string_tensor: TensorLike,
    num_epochs: int | None = None,
    shuffle: bool = True,
    seed: int | None = None,
    capacity: int = 32,
    shared_name: str | None = None,
    name: str | None = None,
    cancel_op: Operation | None = None,
) -> QueueBase:
    """A queue of strings, names of files mostly. Arguments: as for `input_producer`.

    Args:
        string_tensor: a string vector.
        num_epochs: how often the whole is gone through; None: for ever. A local variable counts.
        shuffle: whether each epoch has an order of its own.
        seed: of the order.
        capacity: of the queue.
        shared_name: of the queue in the task.
        name: of the operation.
        cancel_op: cancels what waits at the queue.

    Returns:
        A queue, whose queue runner joins `GraphKeys.QUEUE_RUNNERS`.

    Raises:
        ValueError: there are no strings.

    Example:
        >>> queue = tf.train.string_input_producer(["a", "b"], num_epochs=1, shuffle=False)
        >>> name = queue.dequeue()
        >>> sess.run(tf.local_variables_initializer())
        >>> threads = tf.train.start_queue_runners(sess)
        >>> sess.run(name), sess.run(name)
        (b'a', b'b')
    """
    empty = "string_input_producer requires a non-null input tensor"
    if not isinstance(string_tensor, Tensor) and not hasattr(string_tensor, "handle") and not len(string_tensor):
        raise ValueError(empty)
    with name_scope(name, "input_producer", [string_tensor]) as scope:
        names = convert_to_tensor(string_tensor, string)
        with control_dependencies([Assert(raw.Greater(size(names), 0), [empty])]):
            names = identity(names)
        return input_producer(
            names,
            [],
            num_epochs,
            shuffle,
            seed,
            capacity,
            shared_name,
            f"fraction_of_{capacity}_full",
            scope,
            cancel_op,
        )


def range_input_producer(
    limit: TensorLike,
    num_epochs: int | None = None,
    shuffle: bool = True,
    seed: int | None = None,
    capacity: int = 32,
    shared_name: str | None = None,
    name: str | None = None,
) -> QueueBase:
    """A queue of the integers from 0 to `limit` - 1. Arguments: as for `input_producer`."""
    with name_scope(name, "input_producer", [limit]) as scope:
        numbers = raw.Range(0, limit, 1)
        return input_producer(
            numbers, [], num_epochs, shuffle, seed, capacity, shared_name, f"fraction_of_{capacity}_full", scope
        )


def slice_input_producer(
    tensor_list: Structure,
    num_epochs: int | None = None,
    shuffle: bool = True,
    seed: int | None = None,
    capacity: int = 32,
    shared_name: str | None = None,
    name: str | None = None,
) -> list[Tensor]:
    """One row of each tensor, the same for all, another in each step. Arguments: as for `input_producer`.

    Args:
        tensor_list: tensors with one first dimension.
        num_epochs: how often the whole is gone through; None: for ever. A local variable counts.
        shuffle: whether each epoch has an order of its own.
        seed: of the order.
        capacity: of the queue.
        shared_name: of the queue in the task.
        name: of the operation.

    Returns:
        A list of tensors, of the shapes of those in `tensor_list` without the first dimension.

    Raises:
        ValueError: there is no tensor.

    Example:
        >>> image, label = tf.train.slice_input_producer([[[1, 2], [3, 4]], [7, 8]], shuffle=False)
        >>> threads = tf.train.start_queue_runners(sess)
        >>> sess.run([image, label])
        [array([1, 2], dtype=int32), np.int32(7)]
    """
    with name_scope(name, "input_producer", tensor_list):
        tensors = [convert_to_tensor(t) for t in tensor_list]
        if not tensors:
            raise ValueError("Expected at least one tensor in slice_input_producer().")
        count = shape(tensors[0])[0]
        queue = range_input_producer(count, num_epochs, shuffle, seed, capacity, shared_name)
        index = queue.dequeue()
        return [gather(t, index) for t in tensors]
