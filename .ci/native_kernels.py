"""Says whether the tests will find oneDNN and the kernels in C; fails where they could be there and are not.

    .venv/bin/python .ci/native_kernels.py

Tests of these kernels are skipped where there are none. So that they cannot go missing unnoticed, this exits with 1
where the extra `native` has packages for the platform and is not installed or cannot be loaded, and where there is a C
compiler that does not make the kernels.
"""

from __future__ import annotations

import os
import shutil
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from packaging.requirements import Requirement

from anabranch.kernels import onednn, pool_handler

ROOT = Path(__file__).resolve().parent.parent


class Verdict(NamedTuple):
    is_wrong: bool
    text: str


def is_installable(platform: Mapping[str, str] | None = None) -> bool:
    """Whether the extra has a package for this platform, or that with these markers."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    markers = [Requirement(line).marker for line in extras["native"]]
    return all(marker is None or marker.evaluate(dict(platform or {})) for marker in markers)


def has_compiler() -> bool:
    return any(shutil.which(name) for name in (os.environ.get("CC", ""), *pool_handler.COMPILERS) if name)


def verdict(installable: bool, library: str, handler: str, compiler: bool) -> Verdict:
    """What is wrong, or which tests there will be.

    Args:
        installable: whether the extra has packages for this platform.
        library, handler: why oneDNN is not there, and why the kernels in C are not; empty where they are.
        compiler: whether there is one for C.
    """
    if library:
        why = "though the extra native has one" if installable else "as the extra native has none"
        return Verdict(installable, f"oneDNN and the C kernels are not tested: {library} ({why} for this platform)")
    if handler:
        return Verdict(compiler, f"the C kernels are not tested: {handler}")
    return Verdict(False, "oneDNN and the C kernels are there, and are tested")


def main() -> int:
    os.environ[onednn.NATIVE_VARIABLE] = "1"  # as their tests do
    library = onednn.library_state().missing
    said = verdict(is_installable(), library, pool_handler.missing(), has_compiler())
    print(f"native kernels: {said.text}", file=sys.stderr if said.is_wrong else sys.stdout, flush=True)
    return int(said.is_wrong)


if __name__ == "__main__":
    sys.exit(main())
