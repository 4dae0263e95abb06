"""Tasks and clients in processes of their own, which are killed, stopped and started again for real."""

from __future__ import annotations

import contextlib
import json
import signal
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import anabranch as tf
from tests.cluster.processes import DEADLINE, Process, one_ps


def config() -> Any:
    return tf.ConfigProto(operation_timeout_in_ms=int(DEADLINE * 1000))


def test_a_killed_parameter_server_fails_steps_and_serves_again_when_it_is_back() -> None:
    with one_ps() as (addresses, worker, processes):
        with tf.device("/job:ps/task:0"):
            v = tf.get_variable("v", initializer=3.0, use_resource=True)
            queue = tf.FIFOQueue(1, [tf.float32], shapes=[[]], shared_name="never")
            begun = tf.FIFOQueue(1, [tf.int32], shapes=[[]], shared_name="begun")
            with tf.control_dependencies([begun.enqueue(0)]):
                element = queue.dequeue()
            has_begun = begun.dequeue()
        with tf.device("/job:worker/task:0"):
            doubled, waits = v * 2, element * 2
        with tf.Session(worker.target, config=config()) as session:
            session.run(v.initializer)
            assert session.run(doubled) == 6

            def kills() -> None:
                # the step is on the parameter server, where it waits for an element
                session.run(has_begun)
                processes[0].kill()

            with ThreadPoolExecutor(1) as pool:
                killing = pool.submit(kills)
                with pytest.raises((tf.errors.UnavailableError, tf.errors.AbortedError), match="ps"):
                    session.run(waits)
                killing.result(DEADLINE)
            processes.append(Process("task_process.py", json.dumps(addresses), "ps", "0"))
            # it is another incarnation: what it held is gone, which the session learns at the latest by its next step
            with contextlib.suppress(
                tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.FailedPreconditionError
            ):
                session.run(doubled)
            session.run(v.initializer)
            assert session.run(doubled) == 6


def test_what_a_killed_client_waited_for_goes_to_others() -> None:
    with one_ps() as (_, worker, processes):
        with tf.device("/job:ps/task:0"):
            queue = tf.FIFOQueue(10, [tf.float32], shapes=[[]], shared_name="shared")
            put, size = queue.enqueue(7.0), queue.size()
            has_begun = tf.FIFOQueue(10, [tf.int32], shapes=[[]], shared_name="begun").dequeue()
        with tf.Session(worker.target, config=config()) as session:
            for _ in range(2):
                # the one that is killed has been waiting for longer: an element would be its, if its step went on
                processes.append(Process("waiting_client.py", worker.target))
                session.run(has_begun)
            assert session.run(size) == 0
            processes[1].kill()
            # two elements at most can be lost to steps of the dead client: one, which waits, and that is cancelled
            session.run(put)
            assert processes[2].line() == "7.0"
            assert session.run(size) == 0


def test_a_stopped_parameter_server_is_named_and_goes_on_when_it_is_woken() -> None:
    with one_ps() as (_, worker, processes):
        with tf.device("/job:ps/task:0"):
            v = tf.get_variable("v", initializer=3.0, use_resource=True)
        with tf.device("/job:worker/task:0"):
            doubled = v * 2
        with tf.Session(worker.target, config=config()) as session:
            session.run(v.initializer)
            assert session.run(doubled) == 6
            processes[0].signal(signal.SIGSTOP)
            with pytest.raises(tf.errors.DeadlineExceededError, match="/job:ps/replica:0/task:0"):
                session.run(doubled, options=tf.RunOptions(timeout_in_ms=500))
            processes[0].signal(signal.SIGCONT)
            assert session.run(doubled) == 6
