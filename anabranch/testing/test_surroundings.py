"""What programs of tests ask about where they run: folders, devices, and what was built in."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile

from anabranch.graph.graph import Graph
from anabranch.session import Session


def get_temp_dir() -> str:
    """A directory in which tests may write: TEST_TMPDIR, or a temporary directory of this process.

    Returns:
        The path of a directory that exists.

    Raises:
        nothing

    Example:
        >>> tf.gfile.IsDirectory(tf.test.get_temp_dir())
        True
    """
    given = os.environ.get("TEST_TMPDIR")
    if given:
        os.makedirs(given, exist_ok=True)
        return given
    return _own_temporary()


_temporary_directories: list[str] = []


def _own_temporary() -> str:
    if not _temporary_directories:
        made = tempfile.mkdtemp(prefix="anabranch_test")
        _temporary_directories.append(made)
        atexit.register(_remove_own, made, os.getpid())
    return _temporary_directories[0]


def _remove_own(directory: str, process: int) -> None:
    # a process that was forked off has the same one
    if os.getpid() == process:
        shutil.rmtree(directory, ignore_errors=True)


def test_src_dir_path(relative_path: str) -> str:
    """The absolute path of a file beside the package."""
    return os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), relative_path)


test_src_dir_path.__test__ = False  # type: ignore[attr-defined]


def is_gpu_available(cuda_only: bool = False, min_cuda_compute_capability: object = None) -> bool:
    """Whether steps can use a GPU."""
    return bool(gpu_device_name())


def gpu_device_name() -> str:
    """The name of the first GPU, or ''."""
    return next((d.name for d in Session(graph=Graph()).list_devices() if d.device_type == "GPU"), "")


def is_built_with_cuda() -> bool:
    """Whether a GPU of this kind is in use."""
    return is_gpu_available()


def is_built_with_gpu_support() -> bool:
    """Whether a GPU is in use."""
    return is_gpu_available()


def is_built_with_rocm() -> bool:
    """False: no GPU of this kind is told from others."""
    return False
