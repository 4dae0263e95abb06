"""The digits of the tutorials: files on the disk, batches, and the tutorials' network."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anabranch as tf
from anabranch.contrib import mnist_data, mnist_network

RANDOM = np.random.RandomState(5)
PIXELS = {"train": RANDOM.randint(0, 256, (50, 28, 28)), "t10k": RANDOM.randint(0, 256, (20, 28, 28))}
LABELS = {"train": RANDOM.randint(0, 10, 50), "t10k": RANDOM.randint(0, 10, 20)}


def encoded(magic: int, array: Any) -> bytes:
    return np.array([magic, *array.shape], ">u4").tobytes() + array.astype(np.uint8).tobytes()


def write_files(folder: Path, packed: bool = True, dot: bool = False) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for part, pixels in PIXELS.items():
        for name, data in (
            (f"{part}-images-idx3-ubyte", encoded(2051, pixels)),
            (f"{part}-labels-idx1-ubyte", encoded(2049, LABELS[part])),
        ):
            written = name.replace("-idx", ".idx") if dot else name
            path = folder / (f"{written}.gz" if packed else written)
            path.write_bytes(gzip.compress(data) if packed else data)


def read(folder: Path, **more: Any) -> mnist_data.Datasets:
    return mnist_data.read_data_sets(folder, validation_size=10, **more)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_files(tmp_path)
    return tmp_path


def write_archive(path: Path) -> None:
    np.savez(path, x_train=PIXELS["train"], y_train=LABELS["train"], x_test=PIXELS["t10k"], y_test=LABELS["t10k"])


@pytest.mark.parametrize("kind", ["packed", "plain", "dots", "raw", "archive"])
def test_the_files_are_found_as_others_write_them(tmp_path: Path, kind: str) -> None:
    if kind == "archive":
        write_archive(tmp_path / "mnist.npz")
    else:
        write_files(tmp_path / "MNIST" / "raw" if kind == "raw" else tmp_path, kind == "packed", kind == "dots")
    digits = read(tmp_path)
    assert [part.num_examples for part in digits] == [40, 10, 20]
    np.testing.assert_array_equal(digits.validation.labels, LABELS["train"][:10])
    np.testing.assert_allclose(digits.test.images, PIXELS["t10k"].reshape(20, 784) / 255, rtol=1e-6)


def test_what_keras_downloaded_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".keras" / "datasets").mkdir(parents=True)
    write_archive(tmp_path / ".keras" / "datasets" / "mnist.npz")
    assert read(tmp_path / "elsewhere").train.num_examples == 40


def test_the_error_says_where_to_put_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    write_files(tmp_path / "data")
    (tmp_path / "data" / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(FileNotFoundError, match=r"data', which lacks t10k-labels-idx1-ubyte.gz;.*put the four files"):
        mnist_data.read_data_sets(tmp_path / "data")


def test_kinds_of_images_and_labels(folder: Path) -> None:
    digits = read(folder, one_hot=True, dtype=tf.uint8, reshape=False)
    assert (digits.train.images.dtype, digits.train.images.shape) == (np.uint8, (40, 28, 28, 1))
    assert digits.train.labels.shape == (40, 10)
    np.testing.assert_array_equal(digits.train.labels.argmax(1), LABELS["train"][10:])
    with pytest.raises(TypeError, match="expected uint8 or float32"):
        read(folder, dtype=tf.int32)
    with pytest.raises(ValueError, match="between 0 and 50. Received: 51"):
        mnist_data.read_data_sets(folder, validation_size=51)


def numbers_of(images: Any) -> list[int]:
    """Which images of the training part these are."""
    known = {row.tobytes(): i for i, row in enumerate(PIXELS["train"].reshape(50, 784).astype(np.uint8))}
    return [known[np.rint(image * 255).astype(np.uint8).tobytes()] for image in images]


def test_every_epoch_has_each_example_once(folder: Path) -> None:
    train = read(folder, seed=7).train
    seen: list[int] = []
    for _ in range(10):
        images, labels = train.next_batch(12)
        numbers = numbers_of(images)
        np.testing.assert_array_equal(labels, LABELS["train"][numbers])
        seen += numbers
    assert train.epochs_completed == 2
    epochs = [seen[i : i + 40] for i in (0, 40, 80)]
    assert [sorted(epoch) for epoch in epochs] == [list(range(10, 50))] * 3
    assert epochs[0] != epochs[1] != epochs[2] != epochs[0]


def test_a_seed_gives_the_order_that_tensorflow_gives(folder: Path) -> None:
    # TensorFlow seeds NumPy's generator and shuffles what was shuffled before
    random = np.random.RandomState(7)
    order = np.arange(10, 50)
    expected: list[int] = []
    for _ in range(2):
        places = np.arange(40)
        random.shuffle(places)
        order = order[places]
        expected += list(order)
    train = read(folder, seed=7).train
    assert numbers_of(np.concatenate([train.next_batch(20)[0] for _ in range(4)])) == expected


def test_batches_without_shuffling_and_of_any_size(folder: Path) -> None:
    train = read(folder).train
    assert numbers_of(train.next_batch(30, shuffle=False)[0]) == list(range(10, 40))
    images, labels = train.next_batch(95, shuffle=False)
    assert numbers_of(images) == [*range(40, 50), *range(10, 50), *range(10, 50), *range(10, 15)]
    assert (len(labels), train.epochs_completed) == (95, 3)
    assert len(train.next_batch(0)[0]) == 0
    with pytest.raises(ValueError, match="a batch of -1 of 40"):
        train.next_batch(-1)


def test_examples_may_be_made_up() -> None:
    digits = mnist_data.read_data_sets("nowhere", fake_data=True, one_hot=True)
    images, labels = digits.train.next_batch(2)
    assert (np.shape(images), labels[0][:2], digits.test.num_examples) == ((2, 784), [1, 0], 10_000)


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("train-images-idx3-ubyte.gz", b"no archive", "not packed by gzip"),
        ("train-images-idx3-ubyte.gz", gzip.compress(encoded(2049, LABELS["train"])), "Invalid magic number 2049"),
        ("train-images-idx3-ubyte.gz", gzip.compress(b""), "Invalid magic number nothing"),
        (
            "train-images-idx3-ubyte.gz",
            gzip.compress(encoded(2051, PIXELS["train"])[:-1]),
            "39199 bytes after its head",
        ),
        ("train-images-idx3-ubyte.gz", gzip.compress(encoded(2051, PIXELS["train"]))[:-300], "ends before the 39200"),
        ("train-labels-idx1-ubyte.gz", gzip.compress(np.array([2049, 2**32 - 1], ">u4").tobytes()), "more than"),
        ("train-labels-idx1-ubyte.gz", gzip.compress(encoded(2049, LABELS["train"][:9])), "their numbers differ"),
    ],
)
def test_damaged_files_are_named(folder: Path, name: str, data: bytes, message: str) -> None:
    (folder / name).write_bytes(data)
    with pytest.raises(ValueError, match=message):
        read(folder)


def test_an_archive_of_something_else_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "mnist.npz", x_train=PIXELS["train"])
    with pytest.raises(ValueError, match="lacks x_test, y_test, y_train"):
        read(tmp_path)


def test_files_that_a_program_opened(folder: Path) -> None:
    with (folder / "train-images-idx3-ubyte.gz").open("rb") as file:
        np.testing.assert_array_equal(mnist_data.extract_images(file)[..., 0], PIXELS["train"])
    with (folder / "train-labels-idx1-ubyte.gz").open("rb") as file:
        assert mnist_data.extract_labels(file, one_hot=True).shape == (50, 10)
    with pytest.raises(ValueError, match="the label 9 is none of 3 classes"):
        mnist_data.dense_to_one_hot(np.array([9]), 3)


def test_the_tutorials_network_learns_the_digits(folder: Path) -> None:
    tf.set_random_seed(1)
    train = read(folder, seed=1).train
    images, labels = tf.placeholder(tf.float32, [None, 784]), tf.placeholder(tf.int32, [None])
    logits = mnist_network.inference(images, 64, 32)
    loss = mnist_network.loss(logits, labels)
    step = mnist_network.training(loss, 0.1)
    right = mnist_network.evaluation(logits, labels)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for _ in range(400):
            session.run(step, dict(zip((images, labels), train.next_batch(20), strict=True)))
        assert session.run(right, {images: train.images, labels: train.labels}) == 40
    assert {v.op.name for v in tf.trainable_variables()} == {
        f"{layer}/{kind}" for layer in ("hidden1", "hidden2", "softmax_linear") for kind in ("weights", "biases")
    }
