"""Random calls of the public interface: losses, metrics, pictures, sound, matrices, sparse and ragged tensors.

What is called stands in tables of templates, in which `<a|b|c>` is one of these, drawn at random, from the inside
outwards. Each call shows its values, its static shape and, where it has one, a gradient.
"""

from __future__ import annotations

import re
from random import Random

_CHOICE = re.compile(r"<([^<>]*)>")

_BEGINNING = """
tf.set_random_seed(1)
draw = np.random.RandomState({seed})
s = tf.placeholder_with_default(np.float32(0.7), [], 's')
v = tf.constant(draw.randn(6).astype(np.float32)) * s
m = tf.constant(draw.randn(4, 3).astype(np.float32)) * s
p = tf.constant(draw.rand(4, 3).astype(np.float32)) * s
q = tf.constant(draw.rand(4, 3).astype(np.float32))
b = tf.constant((draw.rand(4, 3) > 0.5).astype(np.float32))
t3 = tf.constant(draw.randn(2, 5, 3).astype(np.float32)) * s
sq = tf.constant(draw.randn(2, 3, 3).astype(np.float32)) * s
pd = tf.matmul(sq, sq, transpose_b=True) + 2.0 * tf.eye(3)
im = tf.constant(draw.rand(2, 5, 6, 3).astype(np.float32)) * s
im8 = tf.constant(draw.randint(0, 256, (5, 6, 3)).astype(np.uint8))
im5 = tf.constant(draw.randn(2, 4, 4, 3, 2).astype(np.float32)) * s
labels = tf.constant(draw.randint(0, 3, 4))
ids = tf.constant(draw.randint(0, 4, 6).astype(np.int32))
ordered = tf.constant(np.sort(draw.randint(0, 4, 6)).astype(np.int32))
i3 = tf.constant(draw.randint(-5, 6, (2, 3)).astype(np.int32))
sp = tf.SparseTensor([[0, 1], [1, 0], [2, 2], [3, 0]], tf.stack([s, 2.0 * s, -1.0, 0.5]), [4, 3])
sp2 = tf.SparseTensor([[0, 0], [1, 0], [3, 2]], [1.0, 2.0, 3.0], [4, 3])
si = tf.SparseTensor([[0, 0], [0, 1], [2, 0]], tf.constant([3, 1, 2], tf.int64), [3, 2])
si2 = tf.SparseTensor([[0, 0], [1, 0], [2, 0], [2, 1]], tf.constant([1, 5, 2, 4], tf.int64), [3, 2])
rg = tf.ragged.constant([[1.0, 2.0], [], [3.0], [4.0, 5.0, -6.0]])
ri = tf.ragged.constant([[1, 2], [], [3], [0, 0, 2]])
z = tf.complex(m, tf.reverse(m, [0]))


def show(name, make, differentiate=True):
    try:
        value = make()
    except Exception as error:
        return attempt(name, lambda: raised(error))
    flat = [part for part in tf.nest.flatten(value) if part is not None]
    tensors = [part for part in flat if isinstance(part, tf.Tensor)]
    for part in tensors:
        see(name + ' shape', part.shape)
        see(name + ' type', part.dtype)
    if attempt(name, lambda: session.run(value)) is not None and differentiate:
        floats = [part for part in tensors if part.dtype.base_dtype == tf.float32]
        if floats:
            attempt(name + ' gradient', lambda: session.run(slope(floats[0])))


def slope(y):
    try:
        return tf.round(1000.0 * tf.gradients(y, s, unconnected_gradients='zero')[0]) / 1000.0 + 1.0
    except LookupError:
        # TensorFlow refuses to differentiate some operations through which nothing flows
        return tf.ones([])


def raised(error):
    raise error


session = tf.Session()
"""

_LOSSES = (
    "tf.losses.<absolute_difference|mean_squared_error|huber_loss|log_loss|hinge_loss>(<b|q>, p, <1.0|0.5|q|q[:, :1]|tf.constant([[1.0], [0.0], [2.0], [0.0]])|0.0>, reduction=tf.losses.Reduction.<NONE|SUM|MEAN|SUM_BY_NONZERO_WEIGHTS|SUM_OVER_BATCH_SIZE|SUM_OVER_NONZERO_WEIGHTS>)",
    "tf.losses.cosine_distance(q, p, axis=<0|1|-1>, weights=<1.0|q[:, :1]|2.0>)",
    "tf.losses.mean_pairwise_squared_error(q, p, weights=<1.0|q[:, 0]|0.0|q[:, :1]>)",
    "tf.losses.sigmoid_cross_entropy(b, m, weights=<1.0|q|0.0>, label_smoothing=<0|0.1>)",
    "tf.losses.softmax_cross_entropy(tf.one_hot(labels, 3), m, weights=<1.0|q[:, 0]>, label_smoothing=<0|0.2>)",
    "tf.losses.sparse_softmax_cross_entropy(labels<|[:, tf.newaxis]>, m, weights=<1.0|q[:, 0]|q[:, :1]>)",
    "tf.losses.compute_weighted_loss(p, <1.0|q|q[0]|q[:, 0]>)",
    "tf.losses.huber_loss(q, p * 5.0, delta=<0.1|1.0|3.0>)",
    "tf.nn.<weighted_cross_entropy_with_logits(b, m, 2.0)|sigmoid_cross_entropy_with_logits(labels=b, logits=m)|softmax_cross_entropy_with_logits_v2(labels=q, logits=m, axis=<0|1|-1>)|log_poisson_loss(q, m, compute_full_loss=<True|False>)|l2_loss(m)>",
    "tf.nn.<moments(t3, <[0]|[0, 1]|[-1]|[]>, keep_dims=<True|False>)|weighted_moments(m, [0], q)|sufficient_statistics(t3, [0, 1], shift=<None|0.5>)|normalize_moments(4.0, v, v * v + 20.0, <None|0.5>)|l2_normalize(t3, <0|1|[0, 2]>, epsilon=<1e-12|1.0>)|log_softmax(m, axis=<0|1>)|crelu(m, axis=<0|-1>)|leaky_relu(m, <0.2|-0.1>)|zero_fraction(b)|in_top_k(m, labels, <1|2|5>)|top_k(m, <1|2|3|4>, sorted=True)|relu_layer(m, tf.ones([3, 2]), tf.ones([2]))|xw_plus_b(m, tf.ones([3, 2]), tf.ones([2]))|bias_add(im, tf.ones([3]))|local_response_normalization(im, <1|2>, alpha=<0.5|1>)>",
    "tf.nn.<pool(im, [2, 2], '<MAX|AVG>', '<SAME|VALID>', strides=<[1, 1]|[2, 1]>)|convolution(im, tf.ones([2, 2, 3, 2]), '<SAME|VALID>', dilation_rate=<[1, 1]|[2, 1]>)|separable_conv2d(im, tf.ones([2, 2, 3, 2]), tf.ones([1, 1, 6, 1]), [1, <1|2>, <1|2>, 1], 'SAME')|atrous_conv2d(im, tf.ones([2, 2, 3, 1]), <1|2>, 'VALID')|conv2d_transpose(im, tf.ones([3, 3, 2, 3]), [2, <10|9>, <12|11>, 2], [1, 2, 2, 1])|depthwise_conv2d(im, tf.ones([2, 2, 3, 1]), [1, 1, 1, 1], 'SAME', rate=<[1, 1]|[2, 2]>)|erosion2d(im, tf.zeros([2, 2, 3]), [1, 1, 1, 1], [1, 1, 1, 1], 'SAME')|dilation2d(im, tf.zeros([2, 2, 3]), [1, 1, 1, 1], [1, <1|2>, 1, 1], 'SAME')|conv1d(t3, tf.ones([2, 3, 2]), <1|2>, '<SAME|VALID>')|max_pool_with_argmax(im, [1, 2, 2, 1], [1, 2, 2, 1], 'SAME')|avg_pool(im, [1, 3, 2, 1], [1, 2, 2, 1], '<SAME|VALID>')|with_space_to_batch(im, <[1, 1]|[2, 2]>, 'SAME', lambda x, n, w: x * 2.0, filter_shape=[2, 2])>",
)  # fmt: skip
_IMAGES = (
    "tf.image.<resize_bilinear|resize_nearest_neighbor|resize_bicubic|resize_area>(im, <[7, 4]|[5, 6]|[10, 12]|[1, 1]>, align_corners=<True|False><|, half_pixel_centers=False>)",
    "tf.image.<resize_images|resize>(<im|im8|im[0]>, <[7, 4]|[5, 6]|[2, 3]>, tf.image.ResizeMethod.<BILINEAR|NEAREST_NEIGHBOR|BICUBIC|AREA>, align_corners=<True|False>, preserve_aspect_ratio=<True|False>)",
    "tf.image.<resize_image_with_crop_or_pad(<im|im8>, <3|5|8>, <4|6|9>)|resize_image_with_pad(<im|im8>, <3|8>, <4|9>)|central_crop(<im|im8>, <0.5|0.3|1.0|0.0>)|crop_to_bounding_box(<im|im8>, <0|1|4>, 1, <2|4>, 3)|pad_to_bounding_box(im8, 1, <0|2>, <8|5>, 9)|flip_left_right(<im|im8>)|flip_up_down(im8)|transpose_image(im)|rot90(<im|im8>, <0|1|2|3|5|-1>)>",
    "tf.image.<adjust_brightness(<im|im8>, <0.1|-0.3>)|adjust_contrast(<im|im8>, <0.5|2.0>)|adjust_gamma(<im|im8>, <1.0|2.2|0.0>, <1|0.5>)|adjust_hue(<im|im8>, <0.1|-0.4>)|adjust_saturation(<im|im8>, <0.5|3.0>)|rgb_to_grayscale(<im|im8>)|grayscale_to_rgb(im[..., :1])|rgb_to_hsv(im)|hsv_to_rgb(im)|rgb_to_yiq(im)|yiq_to_rgb(im)|rgb_to_yuv(im)|yuv_to_rgb(im)|per_image_standardization(<im|im8>)|convert_image_dtype(<im|im8>, tf.<uint8|float32|int16|uint16|float16|int32>, saturate=<True|False>)>",
    "tf.image.<total_variation(<im|im[0]>)|psnr(im, im * 0.9, <1.0|255.0>)|ssim(tf.tile(im, [1, 3, 3, 1]), tf.tile(im, [1, 3, 3, 1]) * 0.8, 1.0)|sobel_edges(im)|image_gradients(im)|draw_bounding_boxes(im, [[[0.1, 0.1, 0.6, 0.7]]] * 2)|crop_and_resize(im, [[0.0, 0.1, 0.9, 1.2], [0.8, 0.2, 0.1, 0.5]], [0, 1], [3, 4], method='<bilinear|nearest>', extrapolation_value=<0|2>)|extract_glimpse(im, [3, 3], [[0.0, 0.2], [-0.2, 0.4]], centered=<True|False>, normalized=<True|False>, uniform_noise=False, noise='zero')|non_max_suppression([[0.0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, 2, 1, 3]], [0.5, 0.9, 0.3], <1|2|5>, iou_threshold=<0.5|0.9>)|extract_image_patches(im, [1, 2, 2, 1], [1, <1|2>, 2, 1], [1, <1|2>, 1, 1], '<SAME|VALID>')|combined_non_max_suppression(tf.reshape(p[:, :1] + tf.constant([[0.0, 0.0, 0.5, 0.5]]), [1, 4, 1, 4]), tf.reshape(q[:, :2], [1, 4, 2]), 2, 3)>",
    "tf.<space_to_batch|space_to_depth>(tf.ones([1, 4, 4, 1]) * s, <[[0, 0], [0, 0]], 2|2>)",
)  # fmt: skip
_MATRICES = (
    "tf.linalg.<det(sq)|slogdet(pd)|logdet(pd)|inv(pd)|cholesky(pd)|trace(<sq|m>)|norm(<m|sq|v>, ord=<'euclidean'|1|2|np.inf>, axis=<None|[-2, -1]|-1>, keepdims=<True|False>)|norm(m, ord='fro', axis=[0, 1])|triangular_solve(pd, sq, lower=<True|False>, adjoint=<True|False>)|solve(pd, sq, adjoint=<True|False>)|lstsq(sq, sq[..., :1], l2_regularizer=<0.0|0.5>, fast=True)|expm(sq * 0.1)|eigvalsh(pd)|band_part(m, <0|1|-1>, <0|1|-1>)|diag(m<|, k=<0|1|-1>>)|diag_part(<m|sq>)|set_diag(sq, tf.ones([2, 3]))|cross(m, q)|tensordot(m, sq, <1|[[1], [2]]|[[1], [1]]>)|einsum('<ij,kjl-ikl|ij,kjl-k|ij,klj-ikl|ij,kji-i>'.replace('-', chr(45) + chr(62)), m, sq)|matvec(sq, tf.ones([2, 3]), transpose_a=<True|False>)|tridiagonal_matmul(sq, sq)|adjoint(z)|global_norm([m, v])|l2_normalize(m, <0|1>)|cholesky_solve(tf.linalg.cholesky(pd), sq)|matmul(m, q, transpose_<a|b>=True)|eye(<2|3>, <None|4>, batch_shape=<None|[2]>)|transpose(<sq|m>, conjugate=<True|False>)|tensor_diag(v)|tensor_diag_part(m[:3])|svd(m, compute_uv=False)|qr(pd)[1] * 0.0|logm(tf.cast(pd, tf.complex64))|pinv(m)|sqrtm(pd)|lu(pd)[1]>",
    "tf.signal.<frame(<v|t3>, <2|3|7>, <1|2>, pad_end=<True|False>, pad_value=<0|1.5>)|overlap_and_add(t3, <1|2|3>)|stft(v, <4|3>, 2, fft_length=<None|8>, pad_end=<True|False>)|inverse_stft(tf.signal.stft(tf.tile(v, [2]), 4, 2), 4, 2)|<hann_window|hamming_window>(<1|4|5>, periodic=<True|False>)|dct(v, type=<1|2|3|4>, norm=<None|'ortho'>)|idct(v, type=<2|3>)|dct(t3, n=<2|4>)|linear_to_mel_weight_matrix(<4|10>, <5|9>, 8000, 100.0, 3500.0)|mfccs_from_log_mel_spectrograms(t3)|fft(z)|ifft2d(z)|rfft(v, <None|[4]|[8]>)|irfft(z, <None|[3]|[6]>)|fftshift(m, axes=<None|0|[0, 1]>)|ifftshift(v)>",
    "tf.<reduce_logsumexp|reduce_prod|reduce_max|reduce_min|reduce_mean|reduce_sum|math.reduce_std|math.reduce_variance|math.reduce_euclidean_norm>(<m|t3|v>, axis=<None|0|-1|[0]|[]>, keepdims=<True|False>)",
    "tf.math.<bincount(ids, minlength=<None|2|7>, maxlength=<None|3|9>, weights=<None|v>)|cumsum(<m|t3>, axis=<0|1|-1>, exclusive=<True|False>, reverse=<True|False>)|cumprod(m, axis=0, exclusive=<True|False>, reverse=<True|False>)|cumulative_logsumexp(m, axis=<0|1>, exclusive=<True|False>, reverse=<True|False>)|confusion_matrix(labels, tf.argmax(m, 1), <None|3|5>, weights=<None|q[:, 0]>)|accumulate_n([m, q, b])|add_n([m, q])|polyval([m, q, 2.0 * b], p)|invert_permutation([2, 0, 1])|is_non_decreasing(<v|ordered>)|is_strictly_increasing(<v|[1, 2, 3]>)|multiply_no_nan(m, b)|divide_no_nan(m, b)|xlogy(b, p)|xdivy(b, m)|zeta(2.0 + q, p)|polygamma(<0.0|1.0|2.0>, q + 0.5)|lbeta(q + 0.1)|igamma(q + 0.5, p)|igammac(q + 0.5, p)|betainc(q + 0.1, p + 0.1, p)|erfinv(p)|nextafter(m, q)|bessel_i0(m)|bessel_i1e(m)|softplus(m * 30.0)|reciprocal_no_nan(b)|floormod(i3, <3|-3>)|mod(m, <0.5|-0.5>)|truncatemod(i3, 3)|l2_normalize(m)|top_k(m, 2)|count_nonzero(b, axis=<0|1|None>)|squared_difference(m, q)|rint(m * 3.0)|round(m * 2.5)|sign(m)|betainc(1.0, 2.0, p)>",
    "tf.<math.segment_<sum|mean|max|min|prod>(v, ordered)|math.unsorted_segment_<sum|mean|max|min|prod|sqrt_n>(v, <ids|ids - 1>, <4|5>)|sparse.segment_<sum|mean|sqrt_n>(m, [0, 2, 2, 3], <[0, 0, 1, 2]|[0, 0, 2, 2]>, num_segments=<None|4>)|math.unsorted_segment_sum(m, [0, 1, 1, -1], 3)|dynamic_partition(v, ids, 4)|dynamic_stitch([[0, 2], [1, 3]], [m[:2], q[:2]])|histogram_fixed_width(v, [-1.0, 1.0], <3|5>)|histogram_fixed_width_bins(v, [-1.0, 1.0], 4)|searchsorted([1.0, 2.0, 3.0], [0.5, 2.0, 9.0], side='<left|right>')|unique_with_counts(ids)|setdiff1d(ids, [1, 2])|sequence_mask([1, 3, 0], <None|5|2>)|meshgrid([1, 2], [3, 4, 5], indexing='<xy|ij>')|one_hot(<labels|i3>, 3, on_value=<None|2.0>, axis=<-1|0|1>)|reverse_sequence(t3, [<2|5>, 3], seq_axis=1, batch_axis=0)|roll(m, <1|-2|[1, 1]>, <0|1|[0, 1]>)|gather(t3, [0, 1, 1], axis=<0|1|2|-1>)|gather(t3, [[0, 1], [1, 0]], batch_dims=1, axis=1)|batch_gather(t3, [[0, 1], [1, 0]])|gather_nd(t3, [[0, 1], [1, 4]], batch_dims=<0|1>)|boolean_mask(t3, [True, False], axis=0)|boolean_mask(m, tf.greater(b, 0.5))|where(tf.greater(b, 0.5), m, q)|where_v2(tf.greater(b, 0.5), m, 0.0)|tensor_scatter_nd_<add|update|sub>(v, [[1], [3], [1]], [1.0, 2.0, 3.0])|clip_by_norm(m, <0.5|5.0>, axes=<None|0|[1]>)|clip_by_global_norm([m, v], 1.0)[0]|clip_by_average_norm(m, 0.1)|repeat(m, <2|[1, 0, 2, 1]>, axis=0)|pad(m, [[1, 0], [0, 2]], '<CONSTANT|REFLECT|SYMMETRIC>')|strided_slice(t3, [0, 1, 0], [2, 4, 3], [1, 2, <1|2>])|nn.embedding_lookup(m, ids % 4, max_norm=<None|0.5>)|fake_quant_with_min_max_args(m, <-1|0>, 1)|scatter_nd([[1], [3]], [1.0 * s, 2.0], [5])|tile(m, [2, <1|0>])|broadcast_to(v, [2, 6])|linspace(0.0, s, <1|2|5>)|range(0.0, 1.0, 0.3)|nn.sampled_softmax_loss(m, tf.ones([4]), labels[:, tf.newaxis], tf.ones([4, 3]), 2, 4, sampled_values=(tf.constant([0, 2], tf.int64), tf.ones([4, 1]) * 0.5, tf.ones([2]) * 0.5))>",
)  # fmt: skip
_SPARSE = (
    "tf.sparse.<to_dense(<sp|si>, <0|7>)|add(sp, <sp2|b>)|reorder(sp)|reshape(sp, <[3, 4]|[-1, 6]|[12]>)|slice(sp, [1, 0], [<2|5>, 2])|split(sp_input=sp, num_split=<2|3>, axis=<0|1>)|concat(<0|1>, [sp, sp2])|reduce_sum(sp, axis=<None|0|1|-1>, keepdims=<True|False>)|reduce_max(sp, axis=<None|0|1>)|softmax(sp)|transpose(sp, <None|[1, 0]>)|retain(sp, [True, False, True, False])|fill_empty_rows(<si|si2>, tf.constant(9, tf.int64))|expand_dims(sp, <0|1|-1>)|eye(<2|3>, <None|4>)|maximum(sp, sp2)|minimum(sp, sp2)|from_dense(<m|b>)|matmul(sp, q, adjoint_<a|b>=True)|sparse_dense_matmul(sp, tf.transpose(q))|reset_shape(sp, <None|[5, 4]|[4, 3]>)|to_indicator(si, <4|6>)|cross([si, si2])|reduce_sum_sparse(sp, axis=1)>",
    "tf.<sparse_merge(si, tf.SparseTensor(si.indices, [1.0, 2.0, 3.0], si.dense_shape), <4|6>)|sets.<intersection|difference|union>(si, si2<|, validate_indices=False>)|sets.size(si)|sets.<intersection|union>([[1, 2], [3, 4]], [[2, 2], [5, 3]])|nn.embedding_lookup_sparse(m, tf.SparseTensor(si.indices, si.values, si.dense_shape), <None|tf.SparseTensor(si.indices, [1.0, 2.0, 0.5], si.dense_shape)>, combiner='<sum|mean|sqrtn>', max_norm=<None|0.5>)|nn.safe_embedding_lookup_sparse(m, si, combiner='<sum|mean>', default_id=<None|0>)|edit_distance(si, si2, normalize=<True|False>)|sparse_tensor_to_dense(sp)|sparse_add(sp, sp2)|serialize_sparse(si)|deserialize_many_sparse(tf.serialize_many_sparse(si), tf.int64)|nn.ctc_greedy_decoder(tf.transpose(t3, [1, 0, 2]), [5, 4], merge_repeated=<True|False>)|nn.ctc_loss(tf.cast(tf.SparseTensor([[0, 0], [0, 1], [1, 0]], [0, 1, 1], [2, 2]), tf.int32), tf.transpose(t3, [1, 0, 2]), [5, <4|5>])>",
    "tf.<reduce_<sum|mean|max|min|prod>(rg, axis=<0|1|None>)|concat([rg, rg], <0|1>)|stack([rg, rg], <0|1>)|tile(rg, [1, 2])|expand_dims(rg, <0|1|2>)|gather(rg, <[0, 3]|[[1], [3]]>)|ragged.boolean_mask(rg, [True, False, True, True])|ragged.map_flat_values(tf.multiply, rg, 2.0)|ragged.range([1, 2, 3], [4, 2, 9], <1|2>)|ragged.stack_dynamic_partitions(v, ids, 4)|ragged.row_splits_to_segment_ids([0, 2, 2, 5])|ragged.segment_ids_to_row_splits([0, 0, 2])|where(tf.greater(rg, 2.0))|size(rg)|rank(rg)|cast(ri, tf.float32)|add(rg, <rg|1.0|tf.constant([[1.0], [2.0], [3.0], [4.0]])>)|reduce_any(tf.greater(rg, 2.0), axis=<0|1>)|sparse.to_dense(rg.to_sparse())|RaggedTensor.from_tensor(m, <lengths=[1, 3, 0, 2]|padding=0.0>)|RaggedTensor.from_row_lengths(v, [2, 0, 3, 1])|RaggedTensor.from_value_rowids(v, ordered, nrows=<4|6>)|squeeze(tf.expand_dims(rg, 0), [0])|one_hot(ri, 4)|argmax(m, <0|1>)|math.unsorted_segment_sum(rg, [0, 1, 1, 0], 2)|math.segment_sum(rg, [0, 0, 1, 1])|strings.join([tf.as_string(ri), tf.as_string(ri)])>",
    "rg<.to_tensor(<|0.5>)|.row_lengths()|.value_rowids()|.nrows()|.bounding_shape()|[1]|[:, :1]|[:, 1:]|[2:, -1:]|[0, 1]|.with_values(v * 2.0)|.to_sparse()|[..., tf.newaxis]|[::2]|.nested_row_splits[0]|[:, ::2]|[3, 0:2]|.row_starts()|.row_limits()>",
)  # fmt: skip
_METRICS = (
    "accuracy(labels, A)", "auc(b, p, num_thresholds=<10|200>, curve='<ROC|PR>', summation_method='<trapezoidal|careful_interpolation|minoring|majoring>')",
    "average_precision_at_k(labels[:, tf.newaxis], m, <1|2>)", "false_negatives(b, tf.greater(p, 0.3))", "false_positives(b, tf.greater(p, 0.3), weights=<None|q>)",
    "false_negatives_at_thresholds(b, p, [0.2, 0.5])", "mean(p, weights=<None|q|q[:, :1]|2.0>)", "mean_absolute_error(q, p<|, weights=q>)",
    "mean_cosine_distance(tf.nn.l2_normalize(q, 1), tf.nn.l2_normalize(p, 1), 1)", "mean_iou(labels, A, 3)", "mean_per_class_accuracy(labels, A, 3)",
    "mean_relative_error(q, p, q + 0.1)", "mean_squared_error(q, p)", "mean_tensor(p<|, weights=q>)", "percentage_below(p, <0.2|0.5>)",
    "precision(b, tf.greater(p, 0.4))", "precision_at_k(labels[:, tf.newaxis], m, <1|2>, class_id=<None|1>)", "precision_at_thresholds(b, p, [0.1, 0.6])",
    "recall(b, tf.greater(p, 0.3), weights=<None|q>)", "recall_at_k(labels[:, tf.newaxis], m, <1|2>, class_id=<None|0>)", "recall_at_thresholds(b, p, [0.2])",
    "root_mean_squared_error(q, p, weights=<None|q>)", "sensitivity_at_specificity(b, p, <0.5|0.9>)", "specificity_at_sensitivity(b, p, 0.6)",
    "sparse_average_precision_at_k(labels[:, tf.newaxis], m, 2)", "true_negatives(b, tf.greater(p, 0.5))", "true_positives_at_thresholds(b, p, [0.3, 0.9])",
    "recall_at_top_k(labels[:, tf.newaxis], tf.nn.top_k(m, 2)[1])", "precision_at_top_k(labels[:, tf.newaxis], tf.nn.top_k(m, 2)[1], <None|1>)",
)  # fmt: skip


def drawn(template: str, random: Random) -> str:
    """The template with each of its choices made."""
    while (found := _CHOICE.search(template)) is not None:
        template = template[: found.start()] + random.choice(found[1].split("|")) + template[found.end() :]
    return template


_TABLES = (_LOSSES, _IMAGES, _MATRICES, _SPARSE)


def write(random: Random) -> str:
    """A script with some calls, or with streaming metrics over some steps."""
    lines = [_BEGINNING.format(seed=random.randrange(1000)).strip("\n"), ""]
    if random.random() < 0.25:
        return "\n".join([*lines, *_streams(random)]) + "\n"
    for i in range(8):
        call = drawn(random.choice(random.choice(_TABLES)), random)
        lines.append(f"show('{i}', lambda: {call})")
    return "\n".join(lines) + "\n"


def _streams(random: Random) -> list[str]:
    lines = ["A = tf.argmax(m, 1)", "found = {}"]
    for i, template in enumerate(random.sample(_METRICS, 4)):
        lines.append(f"attempt('made {i}', lambda: found.update({{{i}: tf.metrics.{drawn(template, random)}}}))")
    lines += [
        "session.run(tf.local_variables_initializer())",
        "for i, (value, update) in sorted(found.items()):",
        "    see('%d shape' % i, value.shape)",
        "    attempt('%d first' % i, lambda: session.run(value))",
        "    for x in (0.7, 0.2, 1.3):",
        "        attempt('%d update' % i, lambda: session.run(update, {s: x}))",
        "    attempt('%d last' % i, lambda: session.run(value))",
    ]
    return lines
