from anabranch.contrib.gan.conditions import (
    clip_discriminator_weights as clip_discriminator_weights,
    clip_variables as clip_variables,
    condition_tensor as condition_tensor,
    condition_tensor_from_onehot as condition_tensor_from_onehot,
    tensor_pool as tensor_pool,
)
from anabranch.contrib.gan.spectral import (
    compute_spectral_norm as compute_spectral_norm,
    spectral_norm_regularizer as spectral_norm_regularizer,
    spectral_normalization_custom_getter as spectral_normalization_custom_getter,
    spectral_normalize as spectral_normalize,
)
from anabranch.contrib.gan.virtual_batches import VBN as VBN
