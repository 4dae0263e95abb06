"""What `tf.contrib.training` has of queues: buckets."""

from __future__ import annotations

from anabranch.train.bucketing import bucket, bucket_by_sequence_length

__all__ = ["bucket", "bucket_by_sequence_length"]
