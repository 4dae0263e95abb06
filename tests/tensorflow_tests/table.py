"""The results of TensorFlow 1.15's unit tests as tables of markdown."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePosixPath

from tests.tensorflow_tests.running import FileResult


def share(result: FileResult, genuine: int) -> tuple[int, int]:
    """How many tests pass, and of how many that genuine TensorFlow passes.

    Where only some tests of a file ran, those that were not skipped stand for those that genuine TensorFlow passes.
    """
    if result.partial:
        ran = result.count("ok", "fail", "error", "died", "time")
        return result.passed, min(ran, max(genuine, result.passed))
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
    counts = {"fail or raise": result.count("fail", "error"), "skipped": result.count("skip")}
    counts |= {"over the limit of time": result.count("time"), "end the process": result.count("died")}
    counts |= {"not run": len(result.wanting) - result.count("time", "died")}
    return ", ".join(f"{count} {what}" for what, count in counts.items() if count)


def reasons(results: Iterable[FileResult]) -> Iterator[str]:
    """A line for each test that failed, and why."""
    for result in results:
        if result.refused:
            yield f"{result.file}: {result.refused}"
        for name in result.failed:
            outcome, why = result.outcomes[name]
            yield f"{result.file}: {name}: {outcome}: {why}"
