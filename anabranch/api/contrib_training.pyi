from anabranch.train.bucketing import bucket as bucket, bucket_by_sequence_length as bucket_by_sequence_length
