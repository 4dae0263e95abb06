"""Neural networks: everything of `tf.nn` that is made of the operations in `ops.nn`, `ops.conv`, `ops.pool`, ..."""

from __future__ import annotations

from anabranch.frontend import nn_activations, nn_conv, nn_ctc, nn_losses, nn_normalization, nn_pool
from anabranch.frontend.nn_activations import *  # noqa: F403
from anabranch.frontend.nn_conv import *  # noqa: F403
from anabranch.frontend.nn_ctc import *  # noqa: F403
from anabranch.frontend.nn_losses import *  # noqa: F403
from anabranch.frontend.nn_normalization import *  # noqa: F403
from anabranch.frontend.nn_pool import *  # noqa: F403

__all__ = [  # noqa: PLE0604
    *nn_activations.__all__,
    *nn_conv.__all__,
    *nn_ctc.__all__,
    *nn_losses.__all__,
    *nn_normalization.__all__,
    *nn_pool.__all__,
]
