"""What every test gets: an empty default graph, seeded NumPy, and a compile cache that is not the user's."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Iterator

import hypothesis
import numpy as np
import pytest
from hypothesis.internal.conjecture import providers

from tests import quick_compilation
from tests.long_lived_objects import LongLivedObjects
from tests.native_tests import NativeTests
from tests.operations_run import OperationsRun
from tests.slowest_files import SlowestFiles

# Constants of whichever modules are loaded would make examples differ from process to process, and cost each worker
# seconds of reading them.
providers._get_local_constants = lambda: providers._local_constants

# A first example may wait for a compilation, so that examples have no deadline; and a run can be repeated.
hypothesis.settings.register_profile("anabranch", deadline=None, derandomize=True, max_examples=50)
hypothesis.settings.load_profile("anabranch")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--over-bytes",
        action="store_true",
        help="let local sessions reach their worker by messages that are copied through bytes",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Keeps compiled programs in a cache for tests, and chooses kernels by estimate; child processes do so too."""
    config.pluginmanager.register(OperationsRun(config))
    config.pluginmanager.register(SlowestFiles())
    config.pluginmanager.register(NativeTests())
    config.pluginmanager.register(LongLivedObjects())
    config.pluginmanager.register(quick_compilation)
    # all checkouts of a user share it: compiling is a third of what the tests take
    caches = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    os.environ.setdefault("ANABRANCH_CACHE_DIR", os.path.join(caches, "anabranch-tests"))
    os.environ.setdefault("ANABRANCH_KERNELS", "estimate")  # whatever this machine measures, and whoever else uses it
    os.environ.setdefault("ANABRANCH_NATIVE", "0")  # and though oneDNN is installed; its tests turn it on


@pytest.fixture(autouse=True, scope="session")
def _own_temporary_files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Has all temporary files of a process of tests, and of its children, in one folder that is removed at the end.

    Estimators leave theirs, as TensorFlow's do, and so do Ray and what is killed for a test. Those of pytest stay.
    """
    from anabranch.distributed.own_folders import OwnFolder

    tmp_path_factory.getbasetemp()
    # short: a socket's path has an end
    folder = OwnFolder("ab-t-")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", os.fspath(folder.path))
        patch.setattr(tempfile, "tempdir", os.fspath(folder.path))
        yield
    folder.close()


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Names a case of bytes after the argument alone, since bytes may hold what differs from process to process.

    A gzip archive has the second in which it was packed in its head; two workers of pytest-xdist that pack it in
    different seconds then collect tests of different names, and none is run.
    """
    return argname if isinstance(val, bytes) else None


@pytest.fixture(autouse=True)
def _fresh_state() -> None:
    from anabranch.graph.graph import reset_default_graph

    reset_default_graph()
    np.random.seed(0)  # noqa: NPY002 - programs of TensorFlow's time use the global generator


@pytest.fixture(autouse=True)
def _compiled_quickly(compiled_quickly: None) -> None:
    """Tests look at graphs and messages; `device/conftest.py` names those that look at what the compiler makes."""


@pytest.fixture(autouse=True, scope="session")
def _shared_dialects(shared_dialects: None) -> None:
    """Of all tests."""


@pytest.fixture(autouse=True)
def _own_log_levels() -> Iterator[None]:
    """Undoes `tf.logging.set_verbosity`: a level of the package's own outweighs what later tests ask the root for."""
    loggers = [logging.getLogger(name) for name in ("tensorflow", "anabranch")]
    levels = [logger.level for logger in loggers]
    yield
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)
