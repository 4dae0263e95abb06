from anabranch.api import nn_rnn_cell
from anabranch.frontend.arithmetic.elementwise import sigmoid as sigmoid, tanh as tanh
from anabranch.frontend.arrays.rearranging import (
    depth_to_space as depth_to_space,
    space_to_batch as space_to_batch,
    space_to_depth as space_to_depth,
)
from anabranch.frontend.measures.average_loss import (
    compute_average_loss as compute_average_loss,
    scale_regularization_loss as scale_regularization_loss,
)
from anabranch.frontend.nn.activations import (
    bias_add as bias_add,
    crelu as crelu,
    dropout as dropout,
    elu as elu,
    in_top_k as in_top_k,
    l2_loss as l2_loss,
    l2_normalize as l2_normalize,
    leaky_relu as leaky_relu,
    log_softmax as log_softmax,
    relu as relu,
    relu6 as relu6,
    relu_layer as relu_layer,
    selu as selu,
    silu as silu,
    softmax as softmax,
    softplus as softplus,
    softsign as softsign,
    swish as swish,
    top_k as top_k,
    xw_plus_b as xw_plus_b,
    zero_fraction as zero_fraction,
)
from anabranch.frontend.nn.candidate_sampling import (
    all_candidate_sampler as all_candidate_sampler,
    compute_accidental_hits as compute_accidental_hits,
    fixed_unigram_candidate_sampler as fixed_unigram_candidate_sampler,
    learned_unigram_candidate_sampler as learned_unigram_candidate_sampler,
    log_uniform_candidate_sampler as log_uniform_candidate_sampler,
    nce_loss as nce_loss,
    sampled_softmax_loss as sampled_softmax_loss,
    uniform_candidate_sampler as uniform_candidate_sampler,
)
from anabranch.frontend.nn.conv import (
    atrous_conv2d as atrous_conv2d,
    atrous_conv2d_transpose as atrous_conv2d_transpose,
    conv1d as conv1d,
    conv1d_transpose as conv1d_transpose,
    conv2d as conv2d,
    conv2d_backprop_filter as conv2d_backprop_filter,
    conv2d_backprop_input as conv2d_backprop_input,
    conv2d_transpose as conv2d_transpose,
    conv3d as conv3d,
    conv3d_backprop_filter as conv3d_backprop_filter,
    conv3d_backprop_filter_v2 as conv3d_backprop_filter_v2,
    conv3d_transpose as conv3d_transpose,
    conv_transpose as conv_transpose,
    convolution as convolution,
)
from anabranch.frontend.nn.cross_entropies import (
    log_poisson_loss as log_poisson_loss,
    sigmoid_cross_entropy_with_logits as sigmoid_cross_entropy_with_logits,
    softmax_cross_entropy_with_logits as softmax_cross_entropy_with_logits,
    softmax_cross_entropy_with_logits_v2 as softmax_cross_entropy_with_logits_v2,
    sparse_softmax_cross_entropy_with_logits as sparse_softmax_cross_entropy_with_logits,
    weighted_cross_entropy_with_logits as weighted_cross_entropy_with_logits,
)
from anabranch.frontend.nn.ctc import (
    ctc_beam_search_decoder as ctc_beam_search_decoder,
    ctc_beam_search_decoder_v2 as ctc_beam_search_decoder_v2,
    ctc_greedy_decoder as ctc_greedy_decoder,
    ctc_loss as ctc_loss,
)
from anabranch.frontend.nn.ctc_dense import (
    collapse_repeated as collapse_repeated,
    ctc_loss_v2 as ctc_loss_v2,
    ctc_unique_labels as ctc_unique_labels,
)
from anabranch.frontend.nn.depthwise_conv import (
    depthwise_conv2d as depthwise_conv2d,
    depthwise_conv2d_backprop_filter as depthwise_conv2d_backprop_filter,
    depthwise_conv2d_backprop_input as depthwise_conv2d_backprop_input,
    depthwise_conv2d_native as depthwise_conv2d_native,
    depthwise_conv2d_native_backprop_filter as depthwise_conv2d_native_backprop_filter,
    depthwise_conv2d_native_backprop_input as depthwise_conv2d_native_backprop_input,
    separable_conv2d as separable_conv2d,
)
from anabranch.frontend.nn.dilation_by_blocks import with_space_to_batch as with_space_to_batch
from anabranch.frontend.nn.embedding import (
    embedding_lookup as embedding_lookup,
    embedding_lookup_sparse as embedding_lookup_sparse,
    safe_embedding_lookup_sparse as safe_embedding_lookup_sparse,
)
from anabranch.frontend.nn.fractional_pool import (
    fractional_avg_pool as fractional_avg_pool,
    fractional_max_pool as fractional_max_pool,
)
from anabranch.frontend.nn.morphology import (
    dilation2d as dilation2d,
    erosion2d as erosion2d,
)
from anabranch.frontend.nn.normalization import (
    batch_norm_with_global_normalization as batch_norm_with_global_normalization,
    batch_normalization as batch_normalization,
    fused_batch_norm as fused_batch_norm,
    local_response_normalization as local_response_normalization,
    lrn as lrn,
    moments as moments,
    normalize_moments as normalize_moments,
    sufficient_statistics as sufficient_statistics,
    weighted_moments as weighted_moments,
)
from anabranch.frontend.nn.pool import (
    avg_pool as avg_pool,
    avg_pool1d as avg_pool1d,
    avg_pool2d as avg_pool2d,
    avg_pool3d as avg_pool3d,
    avg_pool_v2 as avg_pool_v2,
    max_pool as max_pool,
    max_pool1d as max_pool1d,
    max_pool2d as max_pool2d,
    max_pool3d as max_pool3d,
    max_pool_v2 as max_pool_v2,
    max_pool_with_argmax as max_pool_with_argmax,
    pool as pool,
)
from anabranch.frontend.nn.quantized import (
    quantized_avg_pool as quantized_avg_pool,
    quantized_conv2d as quantized_conv2d,
    quantized_max_pool as quantized_max_pool,
    quantized_relu_x as quantized_relu_x,
)
from anabranch.frontend.nn.rnn import (
    bidirectional_dynamic_rnn as bidirectional_dynamic_rnn,
    dynamic_rnn as dynamic_rnn,
    raw_rnn as raw_rnn,
    static_bidirectional_rnn as static_bidirectional_rnn,
    static_rnn as static_rnn,
    static_state_saving_rnn as static_state_saving_rnn,
)

rnn_cell = nn_rnn_cell
