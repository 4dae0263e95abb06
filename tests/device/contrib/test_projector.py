"""`tf.contrib.tensorboard.plugins.projector`: the file that TensorBoard reads."""

from __future__ import annotations

from pathlib import Path

import pytest

import anabranch as tf

#: what TensorBoard 2.21's own messages print
EXPECTED = """model_checkpoint_path: "model.ckpt"
embeddings {
  tensor_name: "words:0"
  metadata_path: "words.tsv"
  tensor_shape: 7
  tensor_shape: 3
  sprite {
    image_path: "words.png"
    single_image_dim: 28
    single_image_dim: 30
  }
}
"""


@pytest.mark.parametrize("by_writer", [True, False])
def test_the_file_that_tensorboard_reads(tmp_path: Path, by_writer: bool) -> None:
    projector = tf.contrib.tensorboard.plugins.projector
    config = projector.ProjectorConfig(model_checkpoint_path="model.ckpt")
    embedding = config.embeddings.add()
    embedding.tensor_name = "words:0"
    embedding.metadata_path = "words.tsv"
    embedding.tensor_shape.extend([7, 3])
    embedding.sprite.image_path = "words.png"
    embedding.sprite.single_image_dim.extend([28, 30])
    folder = tmp_path / "log"
    if by_writer:
        with tf.summary.FileWriter(str(folder)) as writer:
            projector.visualize_embeddings(writer, config)
    else:
        projector.visualize_embeddings(str(folder), config)
    assert (folder / "projector_config.pbtxt").read_text() == EXPECTED


def test_no_directory() -> None:
    projector = tf.contrib.tensorboard.plugins.projector
    with pytest.raises(ValueError, match="must have a logdir"):
        projector.visualize_embeddings("", projector.ProjectorConfig())
