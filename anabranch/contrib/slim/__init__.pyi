from anabranch.contrib.slim import prefetch_queue as prefetch_queue
