"""`anabranch cluster` and `anabranch task`: clusters that are started, looked at, disturbed and stopped."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import anabranch as tf
from anabranch.distributed.cluster_files import ClusterFolder, read_cluster, running_clusters
from anabranch.distributed.keys import CurveKeys
from anabranch.errors import InvalidArgumentError
from anabranch.tools import command_line, task
from anabranch.tools.cluster.start import parse_counts

ROOT = Path(__file__).resolve().parent.parent.parent
#: for whatever a test waits for, in seconds
DEADLINE = 60.0
#: runs the command line; a shell may have told its children to ignore the signal of Ctrl-C
HEEDING_CTRL_C = """
import runpy, signal
signal.signal(signal.SIGINT, signal.default_int_handler)
runpy.run_module("anabranch", run_name="__main__", alter_sys=True)
"""


@pytest.fixture(autouse=True)
def runtime_folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Clusters of tests are not found among those of the user; the path is short enough for a socket."""
    with tempfile.TemporaryDirectory(prefix="ab-") as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        monkeypatch.setenv("PYTHONPATH", str(ROOT))
        yield Path(folder)


def cluster(*words: str) -> int:
    return command_line.main(["cluster", *words])


def is_alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text("utf-8").rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def tasks(name: str = "local") -> dict[str, Any]:
    return {each["name"]: each for each in ClusterFolder(name).state()["tasks"]}


def wait_for(task: str, state: str, restarts: int) -> dict[str, Any]:
    deadline = time.monotonic() + DEADLINE
    while (tasks()[task]["state"], tasks()[task]["restarts"]) != (state, restarts):
        assert time.monotonic() < deadline, tasks()[task]
        # a file of another process: nobody here is told of a change
        time.sleep(0.02)
    found = tasks()[task]
    assert isinstance(found, dict)
    return found


def reap(process: int) -> None:
    """A supervisor that this process started: whoever starts one from a shell does not have to."""
    os.waitpid(process, 0)


def test_a_cluster_from_start_to_stop(capfd: pytest.CaptureFixture[str], runtime_folder: Path) -> None:
    assert cluster("start", "local", "1", "ps", "1", "worker", "--detach") == 0
    assert "grpc://localhost:" in capfd.readouterr().out
    folder = ClusterFolder("local")
    supervisor = folder.state()["supervisor"]
    try:
        assert running_clusters() == ["local"]
        assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
        # what was started is a cluster
        with tf.Graph().as_default(), tf.device("/job:ps/task:0"):
            doubled = tf.constant(21) * 2
            with tf.Session(tasks()["worker/0"]["target"]) as session:
                assert session.run(doubled) == 42
        assert cluster("start", "local") == 1
        assert "a cluster named 'local' is running" in capfd.readouterr().err

        # one that hangs is named, and can be replaced
        os.kill(tasks()["worker/0"]["pid"], signal.SIGSTOP)
        assert cluster("status", "--within", "0.5") == 1
        shown = capfd.readouterr()
        assert "does not answer" in shown.out
        assert "worker/0 runs, but has not answered within 0.5 s" in shown.err
        assert cluster("restart", "worker/0") == 0
        assert cluster("restart", "worker/7") == 1

        # one that is killed comes back at its address
        before = tasks()["ps/0"]
        os.kill(before["pid"], signal.SIGKILL)
        after = wait_for("ps/0", "running", 1)
        wait_for("worker/0", "running", 1)
        assert after["pid"] != before["pid"]
        assert after["address"] == before["address"]
        assert cluster("status", "--json") == 0
        capfd.readouterr()
        assert cluster("logs", "ps/0") == 0
        assert capfd.readouterr().out.count("listens at") == 2

        assert cluster("scale", "worker=2") == 1
        assert "started with 1 tasks of 'worker'" in capfd.readouterr().err
        assert cluster("scale", "ps=0") == 1
        assert cluster("scale", "worker=0") == 0
        wait_for("worker/0", "stopped", 1)
        pids = [task["pid"] for task in tasks().values() if task["pid"]]
    finally:
        stopped = cluster("stop")
        reap(supervisor)
    assert stopped == 0
    assert len(pids) == 1
    assert not any(map(is_alive, pids))
    assert running_clusters() == []
    assert cluster("status") == 1
    assert "no cluster is running" in capfd.readouterr().err


_PROGRAM = """
import sys, time, json, os
import tensorflow as tf
job, index, ps, workers = sys.argv[1:]
assert json.loads(os.environ["TF_CONFIG"])["task"] == {"type": job, "index": int(index)}
print("a worker of", len(workers.split(",")), "without" if not ps else "with", "parameter servers", tf.__name__)
sys.exit(3) if index == "1" else time.sleep(600)
"""


def test_a_program_that_fails_is_started_again_and_in_the_end_ends_the_run_with_its_status(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(_PROGRAM)
    command = [sys.executable, "-m", "anabranch", "cluster", "run", "--ps", "0", "--restarts", "1"]
    command += ["--", str(tmp_path / "program.py"), "{job}", "{index}", "{ps_hosts}", "{worker_hosts}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=DEADLINE)
    assert done.returncode == 3, done.stderr
    # the name of who ended is nowhere in what it wrote itself
    told = [line for line in done.stderr.splitlines() if line.startswith("worker/1")]
    assert told == [
        "worker/1 ended (status 3) and was started again",
        "worker/1 failed (status 3); the others are ended",
    ]
    assert done.stdout.count("worker/1 | a worker of 2 without parameter servers") == 2
    assert running_clusters() == []


@pytest.mark.parametrize("dashes", [[], ["--"]])
def test_a_run_of_a_module(tmp_path: Path, dashes: list[str]) -> None:
    (tmp_path / "says.py").write_text("import sys; print('says', *sys.argv[1:])")
    words = ["cluster", "run", "--ps", "0", "--workers", "1", *dashes, "-m", "says", "{job}", "--ps", "7"]
    command = [sys.executable, "-m", "anabranch", *words]
    environment = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=DEADLINE, env=environment)
    assert done.returncode == 0, done.stderr
    assert "says worker --ps 7" in done.stdout


def test_tasks_that_still_end_are_started_again_when_they_are_wanted(tmp_path: Path) -> None:
    """Fewer, and more again before those have ended."""
    # it takes its time to end
    waits = "import signal, time; signal.signal(signal.SIGTERM, lambda *_: time.sleep(0.5) or exit(0))"
    (tmp_path / "program.py").write_text(f"{waits}; print('begins', flush=True); time.sleep(600)")
    command = [sys.executable, "-m", "anabranch", "cluster", "run", "--name", "scaled", "--ps", "0"]
    with subprocess.Popen([*command, str(tmp_path / "program.py")], stdout=subprocess.PIPE, text=True) as run:
        watchdog = threading.Timer(DEADLINE, run.kill)
        watchdog.start()
        try:
            assert run.stdout is not None
            begun = {run.stdout.readline(), run.stdout.readline()}
            assert begun == {"worker/0 | begins\n", "worker/1 | begins\n"}
            before = tasks("scaled")["worker/1"]["pid"]
            assert cluster("scale", "worker=1", "--name", "scaled") == 0
            assert is_alive(before)
            assert cluster("scale", "worker=2", "--name", "scaled") == 0
            assert run.stdout.readline() == "worker/1 | begins\n"
            assert tasks("scaled")["worker/1"]["pid"] != before
            assert cluster("stop", "--name", "scaled") == 0
            assert run.wait(DEADLINE) == 130
        finally:
            watchdog.cancel()
            run.kill()


def test_ctrl_c_ends_a_run(tmp_path: Path, runtime_folder: Path) -> None:
    (tmp_path / "program.py").write_text("import os, time; print(os.getpid(), flush=True); time.sleep(600)")
    words = ["cluster", "run", "--ps", "0", "--workers", "1", "program.py"]
    with subprocess.Popen(
        [sys.executable, "-c", HEEDING_CTRL_C, *words], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    ) as run:
        try:
            assert run.stdout is not None
            program = int(run.stdout.readline().partition("|")[2])
            assert is_alive(program)
            run.send_signal(signal.SIGINT)
            assert run.wait(DEADLINE) == 130
        finally:
            run.kill()
    assert not is_alive(program)
    assert list((runtime_folder / "anabranch" / "clusters").iterdir()) == []


def test_keys_are_for_their_owner_and_are_not_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cluster("keys") == 0
    path = tmp_path / "cluster.keys"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    keys = CurveKeys.load(path)
    assert cluster("keys") == 1
    assert CurveKeys.load(path) == keys
    shown = capsys.readouterr()
    assert keys is not None
    assert keys.secret.hex() not in shown.out + shown.err
    assert cluster("keys", "other.keys") == 0
    assert CurveKeys.load("other.keys") != keys


def test_ray_is_an_extra(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("ray_cluster", "ray_machines"):
        monkeypatch.delitem(sys.modules, f"anabranch.distributed.{module}", raising=False)
    monkeypatch.setitem(sys.modules, "ray", None)  # as if it were not installed
    assert cluster("start", "ray", "1", "ps") == 1
    assert "pip install 'anabranch[cluster]'" in capsys.readouterr().err


@pytest.mark.parametrize("words", ["1", "x ps", "1 ps 2 ps", "-1 ps", "1 p/s"])
def test_tasks_that_cannot_be_read(words: str) -> None:
    with pytest.raises(ValueError, match="ps|worker"):
        parse_counts(words.split())


def test_tasks_are_pairs_of_number_and_job() -> None:
    assert parse_counts(["2", "ps", "3", "workers", "1", "chief"]) == {"ps": 2, "worker": 3, "chief": 1}


def test_files_that_describe_clusters(tmp_path: Path) -> None:
    jobs = {"ps": ["h0:1"], "worker": ["h1:1", "h2:1"]}
    (tmp_path / "c.json").write_text(json.dumps(jobs))
    (tmp_path / "c.toml").write_text('[cluster]\nps = ["h0:1"]\nworker = ["h1:1", "h2:1"]\n')
    assert read_cluster(tmp_path / "c.json").as_dict() == read_cluster(tmp_path / "c.toml").as_dict() == jobs
    for wrong in ("", "ps = 3", "ps = ['no port']", "[", "ps = ['h:1']\nworker = ['h:1']"):
        (tmp_path / "wrong.toml").write_text(wrong)
        with pytest.raises(InvalidArgumentError, match=r"wrong\.toml does not describe a cluster"):
            read_cluster(tmp_path / "wrong.toml")


def test_a_task_says_what_it_is_not_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    before = signal.getsignal(signal.SIGTERM)
    try:
        monkeypatch.delenv("TF_CONFIG", raising=False)
        with pytest.raises(InvalidArgumentError, match="which cluster"):
            task.main([])
        monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": {"ps": ["localhost:0"], "worker": ["localhost:0"]}}))
        with pytest.raises(SystemExit):
            task.main(["--job", "worker", "--index", "5"])
        assert "No task with index 5 in job 'worker'" in capsys.readouterr().err
    finally:
        signal.signal(signal.SIGTERM, before)
