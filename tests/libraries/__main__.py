"""Runs libraries of TensorFlow 1's time on anabranch and prints a table.

Each library is installed alone, unmodified, without TensorFlow, into a folder of its own. Programs that use it are run;
so are its own tests, where they come with the package or `--sources` names a clone of its repository.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.libraries.catalogue import LIBRARIES, Library
from tests.libraries.running import INSTALLED, Result, install, lay_out_tests, run_program, run_tests, test_files

Job = tuple[str, str, Callable[[], Result]]


def main(arguments: Sequence[str]) -> int:
    """Prints the table; the exit status is 1 where a program of ours failed, whatever the libraries' own tests do."""
    parser = argparse.ArgumentParser(prog="python -m tests.libraries", description=__doc__)
    parser.add_argument("libraries", nargs="*", help="names, such as keras or keras-2.3.1; all of them by default")
    parser.add_argument(
        "--sources",
        action="append",
        default=[],
        metavar="NAME=FOLDER",
        help="a clone of a library's repository, whose own tests are run too; may be repeated",
    )
    parser.add_argument("--files", default="", help="only test files whose path holds this")
    parser.add_argument("--every", type=int, default=1, help="only every so manyth file of a library's tests")
    parser.add_argument("--offset", type=int, default=0, help="the first of these files, counted from 0; see --every")
    parser.add_argument("--only", default="", help="only tests that pytest's -k selects")
    parser.add_argument("--seconds", type=float, default=900, help="for each process")
    parser.add_argument("--each", type=float, default=0, help="processor time for each test, in seconds")
    parser.add_argument("--together", action="store_true", help="all files of a library's tests in one process")
    parser.add_argument("--jobs", type=int, default=1, help="processes side by side")
    options = parser.parse_args(arguments)
    if not 0 <= options.offset < options.every:
        parser.error(f"--offset is from 0 to {options.every - 1}, one less than --every, and not {options.offset}")
    sources = {name: Path(folder) for name, _, folder in (each.partition("=") for each in options.sources)}
    chosen = [one for one in LIBRARIES if _is_chosen(one, options.libraries)]
    if not chosen:
        parser.error(f"no such library; there are {', '.join(f'{one.name}-{one.version}' for one in LIBRARIES)}")
    jobs: list[Job] = []
    for library in chosen:
        print(f"installing {library.title} into {INSTALLED}", flush=True)
        try:
            install(library)
        except subprocess.CalledProcessError as error:
            print(error.stderr or error.stdout, file=sys.stderr)
            return 1
        jobs += _jobs(library, sources.get(library.name), options)
    return _report(chosen, jobs, options.jobs)


def _is_chosen(library: Library, names: Sequence[str]) -> bool:
    return not names or library.name in names or f"{library.name}-{library.version}" in names


def _jobs(library: Library, sources: Path | None, options: argparse.Namespace) -> list[Job]:
    jobs: list[Job] = []
    if not options.files and not options.only and options.every == 1:
        jobs += [
            (library.title, f"program {name}", lambda name=name: run_program(library, name, options.seconds))
            for name in library.programs
        ]
    folder = lay_out_tests(library, sources) if library.tests else None
    if folder is None:
        return jobs
    files = [
        file for file in test_files(library, folder)[options.offset :: options.every] if options.files in str(file)
    ]
    limits = (options.seconds, options.each, options.only)
    if options.together:
        whole = f"{len(files)} files of tests"
        return [*jobs, (library.title, whole, lambda: run_tests(library, folder, files, *limits))]
    return jobs + [
        (library.title, str(file), lambda file=file: run_tests(library, folder, [file], *limits)) for file in files
    ]


def _report(chosen: Sequence[Library], jobs: Sequence[Job], side_by_side: int) -> int:
    rows: dict[tuple[str, str], Result] = {}
    named = "_".join(f"{one.name}-{one.version}" for one in chosen)
    failures = INSTALLED / f"failures-{named}.txt"
    begin = time.monotonic()
    with ThreadPoolExecutor(side_by_side) as pool, failures.open("w", encoding="utf-8") as log:
        results = pool.map(lambda job: job[2](), jobs)
        for count, ((library, what, _), result) in enumerate(zip(jobs, results, strict=True), 1):
            kind = "programs" if what.startswith("program ") else "own tests"
            row = rows.setdefault((library, kind), Result())
            row += result
            log.writelines(f"{library}: {line}\n" for line in result.failures)
            log.flush()
            seconds = time.monotonic() - begin
            print(
                f"[{count}/{len(jobs)}, {seconds:.0f} s] {library}: {what}: {result.passed} of {result.of}", flush=True
            )
            if kind == "programs":
                print("".join(f"    {line}\n" for line in result.failures), end="")
    print("\n| library | what ran | passed | of | skipped |\n|---|---|---|---|---|")
    for library in chosen:
        for kind in ("programs", "own tests"):
            if row := rows.get((library.title, kind)):
                print(f"| {library.title} | {kind} | {row.passed} | {row.of} | {row.skipped} |")
    print(f"\nwhat failed, and why: {failures}")
    return int(any(row.passed < row.of for (_, kind), row in rows.items() if kind == "programs"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
