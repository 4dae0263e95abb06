from anabranch.frontend.resources.queues import Barrier as Barrier
