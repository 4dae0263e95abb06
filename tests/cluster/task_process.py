"""A task as a process of its own: `python task_process.py CLUSTER_AS_JSON JOB INDEX [SECONDS]`.

It says "ready", and serves. It looks so often whether the file has changed that says where tasks are.
"""

from __future__ import annotations

import json
import sys

import anabranch as tf
from anabranch.distributed import address_book

if __name__ == "__main__":
    if len(sys.argv) > 4:
        vars(address_book)["LOOK_EVERY"] = float(sys.argv[4])
    server = tf.train.Server(json.loads(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
    print("ready", flush=True)
    server.join()
