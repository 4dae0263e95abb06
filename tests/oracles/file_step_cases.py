"""Files, readers, summaries, pictures and pools, for `make_step_fixture.py`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tests.oracles.step_cases import WithResources, sample, written

_CHECKPOINT = Path(__file__).parents[1] / "fixtures" / "tensorflow" / "ref_variables.ckpt"


def files(tf: Any) -> list[Any]:
    R = tf.raw_ops
    path = Path(written("one.txt", b"text\0\xff"))
    for name in ("two.txt", "other"):
        (path.parent / name).write_bytes(b"")
    write = R.WriteFile(filename=str(path.parent / "new" / "three.txt"), contents=b"new\n\xfe")
    patterns = [str(path.parent / p) for p in ("*.txt", "o*", "none*")]
    found = R.MatchingFiles(pattern=patterns)
    return [
        R.ReadFile(filename=str(path)),
        R.ReadFile(filename=str(path.parent / "two.txt")),
        R.ReadFile(filename=str(path.parent / "nothing")),
        tf.shape(found),
        tf.strings.regex_replace(R.MatchingFiles(pattern=patterns[0]), ".*/", ""),
        tf.shape(R.MatchingFiles(pattern=patterns[2])),
        write,
        R.ReadFile(filename=str(path.parent / "new" / "three.txt")),
    ]


def readers(tf: Any) -> list[Any]:
    return _readers(tf, tf.raw_ops)


def readers_with_resources(tf: Any) -> list[Any]:
    return _readers(tf, WithResources(tf))


def _readers(tf: Any, R: Any) -> list[Any]:
    paths = [written("a", b"one"), written("b", b""), written("c", b"three")]
    reader = R.WholeFileReader(shared_name="r")
    queue = R.FIFOQueue(component_types=[tf.string], shapes=[[]], capacity=9, shared_name="q")
    counts = [R.ReaderNumRecordsProduced(reader_handle=reader), R.ReaderNumWorkUnitsCompleted(reader_handle=reader)]
    one = R.ReaderRead(reader_handle=reader, queue_handle=queue).value
    some = R.ReaderReadUpTo(reader_handle=reader, queue_handle=queue, num_records=np.int64(5))
    state = R.ReaderSerializeState(reader_handle=reader)
    return [
        R.QueueEnqueueMany(handle=queue, components=[paths]),
        counts,
        one,
        counts,
        some.values,
        counts,
        R.ReaderRestoreState(reader_handle=reader, state="nonsense"),
        R.ReaderReset(reader_handle=reader),
        counts,
        one,
        counts,
        R.QueueClose(handle=queue),
        one,
        tf.strings.length(state) > 0,
    ]


def records_of_files(tf: Any) -> list[Any]:
    """Their order is random."""
    path = Path(written("x.tfrecord", b""))
    with tf.python_io.TFRecordWriter(str(path)) as writer:
        for text in (b"a", b"", b"ccc"):
            writer.write(text)
    found = tf.raw_ops.RecordInput(file_pattern=str(path), batch_size=3, file_buffer_size=3, file_parallelism=1)
    return [tf.sort(tf.strings.length(found)), tf.shape(found)]


def vocabularies(tf: Any) -> list[Any]:
    R, steps = tf.raw_ops, []
    new, old = written("new", b"b\nx\na\nc\n"), written("old", b"a\nb\nc\n")
    for offset, count, size in ((0, 4, -1), (1, 2, -1), (0, 4, 2), (3, 1, 1), (2, 0, -1)):
        steps.append(
            R.GenerateVocabRemapping(
                new_vocab_file=new,
                old_vocab_file=old,
                new_vocab_offset=offset,
                num_new_vocab=count,
                old_vocab_size=size,
            )
        )
    return [
        *steps,
        R.GenerateVocabRemapping(new_vocab_file=new, old_vocab_file=old, new_vocab_offset=3, num_new_vocab=9),
    ]


def matrices_of_checkpoints(tf: Any) -> list[Any]:
    v = tf.Variable(sample(4, 3), name="m", use_resource=True)
    path = str(Path(written("x", b"")).parent / "model")
    slices = tf.raw_ops.SaveV2(prefix=path, tensor_names=["m"], shape_and_slices=[""], tensors=[v.read_value()])
    steps: list[Any] = [v.initializer, slices]
    for rows, columns, given, most in (
        ([3, -1, 0], [2, 0, 1], [7, np.nan, 9], -1),
        ([0, 1], [], [], -1),
        ([3, 1, 2], [], [], 1),
        ([-1], [-1, 2], [5], -1),
        ([0, 0], [], [], -1),
    ):
        width = len(columns) or 3
        steps.append(
            tf.raw_ops.LoadAndRemapMatrix(
                ckpt_path=path,
                old_tensor_name="m",
                row_remapping=np.int64(rows),
                col_remapping=np.int64(columns),
                initializing_values=np.float32(given),
                num_rows=len(rows),
                num_cols=width,
                max_rows_in_memory=most,
            )
        )
    return steps


def shrunk_weights(tf: Any) -> list[Any]:
    R, steps = tf.raw_ops, []
    for l1, l2 in ((0.5, 1.0), (0.0, 2.0), (3.0, 0.5)):
        refs = [R.VariableV2(shape=[n], dtype=tf.float32) for n in (4, 1, 0)]
        values = [np.float32([1, -2, 0.1, np.inf]), np.float32([-0.5]), np.float32([])]
        steps += [
            [R.Assign(ref=r, value=tf.constant(v)) for r, v in zip(refs, values, strict=True)],
            R.SdcaShrinkL1(weights=refs, l1=l1, l2=l2),
            refs,
        ]
    return steps


def summaries(tf: Any) -> list[Any]:
    R, steps = tf.raw_ops, []
    sound = np.clip(sample(2, 10, 1), -1, 1)
    texts = [
        R.TensorSummary(tensor=np.float32([[1, np.nan]]), description="d", labels=["l"], display_name="n"),
        R.TensorSummary(tensor=np.array(["a", ""])),
        R.TensorSummaryV2(tag="t", tensor=np.int64([3]), serialized_summary_metadata=b"\n\x05\n\x03abc"),
        R.TensorSummaryV2(tag="t", tensor=np.zeros((0, 2), np.float64), serialized_summary_metadata=b""),
    ]
    for kind, images in (
        (np.uint8, (np.arange(24) * 10).reshape(2, 2, 2, 3)),
        (np.float32, np.arange(8).reshape(2, 2, 2, 1)),
    ):
        texts.append(R.ImageSummary(tag="i", tensor=images.astype(kind), max_images=1))
    heard = R.AudioSummaryV2(tag="s", tensor=sound, sample_rate=np.float32(100), max_outputs=2)

    def fields(session: Any) -> Any:
        found = []
        for text in session.run([*texts, heard]):
            for value in tf.Summary.FromString(text).value:
                found += [
                    value.tag,
                    value.WhichOneof("value"),
                    value.metadata.display_name,
                    value.metadata.summary_description,
                ]
                if value.HasField("tensor"):
                    found.append(tf.make_ndarray(value.tensor))
                if value.HasField("image"):
                    found += [value.image.height, value.image.width, value.image.colorspace]
                if value.HasField("audio"):
                    audio = value.audio
                    found += [audio.sample_rate, audio.num_channels, audio.length_frames, audio.content_type]
                    found.append(audio.encoded_audio_string)
        return [np.asarray(v.encode() if isinstance(v, str) else v) for v in found]

    return [*steps, fields]


def encoded_pictures(tf: Any) -> list[Any]:
    """What is decoded again; encoders of JPEG differ by a little."""
    R, found = tf.raw_ops, []
    slope = np.add.outer(np.arange(16), np.arange(24)) * 6
    picture = np.stack([slope, 255 - slope, slope // 2 + 20], -1).astype(np.uint8)
    for kind in (np.uint8, np.uint16):
        for image in (picture, picture[..., :1], np.concatenate([picture, picture[..., :1]], -1), picture[..., :2]):
            text = R.EncodePng(image=image.astype(kind) * (257 if kind is np.uint16 else 1), compression=3)
            found.append(R.DecodePng(contents=text, dtype=tf.as_dtype(kind)))
    for text in (
        R.EncodeJpeg(image=picture, quality=95),
        R.EncodeJpeg(image=picture[..., :1], quality=90, format="grayscale"),
        R.EncodeJpegVariableQuality(images=picture, quality=95),
    ):
        back = R.DecodeJpeg(contents=text)
        original = tf.cast(
            picture[..., :1] if text.op.type == "EncodeJpeg" and text.op.get_attr("format") else picture, tf.float32
        )
        found += [tf.shape(back), tf.reduce_mean(tf.abs(tf.cast(back, tf.float32) - original)) < 4]
    return [found, R.EncodeJpeg(image=np.zeros((2, 2, 4), np.uint8))]


def fractional_pools(tf: Any) -> list[Any]:
    """With a ratio that leaves no choice: all regions are alike."""
    R, found = tf.raw_ops, []
    for dtype, overlapping in ((np.float32, True), (np.float64, False), (np.int64, False)):
        x = tf.constant((sample(2, 4, 6, 1, seed=6) * 10).astype(dtype))
        for name in ("FractionalAvgPool", "FractionalMaxPool"):
            options = {"deterministic": True, "seed": 3, "seed2": 4, "overlapping": overlapping}
            pooled = getattr(R, name)(value=x, pooling_ratio=[1.0, 2.0, 2.0, 1.0], **options)
            found += list(pooled)
            if dtype == np.float64:
                found += tf.gradients(tf.square(pooled.output), x)
    other = R.FractionalMaxPool(value=x, pooling_ratio=[1.0, 1.44, 1.73, 1.0], **options)
    rows = other.row_pooling_sequence
    return [[*found, tf.shape(other.output), rows[0], rows[-1]]]


def glimpses(tf: Any) -> list[Any]:
    R, found = tf.raw_ops, []
    x = sample(2, 5, 6, 2, seed=7)
    x[0, 2, 3, 0] = np.nan
    for centered in (True, False):
        for normalized in (True, False):
            for offsets in ([[0, 0], [0.5, -0.25]], [[1, 2], [3, 3]]):
                drawn = R.ExtractGlimpse(
                    input=x,
                    size=[2, 3],
                    offsets=np.float32(offsets),
                    centered=centered,
                    normalized=normalized,
                    uniform_noise=False,
                    noise="zero",
                )
                found.append(drawn)
    return [found]
