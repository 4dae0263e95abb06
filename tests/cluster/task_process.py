"""A task as a process of its own: `python task_process.py CLUSTER_AS_JSON JOB INDEX`. It says "ready", and serves."""

from __future__ import annotations

import json
import sys

import anabranch as tf

if __name__ == "__main__":
    server = tf.train.Server(json.loads(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
    print("ready", flush=True)
    server.join()
