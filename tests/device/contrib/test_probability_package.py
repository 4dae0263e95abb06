"""What TensorFlow Probability 0.8 serves of `tf.contrib`: its own distributions, where a package of that version is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import anabranch as tf

_ROOT = Path(__file__).parents[3]
_DISTRIBUTIONS = """
import tensorflow as tf
class Distribution: pass
class Poisson(Distribution): pass
class Normal(Distribution): pass
def square(x): return tf.Session().run(tf.square(x))
"""
_PROGRAM = """
import tensorflow as tf
from tensorflow.contrib import distributions as ds
from tensorflow.contrib.distributions import bijectors
{checks}
"""
_FOUND = """
assert {"Normal", "Poisson", "bijectors", "Categorical"} <= set(dir(ds)) and "_hidden" not in dir(ds)
assert issubclass(ds.Poisson, ds.Distribution) and issubclass(tf.contrib.distributions.Normal, ds.Distribution)
assert bijectors.Exp.__name__ == "Exp" and ds.square(3.0) == 9.0
assert not issubclass(tf.distributions.Normal, ds.Distribution) and ds.StudentT is tf.distributions.StudentT
"""


def _run(folder: Path, version: str, program: str) -> subprocess.CompletedProcess[str]:
    package = folder / "tensorflow_probability" / "python"
    package.mkdir(parents=True)
    for name, text in (("../__init__", ""), ("__init__", ""), ("distributions", _DISTRIBUTIONS)):
        (package / f"{name}.py").write_text(text)
    (package / "bijectors.py").write_text("class Exp: pass")
    described = folder / f"tensorflow_probability-{version}.dist-info"
    described.mkdir()
    (described / "METADATA").write_text(f"Metadata-Version: 2.1\nName: tensorflow-probability\nVersion: {version}\n")
    (folder / "program.py").write_text(program)
    path = os.pathsep.join([str(folder), str(_ROOT)])
    command = [sys.executable, "-m", "anabranch", "run", str(folder / "program.py")]
    return subprocess.run(
        command, check=False, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, timeout=300
    )


def test_all_names_are_those_of_the_package(tmp_path: Path) -> None:
    done = _run(tmp_path, "0.8.0", _PROGRAM.replace("{checks}", _FOUND))
    assert done.returncode == 0, done.stderr


def test_a_version_for_tensorflow_2_is_not_asked(tmp_path: Path) -> None:
    done = _run(tmp_path, "0.25.0", "import tensorflow as tf\ntf.contrib.distributions.Normal(0.0, 1.0).Poisson")
    assert "AttributeError: 'Normal' object has no attribute 'Poisson'" in done.stderr


def test_without_it_its_names_say_what_to_install() -> None:
    assert tf.contrib.distributions.Normal is tf.distributions.Normal
    with pytest.raises(AttributeError, match=r"the package tensorflow-probability 0\.8 has further distributions"):
        tf.contrib.distributions.Poisson
