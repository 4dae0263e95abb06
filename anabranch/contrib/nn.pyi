from anabranch.contrib.flipped_losses import (
    flipped_sigmoid_cross_entropy,
    flipped_softmax_cross_entropy,
    flipped_sparse_softmax_cross_entropy,
)
from anabranch.contrib.sampled_losses import (
    rank_sampled_softmax_loss as rank_sampled_softmax_loss,
    sampled_sparse_softmax_loss as sampled_sparse_softmax_loss,
)
from anabranch.contrib.self_normalizing import (
    alpha_dropout as alpha_dropout,
    nth_element as nth_element,
    scaled_softplus as scaled_softplus,
)
from anabranch.frontend.nn.conv import conv1d_transpose as conv1d_transpose

deprecated_flipped_sigmoid_cross_entropy_with_logits = flipped_sigmoid_cross_entropy
deprecated_flipped_softmax_cross_entropy_with_logits = flipped_softmax_cross_entropy
deprecated_flipped_sparse_softmax_cross_entropy_with_logits = flipped_sparse_softmax_cross_entropy
