"""Resolves every extra of the package, and all of them together, with the versions that can be had today.

    .venv/bin/python .ci/resolve_extras.py

Nothing is installed. Exits with 1, and says why, if the demands of one extra or of all contradict each other.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
#: a resolution asks for the metadata of some hundred packages the first time (s)
DEADLINE = 300


def resolve(*choice: str) -> tuple[int, str]:
    """How many packages the choice of extras needs, and what is wrong with it (empty: nothing)."""
    command = [sys.executable, "-m", "uv", "pip", "compile", "pyproject.toml", *choice]
    command += ["--no-header", "--no-annotate", "--system-certs"]  # as pip does
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE, check=False)
    return len(done.stdout.splitlines()), done.stderr.strip() if done.returncode else ""


def main() -> int:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    choices = {"(none)": (), **{name: ("--extra", name) for name in sorted(extras)}, "(all)": ("--all-extras",)}
    failed = False
    for name, choice in choices.items():
        count, wrong = resolve(*choice)
        print(f"{name:12} {'cannot be resolved' if wrong else f'{count} packages'}", flush=True)
        if wrong:
            failed = True
            print(wrong, file=sys.stderr)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
