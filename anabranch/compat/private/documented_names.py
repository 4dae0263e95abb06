"""`tensorflow.python.util.all_util`: which names of a module are public, by lines ``@@name`` of its docstring."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from types import ModuleType
from typing import Final

_REFERENCE: Final = re.compile(r"^@@(\w+)$", re.MULTILINE)


def make_all(module_name: str, doc_string_modules: Iterable[ModuleType] | None = None) -> list[str]:
    """The names that docstrings document and the module has.

    Args:
        module_name: of an imported module.
        doc_string_modules: whose docstrings count; None: its own.
    """
    module = sys.modules[module_name]
    documented = {
        reference.group(1)
        for source in doc_string_modules or [module]
        for reference in _REFERENCE.finditer(source.__doc__ or "")
    }
    return sorted(name for name in documented if hasattr(module, name))


def remove_undocumented(
    module_name: str,
    allowed_exception_list: Iterable[str] | None = None,
    doc_string_modules: Iterable[ModuleType] | None = None,
) -> None:
    """Deletes what a module has besides documented names, those allowed, and those that begin with an underscore."""
    module = sys.modules[module_name]
    kept = {*make_all(module_name, doc_string_modules), *(allowed_exception_list or ())}
    for name in [name for name in vars(module) if name not in kept and name[0] != "_"]:
        delattr(module, name)
