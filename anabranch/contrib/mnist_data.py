"""`tensorflow.examples.tutorials.mnist.input_data`: the digits that tutorials train with, read from the disk.

The files are those of the MNIST database, in the format IDX (a magic number, the sizes, the bytes; big-endian), packed
by gzip or not; or the archive `mnist.npz` that Keras keeps. Nothing is downloaded.
"""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

import numpy as np

import anabranch as tf
from anabranch.contrib.arguments import DTypeLike, PassedOn

SOURCE_URL: Final = "https://storage.googleapis.com/cvdf-datasets/mnist/"
DEFAULT_SOURCE_URL: Final = SOURCE_URL

#: the images and the labels of the two parts
_FILES: Final = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}
_ARCHIVE: Final = "mnist.npz"
_IMAGES_MAGIC, _LABELS_MAGIC = 2051, 2049
#: no file of this kind has more bytes of pixels
_LARGEST: Final = 1 << 31
_SIDE, _CLASSES = 28, 10
#: how many examples a set has that is made up
_MADE_UP: Final = 10_000
#: by part: images and labels
_Arrays = dict[str, tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]


# ---------------------------------------------------------------------- files
def extract_images(f: BinaryIO) -> np.ndarray[Any, Any]:
    """The images of an IDX file packed by gzip.

    Args:
        f: the file, open for reading bytes.

    Returns:
        uint8, [images, rows, columns, 1].

    Raises:
        ValueError: it is no such file, or does not hold as many images as it says.
    """
    with gzip.GzipFile(fileobj=f) as unpacked:
        return _images(unpacked, _name_of(f))


def extract_labels(f: BinaryIO, one_hot: bool = False, num_classes: int = _CLASSES) -> np.ndarray[Any, Any]:
    """The labels of an IDX file packed by gzip.

    Args:
        f: the file, open for reading bytes.
        one_hot: whether each becomes a row of zeros with a one.
        num_classes: the length of such a row.

    Returns:
        uint8, [labels], or float64, [labels, num_classes].

    Raises:
        ValueError: it is no such file, or does not hold as many labels as it says.
    """
    with gzip.GzipFile(fileobj=f) as unpacked:
        labels = _labels(unpacked, _name_of(f))
    return dense_to_one_hot(labels, num_classes) if one_hot else labels


def dense_to_one_hot(labels_dense: np.ndarray[Any, Any], num_classes: int) -> np.ndarray[Any, Any]:
    """A row of zeros with a one for each label: float64, [labels, num_classes].

    Raises:
        ValueError: a label is not below `num_classes`.
    """
    if labels_dense.size and int(labels_dense.max()) >= num_classes:
        raise ValueError(f"the label {labels_dense.max()} is none of {num_classes} classes")
    rows: np.ndarray[Any, Any] = np.eye(num_classes)[labels_dense]
    return rows


def _name_of(file: PassedOn) -> str:
    return str(getattr(file, "name", "the file"))


def _images(file: PassedOn, name: str) -> np.ndarray[Any, Any]:
    count, rows, columns = _header(file, name, _IMAGES_MAGIC, 3)
    return _bytes(file, name, count * rows * columns).reshape(count, rows, columns, 1)


def _labels(file: PassedOn, name: str) -> np.ndarray[Any, Any]:
    (count,) = _header(file, name, _LABELS_MAGIC, 1)
    return _bytes(file, name, count)


def _header(file: PassedOn, name: str, magic: int, sizes: int) -> list[int]:
    try:
        header = file.read(4 * (sizes + 1))
    except (OSError, EOFError) as error:
        raise ValueError(f"{name} is not packed by gzip: {error}") from error
    numbers = [int(n) for n in np.frombuffer(header[: len(header) // 4 * 4], ">u4")]
    if len(numbers) <= sizes or numbers[0] != magic:
        found = numbers[0] if numbers else "nothing"
        raise ValueError(f"Invalid magic number {found} in MNIST file {name}: it begins with {magic}")
    return numbers[1:]


def _bytes(file: PassedOn, name: str, count: int) -> np.ndarray[Any, Any]:
    if count > _LARGEST:
        raise ValueError(f"{name} says that it holds {count} bytes, more than {_LARGEST}")
    try:
        held = file.read(count)
    except (OSError, EOFError) as error:
        raise ValueError(f"{name} ends before the {count} bytes that it says it holds: {error}") from error
    if len(held) != count:
        raise ValueError(f"{name} holds {len(held)} bytes after its header, which says {count}")
    return np.frombuffer(held, np.uint8)


def _read(path: Path, magic: int) -> np.ndarray[Any, Any]:
    read = _images if magic == _IMAGES_MAGIC else _labels
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        return read(file, str(path))


def _places(folder: Path, name: str) -> Iterator[Path]:
    for place in (folder, folder / "MNIST" / "raw"):
        for written in (name, name.replace("-idx", ".idx")):
            yield place / f"{written}.gz"
            yield place / written


def _arrays(train_dir: str) -> _Arrays:
    """The images and labels of both parts.

    Raises:
        FileNotFoundError: they are not on the disk; the message says where to put them.
        ValueError: a file is damaged.
    """
    folder = Path(train_dir)
    found = {
        name: next((place for place in _places(folder, name) if place.is_file()), None)
        for names in _FILES.values()
        for name in names
    }
    missing = [f"{name}.gz" for name, place in found.items() if place is None]
    if not missing:
        places = {name: place for name, place in found.items() if place is not None}
        return {
            part: (_read(places[images], _IMAGES_MAGIC), _read(places[labels], _LABELS_MAGIC))
            for part, (images, labels) in _FILES.items()
        }
    archives = [folder / _ARCHIVE, Path.home() / ".keras" / "datasets" / _ARCHIVE]
    for archive in archives:
        if archive.is_file():
            return _from_archive(archive)
    raise FileNotFoundError(
        f"MNIST is not at {os.fsdecode(folder)!r}, which lacks {', '.join(missing)}; nor is there "
        f"{' or '.join(str(archive) for archive in archives)}. Nothing is downloaded; put the four files of the MNIST "
        f"database (they are at {SOURCE_URL}, for example) there"
    )


def _from_archive(path: Path) -> _Arrays:
    with np.load(path, allow_pickle=False) as held:
        if wrong := sorted({"x_train", "y_train", "x_test", "y_test"} - set(held.files)):
            raise ValueError(f"{path} lacks {', '.join(wrong)}: it is no archive of MNIST")
        return {part: (held[f"x_{part}"][..., np.newaxis], held[f"y_{part}"]) for part in _FILES}


# ---------------------------------------------------------------------- sets of examples
class Datasets(NamedTuple):
    """The parts of the data, each a `DataSet`."""

    train: DataSet
    validation: DataSet
    test: DataSet


class DataSet:
    """Images and their labels, and batches of them.

    Args:
        images: uint8, [images, rows, columns, 1].
        labels: one to each.
        fake_data: whether there are none, and batches are made up.
        one_hot: whether labels that are made up are rows.
        dtype: float32: pixels are in [0, 1]; uint8: they are as they were read.
        reshape: whether an image becomes a row.
        seed: of the order of batches; None: NumPy's random numbers make it.

    Raises:
        ValueError: numbers of images and labels differ.
        TypeError: another `dtype`.
    """

    def __init__(
        self,
        images: np.ndarray[Any, Any],
        labels: np.ndarray[Any, Any],
        fake_data: bool = False,
        one_hot: bool = False,
        dtype: DTypeLike = tf.float32,
        reshape: bool = True,
        seed: int | None = None,
    ) -> None:
        kind = tf.as_dtype(dtype).base_dtype
        if kind not in (tf.uint8, tf.float32):
            raise TypeError(f"Invalid image dtype {dtype}, expected uint8 or float32")
        self._random: Any = np.random if seed is None else np.random.RandomState(seed)
        self._made_up, self._one_hot = fake_data, one_hot
        self._epochs_completed = self._at = 0
        if fake_data:
            self._images, self._labels, self._num_examples = np.zeros((0,)), np.zeros((0,)), _MADE_UP
            return
        if len(images) != len(labels):
            raise ValueError(f"images.shape: {images.shape} labels.shape: {labels.shape}: their numbers differ")
        if reshape:
            images = images.reshape(len(images), -1)
        if kind == tf.float32:
            images = np.multiply(images.astype(np.float32), 1.0 / 255.0)
        self._images, self._labels, self._num_examples = images, labels, len(images)

    @property
    def images(self) -> np.ndarray[Any, Any]:
        """The images, in the order of the batches of this epoch."""
        return self._images

    @property
    def labels(self) -> np.ndarray[Any, Any]:
        """Their labels."""
        return self._labels

    @property
    def num_examples(self) -> int:
        """How many there are."""
        return self._num_examples

    @property
    def epochs_completed(self) -> int:
        """How often all of them were in a batch."""
        return self._epochs_completed

    def next_batch(self, batch_size: int, fake_data: bool = False, shuffle: bool = True) -> tuple[Any, Any]:
        """The next images and labels; a batch that begins at the end of an epoch goes on in the next one.

        Args:
            batch_size: how many.
            fake_data: whether they are made up.
            shuffle: whether each epoch has another order.

        Returns:
            The images and their labels.

        Raises:
            ValueError: the number is negative, or there are none.
        """
        if fake_data or self._made_up:
            label = [1] + [0] * (_CLASSES - 1) if self._one_hot else 0
            return [[1] * _SIDE**2 for _ in range(batch_size)], [label for _ in range(batch_size)]
        if batch_size < 0 or (batch_size and not self._num_examples):
            raise ValueError(f"a batch of {batch_size} of {self._num_examples} examples")
        if self._epochs_completed == self._at == 0 and shuffle:
            self._shuffle()
        images, labels = [self._images[:0]], [self._labels[:0]]
        while batch_size:
            if self._at == self._num_examples:
                self._epochs_completed, self._at = self._epochs_completed + 1, 0
                if shuffle:
                    self._shuffle()
            taken = slice(self._at, min(self._at + batch_size, self._num_examples))
            images.append(self._images[taken])
            labels.append(self._labels[taken])
            self._at, batch_size = taken.stop, batch_size - (taken.stop - taken.start)
        return np.concatenate(images), np.concatenate(labels)

    def _shuffle(self) -> None:
        order = np.arange(self._num_examples)
        self._random.shuffle(order)
        self._images, self._labels = self._images[order], self._labels[order]


def read_data_sets(
    train_dir: str | os.PathLike[str],
    fake_data: bool = False,
    one_hot: bool = False,
    dtype: DTypeLike = tf.float32,
    reshape: bool = True,
    validation_size: int = 5000,
    seed: int | None = None,
    source_url: str = SOURCE_URL,
) -> Datasets:
    """Reads the MNIST database from a folder: 60,000 images to train and to validate with, 10,000 to test with.

    Args:
        train_dir: the folder with its four files, packed or not, or with Keras' `mnist.npz`.
        fake_data: whether images are made up instead.
        one_hot: whether a label is a row of zeros with a one.
        dtype: float32: pixels are in [0, 1]; uint8: they are as they were read.
        reshape: whether an image becomes a row of 784 numbers.
        validation_size: how many of the images to train with are kept to validate with.
        seed: of the order of batches; None: NumPy's random numbers make it.
        source_url: accepted, and not used: nothing is downloaded.

    Returns:
        The parts `train`, `validation` and `test`.

    Raises:
        FileNotFoundError: the data are not there; the message says where to put them.
        ValueError: a file is damaged, or `validation_size` is not between 0 and the number of images.

    Example:
        >>> digits = input_data.read_data_sets("MNIST_data", one_hot=True)  # doctest: +SKIP
        >>> images, labels = digits.train.next_batch(100)  # doctest: +SKIP
    """
    if fake_data:
        none = np.zeros((0,))
        return Datasets(*(DataSet(none, none, True, one_hot, dtype, reshape, seed) for _ in range(3)))
    arrays = _arrays(os.fsdecode(train_dir))
    if one_hot:
        arrays = {part: (images, dense_to_one_hot(labels, _CLASSES)) for part, (images, labels) in arrays.items()}
    images, labels = arrays["train"]
    if not 0 <= validation_size <= len(images):
        raise ValueError(f"Validation size should be between 0 and {len(images)}. Received: {validation_size}.")
    validation, train = slice(validation_size), slice(validation_size, None)
    parts = ((images[train], labels[train]), (images[validation], labels[validation]), arrays["test"])
    return Datasets(*(DataSet(x, y, False, one_hot, dtype, reshape, seed) for x, y in parts))


def load_mnist(train_dir: str | os.PathLike[str] = "MNIST-data") -> Datasets:
    """`read_data_sets` of a folder."""
    return read_data_sets(train_dir)
