from anabranch.contrib.slim.prefetching import prefetch_queue as prefetch_queue
