"""Functions of `tensorflow.python.lib.io.file_io` that read and write whole files."""

from __future__ import annotations

import os

import anabranch as tf


def read_file_to_string(filename: str | os.PathLike[str], binary_mode: bool = False) -> str | bytes:
    """What a file holds: text in UTF-8, or bytes."""
    with tf.gfile.GFile(filename, "rb" if binary_mode else "r") as file:
        content: str | bytes = file.read()
        return content


def write_string_to_file(filename: str | os.PathLike[str], file_content: str | bytes) -> None:
    """Writes text in UTF-8, or bytes; what the file held is lost."""
    with tf.gfile.GFile(filename, "wb" if isinstance(file_content, bytes) else "w") as file:
        file.write(file_content)
