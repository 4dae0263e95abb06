"""Runs test files, each in a process of its own with a limit of time, and keeps what became of every test on disk."""

from __future__ import annotations

import functools
import json
import os
import random
import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from tests import quick_compilation
from tests.tensorflow_tests.forks import Forks, Request

ROOT: Final = Path(__file__).parents[2]
#: where results are kept, a file of JSON for each test file
RESULTS: Final = ROOT / "build" / "tensorflow_tests"
GENUINE: Final = Path(__file__).parent / "genuine.json"
#: a process that ends of itself, this often for one file, before the rest of its tests is given up
_PROCESSES: Final = 8


#: the count of a file of which genuine TensorFlow was not run: its tests that are run and not skipped count
UNCOUNTED: Final = -1


def keras_files(folder: Path) -> dict[str, int]:
    """The test files of `tf.keras` below a folder, a checkout's or that of results, without counts."""
    return dict.fromkeys(
        (
            str(path.relative_to(folder).with_suffix(".py"))
            for path in sorted((folder / "keras").rglob("*_test.*"))
            if path.suffix in (".py", ".json")
        ),
        UNCOUNTED,
    )


def genuine_counts() -> dict[str, int]:
    """How many tests of each file genuine TensorFlow 2.21 passes, its imports led to the public interface alike."""
    return dict(json.loads(GENUINE.read_text(encoding="utf-8")))


@dataclass
class FileResult:
    """What became of the tests of one file.

    Attributes:
        file: its path below `tensorflow/python`.
        collected: the names of its tests; none where the file could not be imported.
        outcomes: name -> `ok`, `skip`, `fail`, `error`, `died` (the process ended), `time` (the limit came), and why.
        refused: why the file could not be imported.
        sample: how many tests were drawn, where not all were run.
        seconds: that its processes took, in all.
    """

    file: str
    collected: list[str] = field(default_factory=list)
    outcomes: dict[str, tuple[str, str]] = field(default_factory=dict)
    refused: str = ""
    sample: int = 0
    seconds: float = 0.0

    def count(self, *outcomes: str) -> int:
        return sum(outcome in outcomes for outcome, _ in self.outcomes.values())

    @property
    def passed(self) -> int:
        return self.count("ok")

    @property
    def wanting(self) -> list[str]:
        """The tests that were not run, or not to their end, of those that were to be."""
        if self.sample:
            return [name for name, (outcome, _) in self.outcomes.items() if outcome in ("died", "time", "drawn")]
        left = ("died", "time")
        return [name for name in self.collected if self.outcomes.get(name, left)[0] in left]

    @property
    def partial(self) -> bool:
        """Whether tests were left out, by drawing or because the limit of time came."""
        return bool(self.sample or self.wanting)

    @property
    def failed(self) -> list[str]:
        """The tests that neither passed nor were skipped."""
        return [name for name, (outcome, _) in self.outcomes.items() if outcome not in ("ok", "skip")]

    def write(self, folder: Path) -> None:
        path = path_of(self.file, folder)
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_suffix(".new")
        new.write_text(json.dumps(asdict(self), indent=1), encoding="utf-8")
        new.replace(path)


def path_of(file: str, folder: Path) -> Path:
    return folder / Path(file).with_suffix(".json")


def read(file: str, folder: Path) -> FileResult | None:
    """What an earlier run found about a file; None where there was none."""
    path = path_of(file, folder)
    if not path.is_file():
        return None
    fields = json.loads(path.read_text(encoding="utf-8"))
    fields["outcomes"] = {name: (outcome, why) for name, (outcome, why) in fields["outcomes"].items()}
    return FileResult(**fields)


@dataclass
class Runner:
    """Runs files. `close` it in the end.

    Attributes:
        checkout: the folder that holds `tensorflow/`, of TensorFlow 1.15's sources.
        results: where results are kept.
        seconds: the limit for a file.
        packages: folders of packages that the files import besides, such as the package keras of that time.
    """

    checkout: Path
    results: Path = RESULTS
    seconds: float = 120.0
    packages: Sequence[Path] = ()

    def run(self, file: str, *, names: list[str] | None = None, sample: int = 0, seed: int = 0) -> FileResult:
        """Runs a file, or some of its tests, and keeps the results, beside those of its other tests of earlier runs.

        Args:
            file: its path below `tensorflow/python`.
            names: the tests to run; all of them, and nothing kept of earlier runs, where this is None.
            sample: of a file of more tests, only so many, drawn at random; 0 for all.
            seed: of the drawing.
        """
        earlier = read(file, self.results) if names is not None else None
        result = earlier or FileResult(file)
        if sample and names is None:
            result = self._collect(file)
            if len(result.collected) > sample:
                names = random.Random(seed).sample(result.collected, sample)
                result.sample = sample
                result.outcomes = dict.fromkeys(names, ("drawn", ""))
        begin = time.monotonic()
        for _ in range(_PROCESSES):
            left = self.seconds - (time.monotonic() - begin)
            lines = self._process(file, names, left)
            died = _take(result, lines)
            if not died:
                break
            tried = {str(line[1]) for line in lines if line[0] == "begin"}
            names = [name for name in (names or result.collected) if name not in tried]
            if not names:
                break
        result.seconds = round(time.monotonic() - begin, 1)
        result.write(self.results)
        return result

    @property
    def _tensorflow(self) -> Path:
        return self.checkout / "tensorflow"

    @functools.cached_property
    def _forks(self) -> Forks:
        work = self.results / "work"
        work.mkdir(parents=True, exist_ok=True)
        return Forks(self._tensorflow, work / "exported_names", _environment(work, self.packages))

    def close(self) -> None:
        """Ends the process that forks."""
        if "_forks" in vars(self):
            self._forks.close()

    def _collect(self, file: str) -> FileResult:
        """The names of a file's tests, none of which is run."""
        result = FileResult(file)
        _take(result, self._process(file, [], self.seconds))
        return result

    def _process(self, file: str, names: list[str] | None, seconds: float) -> list[list[object]]:
        """The lines of one process: those that `one_file` describes, and `["over", why]` where it did not end well."""
        work = self.results / "work" / file.replace("/", "+").removesuffix(".py")
        shutil.rmtree(work, ignore_errors=True)  # what an earlier run left
        work.mkdir(parents=True)
        outcomes, chosen = work / "outcomes.jsonl", work / "chosen.txt"
        if names is not None:
            chosen.write_text("".join(f"{name}\n" for name in names), encoding="utf-8")
        request = Request(
            str(self._tensorflow / "python" / file),
            str(work),
            str(outcomes),
            "" if names is None else str(chosen),
            max(seconds, 1.0),
        )
        status = self._forks.run(request)
        over: list[object] | None = None
        if status is None:
            over = ["over", "time", f"no end in {self.seconds:g} s"]
        elif status:
            over = ["over", "died", f"exit status {status}"]
        lines = []
        if outcomes.is_file():
            lines = [json.loads(line) for line in outcomes.read_text(encoding="utf-8").splitlines() if line[-1:] == "]"]
        return [*lines, over] if over else lines


def _take(result: FileResult, lines: list[list[object]]) -> bool:
    """Enters what a process wrote into a file's result; whether it died, so that another should go on."""
    running, ended = "", False
    for kind, *what in lines:
        if kind == "collected":
            (names,) = what
            assert isinstance(names, list)
            result.collected, result.refused = names, ""
        elif kind == "file":
            result.refused, ended = str(what[0]), True
        elif kind == "end":
            ended = True
        elif kind == "begin":
            running = str(what[0])
            result.outcomes.pop(running, None)
        elif kind == "over":
            if running and not ended:
                result.outcomes[running] = (str(what[0]), str(what[1]))
            elif not ended:
                result.refused = str(what[1])
            return what[0] == "died" and bool(running)
        else:
            why = str(what[1]) if len(what) > 1 else ""
            before = result.outcomes.get(str(what[0]), ("", ""))[0]
            if before not in ("fail", "error") or kind in ("fail", "error"):  # a subtest may have failed
                result.outcomes[str(what[0])] = (str(kind), why)
    return False


def _environment(work: Path, packages: Sequence[Path]) -> dict[str, str]:
    """Programs are compiled quickly, and kept for the next run; kernels are chosen alike on every machine."""
    return (os.environ | quick_compilation.environment(level=1)) | {
        "ANABRANCH_CACHE_DIR": str(work / "compiled"),
        "ANABRANCH_KERNELS": "estimate",
        "ANABRANCH_NATIVE": "0",
        "PYTHONPATH": os.pathsep.join([str(ROOT), *(str(folder) for folder in packages)]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
        "TEST_TMPDIR": str(work),
    }
