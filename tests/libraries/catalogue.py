"""The libraries that `make libraries` runs: their versions, the programs here that use them, their own tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

PROGRAMS: Final = Path(__file__).parent / "programs"
REQUIREMENTS: Final = Path(__file__).parents[2] / "requirements" / "libraries"


@dataclass(frozen=True)
class Library:
    """A library of TensorFlow 1's time.

    Attributes:
        name, version: as on the package index.
        programs: files in `programs/` that train, save, load and predict with it.
        tests: patterns of its own test files, relative to the installed package or to its sources.
        tag: of the version in its repository, when the tests are not in the package; "" when they are.
        tests_need: folders and files of its repository that the tests read, beside themselves.
        generated: folders of the package that its build makes, so that the repository has not the whole of them.
        workspace: the name of its Bazel workspace, below which its tests look for files in `TEST_SRCDIR`.
        environment: variables that its processes get.
        leave_out: files that need what is not there by nature: a network, another backend.
    """

    name: str
    version: str
    programs: tuple[str, ...]
    tests: tuple[str, ...] = ()
    tag: str = ""
    tests_need: tuple[str, ...] = ()
    generated: tuple[str, ...] = ()
    leave_out: tuple[str, ...] = ()
    workspace: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def title(self) -> str:
        return f"{self.name} {self.version}"

    @property
    def requirements(self) -> Path:
        return REQUIREMENTS / f"{self.name}-{self.version}.txt"


_KERAS_TESTS: Final = ("tests/test_*.py", "tests/keras/**/*_test.py", "tests/keras/**/test_*.py")
_KERAS_LEFT_OUT: Final = (
    "tests/docs",  # its documentation's sources
    "tests/test_api.py",  # wants a package that compares signatures
    "tests/keras/utils/vis_utils_test.py",  # wants Graphviz
    "tests/integration_tests",  # downloads data sets
    "tests/keras/datasets",
    "tests/keras/utils/data_utils_test.py",
    "tests/keras/utils/multi_gpu_test.py",
    "tests/keras/layers/cudnn_recurrent_test.py",
)

#: for Sonnet, whose messages were generated for an older protobuf
_OLD_MESSAGES: Final = {"PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": "python"}

_PROBABILITY_FOLDERS: Final = (
    "bijectors",
    "distributions",
    "glm",
    "internal",
    "layers",
    "math",
    "mcmc",
    "monte_carlo",
    "optimizer",
    "stats",
    "sts",
    "trainable_distributions",
    "util",
    "vi",
)

LIBRARIES: Final = (
    Library(
        "keras",
        "2.2.5",
        ("keras_dense.py", "keras_images.py", "keras_sequences.py"),
        _KERAS_TESTS,
        tag="2.2.5",
        tests_need=("tests",),
        leave_out=_KERAS_LEFT_OUT,
    ),
    Library(
        "keras",
        "2.3.1",
        (
            *("keras_dense.py", "keras_in_tensorflow.py", "keras_images.py", "keras_sequences.py"),
            *("tf_keras_kinds.py", "tf_keras_layers.py", "tf_keras_models.py", "tf_keras_training.py"),
        ),
        _KERAS_TESTS,
        tag="2.3.1",
        tests_need=("tests",),
        leave_out=_KERAS_LEFT_OUT,
    ),
    Library("tf-slim", "1.1.0", ("slim_network.py",), ("tf_slim/**/*_test.py",)),
    Library(
        "tflearn",
        "0.5.0",
        ("tflearn_dense.py", "tflearn_images.py", "tflearn_sequences.py"),
        ("tests/test_*.py",),
        tag="0.5.0",
        tests_need=("tests",),
    ),
    Library(
        "tensorflow-probability",
        "0.8.0",
        ("probability.py", "contributed_distributions.py"),
        tuple(f"tensorflow_probability/python/{folder}/**/*_test.py" for folder in _PROBABILITY_FOLDERS),
        tag="0.8.0",
        tests_need=("tensorflow_probability",),
        generated=("tensorflow_probability/python/internal/backend",),
    ),
    Library(
        "dm-sonnet",
        "1.36",
        ("sonnet_modules.py",),
        ("sonnet/python/**/*_test.py",),
        tag="v1.36",
        tests_need=("sonnet/python",),
        workspace="sonnet",
        environment=_OLD_MESSAGES,
    ),
    Library("gpflow", "1.5.1", ("gpflow_processes.py",)),
    Library("graph-nets", "1.1.0", (), ("graph_nets/tests/*_test.py",), environment=_OLD_MESSAGES),
    Library("mesh-tensorflow", "0.1.9", ("mesh_layers.py",)),
    Library("tensorflow-privacy", "0.2.2", ("private_training.py",)),
    Library("tensorflow-ranking", "0.1.6", ("ranked_lists.py",)),
    Library("trfl", "1.1.0", (), ("trfl/*_test.py",)),
)
