"""A task as a process of its own: `python task_process.py CLUSTER_AS_JSON JOB INDEX [SECONDS]`.

It says "ready", and serves. It looks so often whether the file has changed that says where tasks are. Where the file is
there that the environment variable HOLD_SAVES names, it says "saves" as it writes a part of a checkpoint, and stays so.
At SIGTERM it leaves and ends, as `anabranch task` does.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from typing import Any

import anabranch as tf
from anabranch.distributed import address_book
from anabranch.io import durable


def hold_saves(told: str) -> None:
    write = durable.write_all

    def held(descriptor: int, data: Any) -> None:
        # some of it is there
        view = memoryview(data).cast("B")
        write(descriptor, view[: len(view) // 2])
        if os.path.exists(told):
            print("saves", flush=True)
            threading.Event().wait()
        write(descriptor, view[len(view) // 2 :])

    durable.write_all = held


if __name__ == "__main__":
    if len(sys.argv) > 4:
        vars(address_book)["LOOK_EVERY"] = float(sys.argv[4])
    if "HOLD_SAVES" in os.environ:
        hold_saves(os.environ["HOLD_SAVES"])
    server = tf.train.Server(json.loads(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
    print("ready", flush=True)
    try:
        server.join()
    finally:
        server.leave()
        server.stop()
