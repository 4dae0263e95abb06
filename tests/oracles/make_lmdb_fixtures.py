"""Writes tests/fixtures/lmdb: databases of the library LMDB, compressed, and what it reads in them (`records.json.gz`).

Run in an environment that has the Python package lmdb, from this folder.
"""

from __future__ import annotations

import gzip
import json
import random
import tempfile
from pathlib import Path

import lmdb

FIXTURES = Path(__file__).parents[1] / "fixtures" / "lmdb"
#: name -> (records, share of those with long values)
DATABASES = {"empty": (0, 0.0), "small": (5, 0.0), "long_values": (20, 0.3), "deep": (1200, 0.0)}


def main() -> None:
    random.seed(2)
    records = {}
    for name, (count, long) in DATABASES.items():
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "data.mdb"
            environment = lmdb.open(str(path), map_size=1 << 26, subdir=False, lock=False)
            for part in range(2):
                with environment.begin(write=True) as transaction:
                    for _ in range(count // 2 + part * count % 2):
                        size = random.randint(3000, 9000) if random.random() < long else random.choice([0, 1, 7, 90])
                        transaction.put(b"key%06d" % random.randrange(10**6), bytes([random.randrange(256)]) * size)
            with environment.begin() as transaction:
                records[name] = [
                    [bytes(k).decode("latin-1"), bytes(v).decode("latin-1")] for k, v in transaction.cursor()
                ]
            environment.close()
            (FIXTURES / f"{name}.mdb.gz").write_bytes(gzip.compress(path.read_bytes(), 9, mtime=0))
        print(name, len(records[name]), "records")
    (FIXTURES / "records.json.gz").write_bytes(gzip.compress(json.dumps(records).encode(), 9, mtime=0))


if __name__ == "__main__":
    main()
