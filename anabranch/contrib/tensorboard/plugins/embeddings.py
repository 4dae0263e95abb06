"""What TensorBoard's projector shows: a file in a training's directory names the variables, their labels and images."""

from __future__ import annotations

import os
from typing import Final

from google.protobuf import text_format
from google.protobuf.message import Message

import anabranch as tf

_FILE: Final = "projector_config.pbtxt"


def visualize_embeddings(summary_writer: tf.summary.FileWriter | str | os.PathLike[str], config: Message) -> None:
    """Writes the file that TensorBoard's projector looks for.

    Args:
        summary_writer: a writer into the directory of the checkpoints; or the directory.
        config: a `ProjectorConfig`, which names the variables in its field `embeddings`.

    Raises:
        ValueError: there is no directory.

    Example:
        >>> config = tf.contrib.tensorboard.plugins.projector.ProjectorConfig()
        >>> config.embeddings.add().tensor_name = "words"
        >>> with tf.summary.FileWriter("directory") as writer:
        ...     tf.contrib.tensorboard.plugins.projector.visualize_embeddings(writer, config)
        >>> print(open("directory/projector_config.pbtxt").read())
        embeddings {
          tensor_name: "words"
        }
        <BLANKLINE>
    """
    folder = summary_writer if isinstance(summary_writer, str | os.PathLike) else summary_writer.get_logdir()
    if not folder:
        raise ValueError(f"Summary writer must have a logdir, got {summary_writer!r}; make a tf.summary.FileWriter")
    tf.gfile.MakeDirs(os.fsdecode(folder))
    with tf.gfile.GFile(os.path.join(folder, _FILE), "w") as file:
        file.write(text_format.MessageToString(config))
