"""`tf.resource_loader`: files that lie beside a program's modules."""

from __future__ import annotations

import inspect
import os
from types import FrameType


def load_resource(path: str) -> bytes:
    """The contents of a file of this package. Raises OSError where it cannot be read.

    Args:
      path: relative to the folder of the package `anabranch`.
    """
    folder = os.path.abspath(os.path.dirname(__file__))
    package = os.path.dirname(os.path.dirname(folder))
    with open(os.path.join(package, path), "rb") as file:
        return file.read()


def get_data_files_path() -> str:
    """The folder of the file that calls this."""
    return _folder_of_caller(inspect.currentframe())


def get_path_to_datafile(path: str) -> str:
    """The path of a file beside the file that calls this; the file need not exist.

    Args:
      path: relative to the caller's folder.
    """
    return os.path.join(_folder_of_caller(inspect.currentframe()), path)


def get_root_dir_with_all_resources() -> str:
    """The folder under which all data files of a program lie.

    Returns:
      In a Bazel runfiles tree, the workspace's folder in it (the one directly under `*.runfiles*`); elsewhere, the
      folder of the file that calls this.
    """
    folder = below = _folder_of_caller(inspect.currentframe())
    at = folder
    while os.path.dirname(at) != at:
        if ".runfiles" in os.path.basename(at):
            return below
        below, at = at, os.path.dirname(at)
    return folder


def readahead_file_path(path: str, readahead: str = "128M") -> str:
    """`path` as it is: files are read without announcing how much will be needed.

    Args:
      path: a file.
      readahead: how much of it to read ahead, as "128M"; has no effect, as in TensorFlow.
    """
    return path


def _folder_of_caller(function: FrameType | None) -> str:
    """The folder of the file whose code called the function that runs in the frame `function`."""
    caller = function.f_back if function is not None else None
    if caller is None:
        raise RuntimeError("this interpreter has no frames to find the caller's file; use os.path.dirname(__file__)")
    return os.path.dirname(inspect.getfile(caller))
