"""Registers the whole vocabulary: importing this module imports every family, that is, every module beside it."""

from __future__ import annotations

import importlib
import pkgutil

import anabranch.ops

for _family in pkgutil.iter_modules(anabranch.ops.__path__):
    importlib.import_module(f"{anabranch.ops.__name__}.{_family.name}")
