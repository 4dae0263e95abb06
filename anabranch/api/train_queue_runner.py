"""`tf.train.queue_runner`."""

from __future__ import annotations

from anabranch.train.queue_runner import QueueRunner, add_queue_runner, start_queue_runners

__all__ = ["QueueRunner", "add_queue_runner", "start_queue_runners"]
