"""What Keras 2.3 takes from `tensorflow.python.keras.backend`: sessions, the learning phase, values, losses.

It serves the package `keras`, which builds and trains models itself. Everything is in graphs.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

import anabranch as tf
from anabranch.compat.private.keras_settings import epsilon, floatx
from anabranch.core.dtypes import DTypeLike
from anabranch.core.nest import Structure
from anabranch.core.shapes import ShapeLike
from anabranch.core.values import PassedOn, TensorLike, TensorValue
from anabranch.proto.config_pb2 import RunMetadata, RunOptions

_uids: weakref.WeakKeyDictionary[tf.Graph, defaultdict[str, int]] = weakref.WeakKeyDictionary()
_phases: weakref.WeakKeyDictionary[tf.Graph, int | tf.Tensor] = weakref.WeakKeyDictionary()
#: seeds that operations get where none is given
_SEEDS = 10_000_000


class _Sessions(threading.local):
    """The session of each thread, and whether the program initializes its variables itself."""

    session: tf.Session | None = None
    manual_initialization = False


_sessions = _Sessions()
#: the collection of variables that Keras is told of
_TRACKED: Any = ("variables that Keras tracks",)


def get_graph() -> tf.Graph:
    """The graph that Keras builds in: the default one."""
    return tf.get_default_graph()


def get_uid(prefix: str = "") -> int:
    """How often the default graph was asked for this prefix, from 1 on."""
    counts = _uids.setdefault(get_graph(), defaultdict(int))
    counts[prefix] += 1
    return counts[prefix]


def reset_uids() -> None:
    """Counts from 1 again, in every graph."""
    _uids.clear()


def manual_variable_initialization(value: bool) -> None:
    """Whether `get_session` leaves variables as they are."""
    _sessions.manual_initialization = value


def learning_phase() -> int | tf.Tensor:
    """1 while training, 0 otherwise; unless it was set, a scalar placeholder (bool) that is False if it is not fed."""
    graph = get_graph()
    while graph.building_function and graph.outer_graph is not None:
        graph = graph.outer_graph
    if graph not in _phases:
        with graph.as_default(), tf.name_scope(""):
            _phases[graph] = tf.placeholder_with_default(False, shape=(), name="keras_learning_phase")
    return _phases[graph]


def fixed_learning_phase() -> int | None:
    """1 or 0 where the learning phase of the default graph was set; else None, and nothing is added to the graph."""
    graph = get_graph()
    while graph.building_function and graph.outer_graph is not None:
        graph = graph.outer_graph
    phase = _phases.get(graph)
    return phase if isinstance(phase, int) else None


def set_learning_phase(value: int) -> None:
    """Fixes the learning phase of the default graph.

    Raises:
        ValueError: `value` is neither 0 nor 1.
    """
    if value not in {0, 1}:
        raise ValueError(f"Expected learning phase to be 0 or 1, not {value!r}")
    _phases[get_graph()] = value


@contextlib.contextmanager
def learning_phase_set(value: int) -> Iterator[None]:
    """A block in which the learning phase of the default graph is fixed."""
    graph = get_graph()
    before = _phases.get(graph)
    set_learning_phase(value)
    try:
        yield
    finally:
        if before is None:
            _phases.pop(graph, None)
        else:
            _phases[graph] = before


def get_session(op_input_list: Sequence[tf.Tensor] = ()) -> Any:
    """The default session, or the one that Keras keeps for the default graph; variables are initialized first."""
    session: Any = tf.get_default_session()
    if session is None:
        graph = op_input_list[0].graph if op_input_list else get_graph()
        if _sessions.session is None or _sessions.session.graph is not graph:
            _sessions.session = tf.Session(graph=graph)
        session = _sessions.session
    if not _sessions.manual_initialization:
        with session.graph.as_default():
            _initialize(session)
    return session


def set_session(session: tf.Session) -> None:
    """Gives Keras a session to keep for this thread."""
    _sessions.session = session


def clear_session() -> None:
    """Forgets the session and starts a new default graph."""
    tf.reset_default_graph()
    reset_uids()
    _sessions.session = None
    _phases.clear()


def track_variable(v: tf.Variable) -> None:
    """Counts a variable that is in no collection among those that `get_session` initializes."""
    tracked: list[Any] = tf.get_default_graph().get_collection_ref(_TRACKED)
    if not any(v is one for one in tracked):
        tracked.append(v)


def _initialize(session: tf.Session) -> None:
    """Initializes the tables and variables that Keras has not seen yet; variables only where they have no value."""
    tables = [op for op in tf.get_collection(tf.GraphKeys.TABLE_INITIALIZERS) if not hasattr(op, "_keras_initialized")]
    if tables:
        session.run(tables)
    for op in tables:
        op._keras_initialized = True
    known = {id(v): v for v in [*tf.global_variables(), *tf.get_collection(_TRACKED)]}
    unseen: list[Any] = [v for v in known.values() if not getattr(v, "_keras_initialized", False)]
    if not unseen:
        return
    there = session.run([tf.is_variable_initialized(v) for v in unseen])
    without = [v for v, has_value in zip(unseen, there, strict=True) if not has_value]
    for v in unseen:
        v._keras_initialized = True
    if without:
        session.run(tf.variables_initializer(without))


def variable(
    value: TensorLike, dtype: DTypeLike | None = None, name: str | None = None, constraint: PassedOn = None
) -> Any:
    """A variable with that value (an array, a tensor or a number); a SparseTensor for a sparse matrix of SciPy's."""
    if hasattr(value, "tocoo"):
        matrix = value.tocoo()
        indices = np.stack([matrix.row, matrix.col], axis=1).astype(np.int64)
        return tf.SparseTensor(indices, matrix.data, matrix.shape)
    return tf.Variable(value, dtype=tf.as_dtype(dtype or floatx()), name=name, constraint=constraint)


def constant(
    value: TensorLike, dtype: DTypeLike | None = None, shape: ShapeLike = None, name: str | None = None
) -> tf.Tensor:
    """A constant, of the default dtype of floats unless another is given."""
    return tf.constant(value, dtype=dtype or floatx(), shape=shape, name=name or "Const")


def placeholder(
    shape: ShapeLike = None,
    ndim: int | None = None,
    dtype: DTypeLike | None = None,
    sparse: bool = False,
    name: str | None = None,
) -> Any:
    """A tensor (or sparse tensor) to feed, of that shape, or with `ndim` unknown lengths."""
    if shape is None and ndim:
        shape = (None,) * ndim
    make = tf.sparse_placeholder if sparse else tf.placeholder
    return make(dtype or floatx(), shape=shape, name=name)


def batch_get_value(tensors: Sequence[Any]) -> list[Any]:
    """The values of variables or tensors."""
    return list(get_session().run(list(tensors))) if tensors else []


def set_value(x: tf.Variable, value: TensorValue) -> None:
    """Assigns an array or a number to a variable."""
    batch_set_value([(x, value)])


def batch_set_value(tuples: Sequence[tuple[Any, Any]]) -> None:
    """Assigns arrays or numbers to variables, all in one step."""
    assignments, feed = [], {}
    for x, value in tuples:
        array = np.asarray(value, dtype=x.dtype.base_dtype.as_numpy_dtype)
        if not hasattr(x, "_assign_placeholder"):
            with x.graph.as_default(), tf.name_scope(""):
                # a variable may take values of other lengths
                x._assign_placeholder = tf.placeholder(x.dtype.base_dtype, shape=[None] * array.ndim)
                x._assign_op = x.assign(x._assign_placeholder)
        assignments.append(x._assign_op)
        feed[x._assign_placeholder] = array
    if assignments:
        get_session().run(assignments, feed_dict=feed)


def function(
    inputs: Structure,
    outputs: Structure,
    updates: Sequence[PassedOn] | None = None,
    name: str | None = None,
    **kwargs: PassedOn,
) -> Function:
    """A function of arrays that computes `outputs` from `inputs` and then makes the updates.

    Args:
        updates: operations, or pairs of a variable and its new value.
        kwargs: `feed_dict`, `fetches`, `options` and `run_metadata` of `Session.run`.

    Raises:
        ValueError: another argument.
    """
    for key in kwargs:
        if key not in ("feed_dict", "fetches", "options", "run_metadata"):
            raise ValueError(f'Invalid argument "{key}" passed to K.function with TensorFlow backend')
    return Function(inputs, outputs, updates or [], name, **kwargs)


class Function:
    """Runs a part of the graph.

    Attributes:
        fetch_callbacks: functions of the value of a fetch, by fetch.
    """

    def __init__(
        self,
        inputs: Structure,
        outputs: Structure,
        updates: Sequence[Any],
        name: str | None = None,
        feed_dict: dict[Any, Any] | None = None,
        fetches: Structure = (),
        options: RunOptions | None = None,
        run_metadata: RunMetadata | None = None,
    ) -> None:
        self.inputs = tf.nest.flatten(inputs)
        self.outputs_structure = outputs
        self.outputs = [tf.convert_to_tensor(o) if isinstance(o, tf.Variable) else o for o in tf.nest.flatten(outputs)]
        self.feed_dict = feed_dict or {}
        self.run_options = options
        self.run_metadata = run_metadata
        self.fetches = list(fetches) if isinstance(fetches, list | tuple) else [fetches]
        self.fetch_callbacks: dict[Any, Any] = {}
        with tf.control_dependencies(self.outputs[:1]):
            assigned = [tf.assign(u[0], u[1]) if isinstance(u, tuple) else u for u in updates]
            self.updates_op = tf.group(*assigned, name=f"{name}_updates" if name else None)

    def __call__(self, inputs: Structure) -> Any:
        """The values of the outputs for these values of the inputs, in the structure of `outputs`."""
        feed = dict(self.feed_dict)
        for tensor, value in zip(self.inputs, tf.nest.flatten(inputs), strict=True):
            if value is None:  # what has a default, as the learning phase
                continue
            if hasattr(value, "as_fed"):  # rows of a sparse or ragged tensor
                value = value.as_fed()
            elif isinstance(tensor, tf.SparseTensor) and hasattr(value, "tocoo"):
                matrix = value.tocoo()
                indices = np.stack([matrix.row, matrix.col], axis=1).astype(np.int64)
                value = tf.SparseTensorValue(indices, matrix.data, matrix.shape)
            feed[tensor] = value
        session = get_session(self.inputs or self.outputs)
        symbolic = {t: v for t, v in feed.items() if isinstance(v, tf.Tensor | tf.Variable)}
        if symbolic:  # a step cannot be fed with what it computes
            feed.update(zip(symbolic, session.run(list(symbolic.values())), strict=True))
        asked = [self.outputs, self.fetches, self.updates_op]
        results, fetched, _ = session.run(asked, feed, options=self.run_options, run_metadata=self.run_metadata)
        for fetch, value in zip(self.fetches, fetched, strict=True):
            if fetch in self.fetch_callbacks:
                self.fetch_callbacks[fetch](value)
        return tf.nest.pack_sequence_as(self.outputs_structure, results)


def _logits_of(output: tf.Tensor, activation: str) -> tf.Tensor | None:
    """What an activation was applied to, when the output is that of such an operation."""
    if not isinstance(output, tf.Variable) and output.op.type == activation:
        return output.op.inputs[0]
    return None


def categorical_crossentropy(
    target: TensorLike, output: tf.Tensor, from_logits: bool = False, axis: int = -1
) -> tf.Tensor:
    """The cross entropy of distributions along an axis; of logits where that is what they are made from."""
    logits = output if from_logits else _logits_of(output, "Softmax")
    if logits is not None and logits.shape.ndims is None and axis != -1:
        logarithms = logits - tf.reduce_logsumexp(logits, axis, keepdims=True)
        return -tf.reduce_sum(target * logarithms, axis)
    if logits is not None:
        return tf.nn.softmax_cross_entropy_with_logits_v2(labels=target, logits=logits, axis=axis)
    shares = output / tf.reduce_sum(output, axis, keepdims=True)
    shares = tf.clip_by_value(shares, epsilon(), 1.0 - epsilon())
    return -tf.reduce_sum(target * tf.log(shares), axis)


def sparse_categorical_crossentropy(
    target: TensorLike, output: tf.Tensor, from_logits: bool = False, axis: int = -1
) -> tf.Tensor:
    """The cross entropy of distributions along an axis with classes, in the shape of `output` without that axis.

    Raises:
        ValueError: `output` has no known rank, and another axis than the last is asked for.
    """
    logits = output if from_logits else _logits_of(output, "Softmax")
    if logits is None:
        logits = tf.log(tf.clip_by_value(output, epsilon(), 1.0 - epsilon()))
    rank = logits.shape.ndims
    if rank is None and axis != -1:
        raise ValueError(
            f"Cannot compute sparse categorical crossentropy with `axis={axis}` on tensors of unknown rank"
        )
    if rank is not None and axis % rank != rank - 1:
        order = [i for i in range(rank) if i != axis % rank] + [axis % rank]
        logits = tf.transpose(logits, order)
    shape = tf.shape(logits)
    labels = tf.cast(tf.reshape(target, [-1]), tf.int64)
    rows = tf.reshape(logits, tf.stack([-1, shape[-1]]))
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=rows)
    reshaped = tf.reshape(losses, shape[:-1])
    reshaped.set_shape(logits.shape[:-1])
    return reshaped


def binary_crossentropy(target: TensorLike, output: tf.Tensor, from_logits: bool = False) -> tf.Tensor:
    """The cross entropy of each element, a probability; of logits where that is what it is made from."""
    logits = output if from_logits else _logits_of(output, "Sigmoid")
    if logits is not None:
        return tf.nn.sigmoid_cross_entropy_with_logits(labels=target, logits=logits)
    p = tf.clip_by_value(output, epsilon(), 1.0 - epsilon())
    losses: tf.Tensor = -(target * tf.log(p + epsilon()) + (1 - target) * tf.log(1 - p + epsilon()))
    return losses


def hard_sigmoid(x: tf.Tensor) -> tf.Tensor:
    """0.2 x + 0.5, between 0 and 1."""
    return tf.clip_by_value(0.2 * x + 0.5, 0.0, 1.0)


def _seed(seed: int | None) -> int:
    return int(np.random.randint(_SEEDS)) if seed is None else seed  # noqa: NPY002 (Keras' programs seed this one)


def random_normal(
    shape: TensorLike, mean: float = 0.0, stddev: float = 1.0, dtype: DTypeLike | None = None, seed: int | None = None
) -> tf.Tensor:
    """Normal numbers."""
    return tf.random_normal(shape, mean, stddev, dtype=dtype or floatx(), seed=_seed(seed))


def random_uniform(
    shape: TensorLike, minval: float = 0.0, maxval: float = 1.0, dtype: DTypeLike | None = None, seed: int | None = None
) -> tf.Tensor:
    """Evenly distributed numbers."""
    return tf.random_uniform(shape, minval, maxval, dtype=dtype or floatx(), seed=_seed(seed))


def random_binomial(
    shape: TensorLike, p: float = 0.0, dtype: DTypeLike | None = None, seed: int | None = None
) -> tf.Tensor:
    """Ones with that probability, and zeros."""
    dtype = dtype or floatx()
    drawn = tf.random_uniform(shape, dtype=dtype, seed=_seed(seed))
    ones: tf.Tensor = tf.cast(tf.less_equal(drawn, p), dtype)
    return ones


def truncated_normal(
    shape: TensorLike, mean: float = 0.0, stddev: float = 1.0, dtype: DTypeLike | None = None, seed: int | None = None
) -> tf.Tensor:
    """Normal numbers within two standard deviations of the mean."""
    return tf.truncated_normal(shape, mean, stddev, dtype=dtype or floatx(), seed=_seed(seed))
