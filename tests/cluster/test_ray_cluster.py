"""Clusters on Ray: a Ray of two nodes on this machine, whose processes, actors, nodes and head are killed for real.

A Ray takes longer to start than any of the tests: they share one, and the tasks on it, until a test has used them up.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Self

import pytest
from ray.cluster_utils import Cluster

import anabranch as tf
from anabranch.distributed.addresses import ADDRESS_MAP_VARIABLE
from anabranch.distributed.cluster_files import MOVED_TASKS, ClusterFolder
from anabranch.distributed.keys import FILE_VARIABLE
from anabranch.distributed.ray_cluster import RayEngine, RayPlan, TaskResources
from anabranch.distributed.restarts import RestartLimits, TaskState
from anabranch.distributed.supervisor import all_ready, task_program
from anabranch.distributed.task_engine import TaskStatus, log_name
from anabranch.errors import DeadlineExceededError, FailedPreconditionError, NotFoundError, UnavailableError
from anabranch.tools import command_line
from anabranch.train.save_interval import SaveInterval
from tests.cluster.places import until

ROOT = Path(__file__).resolve().parent.parent.parent
# Ray forks to start its programs, beside JAX's threads; what is forked does nothing but that
pytestmark = pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")
#: seconds, for whatever a test waits for: Ray starts a process of Python for each actor
DEADLINE = 90.0
QUICK = RestartLimits(first_pause=0.05, longest_pause=0.5)


#: an address that is this machine's, and not the one that Ray's other nodes have
OTHER_MACHINE = "127.0.0.2"
#: Ray's processes without those that nobody here asks for: idle workers, which tasks with keys cannot use; and with the
#: priority of all others, so that beside other tests they are not the last to run
ENVIRONMENT = {
    "RAY_prestart_worker_first_driver": "0",
    "RAY_enable_worker_prestart": "0",
    "RAY_worker_niceness": "0",
}


@contextlib.contextmanager
def started_ray() -> Iterator[Any]:
    """A head without room for tasks, and a node with room for four."""
    head = {"num_cpus": 0, "include_dashboard": False, "no_monitor": True}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        cluster.add_node(num_cpus=4)
        yield cluster
    finally:
        cluster.shutdown()


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    path = tmp_path_factory.mktemp("keys") / "cluster.keys"
    assert command_line.main(["cluster", "keys", str(path)]) == 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(FILE_VARIABLE, str(path))
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        yield


PROGRAM = """
import tensorflow as tf
from tensorflow.distribute.cluster_resolver import TFConfigClusterResolver

resolver = TFConfigClusterResolver()
server = tf.train.Server(resolver.cluster_spec(), resolver.task_type, resolver.task_id)
with tf.device("/job:ps/task:0"):
    count = tf.get_variable("count", initializer=0)
with tf.Session(server.target) as session:
    session.run(count.initializer)
    for _ in range(3):
        counted = session.run(count.assign_add(1))
print("counted to", counted)
"""


class Tasks:
    """A parameter server and a worker on Ray, a session, and a step that counts on the parameter server."""

    def __init__(self, plan: RayPlan, logs: Path, checkpoints: Path | None = None) -> None:
        self.plan = plan
        self.lines: list[tuple[str, bytes]] = []
        where = None if checkpoints is None else str(checkpoints)
        programs = [task_program(plan.spec, job, index, where) for job, index, _ in plan.spec.tasks()]
        self.engine: RayEngine = plan.engine(programs, logs, QUICK, lambda task, line: self.lines.append((task, line)))
        self.engine.start()
        self.engine.wait(all_ready, DEADLINE)
        with tf.Graph().as_default():
            with tf.device("/job:ps/task:0"):
                count = tf.get_variable("count", initializer=0, use_resource=True)
            with tf.device("/job:worker/task:0"):
                self.step, self.begin = count.assign_add(1) * 10, count.initializer
        self.session = self._opened()
        self.session.run(self.begin)

    def _opened(self) -> tf.Session:
        config = tf.ConfigProto(operation_timeout_in_ms=int(DEADLINE * 1000))
        return tf.Session("grpc://" + self.address("worker/0"), graph=self.step.graph, config=config)

    def reopen(self) -> None:
        """Makes the session anew."""
        self.session.close()
        self.session = self._opened()

    def __getitem__(self, name: str) -> TaskStatus:
        return next(status for status in self.engine.statuses() if status.name == name)

    def wait(self, name: str, holds: Callable[[TaskStatus], bool]) -> None:
        self.engine.wait(lambda all_: any(s.name == name and holds(s) for s in all_), DEADLINE, name)

    def runs_again(self) -> list[type[Exception]]:
        """Runs steps, which may fail as those of lost tasks do, until one that has begun anew succeeds; what failed."""
        seen: list[type[Exception]] = []
        deadline = time.monotonic() + DEADLINE
        while True:
            try:
                self.session.run(self.begin)
                assert self.session.run(self.step) == 10
            except (tf.errors.UnavailableError, tf.errors.AbortedError) as error:
                assert time.monotonic() < deadline, seen
                seen.append(type(error))
            else:
                return seen

    def address(self, name: str) -> str:
        """Where a task is."""
        job, index = name.split("/")
        return self[name].address or self.plan.spec.task_address(job, int(index))

    def actor(self, name: str) -> int:
        """The process of a task's actor."""
        return int(Path(f"/proc/{self[name].pid}/stat").read_text("utf-8").rpartition(")")[2].split()[1])

    def close(self) -> None:
        self.session.close()
        self.engine.close()


def listens(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), DEADLINE).close()
    except ConnectionRefusedError:
        return False
    return True


def is_running(process: int | None) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text("utf-8").rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


@contextlib.contextmanager
def taken(port: int) -> Iterator[None]:
    """A port that somebody else has, as soon as it is free."""
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)

        def is_taken() -> bool:
            try:
                if not other.getsockname()[1]:
                    other.bind(("", port))
                other.listen()
            except OSError:
                return False
            return True

        until(is_taken, f"a free port {port}")
        yield


class Shared:
    """What tests share: a Ray, and tasks on it, which are started for whoever asks first.

    #: A test that leaves them in another state than it found them in ends them, and the next one gets others.
    """

    def __init__(self, logs: Path) -> None:
        self.logs = logs
        self._ray = contextlib.ExitStack()
        self._plan = contextlib.ExitStack()
        self._cluster: Any = None
        self._tasks: Tasks | None = None

    @property
    def cluster(self) -> Any:
        if self._cluster is None:
            self._cluster = self._ray.enter_context(started_ray())
        return self._cluster

    @property
    def tasks(self) -> Tasks:
        if self._tasks is None:
            plan = self._plan.enter_context(RayPlan({"ps": 1, "worker": 1}, self.cluster.address))
            self._tasks = Tasks(plan, self.logs)
            self._plan.callback(self._tasks.close)
        return self._tasks

    def end_tasks(self) -> None:
        self._tasks = None
        self._plan.close()

    def end(self) -> None:
        self.end_tasks()
        self._cluster = None
        self._ray.close()


@pytest.fixture(scope="module")
def shared(keys: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    shared = Shared(tmp_path_factory.mktemp("logs"))
    try:
        yield shared
    finally:
        shared.end()


def test_what_cannot_be_started_says_why(shared: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    # a process is connected to one Ray at a time
    shared.end_tasks()
    address = shared.cluster.address
    with pytest.raises(DeadlineExceededError, match=r"no room for 2 tasks within 1 s: 200 CPU, 0 GPU are wanted"):
        RayPlan({"worker": 2}, address, TaskResources(cpus=100), within=1)
    with pytest.raises(UnavailableError, match="no Ray cluster at localhost:1"):
        RayPlan({"worker": 1}, "localhost:1")
    monkeypatch.delenv(FILE_VARIABLE)
    with pytest.raises(FailedPreconditionError, match="anabranch cluster keys"):
        RayPlan({"worker": 1}, address)
    assert command_line.main(["cluster", "start", "ray", "--port", "2222"]) == 1


def test_tasks_whose_processes_and_actors_are_killed_come_back_at_their_addresses(shared: Shared) -> None:
    tasks, log = shared.tasks, shared.logs / "ps-0.log"
    tasks.runs_again()
    first, restarts = tasks["ps/0"].pid, tasks["ps/0"].restarts
    assert first is not None

    def starts() -> tuple[int, int]:
        """How often ps/0 has said that it listens: in its log, and to the engine's reader."""
        told = [task for task, line in tasks.lines if b"listens at" in line]
        return log.read_bytes().count(b"listens at"), told.count("ps/0")

    logged, told = starts()

    os.kill(first, signal.SIGKILL)
    tasks.wait("ps/0", lambda s: s.is_ready and s.restarts == restarts + 1)
    tasks.runs_again()
    second = tasks["ps/0"].pid
    assert second not in (None, first)
    assert starts() == (logged + 1, told + 1)

    # the actor: its task ends with it
    os.kill(tasks.actor("ps/0"), signal.SIGKILL)
    tasks.wait("ps/0", lambda s: s.is_ready and s.restarts == restarts + 2)
    assert not is_running(second)
    tasks.runs_again()
    assert "the actor of ps/0 was lost" in log.read_text("utf-8")


def test_tasks_whose_ports_were_taken_come_back_at_others_and_sessions_go_on(shared: Shared) -> None:
    tasks = shared.tasks
    tasks.runs_again()
    # first a task that the client only knows by its cluster, then the one that it named
    for name in ("ps/0", "worker/0"):
        before, pid = tasks.address(name), tasks[name].pid
        assert pid is not None
        restarts, actor = tasks[name].restarts, tasks.actor(name)
        # stopped, so that the task does not come back before its port is taken
        os.kill(actor, signal.SIGSTOP)
        os.kill(pid, signal.SIGKILL)
        with taken(int(before.rpartition(":")[2])):
            os.kill(actor, signal.SIGKILL)
            tasks.wait(name, lambda s: s.is_ready and s.restarts > restarts)  # noqa: B023
            now = tasks.address(name)
            assert now != before
            seen = tasks.runs_again()
        # the program is told that what the task held is gone, once
        assert seen.count(tf.errors.AbortedError) == 1
        assert f"{name} has moved from {before} to {now}" in (shared.logs / log_name(name)).read_text("utf-8")
    # who comes now and knows only the addresses of the beginning finds both by the map that the engine keeps
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(ADDRESS_MAP_VARIABLE, str(shared.logs / MOVED_TASKS))
        target = "grpc://" + tasks.plan.spec.task_address("worker", 0)
        with tf.Session(target, graph=tasks.session.graph) as session:
            assert session.run(tasks.step) == 20
    # and a task that is started again finds the other where it is
    restarts = tasks["worker/0"].restarts
    tasks.engine.restart_task("worker/0")
    tasks.wait("worker/0", lambda s: s.is_ready and s.restarts == restarts + 1)
    tasks.runs_again()


def test_tasks_whose_node_is_removed_go_on_where_ray_finds_room(shared: Shared) -> None:
    tasks, cluster = shared.tasks, shared.cluster
    tasks.runs_again()
    restarts = {name: tasks[name].restarts for name in ("ps/0", "worker/0")}
    gone = [node for node in cluster.list_all_nodes() if node is not cluster.head_node]
    # a machine with another address, as far as tasks know
    cluster.add_node(num_cpus=4, node_ip_address=OTHER_MACHINE)
    for node in gone:
        cluster.remove_node(node)
    for name, count in restarts.items():
        tasks.wait(name, lambda s, count=count: s.is_ready and s.restarts >= count + 1)  # type: ignore[misc]
        assert tasks.address(name).startswith(f"{OTHER_MACHINE}:")
    # both are elsewhere, and nobody is left who could tell the session
    tasks.reopen()
    assert tasks.runs_again() == []


def drain(cluster: Any, machine: str) -> None:
    """Tells Ray that a machine will be taken away, as a cloud's agent does that has been told so."""
    reason = ["--reason", "DRAIN_NODE_REASON_PREEMPTION", "--reason-message", "wanted back"]
    limit = ["--deadline-remaining-seconds", str(int(DEADLINE))]
    ray = Path(sys.executable).with_name("ray")
    subprocess.run([ray, "drain-node", "--address", cluster.address, "--node-id", machine, *reason, *limit], check=True)


def test_tasks_of_a_machine_that_will_be_taken_away_save_and_leave_it(
    shared: Shared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared.end_tasks()
    cluster, logs, directory = shared.cluster, tmp_path / "logs", tmp_path / "model"
    logs.mkdir()
    directory.mkdir()
    # where tasks are now is known to who reads the engine's map; nothing is saved but what the notice asks for
    monkeypatch.setenv(ADDRESS_MAP_VARIABLE, str(logs / MOVED_TASKS))
    monkeypatch.setattr(SaveInterval, "is_due", lambda *_: False)
    (machine,) = [node for node in cluster.list_all_nodes() if node is not cluster.head_node]
    with (
        RayPlan({"ps": 1, "worker": 1}, cluster.address) as plan,
        contextlib.closing(Tasks(plan, logs, directory)) as tasks,
        tf.Graph().as_default(),
    ):
        with tf.device(tf.train.replica_device_setter(1, worker_device="/job:worker/task:0")):
            step = tf.train.get_or_create_global_step()
            learned = tf.get_variable("learned", initializer=0.0, use_resource=True)
            train = tf.train.GradientDescentOptimizer(1.0).minimize(-learned, step)
        with tf.train.MonitoredTrainingSession(
            "grpc://" + plan.spec.task_address("worker", 0),
            True,
            str(directory),
            save_checkpoint_secs="auto",
            config=tf.ConfigProto(operation_timeout_in_ms=int(DEADLINE * 1000)),
            log_step_count_steps=None,
            save_summaries_steps=None,
        ) as session:
            steps = 3
            for _ in range(steps):
                session.run(train)
            first = tf.train.latest_checkpoint(str(directory))
            cluster.add_node(num_cpus=4, node_ip_address=OTHER_MACHINE)
            over, failed = threading.Event(), list[BaseException]()

            def go_on() -> None:
                try:
                    while not over.is_set():
                        session.run(step)
                except BaseException as error:  # whatever it is, the test has to know
                    failed.append(error)

            # the training goes on meanwhile; a step that needs them while they are away waits until they are elsewhere
            training = threading.Thread(target=go_on, daemon=True)
            training.start()
            drain(cluster, machine.node_id)
            latest = partial(tf.train.latest_checkpoint, str(directory))
            until(lambda: latest() != first, "a checkpoint before they leave", DEADLINE)
            assert latest() == str(directory / f"model.ckpt-{steps}")
            # they leave before they are made to
            for name in ("ps/0", "worker/0"):
                tasks.wait(name, lambda s: s.restarts == 1)
                said = (logs / log_name(name)).read_text("utf-8")
                assert f"{name} leaves its machine, which will be taken away" in said
                assert not tasks[name].is_ready
            cluster.remove_node(machine)
            for name in ("ps/0", "worker/0"):
                tasks.wait(name, lambda s: s.is_ready)
                assert tasks.address(name).startswith(f"{OTHER_MACHINE}:")
            over.set()
            training.join(DEADLINE)
            assert not training.is_alive()
            assert not failed, failed
            session.run(train)
            assert session.run([step, learned]) == [steps + 1, steps + 1]


def test_tasks_are_restarted_and_end_as_the_user_wants_it(shared: Shared) -> None:
    tasks = shared.tasks
    restarts = tasks["worker/0"].restarts
    tasks.engine.restart_task("worker/0")
    tasks.wait("worker/0", lambda s: s.is_ready and s.restarts == restarts + 1)
    tasks.engine.stop_task("worker/0")
    tasks.wait("worker/0", lambda s: s.state is TaskState.STOPPED)
    with pytest.raises(NotFoundError, match="there is no task ps/7; there are ps/0, worker/0"):
        tasks.engine.stop_task("ps/7")
    tasks.engine.restart_task("worker/0")
    tasks.wait("worker/0", lambda s: s.is_ready and s.restarts == restarts + 2)
    tasks.runs_again()


@pytest.fixture
def cluster_folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Where commands find clusters of tests, and nobody else's; short: a socket's path has an end."""
    with tempfile.TemporaryDirectory(prefix="ab-") as runtime:
        monkeypatch.setenv("XDG_RUNTIME_DIR", runtime)
        monkeypatch.setenv("PYTHONPATH", str(ROOT))
        yield


def test_workers_of_a_training_are_taken_away_and_given_back_by_commands(
    shared: Shared, cluster_folder: None, capfd: pytest.CaptureFixture[str]
) -> None:
    shared.end_tasks()

    def cluster(*words: str) -> int:
        return command_line.main(["cluster", *words, "--name", "scaled"])

    def tasks() -> dict[str, Any]:
        return {each["name"]: each for each in ClusterFolder("scaled").state()["tasks"]}

    def is_in(state: str, restarts: int) -> bool:
        task = tasks()["worker/1"]
        return bool((task["state"], task["restarts"]) == (state, restarts))

    address = ["--address", shared.cluster.address, "--cpus", "0.5"]
    assert cluster("start", "ray", "1", "ps", "2", "workers", "--detach", *address) == 0
    supervisor = ClusterFolder("scaled").state()["supervisor"]
    try:
        with contextlib.ExitStack() as stack:
            trainers = [stack.enter_context(Trainer(tasks()[f"worker/{index}"]["address"], index)) for index in (0, 1)]
            for trainer in trainers:
                trainer.goes_on()
            assert cluster("scale", "worker=1") == 0
            until(lambda: is_in("stopped", 0), "the end of worker/1", DEADLINE)
            assert cluster("status") == 1
            assert "stopped: worker/1" in capfd.readouterr().out
            # the others do not wait for it
            trainers[0].goes_on()
            assert cluster("scale", "worker=3") == 1
            assert cluster("scale", "worker=2") == 0
            until(lambda: is_in("running", 1), "worker/1", DEADLINE)
            assert cluster("restart", "worker/1") == 0
            until(lambda: is_in("running", 2), "worker/1 once more", DEADLINE)
            for trainer in trainers:
                trainer.goes_on()
            assert cluster("status") == 0
            capfd.readouterr()
            assert cluster("logs", "worker/1") == 0
            assert capfd.readouterr().out.count("worker/1 listens at") == 3
    finally:
        stopped = cluster("stop")
        os.waitpid(supervisor, 0)
    assert stopped == 0


class Trainer:
    """Trains on a thread by one of two workers, with a variable of ps/0; its session outlives its worker."""

    def __init__(self, address: str, index: int) -> None:
        self.steps = 0
        self._address, self._index = address, index
        self._over, self._failed = threading.Event(), list[BaseException]()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(DEADLINE)
        assert not self._thread.is_alive()
        assert not self._failed, self._failed

    def goes_on(self) -> None:
        """Waits until it has taken some more steps."""
        before = self.steps
        until(lambda: self.steps > before + 3 or bool(self._failed), "steps", DEADLINE)
        assert not self._failed, self._failed

    def _run(self) -> None:
        try:
            with tf.Graph().as_default():
                self._train()
        except BaseException as error:  # whatever it is, the test has to know
            self._failed.append(error)

    def _train(self) -> None:
        own = f"/job:worker/task:{self._index}"
        with tf.device(tf.train.replica_device_setter(1, worker_device=own)):
            step = tf.train.get_or_create_global_step()
            learned = tf.get_variable("learned", initializer=0.0, use_resource=True)
            train = tf.train.GradientDescentOptimizer(1.0).minimize(-learned, step)
        config = tf.ConfigProto(device_filters=["/job:ps", own], operation_timeout_in_ms=int(DEADLINE * 1000))
        with tf.train.MonitoredTrainingSession(
            "grpc://" + self._address, self._index == 0, config=config, log_step_count_steps=None
        ) as session:
            while not self._over.is_set():
                session.run(train)
                self.steps += 1


def test_steps_go_on_while_the_head_of_ray_is_down_and_restarted(shared: Shared) -> None:
    tasks, cluster = shared.tasks, shared.cluster
    try:
        tasks.runs_again()
        before = [status.pid for status in tasks.engine.statuses()]
        host, _, port = cluster.address.rpartition(":")
        cluster.head_node.kill_gcs_server()
        done = [tasks.session.run(tasks.step) for _ in range(3)]
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((host, int(port)), DEADLINE)
        cluster.head_node.start_gcs_server()
        until(lambda: listens(host, int(port)), "the head of Ray", DEADLINE)
        done += [tasks.session.run(tasks.step) for _ in range(3)]
        assert done == [20, 30, 40, 50, 60, 70]
        assert [status.pid for status in tasks.engine.statuses()] == before
        tasks.engine.close()
        assert not [pid for pid in before if is_running(pid)]
    finally:
        # what the head of a Ray knew is gone with it
        shared.end()


def test_a_program_runs_on_a_ray_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("count.py").write_text(PROGRAM, "utf-8")
    command = [sys.executable, "-m", "anabranch", "cluster", "run", "--ray", "--ps", "1", "--workers", "1", "count.py"]
    # short: a socket's path has an end
    with tempfile.TemporaryDirectory(prefix="ab-") as runtime:
        environment = os.environ | ENVIRONMENT | {"XDG_RUNTIME_DIR": runtime, "PYTHONPATH": str(ROOT)}
        ended = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, env=environment, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "worker/0 | counted to 3" in ended.stdout
