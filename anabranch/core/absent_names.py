"""What to say of a public name of TensorFlow 1.15 that is not here, instead of letting Python guess another name.

`tensorflow_names.txt` lists these names, one module to a line.
"""

from __future__ import annotations

import difflib
import functools
import importlib.util
from collections.abc import Iterable
from importlib import resources
from typing import Final

from anabranch.core import refused_names

_LISTED: Final = "tensorflow_names.txt"
_COLUMNS: Final = (
    "tf.feature_column has the columns, linear_model, shared_embedding_columns and make_parse_example_spec"
)
#: by the longest beginning of a name of `tf.contrib`, which never had a list: a way out
_WAYS_OUT: Final[dict[str, str]] = {
    "contrib": "dir(tf.contrib) lists what is there; copy the rest from TensorFlow's sources into your program",
    "contrib.autograph": "tf.autograph has to_graph, to_code and experimental.do_not_convert",
    "contrib.cloud": "files at gs:// need the extra: pip install 'anabranch[remote]'",
    "contrib.distributions": "the package tensorflow-probability 0.8 has further distributions and bijectors, and runs "
    "under `anabranch run`",
    "contrib.eager": refused_names.RUN_GRAPHS,
    "contrib.keras": "under `anabranch run` it is tf.keras, which the package keras 2.3.1 serves",
    "contrib.layers.scattered_embedding_column": _COLUMNS,
    "contrib.learn": "tf.estimator has what became of the estimators of this module",
    "contrib.saved_model": "under `anabranch run` it is there, where the package keras 2.3.1 is installed",
    "contrib.tensor_forest": "scikit-learn has random forests, whose predictions tf.py_func brings into a graph",
    "contrib.tensorrt": "every step is compiled by XLA already: run the graph as it is",
}

#: by the beginning of a name: what serves the names, its module, and the extra that brings it
_PACKAGES: Final = {
    f"contrib.{module}": ("tf-slim", "tf_slim", "contrib")
    for module in ("framework", "layers", "losses", "metrics", "slim", "training")
}


def is_tensorflows(module: str, name: str) -> bool:
    """Whether TensorFlow 1.15 has a public name.

    Args:
        module: the public module, such as "nn.rnn_cell"; "" for the package.
        name: the name in it.
    """
    return module.split(".")[0] == "contrib" or name in names().get(module, ())


def absence(module: str, name: str, present: Iterable[str] = ()) -> str:
    """A message that says that there is no such name, with a way out.

    Args:
        module, name: as for `is_tensorflows`.
        present: the names that the module has here, among which a similar one may serve.
    """
    path = f"{module}.{name}" if module else name
    if package := _package_to_install(path):
        distribution, _, extra = package
        return f"tf.{path} needs the package {distribution}, which is not installed: pip install 'anabranch[{extra}]'"
    if (refusal := refused_names.refusal_of(path)) is not None:
        return f"anabranch has no tf.{path}; {refusal.reason}; {refusal.instead}"
    beginnings = [beginning for beginning in _WAYS_OUT if path.startswith(beginning)]
    if beginnings:
        way_out = _WAYS_OUT[max(beginnings, key=len)]
    elif close := difflib.get_close_matches(name, present, n=1, cutoff=0.85):
        way_out = f"tf.{f'{module}.' if module else ''}{close[0]} is there"
    else:
        way_out = f"dir(tf{f'.{module}' if module else ''}) lists what is there, dir(tf.raw_ops) the operation types"
    return f"anabranch has no tf.{path}; {way_out}"


@functools.cache
def names() -> dict[str, frozenset[str]]:
    """The public names of TensorFlow 1.15, by public module; "" is the package itself."""
    text = resources.files(__package__).joinpath(_LISTED).read_text(encoding="utf-8")
    lines = (line.partition(":") for line in text.splitlines() if not line.startswith("#"))
    return {module: frozenset(names.split()) for module, _, names in lines}


def _package_to_install(path: str) -> tuple[str, str, str] | None:
    """The package that may serve a name and is not installed."""
    for beginning, package in _PACKAGES.items():
        if f"{path}.".startswith(f"{beginning}.") and importlib.util.find_spec(package[1]) is None:
            return package
    return None
