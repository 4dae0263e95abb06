"""Print the versions of anabranch, Python and JAX."""

from __future__ import annotations

import argparse
import importlib.metadata
import platform
from collections.abc import Sequence

from anabranch.tools.tensorflow_alias import API_VERSION


def main(arguments: Sequence[str]) -> int:
    """`anabranch version`"""
    argparse.ArgumentParser(prog="anabranch version", description="Prints versions.").parse_args(arguments)
    print(line())
    return 0


def line() -> str:
    """One line with the versions that a report of a problem should name."""
    versions = {name: importlib.metadata.version(name) for name in ("jax", "jaxlib", "numpy")}
    packages = ", ".join(f"{name} {version}" for name, version in versions.items())
    own = importlib.metadata.version("anabranch")
    return f"anabranch {own} (TensorFlow {API_VERSION} API; Python {platform.python_version()}, {packages})"
