"""Files of serialized examples: reading them in batches, and writing datasets (WP4.5)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from anabranch.core import dtypes
from anabranch.core.shapes import TensorShape
from anabranch.core.values import TensorLike
from anabranch.frontend.data.datasets import Dataset
from anabranch.frontend.data.experimental import AUTOTUNE, parallel_interleave, parse_example_dataset
from anabranch.frontend.data.readers import TFRecordDataset
from anabranch.frontend.data.structure import TensorComponent, are_compatible
from anabranch.graph.conversion import convert_to_tensor
from anabranch.graph.operation import Operation
from anabranch.ops import raw


class DatasetRecordWriter:
    """Writes a dataset of strings to a TFRecord file.

    Args:
        filename: string scalar.
        compression_type: "" (none), "ZLIB" or "GZIP".

    Raises:
        nothing

    Example:
        >>> words = tf.data.Dataset.from_tensor_slices(["one", "two"])
        >>> _ = sess.run(tf.data.experimental.TFRecordWriter("words").write(words))
        >>> sess.run(tf.data.make_one_shot_iterator(tf.data.TFRecordDataset("words")).get_next())
        b'one'
    """

    def __init__(self, filename: TensorLike, compression_type: TensorLike | None = None) -> None:
        self._filename = convert_to_tensor(filename, dtypes.string, name="filename")
        compression = "" if compression_type is None else compression_type
        self._compression_type = convert_to_tensor(compression, dtypes.string, name="compression_type")

    def write(self, dataset: Dataset) -> Operation:
        """The operation that writes the elements of a dataset, each a record.

        Raises:
            TypeError: it is no dataset, or its elements are no string scalars.
        """
        if not isinstance(dataset, Dataset):
            raise TypeError(f"`dataset` must be a `tf.data.Dataset` object, got {dataset!r}.")
        if not are_compatible(TensorComponent(dtypes.string, TensorShape([])), dataset._structure):
            raise TypeError(
                "`dataset` must produce scalar `DT_STRING` tensors whereas it produces shape "
                f"{dataset.output_shapes} and types {dataset.output_types}"
            )
        made: Operation = raw.DatasetToTFRecord(dataset._variant_tensor, self._filename, self._compression_type)
        return made


def make_batched_features_dataset(
    file_pattern: TensorLike,
    batch_size: TensorLike,
    features: Mapping[str, Any],
    reader: Callable[..., Dataset] = TFRecordDataset,
    label_key: str | None = None,
    reader_args: Sequence[Any] | None = None,
    num_epochs: int | None = None,
    shuffle: bool = True,
    shuffle_buffer_size: int = 10000,
    shuffle_seed: int | None = None,
    prefetch_buffer_size: TensorLike | None = None,
    reader_num_threads: int | None = None,
    parser_num_threads: int | None = None,
    sloppy_ordering: bool = False,
    drop_final_batch: bool = False,
) -> Dataset:
    """Batches of the serialized `tf.train.Example`s of files, parsed.

    Args:
        file_pattern: a pattern of file names, or a list of them.
        batch_size: records in a batch.
        features: name -> `FixedLenFeature`, `VarLenFeature`, ...; as for `tf.io.parse_example`.
        reader: called with a file name and `reader_args`, gives a dataset of string scalars, or of pairs whose second
            parts are.
        label_key: this feature is taken out of the dict: elements are then (dict, feature).
        num_epochs: how often to read the files; None: endlessly, in whole batches.
        shuffle, shuffle_buffer_size, shuffle_seed: as for `Dataset.shuffle`; the files are shuffled, too.
        prefetch_buffer_size: batches to compute ahead; default: it is left to us.
        reader_num_threads: how many files to read at once (default 1), whose records then take turns.
        parser_num_threads: how many batches to parse at once (default 2).
        sloppy_ordering: accepted; the order stays.
        drop_final_batch: whether to leave out a last batch that is smaller.

    Returns:
        A dataset of dicts from names to tensors and sparse tensors.

    Raises:
        ValueError: `label_key` is none of the features.
    """
    if label_key is not None and label_key not in features:
        raise ValueError(f"The `label_key` provided ({label_key!r}) must be one of the `features` keys.")
    arguments = list(reader_args or ())
    cycle = 1 if reader_num_threads is None else reader_num_threads
    names = Dataset.list_files(file_pattern, shuffle=shuffle, seed=shuffle_seed)
    records = names.apply(
        parallel_interleave(lambda name: reader(name, *arguments), cycle_length=cycle, sloppy=sloppy_ordering)
    )
    if records.output_types == (dtypes.string, dtypes.string):
        records = records.map(lambda _, value: value)
    if shuffle:
        records = records.shuffle(shuffle_buffer_size, shuffle_seed)
    if num_epochs != 1:
        records = records.repeat(num_epochs)
    batches = records.batch(batch_size, drop_remainder=drop_final_batch or num_epochs is None)
    parsed = batches.apply(parse_example_dataset(features, 2 if parser_num_threads is None else parser_num_threads))
    if label_key is not None:
        parsed = parsed.map(lambda row: ({k: v for k, v in row.items() if k != label_key}, row[label_key]))
    return parsed.prefetch(AUTOTUNE if prefetch_buffer_size is None else prefetch_buffer_size)
