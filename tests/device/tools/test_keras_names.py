"""Names of `tf.keras` that the package Keras 2.2, which is served as it is, keeps in other modules."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_ROOT = Path(__file__).parents[3]
_PROGRAM = """
import tensorflow as tf
from tensorflow.keras.layers import Dense, Wrapper
import keras
assert Dense is keras.layers.Dense and Wrapper is keras.layers.wrappers.Wrapper
assert not hasattr(keras.layers, "Wrapper"), "the package is as it was"
for layers in (tf.keras.layers, tf.compat.v1.keras.layers, tf.compat.v2.keras.layers):
    assert layers.Wrapper is Wrapper and layers.Dense is Dense and "Wrapper" in dir(layers)
    assert tf.compat.v2.keras.initializers.GlorotNormal is keras.initializers.glorot_normal
from tensorflow.contrib import keras as contributed
from tensorflow.contrib.keras.python.keras.layers import Dense as older
assert contributed.layers.Dense is Dense is older is tf.contrib.keras.layers.Dense
assert tf.compat.v1.Session is tf.Session and tf.python.keras.backend.dot(1, 2) == 3
try:
    tf.keras.layers.nosuch
except AttributeError as error:
    print(error)
"""


def test_they_are_there_and_the_package_is_left_alone(tmp_path: Path) -> None:
    modules = {
        "keras/__init__.py": "from keras import layers, backend, initializers",
        "keras/initializers.py": "def glorot_normal(seed=None): pass",
        "keras/backend.py": "def dot(x, y): return x + y",
        "keras/layers/__init__.py": "from keras.layers import wrappers\nclass Dense: pass",
        "keras/layers/wrappers.py": "class Wrapper: pass",
        "keras-2.2.5.dist-info/METADATA": "Metadata-Version: 2.1\nName: keras\nVersion: 2.2.5\n",
        "program.py": _PROGRAM,
    }
    for name, text in modules.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "anabranch", "run", str(tmp_path / "program.py")],
        check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(_ROOT)])},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "nosuch" in done.stdout
