"""Runs one program under `tf1run.py` of the programs' folder, and watches it.

    python -m tests.first_steps.one_side --shim FOLDER --write F.npz [--from F.npz] -- --backend MODULE ... SCRIPT ...

What stands after `--` is what `tf1run.py` takes.
"""

from __future__ import annotations

import argparse
import os
import runpy
import sys
from pathlib import Path
from typing import Any

from tests.first_steps.watcher import Watcher


def main() -> None:
    """Runs the program; it ends the process."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--shim", type=Path, required=True)
    parser.add_argument("--write", type=Path, required=True)
    parser.add_argument("--from", dest="kept", type=Path)
    parser.add_argument("--patience", type=float, default=4.0)
    parser.add_argument("rest", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    sys.path.insert(0, str(options.shim))
    import stubs  # type: ignore[import-not-found]

    install = stubs.install_tf

    def watched(backend: str) -> Any:
        tf = install(backend)

        def stop() -> None:
            sys.stdout.flush()
            os._exit(0)

        Watcher(tf, options.write, options.kept, options.patience, stop).install()
        return tf

    stubs.install_tf = watched
    arguments = options.rest[1:] if options.rest[:1] == ["--"] else options.rest
    sys.argv = [str(options.shim / "tf1run.py"), *arguments]
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
