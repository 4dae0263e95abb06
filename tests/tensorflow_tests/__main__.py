"""Runs TensorFlow 1.15's own unit tests on anabranch and prints a table beside the counts of genuine TensorFlow.

The files are run unmodified, their imports led to the public interface (`led_modules`); a test that needs a private
name is skipped, there as here. Results are kept in build/tensorflow_tests, so that a run can be gone on with.
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.tensorflow_tests.running import RESULTS, FileResult, Runner, genuine_counts, keras_files, read
from tests.tensorflow_tests.table import reasons, share, tables

_KINDS = ("all", "missing", "unfinished", "failed", "none")


def main(arguments: Sequence[str]) -> int:
    """Prints a line for each file that is run and then the tables; the exit status is 1 where a test does not pass."""
    parser = argparse.ArgumentParser(prog="python -m tests.tensorflow_tests", description=__doc__)
    parser.add_argument(
        "files", nargs="*", help="patterns of paths below tensorflow/python; all of them but keras/ by default"
    )
    parser.add_argument("--checkout", type=Path, help="the folder that holds tensorflow/, of TensorFlow 1.15's sources")
    parser.add_argument(
        "--packages", type=Path, action="append", default=[], help="a folder of packages that files import"
    )
    parser.add_argument("--results", type=Path, default=RESULTS, help="where results are kept")
    parser.add_argument(
        "--run",
        choices=_KINDS,
        default="missing",
        help="all files; those without a result; beside them what did not come to its end, or what failed; nothing",
    )
    parser.add_argument("--seconds", type=float, default=120, help="for each file")
    parser.add_argument("--sample", type=int, default=0, help="of a file with more tests, so many drawn at random")
    parser.add_argument("--only", default="", help="only tests whose name holds this, of files with a result")
    parser.add_argument("--why", action="store_true", help="print why each test failed")
    options = parser.parse_args(arguments)
    genuine = genuine_counts()
    patterns = options.files or ["*"]
    if any(pattern.startswith("keras") for pattern in patterns):
        genuine |= keras_files(options.checkout / "tensorflow/python" if options.checkout else options.results)
    chosen = list(dict.fromkeys(f for p in patterns for f in genuine if fnmatch.fnmatch(f, p)))
    if not chosen:
        parser.error("no file has such a path")
    if options.run != "none":
        if options.checkout is None:
            parser.error("--checkout is needed to run tests")
        packages = [folder.resolve() for folder in options.packages]
        runner = Runner(options.checkout.resolve(), options.results.resolve(), options.seconds, packages)
        with contextlib.closing(runner):
            for file in chosen:
                if genuine[file]:
                    _run(runner, file, genuine[file], options)
    results = {file: found for file in chosen if (found := read(file, options.results)) is not None}
    print("", *tables(results, {file: genuine[file] for file in chosen}), sep="\n")
    if options.why:
        print("", *reasons(results.values()), sep="\n")
    shares = [share(result, genuine[file]) for file, result in results.items()]
    return int(any(passed < of for passed, of in shares))


def _run(runner: Runner, file: str, genuine: int, options: argparse.Namespace) -> None:
    """Runs a file, or those of its tests that are asked for."""
    earlier = read(file, runner.results)
    names = _names(earlier, options) if earlier is not None else None
    if names == []:
        return
    result = runner.run(file, names=names, sample=options.sample)
    passed, of = share(result, genuine)
    print(f"{passed:5d} of {of:5d}  {file}  {result.seconds:.0f} s  {result.refused[:80]}", flush=True)


def _names(earlier: FileResult, options: argparse.Namespace) -> list[str] | None:
    """Which tests of a file with a result are run again; None for all."""
    if options.run == "all" or (earlier.refused and options.run in ("unfinished", "failed")):
        return None
    names = [] if options.run == "missing" else earlier.wanting if options.run == "unfinished" else earlier.failed
    if options.run == "failed":
        names = list(dict.fromkeys([*names, *earlier.wanting]))
    return [name for name in names if options.only in name]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
