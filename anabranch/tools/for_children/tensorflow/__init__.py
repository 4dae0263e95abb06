"""The module `tensorflow` in a process that a program under `anabranch run` started: it becomes the alias."""

from __future__ import annotations

import importlib
import sys

from anabranch.tools import tensorflow_alias

if __name__ == tensorflow_alias.ROOT:
    del sys.modules[__name__]  # the import system takes what stands there when this module has run
    tensorflow_alias.install()
    importlib.import_module(__name__)
