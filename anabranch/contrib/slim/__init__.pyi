from anabranch.contrib.slim import prefetch_queue as prefetch_queue
from anabranch.tools.contributed_names import slim

__getattr__ = slim
