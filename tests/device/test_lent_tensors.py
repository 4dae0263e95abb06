"""Tensors of other libraries in an accelerator's memory: fed as they lie there, kept there when fetched."""

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

needs_gpu = pytest.mark.skipif(not [d for d in jax.local_devices() if d.platform == "gpu"], reason="there is no GPU")
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
        taken: list[Any] = []
        step = session._master.prepare([doubled], [], [x])
        assert step.lent is not None
        taken = list(step.lent([lent]))
        assert taken == [lent]
        assert taken[0] is lent
        both = session._master.prepare([doubled, texts], [], [x])
        assert both.lent is not None
        (on_host,) = both.lent([lent])
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


def test_memory_that_nobody_reaches_is_an_error_that_says_so() -> None:
    x = tf.placeholder(tf.float32, [2], name="x")
    with tf.Session() as session, pytest.raises(ValueError, match=r"Cannot feed this value for Tensor 'x:0'.*type 7"):
        session.run(x + 1.0, {x: _Elsewhere()})


@needs_gpu
def test_tensors_of_pytorch_on_the_gpu_are_fed_and_given_without_a_copy() -> None:
    torch = pytest.importorskip("torch")
    size = 1 << 20
    fed = torch.arange(size, dtype=torch.float32, device="cuda").reshape(1024, -1)
    x = tf.placeholder(tf.float32, [1024, None], name="x")
    total, doubled = tf.reduce_sum(x, name="total"), tf.multiply(x, 2.0, name="doubled")
    v = tf.get_variable("v", [1024, 1024], use_resource=True)
    with tf.Session() as session:
        step = session._master.prepare([doubled], [], [x])
        (taken,) = step.lent([session._master.lend(fed)])
        assert taken.unsafe_buffer_pointer() == fed.data_ptr()
        assert session.run(total, {x: fed}) == pytest.approx(size * (size - 1) / 2, rel=1e-6)
        # what a variable was given is its own: the lender may write to the tensor
        session.run(v.assign(x), {x: fed})
        fed.fill_(1.0)
        torch.cuda.synchronize()
        assert session.run(v)[-1, -1] == size - 1
        assert session.run(total, {x: fed}) == size
        (kept,) = _callable(session, [doubled], [x], {doubled.name: "/gpu:0"})(fed)
        back = torch.from_dlpack(kept)
        assert back.is_cuda
        assert back.data_ptr() == kept.unsafe_buffer_pointer()
        assert float(back.sum()) == 2 * size
        for dtype in (torch.float16, torch.bfloat16, torch.int64, torch.bool):
            y = tf.placeholder(getattr(tf, str(dtype).split(".")[1]), [2])
            given = session.run(tf.identity(y), {y: torch.tensor([0, 1], dtype=dtype, device="cuda")})
            assert given.tolist() == [0, 1]
        with pytest.raises(ValueError, match="feed a contiguous tensor without a gradient"):
            session.run(total, {x: fed.clone().requires_grad_()})


@needs_gpu
def test_what_the_host_reads_of_a_tensor_on_the_gpu_is_copied_there() -> None:
    torch = pytest.importorskip("torch")
    fed = torch.tensor([1.5, 2.5], device="cuda")
    x = tf.placeholder(tf.float32, [2])
    with tf.device("/cpu:0"):
        there = x + 1.0
    with tf.Session() as session:
        assert session.run([there, tf.as_string(x, precision=1), x * 2.0], {x: fed})[1].tolist() == [b"1.5", b"2.5"]
    with tf.Session(config=tf.ConfigProto(device_count={"GPU": 0})) as session:
        assert session.run(x * 2.0, {x: fed}).tolist() == [3.0, 5.0]
