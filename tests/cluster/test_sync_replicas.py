"""`SyncReplicasOptimizer` as programs use it: in a `MonitoredTrainingSession` each, which outlives its tasks."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import anabranch as tf
from anabranch.testing.local_cluster import LocalCluster, local_cluster
from anabranch.train import chief_lease, membership, replica_rounds
from anabranch.train.chief_lease import ChiefLease
from anabranch.train.replica_rounds import RoundsRunner

DEADLINE = 30.0
PS = [f"/job:ps/replica:0/task:{i}" for i in range(2)]
WORKER = "/job:worker/replica:0/task:1"


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with local_cluster(ps=2, worker=2) as tasks:
        yield tasks


class Replica:
    """Trains on a thread until it is told to stop; each step takes 1 from both variables, one on each server.

    Attributes:
        step: the global step that it saw last.
        restored: of each session, what the global step was when it was made.
        commits: of each, that of the latest checkpoint then.
        saved_rounds: of each checkpoint that it saved, the global step and minus both variables.
        ended: whether its session ended as it should; else `error` says why not.
    """

    def __init__(
        self, cluster: LocalCluster, index: int, directory: Path, aggregate: int, automatic: bool = False
    ) -> None:
        self._target, self._index, self._automatic = cluster.target("worker", index), index, automatic
        self.directory, self._aggregate = str(directory), aggregate
        self.step = 0
        self.restored: list[int] = []
        self.commits: list[int] = []
        self.values: list[float] = []
        self.saved_rounds: list[tuple[float, float, float]] = []
        self.tokens = 0
        self.ended = False
        self.error: BaseException | None = None
        self.stop = threading.Event()
        self.preemption = tf.train.PreemptionHook()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            with tf.Graph().as_default():
                self._train()
            self.ended = True
        except BaseException as error:
            self.error = error

    def _train(self) -> None:
        is_chief = self._index == 0
        with tf.device(tf.train.replica_device_setter(2, worker_device=f"/job:worker/task:{self._index}")):
            step = tf.train.get_or_create_global_step()
            a = tf.get_variable("a", initializer=np.zeros(2, np.float32))
            b = tf.get_variable("b", initializer=np.zeros(2, np.float32))
            descent = tf.train.GradientDescentOptimizer(1.0)
            optimizer = tf.train.SyncReplicasOptimizer(descent, self._aggregate, total_num_replicas=2)
            train = optimizer.minimize(tf.reduce_sum(a) + tf.reduce_sum(b), step)
            assert optimizer._token_queue is not None
            tokens = optimizer._token_queue.size()
        # first what looks: the chief's next hook begins a round
        hooks = [_Sees(self, step), optimizer.make_session_run_hook(is_chief), self.preemption]
        if is_chief and not self._automatic:
            looks = _LooksAtCheckpoints(self)
            hooks.append(tf.train.CheckpointSaverHook(self.directory, save_steps=5, listeners=[looks]))
        with tf.train.MonitoredTrainingSession(
            self._target,
            is_chief,
            self.directory if is_chief or self._automatic else None,
            hooks=hooks,
            save_checkpoint_secs="auto" if self._automatic else None,
            save_summaries_steps=None,
            log_step_count_steps=None,
            config=tf.ConfigProto(operation_timeout_in_ms=int(DEADLINE * 1000)),
        ) as session:
            self._session = session
            while not self.stop.is_set():
                session.run(train)  # ends the session where the replica was told to end
            if is_chief:
                # the other may have tokens for a round, which updates one variable after the other
                deadline = time.monotonic() + DEADLINE
                while not self.values or (len(set(self.values)) > 1 and time.monotonic() < deadline):
                    values = session.run([a, b, tokens])
                    self.values, self.tokens = [float(values[0][0]), float(values[1][0])], int(values[2])

    def saved(self) -> int:
        """The global step in the latest checkpoint, whose name may be of the one before: rounds go on meanwhile."""
        latest = tf.train.latest_checkpoint(self.directory)
        return 0 if latest is None else int(tf.train.load_variable(latest, "global_step"))

    def goes_on(self, steps: int) -> None:
        """Waits until the global step has grown by so much from what it was after the latest session was made."""
        until(lambda: self.step >= self.restored[-1] + steps, self)

    def is_told_to_end(self) -> None:
        """What SIGTERM does, which would hit all replicas of this process."""
        self.preemption._note(signal.SIGTERM, None)

    def dies(self) -> None:
        """Ends as a killed process does: nothing is given back, nothing renewed, and what waits is cancelled."""
        creator = self._session._coordinated_creator
        assert creator.coord is not None
        creator.coord.request_stop()
        creator.tf_sess.close()
        self._thread.join(DEADLINE)
        assert self.error is not None
        assert not self.ended

    def join(self) -> None:
        self._thread.join(DEADLINE)
        assert self.ended, self.error
        assert all(len(set(saved)) == 1 for saved in self.saved_rounds), "a round was saved by half"


class _LooksAtCheckpoints(tf.train.CheckpointSaverListener):
    def __init__(self, replica: Replica) -> None:
        self._replica = replica

    def after_save(self, session: tf.Session, global_step_value: int) -> None:
        path = f"{self._replica.directory}/model.ckpt-{global_step_value}"
        step, a, b = (tf.train.load_variable(path, name) for name in ("global_step", "a", "b"))
        self._replica.saved_rounds.append((float(step), -float(a[0]), -float(b[0])))


class _Sees(tf.train.SessionRunHook):
    def __init__(self, replica: Replica, step: tf.Variable) -> None:
        self._replica, self._step = replica, step

    def after_create_session(self, session: tf.Session, coord: tf.train.Coordinator) -> None:
        replica = self._replica
        replica.commits.append(replica.saved())
        replica.step = int(session.run(self._step))
        replica.restored.append(replica.step)

    def before_run(self, run_context: tf.train.SessionRunContext) -> tf.train.SessionRunArgs:
        return tf.train.SessionRunArgs(self._step)

    def after_run(self, run_context: tf.train.SessionRunContext, run_values: tf.train.SessionRunValues) -> None:
        self._replica.step = int(run_values.results)


def until(condition: Callable[[], bool], *replicas: Replica) -> None:
    deadline = time.monotonic() + DEADLINE
    while not condition():
        for replica in replicas:
            assert replica.error is None
            assert not replica.ended
        assert time.monotonic() < deadline, [replica.step for replica in replicas]
        threading.Event().wait(0.005)


def restored_again(*replicas: Replica) -> Callable[[], bool]:
    """Tells whether each has had its values restored since this was called."""
    before = [len(replica.restored) for replica in replicas]
    return lambda: all(len(replica.restored) > count for replica, count in zip(replicas, before, strict=True))


@pytest.mark.parametrize("lost", PS)
def test_replicas_go_on_from_the_checkpoint_when_a_parameter_server_has_come_back(
    cluster: LocalCluster, tmp_path: Path, lost: str
) -> None:
    """Also where the one with the tokens has not ended: what is left of later steps there is of no use."""
    chief, other = (Replica(cluster, index, tmp_path, aggregate=2) for index in range(2))
    until(lambda: bool(chief.restored and other.restored), chief, other)
    for _ in range(2):
        for replica in (chief, other):
            replica.goes_on(10)
        until(lambda: chief.saved() >= chief.restored[-1] + 5, chief, other)
        saved = chief.saved()
        again = restored_again(chief, other)
        cluster.lose(lost)
        cluster.begin(lost)
        until(again, chief, other)
        made = len(chief.restored) - 1
        assert chief.restored[made] == chief.commits[made] >= saved, "what the last checkpoint had"
    for replica in (chief, other):
        replica.goes_on(10)
    # in the end, the chief tells those who wait for tokens that none come any more
    chief.stop.set()
    chief.join()
    other.join()
    assert chief.values[0] == chief.values[1] <= -20, "no update by half"
    assert chief.tokens <= 4


def test_the_chief_does_not_wait_for_a_worker_that_is_gone(cluster: LocalCluster, tmp_path: Path) -> None:
    chief, other = (Replica(cluster, index, tmp_path, aggregate=1) for index in range(2))
    until(lambda: chief.step >= 6 and bool(other.restored), chief, other)
    cluster.lose(WORKER)
    cluster.lose(PS[1])
    cluster.begin(PS[1])
    until(lambda: len(chief.restored) == 2, chief)
    chief.goes_on(5)
    chief.stop.set()
    chief.join()


def test_what_a_worker_that_is_gone_for_good_has_taken_is_handed_out_again(
    cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its token: in TensorFlow nobody gets another one, and the others wait for ever."""
    monkeypatch.setattr(membership, "MEMBER_SECONDS", 1.5)
    chief, other = (Replica(cluster, index, tmp_path, aggregate=2) for index in range(2))
    until(lambda: chief.step >= 6 and bool(other.restored), chief, other)
    # one that ends, one that is killed, and one more of each: the others go on, and whoever comes takes part
    for ends in (True, False, True, False):
        if ends:
            other.stop.set()
            other.join()
        else:
            other.dies()
        alone = chief.step
        until(lambda: chief.step >= alone + 6, chief)  # noqa: B023
        other = Replica(cluster, 1, tmp_path, aggregate=2)
        until(lambda: bool(other.restored), chief, other)  # noqa: B023
        for replica in (chief, other):
            replica.goes_on(6)
    for replica in (chief, other):
        replica.stop.set()
    chief.join()
    assert chief.values[0] == chief.values[1] <= -30


@pytest.mark.parametrize("automatic", [False, True], ids=["saver", "automatic"])
def test_replicas_wait_for_a_chief_that_was_told_to_end_until_it_is_back(
    cluster: LocalCluster, tmp_path: Path, automatic: bool
) -> None:
    """The training is not over: TensorFlow's chief closes the queue of tokens, so that all end and none comes back."""
    chief, other = (Replica(cluster, index, tmp_path, 2, automatic) for index in range(2))
    until(lambda: bool(chief.restored and other.restored), chief, other)
    for _ in range(2):
        for replica in (chief, other):
            replica.goes_on(10)
        chief.is_told_to_end()
        chief.join()
        left = chief.saved()
        chief = Replica(cluster, 0, tmp_path, 2, automatic)
        until(lambda: bool(chief.restored), chief, other)  # noqa: B023
        assert chief.restored == [left], "nothing is lost"
        other.restored.append(left)
    for replica in (chief, other):
        replica.goes_on(10)
    chief.stop.set()
    chief.join()
    other.join()
    assert chief.values[0] == chief.values[1] <= -30, "no update by half"


def test_a_chief_that_comes_back_before_its_lease_is_over_is_a_worker_until_then(
    cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its thread would find that it is not chief, and end; nobody would hand out tokens any more."""
    monkeypatch.setattr(chief_lease, "LEASE_SECONDS", 5.0)
    chief, other = (Replica(cluster, index, tmp_path, 2, True) for index in range(2))
    until(lambda: bool(chief.restored and other.restored), chief, other)
    for replica in (chief, other):
        replica.goes_on(10)
    chief.dies()
    back = Replica(cluster, 0, tmp_path, 2, True)
    # as a worker, and as the chief
    until(lambda: len(back.restored) >= 2, back, other)
    other.restored.append(back.restored[-1])
    for replica in (back, other):
        replica.goes_on(10)
    back.stop.set()
    back.join()
    other.join()
    assert back.values[0] == back.values[1] <= -10, "no update by half"


def test_a_chief_that_waits_for_a_token_hears_that_its_thread_has_lost_a_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody else hands it out; the step that waits has no part on that task, so that nothing else ends it."""
    monkeypatch.setattr(replica_rounds, "_DECIDED_WITHIN", 0.1)
    with tf.Graph().as_default():
        queue = tf.FIFOQueue(1, tf.int32, shapes=[[]])
        token = queue.dequeue()
        lost = tf.py_func(_lose, [], tf.int32)
        runner = RoundsRunner(queue, [queue.enqueue(lost)])
        made: list[int] = []

        class Starts(tf.train.SessionRunHook):
            def after_create_session(self, session: tf.Session, coord: tf.train.Coordinator) -> None:
                made.append(len(made))
                if len(made) == 1:
                    runner.create_threads(session, coord, daemon=True, start=True)
                else:
                    session.run(put)

        put = queue.enqueue(7)
        with tf.train.MonitoredSession(hooks=[Starts()]) as session:
            assert session.run(token) == 7
        assert made == [0, 1]


def _lose() -> None:
    raise tf.errors.UnavailableError(None, None, "a task is lost")


@pytest.mark.parametrize("is_cut", [False, True])
def test_a_session_ends_between_two_rounds_and_the_lease_says_where_one_was_cut_off(is_cut: bool) -> None:
    lease = ChiefLease(is_first=True)
    lease._until = math.inf
    with tf.Graph().as_default():
        most = tf.get_variable("most", initializer=np.int32(1 << 30), use_resource=True)
        begun = tf.get_variable("begun", initializer=0, use_resource=True)
        ended = tf.get_variable("ended", initializer=0, use_resource=True)
        with tf.control_dependencies([tf.assert_less(begun.assign_add(1), most)]):
            a_round = ended.assign_add(1)
        runner = RoundsRunner(tf.FIFOQueue(1, [tf.int32]), [a_round.op])
        runner.leaves_queue_open, runner.lease = True, lease
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            coord = tf.train.Coordinator()
            runner.create_threads(session, coord=coord, daemon=True, start=True)
            deadline = time.monotonic() + DEADLINE
            while session.run(ended) < 5:
                assert time.monotonic() < deadline
            if is_cut:
                session.run(most.assign(0))
                assert coord.wait_for_stop(DEADLINE)
            else:
                assert runner.rest(DEADLINE)
                assert len(set(session.run([begun, ended]) + session.run([begun, ended]))) == 1
            assert lease.from_the_dead is is_cut
