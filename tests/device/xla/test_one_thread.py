"""Programs of small operations run on the thread that calls them; variables pass between them and others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import anabranch as tf
from anabranch.core.resources import ResourceHandle
from anabranch.xla import executable, one_thread as module
from anabranch.xla.background import background
from anabranch.xla.one_thread import VARIABLE, Crossings, OneThread, helps, one_thread
from anabranch.xla.thread_costs import gains
from anabranch.xla.variants import compile_log

NOTE = "its operations are small: on the calling thread alone"
SIZE, BATCH = 256, 32
on_processors = tf.ConfigProto(device_count={"GPU": 0})


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Iterator[OneThread]:
    """The client of one thread, though there be but one processor."""
    if jax.default_backend() != "cpu":
        pytest.skip("only where processors are all that there is")
    monkeypatch.setattr(module, "processors", lambda: 2)
    monkeypatch.setattr(executable, "processors", lambda: 2)
    monkeypatch.setattr(executable, "FIRST_DIRECT_CALLS", 0)
    was = one_thread.sharding, one_thread.in_use
    with tf.Session(config=on_processors):
        assert one_thread.sharding is not None
    yield one_thread
    one_thread.sharding, one_thread.in_use = was[0] or one_thread.sharding, was[1] or one_thread.in_use


class Network:
    """A network of two layers whose batch is fed: a small one has small products, another one large ones."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)
        tf.set_random_seed(1)
        self.x = tf.placeholder(tf.float32, [None, SIZE])
        self.w = tf.get_variable("w", [SIZE, SIZE], initializer=tf.glorot_uniform_initializer(seed=1))
        hidden = tf.tanh(tf.matmul(self.x, self.w))
        self.loss = tf.reduce_mean(tf.square(tf.layers.dense(hidden, 10)))
        self.train = tf.train.MomentumOptimizer(0.1, 0.9).minimize(self.loss)

    def fed(self, batch: int) -> dict[tf.Tensor, np.ndarray[Any, Any]]:
        return {self.x: self.rng.normal(size=(batch, SIZE)).astype(np.float32)}


def compiled() -> list[bool]:
    """Of each program that was compiled since, whether it runs on one thread."""
    background.wait(60)
    events, compile_log.events[:] = list(compile_log.events), []
    return [NOTE in event.reason for event in events]


def losses(batches: list[int]) -> tuple[list[float], np.ndarray[Any, Any], list[bool]]:
    with tf.Graph().as_default():
        network = Network()
        with tf.Session(config=on_processors) as session:
            session.run(tf.global_variables_initializer())
            compiled()
            found = [session.run([network.loss, network.train], network.fed(batch))[0] for batch in batches]
            alone = compiled()
            return found, session.run(network.w), alone


def test_steps_of_small_products_run_on_one_thread_and_give_the_same(
    client: OneThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, w, alone = losses([BATCH] * 4)
    assert alone == [True]
    monkeypatch.setattr(executable, "gains", lambda program, threads: False)
    there, other, alone = losses([BATCH] * 4)
    assert alone == [False]
    np.testing.assert_allclose(here, there, rtol=1e-5)
    np.testing.assert_allclose(w, other, rtol=1e-4, atol=1e-6)


def test_variables_pass_between_programs_of_both_kinds(client: OneThread, monkeypatch: pytest.MonkeyPatch) -> None:
    batches = [BATCH, BATCH, 2048, BATCH, 2048, 2048, BATCH]
    here, w, alone = losses(batches)
    assert alone == [True, False]
    monkeypatch.setattr(executable, "gains", lambda program, threads: False)
    there, other, _ = losses(batches)
    np.testing.assert_allclose(here, there, rtol=1e-4)
    np.testing.assert_allclose(w, other, rtol=1e-3, atol=1e-5)


def test_a_step_on_one_thread_overwrites_its_variables_in_place(client: OneThread) -> None:
    network = Network()
    with tf.Session(config=on_processors) as session:
        session.run(tf.global_variables_initializer())
        variables = session._master.worker.containers.live_variables()
        state = next(s for s in variables if s.value.shape == (SIZE, SIZE))
        session.run(network.train, network.fed(BATCH))
        assert client.has(state.value)
        before = state.value.unsafe_buffer_pointer()
        session.run(network.train, network.fed(BATCH))
        assert state.value.unsafe_buffer_pointer() == before


def test_what_has_no_products_goes_where_its_variables_are(client: OneThread) -> None:
    network = Network()
    doubled = network.w.assign(network.w * 2.0)
    with tf.Session(config=on_processors) as session:
        session.run(tf.global_variables_initializer())
        variables = session._master.worker.containers.live_variables()
        state = next(s for s in variables if s.value.shape == (SIZE, SIZE))
        compiled()
        session.run(doubled)
        assert compiled() == [False]
        assert not client.has(state.value)
        session.run(network.train, network.fed(BATCH))
        assert client.has(state.value)
        tripled = network.w.assign(network.w * 3.0)
        before = session.run(network.w)
        compiled()
        np.testing.assert_allclose(session.run(tripled), before * 3.0)
        assert compiled() == [True]
        assert client.has(state.value)


def test_what_was_fetched_stays_as_it_was(client: OneThread) -> None:
    network = Network()
    with tf.Session(config=on_processors) as session:
        session.run(tf.global_variables_initializer())
        session.run(network.train, network.fed(BATCH))
        shown = session.run(network.w)
        kept = shown.copy()
        session.run(network.train, network.fed(BATCH))
        np.testing.assert_array_equal(shown, kept)
        assert np.abs(session.run(network.w) - kept).max() > 0


def test_variables_that_would_be_copied_too_often_stay_with_all_threads(
    client: OneThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_BYTES", 4 * SIZE * SIZE * 4)
    monkeypatch.setattr(module, "_BYTES_PER_SECOND", 0.0)
    network = Network()
    with tf.Session(config=on_processors) as session:
        session.run(tf.global_variables_initializer())
        compiled()
        for _ in range(12):
            for batch in (BATCH, 2048):
                session.run([network.loss, network.train], network.fed(batch))
        assert compiled() == [True, False, False]  # the small one once more, for all threads
        for _ in range(3):
            session.run(network.train, network.fed(BATCH))
    client._kept.clear()


def test_large_variables_stay_where_they_are(client: OneThread, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executable, "MOST_BYTES", 4 * SIZE * SIZE)
    _, _, alone = losses([BATCH])
    assert alone == [False]


def test_copies_at_long_intervals_are_forgotten(client: OneThread, monkeypatch: pytest.MonkeyPatch) -> None:
    handle, now = ResourceHandle("", "crossing", "variable"), [0.0]
    crossings = Crossings([handle], lambda: now[0])
    value = jax.device_put(np.zeros((SIZE, SIZE), np.float32), client.sharding)
    monkeypatch.setattr(module, "MOST_BYTES", value.nbytes)
    for _ in range(10):
        now[0] += 1.0
        (shown,) = crossings.to_all_threads([value])
        assert type(shown) is np.ndarray
        assert shown.ctypes.data == value.unsafe_buffer_pointer()
    assert client.takes([handle])
    for _ in range(3):
        crossings.to_all_threads([value])
    assert not client.takes([handle])
    client._kept.clear()


def program_of(batch: int, size: int, times: int = 1) -> Any:
    def products(x: jax.Array, w: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(0, times, lambda _, h: h @ w, x)

    return jax.make_jaxpr(products)(jnp.zeros((batch, size)), jnp.zeros((size, size)))


@pytest.mark.parametrize(
    ("batch", "size", "times", "one"),
    [
        (4, 16, 1, None),  # XLA wakes nobody
        (32, 256, 1, True),
        (512, 1024, 1, False),
        (32, 256, 20, True),
        (512, 1024, 20, False),
    ],
)
def test_short_products_gain(batch: int, size: int, times: int, one: bool | None) -> None:
    assert gains(program_of(batch, size, times), 2) is one


def test_many_small_products_outweigh_a_large_one() -> None:
    def mixed(x: jax.Array, w: jax.Array, large: jax.Array) -> Any:
        return jax.lax.fori_loop(0, 20, lambda _, h: h @ w, x), large @ large

    x, w = jnp.zeros((32, 256)), jnp.zeros((256, 256))
    assert gains(jax.make_jaxpr(mixed)(x, w, jnp.zeros((384, 384))), 2)
    assert not gains(jax.make_jaxpr(mixed)(x, w, jnp.zeros((1536, 1536))), 2)


def test_more_threads_gain_earlier() -> None:
    program = program_of(64, 340)
    assert gains(program, 2)
    assert not gains(program, 16)


def test_what_calls_libraries_has_threads_of_its_own() -> None:
    def called(x: jax.Array, w: jax.Array) -> jax.Array:
        return jax.pure_callback(lambda y: y, jax.ShapeDtypeStruct(x.shape, x.dtype), x @ w)

    assert not gains(jax.make_jaxpr(called)(jnp.zeros((32, 256)), jnp.zeros((256, 256))), 2)


def test_no_client_is_made_where_it_would_not_help(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.delenv("PJRT_NPROC", raising=False)
    monkeypatch.setattr(module, "processors", lambda: 2)
    assert helps()
    for name, value in ((VARIABLE, "0"), ("PJRT_NPROC", "1")):
        with monkeypatch.context() as changed:
            changed.setenv(name, value)
            assert not helps()
    monkeypatch.setattr(module, "processors", lambda: 1)
    assert not helps()


def test_a_jaxlib_that_makes_no_client_leaves_all_programs_on_all_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: object) -> Any:
        raise RuntimeError("no client")

    monkeypatch.setattr(module, "processors", lambda: 2)
    monkeypatch.setattr("jaxlib.xla_client.make_cpu_client", refuse)
    alone = OneThread()
    alone.make()
    assert alone.sharding is None
    assert not alone.has(jnp.zeros(3))


def test_options_that_this_xla_does_not_know_are_left_out(client: OneThread, monkeypatch: pytest.MonkeyPatch) -> None:
    assert client.options({"float32"}) == module._WITHOUT_YNNPACK
    assert client.options({"float32", "bfloat16"}) == module._APART
    monkeypatch.setattr(module, "_WITHOUT_YNNPACK", {**module._APART, "xla_cpu_of_another_version": ""})
    assert client.options({"float32"}) == module._APART
    monkeypatch.setattr(module, "_APART", {"xla_cpu_of_another_version_too": True})
    assert client.options({"float32"}) is None
    _, _, alone = losses([BATCH])
    assert alone == [False]
