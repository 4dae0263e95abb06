"""A client that waits for an element of a queue of a task: `python waiting_client.py TARGET`.

It says "ready" when it has a session. Its step puts an element into another queue, "begun", before it waits.
"""

from __future__ import annotations

import sys

import anabranch as tf

if __name__ == "__main__":
    with tf.device("/job:ps/task:0"):
        queue = tf.FIFOQueue(10, [tf.float32], shapes=[[]], shared_name="shared")
        size = queue.size()
        with tf.control_dependencies([tf.FIFOQueue(10, [tf.int32], shapes=[[]], shared_name="begun").enqueue(0)]):
            element = queue.dequeue()
    with tf.Session(sys.argv[1]) as session:
        session.run(size)
        print("ready", flush=True)
        print(session.run(element), flush=True)
