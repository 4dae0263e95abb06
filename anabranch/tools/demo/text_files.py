"""The data: the files of Python's standard library, and the pipeline that reads them."""

from __future__ import annotations

import sysconfig
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, SupportsIndex

import numpy as np

import anabranch as tf

Array = np.ndarray[Any, Any]

#: the characters: newline, then ASCII from space to tilde; a tab reads as a space, everything else as a question mark
ALPHABET = "\n" + "".join(map(chr, range(32, 127)))
_SUFFIXES = (".py", ".txt", ".md", ".rst")
_SMALLEST = 1000
_MOST_FILES = 300
#: every so many files one is held out
_HELD_OUT = 12


@dataclass(frozen=True)
class Texts:
    """The files to learn from and those to measure on; `characters`: how long the former are together."""

    train: tuple[str, ...]
    held_out: tuple[str, ...]
    characters: int


def find_texts(folder: Path | None = None) -> Texts:
    """The texts in a folder and the folders below; default: Python's library, whose documents are a module of it."""
    root = folder or Path(sysconfig.get_paths()["stdlib"])
    paths = sorted(p for p in (root.rglob("*") if folder else root.glob("*")) if p.suffix in _SUFFIXES and p.is_file())
    if folder is None:
        paths += [p for p in [root / "pydoc_data" / "topics.py"] if p.is_file()]
    sizes = {str(p): p.stat().st_size for p in paths}
    names = [name for name, size in sizes.items() if size >= _SMALLEST][:_MOST_FILES]
    held_out = names[_HELD_OUT - 1 :: _HELD_OUT] or names[1:2]
    train = [name for name in names if name not in held_out]
    return Texts(tuple(train), tuple(held_out), sum(sizes[name] for name in train))


def _numbers_of_bytes() -> Array:
    table = np.full(256, ALPHABET.index("?"), np.int32)
    for number, character in enumerate(ALPHABET):
        table[ord(character)] = number
    table[ord("\t")] = ALPHABET.index(" ")
    return table


def encode(text: bytes) -> Array:
    """The numbers, int32, of a text's characters."""
    return _numbers_of_bytes()[np.frombuffer(text, np.uint8)]


def decode(numbers: Iterable[SupportsIndex]) -> str:
    """The text that numbers stand for."""
    return "".join(ALPHABET[int(i)] for i in numbers)


def pipeline(names: tuple[str, ...], batch: int, steps: int, seed: int) -> Any:
    """An endless dataset of shuffled batches, int32 [batch, steps + 1]: windows that overlap by one character."""
    table = _numbers_of_bytes()

    def windows(name: tf.Tensor) -> Any:
        # each window takes its own `steps` characters and the first of the next one
        numbers = tf.gather(table, tf.cast(tf.decode_raw(tf.read_file(name), tf.uint8), tf.int32))
        count = (tf.size(numbers) - 1) // steps
        body = tf.reshape(numbers[: count * steps], [-1, steps])
        following = tf.reshape(numbers[1 : count * steps + 1], [-1, steps])[:, -1:]
        return tf.data.Dataset.from_tensor_slices(tf.concat([body, following], 1))

    files = tf.data.Dataset.from_tensor_slices(list(names)).shuffle(len(names), seed=seed).repeat()
    return (
        files.interleave(windows, cycle_length=16)
        .shuffle(2000, seed=seed)
        .batch(batch, drop_remainder=True)
        .prefetch(4)
    )


def held_out_windows(names: tuple[str, ...], count: int, steps: int) -> Array:
    """Up to `count` windows of the held-out files, int32 [n, steps + 1], spread evenly."""
    numbers = np.concatenate([encode(Path(name).read_bytes()) for name in names])
    every = max(steps + 1, len(numbers) // count)
    starts = range(0, len(numbers) - steps, every)
    return np.stack([numbers[start : start + steps + 1] for start in starts][:count])
