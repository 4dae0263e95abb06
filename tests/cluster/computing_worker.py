"""A worker whose step adds half of what is missing to 1: `python computing_worker.py CLUSTER_AS_JSON`.

It says "ready" when its session is open, and then does what it reads, line by line:

    read    steps until one has read the variable in the server's memory; says "read" and how many there were
    hold    one step; where it is about to send the update, and with it what starts the server's part, it says "held",
            and waits for a line
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Mapping
from typing import Any

import anabranch as tf
from anabranch.runtime.published_values import PublishedReads
from anabranch.runtime.remote_worker import RemotePartition
from tests.cluster.processes import DEADLINE


def main(cluster: Mapping[str, list[str]]) -> None:
    read = PublishedReads.values
    taken: list[bool] = []

    def noted(self: PublishedReads) -> Any:
        values = read(self)
        taken.append(values is not None)
        return values

    PublishedReads.values = noted  # type: ignore[method-assign]
    request, is_to_hold = RemotePartition._request, threading.Event()

    def held(*args: Any, **options: Any) -> Any:
        if options.get("read_ahead") and options.get("sent") and is_to_hold.is_set():
            print("held", flush=True)
            sys.stdin.readline()
        return request(*args, **options)

    RemotePartition._request = held  # type: ignore[method-assign]
    server = tf.train.Server(dict(cluster), "worker", 0)
    with tf.device("/job:ps/task:0"):
        v = tf.get_variable("v", [3], use_resource=True)
    with tf.device("/job:worker/task:0"):
        missing = (1.0 - v.read_value()) / 2.0
    step = v.assign_add(missing).op
    config = tf.ConfigProto(operation_timeout_in_ms=int(1000 * DEADLINE))
    with tf.Session(server.target, config=config) as session:
        print("ready", flush=True)
        for line in sys.stdin:
            if line.strip() == "read":
                steps = 0
                while not any(taken):
                    session.run(step)
                    steps += 1
                print(f"read {steps}", flush=True)
            else:
                is_to_hold.set()
                session.run(step)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
