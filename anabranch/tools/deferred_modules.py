"""Private modules that libraries import at their start, and use in parts that programs seldom come to.

Any name of such a module is a class there, from which others may be derived: that anabranch has nothing of the kind is
said when one is called.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any, Final

from anabranch.core import absent_names
from anabranch.core.stand_ins import StandInClass
from anabranch.frontend.autograph.conversion import do_not_convert
from anabranch.tools.private_modules import PRIVATE_MODULES

#: of TensorFlow, each with what is in it; TensorFlow Probability imports those of operations, Mesh TensorFlow and K-FAC
#: the others
DEFERRED: Final = (
    "compiler.tf2xla.python.xla",
    "contrib.cloud",
    "contrib.tpu.python.ops",
    "contrib.tpu.python.tpu.device_assignment",
    "contrib.tpu.python.tpu.tpu",
    "python.autograph",
    "python.data.ops.multi_device_iterator_ops",
    "python.debug",
    "python.distribute.all_reduce",
    "python.keras.optimizer_v2",
    "python.keras.saving",
    "python.ops.collective_ops",
    "python.ops.linalg",
    "python.tpu.device_assignment",
    "python.tpu.ops.tpu_ops",
    "python.tpu.topology",
    "python.tpu.tpu",
    "python.tpu.tpu_feed",
)


#: what is in such a module and is there all the same, beside the modules in `PRIVATE_MODULES`
_PRESENT: Final[dict[str, Any]] = {"python.autograph.impl.api.do_not_convert": do_not_convert}


class _Absent(StandInClass, type):
    """The type of classes that stand for absent names."""

    def __getattr__(cls, name: str) -> Any:
        """A class of that name: what is absent may have been a module."""
        if name.startswith("__") or "_path" not in vars(cls):
            raise AttributeError(f"type object {cls.__name__!r} has no attribute {name!r}")
        return _absent(f"{vars(cls)['_path']}.{name}")


def _absent(path: str) -> Any:
    if path in _PRESENT:
        return _PRESENT[path]
    if path in PRIVATE_MODULES:
        return importlib.import_module(PRIVATE_MODULES[path])
    module, _, name = path.rpartition(".")
    is_public = absent_names.is_tensorflows(module, name)
    why = absent_names.absence(module, name) if is_public else f"anabranch has no tensorflow.{path}"
    held = {"_path": path, "_why": why, "__doc__": f"Stands for `tensorflow.{path}`."}
    return _Absent(name, (), held)


class DeferredModule(ModuleType):
    """Has every name, as a class that cannot be called."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        value = self.__dict__[name] = _absent(f"{self.__name__}.{name}")
        return value


def find_module(path: str) -> ModuleType | None:
    """The module for a path below `tensorflow`; None where it is not deferred."""
    if any(path == one or path.startswith(f"{one}.") for one in DEFERRED):
        return DeferredModule(path)
    return None
