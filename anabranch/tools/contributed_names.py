"""The names that the package tf-slim serves in modules of `tf.contrib`, whose stubs name the functions below.

`tf_slim` imports TensorFlow. Where the program runs under `anabranch run`, that is anabranch anyway; else anabranch
stands in for TensorFlow while the package is imported, and the process is afterwards as it was.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anabranch.tools import slim_package
from anabranch.tools.tensorflow_alias import standing_in


def _names(*modules: str, submodules: tuple[str, ...] = ()) -> Callable[[str], Any]:
    """A function that gives the value of a name in one module of `tf.contrib`.

    Args:
        modules: the modules of the package that have the names, the first that has one; "" for the package itself.
        submodules: modules in the package that are names too, and imported when asked for.

    Returns:
        A function of a name, which raises AttributeError where the package has none such, or is not installed.
    """

    def value(name: str) -> Any:
        if slim_package.is_installed():
            if name in submodules:
                return _module(name)
            for source in map(_module, modules):
                if name in getattr(source, "__all__", (name,)) and hasattr(source, name):
                    return getattr(source, name)
        raise AttributeError(name)

    return value


def _module(path: str) -> Any:
    return slim_package.module(f"{slim_package.PACKAGE}.{path}" if path else slim_package.PACKAGE, standing_in)


framework = _names("ops.variables", "ops.arg_scope", "ops.framework_ops")
layers = _names("layers")
losses = _names("losses")
metrics = _names("metrics")
slim = _names("", submodules=("nets",))
training = _names("training.training", "training.evaluation")
