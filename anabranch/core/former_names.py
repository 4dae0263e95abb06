"""Names that TensorFlow had before version 1.0, or has since version 2, and what has their place in version 1.15.

A program of 2016 may still use the former ones, and one that was half moved to version 2 the latter; TensorFlow 1.15
itself has none of them.
"""

from __future__ import annotations

from typing import Final

_OF_MATRICES: Final = "band_part determinant diag diag_part inverse set_diag solve solve_ls transpose triangular_solve"

#: by the path below `tf`: what to write instead
INSTEAD: Final[dict[str, str]] = {
    "audio_summary": "tf.summary.audio",
    "batch_cholesky": "tf.cholesky",
    "batch_cholesky_solve": "tf.cholesky_solve",
    **{f"batch_{inverse}fft{rank}": f"tf.{inverse}fft{rank}" for inverse in ("", "i") for rank in ("", "2d", "3d")},
    "batch_matmul": "tf.matmul",
    **{f"batch_matrix_{what}": f"tf.matrix_{what}" for what in _OF_MATRICES.split()},
    "batch_self_adjoint_eig": "tf.self_adjoint_eig",
    "batch_self_adjoint_eigvals": "tf.self_adjoint_eigvals",
    "batch_svd": "tf.svd",
    "complex_abs": "tf.abs",
    "concat_v2": "tf.concat",
    "data.experimental.AutoShardPolicy": "tf.data.Dataset.shard",
    "histogram_summary": "tf.summary.histogram",
    "image.per_image_whitening": "tf.image.per_image_standardization",
    "image_summary": "tf.summary.image",
    "inv": "tf.reciprocal",
    "listdiff": "tf.setdiff1d",
    "merge_all_summaries": "tf.summary.merge_all",
    "merge_summary": "tf.summary.merge",
    "models": "the models have a repository of their own (github.com/tensorflow/models): put its folder on PYTHONPATH",
    "mul": "tf.multiply",
    "neg": "tf.negative",
    "nn.bidirectional_rnn": "tf.nn.static_bidirectional_rnn",
    "nn.deconv2d": "tf.nn.conv2d_transpose",
    "nn.rnn": "tf.nn.static_rnn",
    "nn.seq2seq": "tf.contrib.legacy_seq2seq",
    "nn.state_saving_rnn": "tf.nn.static_state_saving_rnn",
    "optimizers": "tf.train, whose classes end with Optimizer",
    "pack": "tf.stack",
    "python.summary.event_accumulator": "tensorboard.backend.event_processing.event_accumulator, of another package",
    "random.set_seed": "tf.set_random_seed",
    "scalar_summary": "tf.summary.scalar",
    "select": "tf.where",
    "sub": "tf.subtract",
    "summary.SummaryWriter": "tf.summary.FileWriter",
    "summary.create_file_writer": "tf.summary.FileWriter, or tf.contrib.summary.create_file_writer",
    "summary.record_if": "tf.contrib.summary.record_summaries_every_n_global_steps",
    "tensorboard": "the package tensorboard: pip install 'anabranch[board]'",
    "tools.graph_transforms": "tf.graph_util.remove_training_nodes, extract_sub_graph and quantize_graph",
    "train.SummaryWriter": "tf.summary.FileWriter",
    "unpack": "tf.unstack",
}


def instead_of(path: str) -> str | None:
    """What to write for a name that TensorFlow 1.15 has no more, or not yet; None where it is none of them.

    Args:
        path: below `tf`: "train.SummaryWriter"; of "nn.seq2seq.model_with_buckets", the module counts.
    """
    while path:
        if path in INSTEAD:
            return INSTEAD[path]
        path = path.rpartition(".")[0]
    return None
