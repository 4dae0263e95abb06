"""The package `tf-slim`, which carries on much of `tf.contrib`: its modules, for which TensorFlow is anabranch.

Decision 0049 says why it is this package. Names that it serves are asked for in `contributed_names`.
"""

from __future__ import annotations

from types import ModuleType
from typing import Final

from anabranch.tools import carried_packages
from anabranch.tools.carried_packages import StandIn

PACKAGE: Final = "tf_slim"
#: private modules below `tf.contrib` -> the module or package of the package that they became
_PRIVATE: Final = {
    "contrib.framework.python.ops": "ops",
    "contrib.layers.python.layers": "layers",
    "contrib.losses.python.losses": "losses",
    "contrib.metrics.python.ops": "metrics",
    "contrib.slim.python.slim": "",
    "contrib.training.python.training": "training",
}


def is_installed() -> bool:
    """Whether the package can be imported."""
    return carried_packages.is_installed(PACKAGE)


def find_module(name: str, standing_in: StandIn) -> ModuleType | None:
    """The module of that name; None where there is none, or the package is not installed."""
    if not is_installed():
        return None
    try:
        return carried_packages.module(name, standing_in)
    except ModuleNotFoundError:
        return None


def private_module(path: str, standing_in: StandIn) -> ModuleType | None:
    """What serves a private module, "contrib.slim.python.slim.learning"; None where nothing of the package does."""
    for old, new in _PRIVATE.items():
        if path.startswith(f"{old}."):
            parts = (PACKAGE, new, path[len(old) + 1 :])
            return find_module(".".join(part for part in parts if part), standing_in)
    return None
