"""Installs requirements with pip and says how far it is: one line that is redrawn in a terminal, a few in a log.

    python requirements/install.py -r requirements/lock.txt --require-hashes

Takes pip's own arguments. Needs nothing but the standard library, as it runs before anything is installed. What pip
said is shown whole if it fails.
"""

from __future__ import annotations

import itertools
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

#: of the packages that are fetched, every which one is told in a log
_LOG_EVERY = 10
_SEEN = re.compile(r"(?:Collecting|Requirement already satisfied:|Ignoring|Obtaining|Processing) ([^\s;:]+)")


def count_requirements(arguments: Sequence[str]) -> int:
    """How many packages the files after `-r` list, or the arguments name."""
    files = [Path(name) for flag, name in itertools.pairwise(arguments) if flag == "-r"]
    lines = [line for file in files for line in file.read_text(encoding="utf-8").splitlines()]
    return sum(bool(re.match(r"[A-Za-z0-9]", line)) for line in lines) or 1


def progress(lines: Iterable[str], total: int) -> Iterator[tuple[str, bool]]:
    """What to show for each line of pip's that tells anything, and whether a log should have it."""
    seen = 0
    for line in lines:
        if found := _SEEN.match(line):
            seen += 1
            name = found[1].replace("==", " ")
            yield f"fetching {min(seen, total)} of {total}: {name}", seen % _LOG_EVERY == 1
        elif line.startswith("Installing collected packages"):
            count = line.count(",") + 1
            yield f"unpacking {count} package{'s' * (count > 1)}, which takes the longest", True


def main(arguments: Sequence[str]) -> int:
    """Runs `pip install` with these arguments; returns its exit status."""
    command = [sys.executable, "-u", "-m", "pip", "install", "--progress-bar", "off", "--disable-pip-version-check"]
    in_place = sys.stdout.isatty()
    said: list[str] = []
    with subprocess.Popen(
        [*command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as pip:
        assert pip.stdout is not None

        def kept() -> Iterator[str]:
            for line in pip.stdout or ():
                said.append(line)
                yield line

        for text, logged in progress(kept(), count_requirements(arguments)):
            if in_place:
                print(f"\r\x1b[K{text[: shutil.get_terminal_size().columns - 1]}", end="", flush=True)
            elif logged:
                print(text, flush=True)
    if in_place:
        print("\r\x1b[K", end="", flush=True)
    if pip.returncode != 0:
        sys.stderr.writelines(said)
    return pip.returncode


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
