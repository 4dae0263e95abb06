"""Tensors of other libraries in an accelerator's memory: fed as they lie there, kept there when fetched.

A device of the host's processor stands for the accelerator; `test_accelerators` has the same on a GPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import anabranch as tf
from anabranch.core.devices import Device, register_device, unregister_device
from anabranch.proto.config_pb2 import CallableOptions
from anabranch.runtime import lent_tensors
from anabranch.runtime.devices import XlaDevice

FAR = "/device:FAR:0"


class FarDevice(XlaDevice):
    """Stands for an accelerator: what it is given by `put` is counted, and its arrays count as far away."""

    given: list[Any] = []

    @property
    def is_far(self) -> bool:
        return True

    def put(self, value: Any) -> Any:
        FarDevice.given.append(value)
        return super().put(value)


@pytest.fixture
def far(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def make(count: int | None) -> list[Device]:
        return [FarDevice("FAR", index) for index in range(1 if count is None else count)]

    register_device("FAR", make)
    monkeypatch.setattr(FarDevice, "given", [])
    # JAX's arrays of the host's processor stand for what lies in the memory of the device
    monkeypatch.setattr(lent_tensors, "_OF_THE_HOST", frozenset())
    yield
    unregister_device("FAR")


def _callable(session: tf.Session, fetches: list[tf.Tensor], feeds: list[tf.Tensor], devices: dict[str, str]) -> Any:
    names = [[t.name for t in tensors] for tensors in (feeds, fetches)]
    return session._make_callable_from_options(CallableOptions(feed=names[0], fetch=names[1], fetch_devices=devices))


@pytest.mark.usefixtures("far")
def test_a_lent_tensor_stays_where_islands_read_it_and_comes_to_the_host_for_others() -> None:
    lent = jnp.arange(4.0)
    x = tf.placeholder(tf.float32, [None], name="x")
    with tf.device(FAR):
        doubled = x * 2.0
    with tf.device("/cpu:0"):
        texts = tf.as_string(x)
    with tf.Session() as session:
        master: Any = session._master
        (taken,) = master.prepare([doubled], [], [x]).lent([lent])
        assert taken is lent
        (on_host,) = master.prepare([doubled, texts], [], [x]).lent([lent])
        assert type(on_host) is np.ndarray
        assert session.run(doubled, {x: lent}).tolist() == [0.0, 2.0, 4.0, 6.0]
        assert FarDevice.given == []
        assert session.run(texts, {x: lent})[3] == b"3.000000"
        # of another dtype it is cast on the host; of another shape it is refused
        assert session.run(doubled, {x: lent.astype(jnp.int32)}).tolist() == [0.0, 2.0, 4.0, 6.0]
        with pytest.raises(ValueError, match=r"Cannot feed value of shape \(1, 4\)"):
            session.run(doubled, {x: lent[None]})


@pytest.mark.usefixtures("far")
def test_fetches_stay_on_the_device_that_is_asked_for() -> None:
    x = tf.placeholder(tf.float32, [2], name="x")
    with tf.device(FAR):
        doubled = tf.multiply(x, 2.0, name="doubled")
        v = tf.get_variable("v", initializer=[5.0, 6.0], use_resource=True)
    with tf.Session() as session:
        session.run(v.initializer)
        read = v.value()
        run = _callable(session, [doubled, read, x], [x], {doubled.name: FAR, read.name: FAR, x.name: FAR})
        fed = jnp.array([1.0, 2.0])
        kept, value, same = run(fed)
        assert all(isinstance(a, jax.Array) for a in (kept, value, same))
        assert kept.tolist() == [2.0, 4.0]
        # memory of their own: a later step changes neither, nor does what they were fed
        assert same.unsafe_buffer_pointer() != fed.unsafe_buffer_pointer()
        session.run(v.assign([0.0, 0.0]))
        assert value.tolist() == [5.0, 6.0]
        run = _callable(session, [doubled, x], [x], {doubled.name: "/cpu:0"})
        assert [type(a) for a in run([1.0, 2.0])] == [np.ndarray, np.ndarray]
        with pytest.raises(tf.errors.InvalidArgumentError, match="'/gpu:7' is no device of this session"):
            _callable(session, [doubled], [x], {doubled.name: "/gpu:7"})
        with pytest.raises(ValueError, match="which are not fetched"):
            _callable(session, [doubled], [x], {"x:0": FAR})
        with pytest.raises(TypeError, match="takes 1 values, got 2"):
            run([1.0, 2.0], [1.0, 2.0])


class _Elsewhere:
    """A tensor in a memory that JAX does not know."""

    def __dlpack_device__(self) -> tuple[int, int]:
        return 7, 0

    def __dlpack__(self, **_: Any) -> Any:
        raise BufferError("its strides are odd.")


class _Silent:
    """A tensor that says neither where it lies nor how, but gives its numbers to whoever asks as NumPy does."""

    def __dlpack__(self, **_: Any) -> Any:
        raise BufferError

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.array([1.0, 2.0], dtype)


def test_what_does_not_say_where_it_lies_is_taken_as_numpy_takes_it() -> None:
    x = tf.placeholder(tf.float32, [2], name="x")
    with tf.Session() as session:
        assert session.run(x + 1.0, {x: _Silent()}).tolist() == [2.0, 3.0]


def test_memory_that_nobody_reaches_is_an_error_that_says_so() -> None:
    x = tf.placeholder(tf.float32, [2], name="x")
    with tf.Session() as session, pytest.raises(ValueError, match=r"Cannot feed this value for Tensor 'x:0'.*type 7"):
        session.run(x + 1.0, {x: _Elsewhere()})
