"""The results of TensorFlow 1.15's unit tests as tables of markdown."""

from __future__ import annotations

import collections
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePosixPath
from typing import Final

from tests.tensorflow_tests.running import UNCOUNTED, FileResult

#: what a message says of the reason why a test fails, the first that fits; the patterns are those of `re.search`
REASONS: Final = (
    ("the test's process ends", r"^exit status"),
    ("over the limit of time", r"^no end in"),
    ("NumPy 2", r"NumPy 2\.0 release|only integers, slices|structured or void"),
    ("NumPy 2", r"out of bounds for|truth value of an empty"),
    ("a private name", r"has no attribute '_|private_names\.|'Placeholder' object|Placeholder found"),
    ("a private name", r"isinstance\(\) arg 2|functools\.partial|arg 1 must be an exception type"),
    ("a private name", r"too many values to unpack \(expected 1\)"),
    (
        "a tensor of another loop or branch",
        r"in the body of a loop, a branch or a function|belongs neither to its body",
    ),
    ("eager tensors", r"py_function|Fetch argument None|runs graphs only|setup_eager|not executing eagerly"),
    (
        "a name that is not there",
        r"anabranch has no|has no attribute|unexpected keyword|No module named|not registered",
    ),
    ("tensor arrays are values", r"tensor arrays are values|type variant that does not match expected type"),
    ("other words of an error", r"does not match|Exception of type"),
    ("no error where TensorFlow raises one", r"not raised"),
    ("a static shape is known more precisely", r"differ: \[[\d, None]*\] != \[|None != \[Dimension"),
    ("reference variables", r"float32_ref|ReadVariableOp|loc:@|_ref\b|GatherNd/Identity|no attr named"),
    ("reference variables", r"uninitialized value|VarHandleOp|DataType resource not in|equal: variable|StackHandle"),
    ("numbers differ", r"Not equal to tolerance|Arrays are not equal|not less than|not close"),
    ("names of nodes", r"is not a valid scope name|^AssertionError \(line \d+\): '[\w/:]+' != '[\w/:]+'"),
    ("types that TensorFlow added later", r"Cannot convert value \d+ to a DType"),
)


def reason_of(_: str, message: str) -> str:
    """Why a test fails, by the words of its message."""
    return next((reason for reason, pattern in REASONS if re.search(pattern, message)), "other")


def share(result: FileResult, genuine: int) -> tuple[int, int]:
    """How many tests pass, and of how many that genuine TensorFlow passes.

    Where only some tests of a file ran, or genuine TensorFlow was not run, those that were not skipped stand for those
    that genuine TensorFlow passes.
    """
    if result.partial or genuine == UNCOUNTED:
        ran = result.count("ok", "fail", "error", "died", "time")
        return result.passed, ran if genuine == UNCOUNTED else min(ran, max(genuine, result.passed))
    return min(result.passed, genuine), genuine


def tables(results: Mapping[str, FileResult], genuine: Mapping[str, int]) -> Iterator[str]:
    """The lines of two tables: files in which all passes, a row for each folder, and the others, a row for each."""
    rows = {file: share(result, genuine[file]) for file, result in results.items() if genuine[file]}
    partial = {file for file in rows if results[file].partial}
    whole = {file: row for file, row in rows.items() if row[0] == row[1]}
    yield from ("| folder | files in which all pass | tests |", "|---|---|---|")
    folders: dict[str, list[str]] = collections.defaultdict(list)
    for file in whole:
        folders[str(PurePosixPath(file).parent)].append(file)
    for folder, files in sorted(folders.items()):
        names = ", ".join(f"`{_short(file)}`{_how(results[file])}" for file in sorted(files))
        yield f"| `{folder}` | {len(files)}: {names} | {sum(whole[file][1] for file in files)} |"
    yield from ("", "| file | passes | of | what does not |", "|---|---|---|---|")
    for file, (passed, of) in sorted(rows.items()):
        if file not in whole:
            yield f"| {_path(file)}{_how(results[file])} | {passed} | {of} | {_state(results[file])} |"
    yield from ("", f"run whole: {_sum(rows[file] for file in rows if file not in partial)}")
    yield f"run in part: {_sum(rows[file] for file in partial)}"
    total: collections.Counter[str] = collections.Counter()
    for file in rows:
        if file not in whole:
            total.update(why(results[file]))
    yield from ("", "| reason | tests |", "|---|---|")
    yield from (f"| {reason} | {count} |" for reason, count in total.most_common())
    left_out = sorted(file for file, count in genuine.items() if count and file not in results)
    if left_out:
        count = sum(genuine[file] for file in left_out)
        yield from ("", f"not run: {len(left_out)} files with {count:,} tests: {', '.join(map(_path, left_out))}")


def _sum(rows: Iterable[tuple[int, int]]) -> str:
    rows = list(rows)
    passed, of = (sum(row[i] for row in rows) for i in range(2))
    return f"{passed:,} of {of:,} in {len(rows)} files ({100 * passed / max(of, 1):.1f} %)"


def _how(result: FileResult) -> str:
    if not result.partial:
        return ""
    ran = result.count("ok", "fail", "error", "died", "time")
    return f" ({ran} of {len(result.collected)} run)"


def _path(file: str) -> str:
    return f"`{file.removesuffix('_test.py')}`"


def _short(file: str) -> str:
    return PurePosixPath(file).name.removesuffix("_test.py")


def _state(result: FileResult) -> str:
    if result.refused:
        return f"is not imported: {result.refused[:80]}"
    counts = why(result)
    if result.count("skip"):
        counts["skipped"] = result.count("skip")
    return ", ".join(f"{what} ({count})" for what, count in counts.items())


def why(result: FileResult) -> dict[str, int]:
    """How many tests fail for each reason; those that the limit of time kept from being run do not count."""
    failed = [result.outcomes[name] for name in result.failed if result.outcomes[name][0] != "drawn"]
    return dict(collections.Counter(reason_of(*one) for one in failed).most_common())


def reasons(results: Iterable[FileResult]) -> Iterator[str]:
    """A line for each test that failed, and why."""
    for result in results:
        if result.refused:
            yield f"{result.file}: {result.refused}"
        for name in result.failed:
            outcome, why = result.outcomes[name]
            yield f"{result.file}: {name}: {outcome}: {why}"
