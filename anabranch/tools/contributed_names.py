"""The names that packages serve in modules of `tf.contrib`, whose stubs name the objects below.

They are tf-slim, which carries on much of `tf.contrib` (decision 0049), and, for distributions and bijectors,
TensorFlow Probability, which `tf.contrib.distributions` became.
"""

from __future__ import annotations

import importlib.metadata
from types import ModuleType
from typing import Any, Final

from anabranch.tools import carried_packages, slim_package
from anabranch.tools.tensorflow_alias import standing_in

PROBABILITY: Final = "tensorflow_probability"


class ContributedNames:
    """Gives the value of a name in one module of `tf.contrib`, where a package has it.

    Args:
        modules: the modules of the package that have the names, the first that has one; "" for the package itself.
        submodules: modules in the package that are names too, and imported when asked for.
    """

    package = slim_package.PACKAGE

    def __init__(self, *modules: str, submodules: tuple[str, ...] = ()) -> None:
        self._modules = modules
        self._submodules = submodules

    def __call__(self, name: str) -> Any:
        """The value of a name.

        Raises:
            AttributeError: the package has none such, or is not installed.
        """
        if self.is_installed():
            if name in self._submodules:
                return self._module(name)
            for source in map(self._module, self._modules):
                if name in getattr(source, "__all__", (name,)) and hasattr(source, name):
                    return getattr(source, name)
        raise AttributeError(name)

    def listed(self) -> set[str]:
        """All names that there are."""
        if not self.is_installed():
            return set()
        sources = map(self._module, self._modules)
        names = {name for source in sources for name in getattr(source, "__all__", dir(source)) if name[0] != "_"}
        return names | {*self._submodules}

    def is_installed(self) -> bool:
        """Whether the package is there."""
        return slim_package.is_installed()

    def _module(self, path: str) -> ModuleType:
        return carried_packages.module(f"{self.package}.{path}" if path else self.package, standing_in)


class _Distributions(ContributedNames):
    """The distributions of TensorFlow Probability."""

    package = f"{PROBABILITY}.python"

    def is_installed(self) -> bool:
        """Whether a version is there that was written for TensorFlow 1."""
        if not carried_packages.is_installed(PROBABILITY):
            return False
        major, minor = importlib.metadata.version("tensorflow-probability").split(".")[:2]
        return (int(major), int(minor)) < (0, 9)


distributions = _Distributions("distributions", submodules=("bijectors",))
framework = ContributedNames("ops.variables", "ops.arg_scope", "ops.framework_ops")
layers = ContributedNames("layers")
losses = ContributedNames("losses")
metrics = ContributedNames("metrics")
slim = ContributedNames("", submodules=("nets",))
training = ContributedNames("training.training", "training.evaluation")
