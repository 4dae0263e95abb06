"""The operations on readers, run by sessions.

WholeFileReaderV2, IdentityReaderV2, TextLineReaderV2, TFRecordReaderV2, FixedLengthRecordReaderV2; ReaderReadV2,
ReaderReadUpToV2, ReaderNumRecordsProducedV2, ReaderNumWorkUnitsCompletedV2, ReaderResetV2, ReaderSerializeStateV2,
ReaderRestoreStateV2.
"""

from __future__ import annotations

import gzip
import json
import threading
from pathlib import Path
from typing import Any

import pytest

import anabranch as tf

DEADLINE = 30.0


def files(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "text").write_bytes(b"1\n2\n3\n")
    (tmp_path / "fixed").write_bytes(b"H123")
    with tf.python_io.TFRecordWriter(str(tmp_path / "records")) as writer:
        for record in (b"1", b"2", b"3"):
            writer.write(record)
    return {name: str(tmp_path / name) for name in ("text", "fixed", "records")}


LMDB = Path(__file__).parents[2] / "fixtures" / "lmdb"


def test_a_reader_of_lmdb_databases(tmp_path: Path) -> None:
    """_LMDBReader; what the library itself reads."""
    path = tmp_path / "small.mdb"
    path.write_bytes(gzip.decompress((LMDB / "small.mdb.gz").read_bytes()))
    recorded = json.loads(gzip.decompress((LMDB / "records.json.gz").read_bytes()))["small"]
    expected = [(key.encode("latin-1"), value.encode("latin-1")) for key, value in recorded]
    queue = tf.FIFOQueue(10, tf.string, shapes=[[]])
    records = [tf.LMDBReader().read(queue)]
    older = tf.raw_ops.LMDBReader()
    records.append(tf.raw_ops.ReaderRead(reader_handle=older, queue_handle=queue.queue_ref))
    with tf.Session() as session:
        for record in records:
            session.run(queue.enqueue([str(path)]))
            assert [tuple(session.run(tuple(record))) for _ in expected] == expected


READERS: dict[str, Any] = {
    "text": tf.TextLineReader,
    "fixed": lambda: tf.FixedLengthRecordReader(1, header_bytes=1),
    "records": tf.TFRecordReader,
}


@pytest.mark.parametrize("kind", sorted(READERS))
def test_records_counts_and_position(kind: str, tmp_path: Path) -> None:
    path = files(tmp_path)[kind]
    queue = tf.FIFOQueue(10, tf.string, shapes=[[]])
    reader, other = READERS[kind](), READERS[kind]()
    key, value = reader.read(queue)
    several = reader.read_up_to(queue, 10)
    assert [t.shape.as_list() for t in (key, *several)] == [[], [None], [None]]
    state = tf.placeholder(tf.string, [])
    restored, other_value = other.restore_state(state), other.read(queue).value
    with tf.Session() as session:
        session.run(queue.enqueue(path))
        first_key, first = session.run([key, value])
        assert first == b"1"
        assert first_key.startswith(path.encode() + b":")
        saved = session.run(reader.serialize_state())
        assert session.run(several).values.tolist() == [b"2", b"3"]
        session.run(restored, {state: saved})
        assert session.run(other_value) == b"2"
        session.run(queue.enqueue(path))
        session.run(queue.close())
        assert session.run(value) == b"1"
        assert session.run([reader.num_records_produced(), reader.num_work_units_completed()]) == [4, 1]
        session.run(reader.reset())
        assert session.run(reader.num_records_produced()) == 0
        with pytest.raises(tf.errors.OutOfRangeError, match="insufficient elements"):
            session.run(value)
        with pytest.raises(tf.errors.InvalidArgumentError, match="Could not parse state"):
            session.run(restored, {state: saved[1:]})


def test_a_read_waits_for_a_name(tmp_path: Path) -> None:
    path = files(tmp_path)["text"]
    queue = tf.FIFOQueue(10, tf.string)
    whole, identity = tf.WholeFileReader().read(queue), tf.IdentityReader().read(queue)
    found: list[Any] = []
    with tf.Session() as session:
        thread = threading.Thread(target=lambda: found.append(session.run(whole)), daemon=True)
        thread.start()
        session.run(queue.enqueue(path))
        thread.join(DEADLINE)
        assert found[0] == (path.encode(), b"1\n2\n3\n")
        session.run(queue.enqueue("anything"))
        assert session.run(identity).value == b"anything"


def test_corrupt_and_missing_files(tmp_path: Path) -> None:
    path = files(tmp_path)["records"]
    data = bytearray(Path(path).read_bytes())
    data[17 + 12] ^= 1
    Path(path).write_bytes(bytes(data))
    queue = tf.FIFOQueue(10, tf.string)
    value = tf.TFRecordReader().read(queue, name="read_records").value
    with tf.Session() as session:
        session.run(queue.enqueue(path))
        assert session.run(value) == b"1"
        with pytest.raises(tf.errors.DataLossError, match="records' at byte offset 17") as caught:
            session.run(value)
        assert caught.value.op.name == "read_records"
        session.run(queue.enqueue(str(tmp_path / "nowhere")))
        with pytest.raises(tf.errors.NotFoundError, match="nowhere"):
            session.run(value)


def test_a_queue_of_something_else() -> None:
    numbers, pairs = tf.FIFOQueue(10, tf.int32), tf.FIFOQueue(10, [tf.string, tf.string])
    reader = tf.IdentityReader()
    with tf.Session() as session:
        with pytest.raises(tf.errors.InvalidArgumentError, match="single string component"):
            session.run(reader.read(numbers))
        with pytest.raises(tf.errors.InvalidArgumentError, match="single component queue"):
            session.run(reader.read(pairs))
