"""Installs a library alone and runs programs and its own tests in processes where `tensorflow` means anabranch."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from tests import quick_compilation
from tests.libraries.catalogue import PROGRAMS, Library

ROOT: Final = Path(__file__).parents[2]
#: where libraries are installed, one folder each, and their own tests are laid out
INSTALLED: Final = ROOT / "build" / "libraries"
_LEFT_OUT_PLUGINS: Final = ("cacheprovider", "xdist", "hypothesispytest")
#: of the folder of tests: what they take for the folder of all Bazel workspaces
_WORKSPACES: Final = ".workspaces"
_PLUGIN: Final = Path(__file__).parent / "plugin"
_RUN: Final = (sys.executable, "-m", "anabranch", "run")


@dataclass
class Result:
    """What became of one program or one file of tests.

    Attributes:
        passed, of, skipped: counts of tests; a program counts as one. Skipped tests are not among `of`.
        failures: a line for each test that failed, `name: why`.
    """

    passed: int = 0
    of: int = 0
    skipped: int = 0
    failures: list[str] = field(default_factory=list)

    def __iadd__(self, other: Result) -> Self:
        self.passed += other.passed
        self.of += other.of
        self.skipped += other.skipped
        self.failures += other.failures
        return self


def folder_of(library: Library) -> Path:
    """The folder that the library is installed in."""
    return INSTALLED / f"{library.name}-{library.version}"


def install(library: Library) -> Path:
    """Installs the pinned packages of a library into a folder of its own, unless that was done; returns the folder.

    Raises:
        subprocess.CalledProcessError: pip failed; its output is in the exception.
    """
    folder = folder_of(library)
    stamp = folder / ".installed"
    wanted = library.requirements.read_text(encoding="utf-8")
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == wanted:
        return folder
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--upgrade", "--target", str(folder), "--requirement", str(library.requirements)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    stamp.write_text(wanted, encoding="utf-8")
    return folder


def lay_out_tests(library: Library, sources: Path | None) -> Path | None:
    """The folder that holds the library's own tests; None where they are not at hand.

    Args:
        library: tests that come with the package lie where it is installed.
        sources: the git repository of the library otherwise, of which the version's tag is used.

    Raises:
        subprocess.CalledProcessError: the repository has no such tag.
    """
    if not library.tag:
        return folder_of(library)
    if sources is None:
        return None
    folder = INSTALLED / f"{library.name}-{library.version}-tests"
    folder.mkdir(parents=True, exist_ok=True)
    git_folder = sources / ".git" if (sources / ".git").exists() else sources
    archive = subprocess.run(
        ["git", f"--git-dir={git_folder}", "archive", f"refs/tags/{library.tag}", *library.tests_need],
        check=True,
        capture_output=True,
    )
    subprocess.run(["tar", "--extract", "--directory", str(folder)], input=archive.stdout, check=True)
    if library.workspace:
        link = folder / _WORKSPACES / library.workspace
        link.parent.mkdir(exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(folder, target_is_directory=True)
    for generated in library.generated:
        shutil.copytree(folder_of(library) / generated, folder / generated, dirs_exist_ok=True)
    return folder


def test_files(library: Library, folder: Path) -> list[Path]:
    """The library's own test files, relative to the folder that holds them."""
    files = {file.relative_to(folder) for pattern in library.tests for file in folder.glob(pattern)}
    return sorted(f for f in files if not any(f.is_relative_to(left_out) for left_out in library.leave_out))


def run_program(library: Library, program: str, seconds: float) -> Result:
    """Runs one of the programs here in a folder of its own."""
    work = INSTALLED / "work" / f"{library.name}-{library.version}" / Path(program).stem
    work.mkdir(parents=True, exist_ok=True)
    try:
        done = subprocess.run(
            [*_RUN, str(PROGRAMS / program)],
            check=False,
            cwd=work,
            env=_environment(library, work),
            capture_output=True,
            text=True,
            timeout=seconds,
        )
    except subprocess.TimeoutExpired:
        return Result(0, 1, failures=[f"{program}: no end in {seconds:g} s"])
    if done.returncode == 0:
        return Result(1, 1)
    lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
    return Result(0, 1, failures=[f"{program}: {lines[-1]}"])


def run_tests(
    library: Library, folder: Path, files: Sequence[Path], seconds: float, each: float = 0, only: str = ""
) -> Result:
    """Runs files of the library's own tests with pytest, in one process.

    Args:
        seconds: after which the process is ended.
        each: processor time after which a test is ended; 0: no limit.
        only: what pytest's -k is given.
    """
    work = INSTALLED / "work" / f"{library.name}-{library.version}" / "tests"
    work.mkdir(parents=True, exist_ok=True)
    name = ".".join(files[0].with_suffix("").parts) + (f"-and-{len(files) - 1}-more" if len(files) > 1 else "")
    outcomes = work / f"{name}.jsonl"
    outcomes.unlink(missing_ok=True)
    command = [*_RUN, "-m", "pytest", "-q", "-c", os.devnull, "--rootdir", str(folder), "-p", "outcomes"]
    command += ["--continue-on-collection-errors", *(["-k", only] if only else [])]
    command += [word for plugin in _LEFT_OUT_PLUGINS for word in ("-p", f"no:{plugin}")]
    environment = _environment(library, work) | {"OUTCOMES": str(outcomes), "SECONDS_EACH": str(each)}
    environment |= {"TEST_SRCDIR": str(folder / _WORKSPACES)} | quick_compilation.environment()
    end = ""
    with outcomes.with_suffix(".log").open("w", encoding="utf-8") as log:
        try:
            done = subprocess.run(
                [*command, *(str(folder / file) for file in files)],
                check=False,
                cwd=folder,
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                timeout=seconds,
            )
            if done.returncode not in (0, 1, 5):  # tests failed, or none were selected
                end = f"exit status {done.returncode}"
        except subprocess.TimeoutExpired:
            end = f"no end in {seconds:g} s"
    return _read(outcomes, str(files[0]) if len(files) == 1 else f"{len(files)} files", end)


def _read(outcomes: Path, file: str, end: str) -> Result:
    """Counts what the plugin wrote; tests that were collected and never reported have failed."""
    result = Result()
    collected = 0
    for kind, what, why in _lines(outcomes):
        if kind == "collected":
            collected = what
        elif kind == "skipped":
            result.skipped += 1
        else:
            result.of += 1
            result.passed += kind == "passed"
            if kind == "failed":
                result.failures.append(f"{what}: {why}")
    missing = collected - result.of - result.skipped
    if end and (missing > 0 or not result.of):
        result.of += max(missing, 1)
        result.failures.append(f"{file}: {end}, after which {max(missing, 1)} tests are missing")
    return result


def _lines(outcomes: Path) -> Iterator[list[object]]:
    if outcomes.is_file():
        for line in outcomes.read_text(encoding="utf-8").splitlines():
            yield json.loads(line)


def _environment(library: Library, work: Path) -> dict[str, str]:
    """The library's folder is first in the path; settings of the user's home are not read."""
    path = [str(folder_of(library)), str(ROOT), str(_PLUGIN)]
    return (
        os.environ
        | dict(library.environment)
        | {"PYTHONPATH": os.pathsep.join(path), "KERAS_HOME": str(work), "KERAS_BACKEND": "tensorflow"}
    )
