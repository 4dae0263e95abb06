"""Elements of `tf.data` that are copied to a device while earlier steps run."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pytest

import anabranch as tf
from anabranch.core.devices import register_device, unregister_device
from anabranch.proto.config_pb2 import CallableOptions
from anabranch.runtime.devices import XlaDevice
from anabranch.state.positions import decode_position, encode_position

FAR = "/device:FAR:0"
COUNT = 6


class FarDevice(XlaDevice):
    """Stands for an accelerator of the host's memory: says which threads have copied what."""

    copied: list[tuple[int, tuple[int, ...]]] = []

    @property
    def is_far(self) -> bool:
        return True

    def put(self, value: Any) -> Any:
        if not isinstance(value, jax.Array):
            FarDevice.copied.append((threading.get_ident(), value.shape))
        return super().put(value)


@pytest.fixture(autouse=True)
def far(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    register_device("FAR", lambda count: [FarDevice("FAR", 0)])
    monkeypatch.setattr(FarDevice, "copied", [])
    yield
    unregister_device("FAR")


def _elements() -> tf.data.Dataset:
    numbers = np.arange(COUNT * 2, dtype=np.float32).reshape(COUNT, 2)
    return tf.data.Dataset.from_tensor_slices((numbers, [f"row {i}" for i in range(COUNT)]))


def test_elements_are_copied_by_the_thread_that_prefetches_them() -> None:
    dataset = _elements().apply(tf.data.experimental.prefetch_to_device(FAR, 2))
    numbers, texts = tf.data.make_one_shot_iterator(dataset).get_next()
    with tf.device(FAR):
        doubled = numbers * 2.0
    with tf.Session() as session:
        for i in range(COUNT):
            found, text = session.run([doubled, texts])
            assert found.tolist() == [4 * i, 4 * i + 2]
            assert text == f"row {i}".encode()
        with pytest.raises(tf.errors.OutOfRangeError):
            session.run(doubled)
    # each row once, never by the step that uses it; strings stay where they are
    assert [shape for _, shape in FarDevice.copied] == [(2,)] * COUNT
    assert threading.get_ident() not in {thread for thread, _ in FarDevice.copied}


def test_the_step_gets_the_array_of_the_device_and_the_host_a_copy() -> None:
    dataset = _elements().apply(tf.data.experimental.copy_to_device(FAR))
    numbers, _ = tf.data.make_one_shot_iterator(dataset).get_next()
    with tf.device("/cpu:0"):
        text = tf.as_string(numbers)
    options = CallableOptions(fetch=[numbers.name, text.name], fetch_devices={numbers.name: FAR})
    with tf.Session() as session:
        kept, found = session._make_callable_from_options(options)()
    assert isinstance(kept, jax.Array)
    assert kept.tolist() == [0, 1]
    assert found.tolist() == [b"0.000000", b"1.000000"]


@pytest.mark.parametrize("kind", ["one shot", "initializable", "by its string"])
def test_iterators_belong_to_the_device_that_a_program_asks_for(kind: str) -> None:
    dataset = _elements().map(lambda numbers, _: numbers).apply(tf.data.experimental.prefetch_to_device(FAR, 1))
    with tf.device(FAR):
        if kind == "one shot":
            iterator = tf.data.make_one_shot_iterator(dataset)
        else:
            iterator = tf.data.Iterator.from_structure(
                tf.data.get_output_types(dataset), tf.data.get_output_shapes(dataset)
            )
    with tf.device("/cpu:0"):
        begin = tf.no_op() if kind == "one shot" else iterator.make_initializer(dataset)
    with tf.device(FAR):
        handle = iterator.string_handle()
        if kind == "by its string":
            iterator = tf.data.Iterator.from_string_handle(handle, tf.float32, [2])
        doubled = iterator.get_next() * 2.0
    with tf.Session() as session:
        session.run(begin)
        assert [session.run(doubled).tolist() for _ in range(2)] == [[0, 2], [4, 6]]
    assert len(FarDevice.copied) >= 2
    assert threading.get_ident() not in {thread for thread, _ in FarDevice.copied}


def test_without_a_request_iterators_are_the_hosts() -> None:
    numbers, _ = tf.data.make_one_shot_iterator(_elements()).get_next()
    with tf.Session() as session:
        metadata = tf.RunMetadata()
        session.run(numbers, options=tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE), run_metadata=metadata)
    assert all("CPU" in stats.device for stats in metadata.step_stats.dev_stats)


def test_what_is_ready_on_a_device_is_a_part_of_a_saved_position() -> None:
    dataset = _elements().apply(tf.data.experimental.prefetch_to_device(FAR, 3))
    iterator = tf.data.make_initializable_iterator(dataset)
    numbers, _ = iterator.get_next()
    saved = tf.raw_ops.SerializeIterator(resource_handle=iterator._iterator_resource)
    held = tf.placeholder(tf.variant)
    restored = tf.raw_ops.DeserializeIterator(resource_handle=iterator._iterator_resource, serialized=held)
    with tf.Session() as session:
        session.run(iterator.initializer)
        first = session.run(numbers)
        position = session.run(saved)
        rest = [session.run(numbers).tolist() for _ in range(COUNT - 1)]
        session.run(iterator.initializer)
        session.run(restored, {held: position})
        assert [session.run(numbers).tolist() for _ in range(COUNT - 1)] == rest
    assert first.tolist() == [0, 1]


def test_positions_hold_arrays_of_devices_as_numbers() -> None:
    (back,) = decode_position(encode_position([jax.numpy.arange(3.0)]))
    assert type(back) is np.ndarray
    assert back.tolist() == [0, 1, 2]


@pytest.mark.parametrize("device", ["/cpu:0", "/gpu:7", ""])
def test_without_such_a_device_elements_stay_on_the_host(device: str) -> None:
    dataset = _elements().apply(tf.data.experimental.prefetch_to_device(device))
    numbers, _ = tf.data.make_one_shot_iterator(dataset).get_next()
    with tf.Session() as session:
        assert session.run(numbers).tolist() == [0, 1]
    with pytest.raises(ValueError, match="nowhere"):
        tf.data.experimental.copy_to_device("nowhere")
