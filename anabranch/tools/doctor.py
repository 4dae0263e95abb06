"""Check this installation: packages, devices, compile cache, memory.

Exits with status 1 when something is wrong; each problem comes with what to do about it.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import numpy as np

from anabranch.core.processor import core_count
from anabranch.errors import OpError
from anabranch.io.cache_home import CACHE_DIR_VARIABLE
from anabranch.kernels import pool_handler
from anabranch.kernels.onednn import library_state
from anabranch.ops import raw
from anabranch.runtime.devices import default_backend, local_devices
from anabranch.session import Session
from anabranch.xla import compile_cache, kernel_choice
from anabranch.xla.one_thread import one_thread

_MIN_PYTHON: Final = (3, 11)
_MIN_FREE_BYTES: Final = 1 << 30
_MIN_MEMORY_BYTES: Final = 2 << 30
_LONGEST_STEP: Final = 10.0  # s; the first step of the check compiles one product of matrices

OK, WARNING, PROBLEM = "ok", "warning", "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report; `remedy` says what to do where all is not well."""

    subject: str
    value: str
    state: str = OK
    remedy: str = ""


def main(arguments: Sequence[str]) -> int:
    """`anabranch doctor`"""
    parser = argparse.ArgumentParser(
        prog="anabranch doctor", description="Checks the installation; exits with status 1 when something is wrong."
    )
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")
    parser.add_argument(
        "--clear-cache", action="store_true", help="remove all compiled programs from the disk, and end"
    )
    options = parser.parse_args(arguments)
    if options.clear_cache:
        return clear_cache()
    findings = list(examine())
    if options.json:
        print(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        _print_report(findings)
    return int(any(finding.state == PROBLEM for finding in findings))


def clear_cache() -> int:
    """Empties the compile cache, and forgets measured costs of kernels."""
    directory = compile_cache.cache_directory()
    if directory is None:
        print(f"The compile cache is turned off ({CACHE_DIR_VARIABLE} is empty).")
        return 0
    count = len(compile_cache.cached_programs(directory))
    freed = compile_cache.trim_cache(directory, 0)
    left = len(compile_cache.cached_programs(directory))
    print(f"Removed {count - left} compiled programs ({size_text(freed)}) from {directory}.")
    memory = kernel_choice.cost_memory()
    measured = 0 if memory is None else memory.clear()
    if measured:
        print(f"Removed what {measured} choices of kernels were measured to cost.")
    if left:
        print(f"{left} could not be removed: check the permissions of that directory.", file=sys.stderr)
    return int(left > 0)


def examine() -> Iterable[Finding]:
    """All findings, in the order of the report."""
    checks: tuple[Callable[[], Iterable[Finding]], ...] = (
        _python, _packages, _machine, _backend, _native, _step, _cache, _temporary,
    )  # fmt: skip
    for check in checks:
        yield from check()


# ---------------------------------------------------------------------- what runs
def _python() -> Iterable[Finding]:
    python = f"{platform.python_implementation()} {platform.python_version()}, {sys.executable}"
    if sys.version_info < _MIN_PYTHON:
        yield Finding("Python", python, PROBLEM, "anabranch needs Python 3.11 or later: make a new environment with it")
    else:
        yield Finding("Python", python)


def _packages() -> Iterable[Finding]:
    yield Finding("anabranch", importlib.metadata.version("anabranch"))
    for requirement in importlib.metadata.requires("anabranch") or ():
        if ";" in requirement:
            continue  # of an optional extra
        match = re.match(r"[A-Za-z0-9._-]+", requirement)
        assert match is not None
        yield _package(match[0], requirement[match.end() :])


def _package(name: str, wanted: str) -> Finding:
    """Whether a package is installed, in a version that fits ``>=1.2,<2``."""
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return Finding(name, "not installed", PROBLEM, f"pip install '{name}{wanted}'")
    for clause in filter(None, wanted.split(",")):
        sign, bound = clause[: 2 if clause[1] == "=" else 1], clause.lstrip("<>=!~")
        mine, other = _numbers(version), _numbers(bound)
        fits = {">=": mine >= other, "<": mine < other, "<=": mine <= other, ">": mine > other, "==": mine == other}
        if not fits.get(sign, True):
            return Finding(name, version, PROBLEM, f"anabranch needs {name}{wanted}: pip install '{name}{wanted}'")
    return Finding(name, version)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


# ---------------------------------------------------------------------- what it runs on
def _machine() -> Iterable[Finding]:
    yield Finding("processors", f"{core_count()} usable of {os.cpu_count()}, {platform.machine()}, {platform.system()}")
    memory = _memory()
    if memory is None:
        return
    total, available = memory
    text = f"{size_text(available)} available of {size_text(total)}"
    if available < _MIN_MEMORY_BYTES:
        yield Finding("memory", text, WARNING, "close other programs, or use smaller batches")
    else:
        yield Finding("memory", text)


def _memory() -> tuple[int, int] | None:
    """Total and available bytes; a container's limit counts. None where the system does not tell."""
    try:
        lines = Path("/proc/meminfo").read_text("ascii").splitlines()
    except OSError:
        return None
    kilobytes = {line.split(":")[0]: int(line.split()[1]) for line in lines}
    total, available = kilobytes["MemTotal"] * 1024, kilobytes["MemAvailable"] * 1024
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text("ascii").strip()
        used = int(Path("/sys/fs/cgroup/memory.current").read_text("ascii"))
    except (OSError, ValueError):
        return total, available
    if limit.isdecimal():
        total, available = min(total, int(limit)), min(available, max(0, int(limit) - used))
    return total, available


def _backend() -> Iterable[Finding]:
    try:
        backend, devices = default_backend(), local_devices()
    except RuntimeError as error:
        remedy = "unset JAX_PLATFORMS, or install the jax plugin for the accelerator"
        yield Finding("JAX backend", str(error).splitlines()[0], PROBLEM, remedy)
        return
    yield Finding("JAX backend", backend)
    for device in devices:
        memory = f", {size_text(device.memory_limit_bytes)}" if device.memory_limit_bytes else ""
        yield Finding("device", f"{device.name} ({device.device_type}{memory})")
    if backend == "cpu":
        where = "on the thread that calls them" if one_thread.sharding is not None else "on XLA's threads"
        yield Finding("small programs", where)


def _native() -> Iterable[Finding]:
    """Whether the extra `native` is there: convolutions, products, pooling by oneDNN. Everything runs without it."""
    subject, state = "oneDNN", library_state()
    if state.version:
        yield Finding(subject, f"{state.version}, with instructions up to {state.instruction_set}")
        missing = pool_handler.missing()
        said = f"{missing}; XLA's own products run, oneDNN's threads compute the rest" if missing else "where it pays"
        yield Finding("oneDNN on XLA's threads", said)
    else:
        yield Finding(subject, f"{state.missing}; XLA's own kernels run (extra: native)")


def _step() -> Iterable[Finding]:
    """Runs a step: builds a graph, compiles it, and compares its result."""
    matrix = np.arange(12, dtype=np.float32).reshape(3, 4)
    start = time.perf_counter()
    try:
        x = raw.Placeholder(dtype="float32", shape=[3, 4])
        with Session(graph=x.graph) as session:
            result = session.run(raw.MatMul(a=x, b=x, transpose_b=True), {x: matrix})
    except (OpError, RuntimeError) as error:
        yield Finding("a step", str(error).splitlines()[0], PROBLEM, "reinstall jax and jaxlib in the same version")
        return
    seconds = time.perf_counter() - start
    if not np.array_equal(result, matrix @ matrix.T):
        yield Finding("a step", "a wrong product of two matrices", PROBLEM, "reinstall jaxlib, and test the memory")
    elif seconds > _LONGEST_STEP:
        yield Finding("a step", f"{seconds:.1f} s", WARNING, "the machine is busy: look at what else runs")
    else:
        yield Finding("a step", f"built, compiled and run in {seconds:.2f} s")


# ---------------------------------------------------------------------- where it writes
def _cache() -> Iterable[Finding]:
    subject = "compile cache"
    directory = compile_cache.cache_directory()
    if directory is None:
        remedy = f"unset {CACHE_DIR_VARIABLE} so that the next process starts warm"
        yield Finding(subject, "turned off", WARNING, remedy)
        return
    try:
        limit = compile_cache.cache_limit()
    except ValueError as error:
        yield Finding(subject, str(error), PROBLEM, f"unset {compile_cache.CACHE_BYTES_VARIABLE}")
        return
    programs = compile_cache.cached_programs(directory)
    used = sum(program.size for program in programs)
    text = f"{directory}: {len(programs)} programs, {size_text(used)} of at most {size_text(limit)}"
    yield _writable(subject, directory, text, f"set {CACHE_DIR_VARIABLE} to a directory that you may write to")


def _temporary() -> Iterable[Finding]:
    directory = Path(tempfile.gettempdir())
    yield _writable("temporary files", directory, str(directory), "set TMPDIR to a directory with space")


def _writable(subject: str, directory: Path, text: str, remedy: str) -> Finding:
    """Whether a file can be written there, and how much space there is."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory) as file:
            file.write(b"anabranch")
        free = shutil.disk_usage(directory).free
    except OSError as error:
        return Finding(subject, f"{text}; cannot be written: {error.strerror}", PROBLEM, remedy)
    text = f"{text}; {size_text(free)} free"
    if free < _MIN_FREE_BYTES:
        return Finding(subject, text, WARNING, f"make space on that disk, or {remedy}")
    return Finding(subject, text)


# ---------------------------------------------------------------------- the report
def size_text(size: float) -> str:
    """Bytes for people: ``12.3 MiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def _print_report(findings: list[Finding]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    marks = {OK: "[green]ok[/green]", WARNING: "[yellow]warning[/yellow]", PROBLEM: "[red]problem[/red]"}
    console = Console()
    table = Table(show_header=False, box=None, padding=(0, 1))
    for finding in findings:
        remedy = f"\n[bold]→ {escape(finding.remedy)}[/bold]" if finding.remedy else ""
        table.add_row(marks[finding.state], finding.subject, escape(finding.value) + remedy)
    console.print(table)
    problems = sum(finding.state == PROBLEM for finding in findings)
    warnings = sum(finding.state == WARNING for finding in findings)
    console.print(f"Problems: {problems}, warnings: {warnings}." if problems or warnings else "Nothing is wrong.")
