"""Registers the whole vocabulary: importing this module imports every family, in whatever folder of `ops`."""

from __future__ import annotations

import importlib
import pkgutil

import anabranch.ops

for _module in pkgutil.walk_packages(anabranch.ops.__path__, f"{anabranch.ops.__name__}."):
    importlib.import_module(_module.name)
