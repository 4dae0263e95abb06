"""Events in a SQLite database, in the tables that TensorBoard read: runs of experiments of users, series of tensors by
tag, graphs.

A row is found again by its name: a run that exists goes on. Identifiers are random numbers that `Ids` holds, so that
databases can be joined. What an event holds in one of the older forms becomes a tensor: a number, a histogram of rows
(from, to, how many), pictures and sounds as strings.
"""

from __future__ import annotations

import random
import sqlite3
import sys
import time
from typing import Any, Final

import numpy as np

from anabranch.core.dtypes import as_dtype
from anabranch.errors import UnknownError
from anabranch.proto.graph_pb2 import GraphDef, NodeDef
from anabranch.proto.summary_pb2 import Event, Summary
from anabranch.proto.tensors import make_ndarray

#: table -> its columns
_TABLES: Final = {
    "Ids": "id INTEGER PRIMARY KEY",
    "Descriptions": "id INTEGER PRIMARY KEY, description TEXT",
    "Tensors": "rowid INTEGER PRIMARY KEY, series INTEGER, step INTEGER, dtype INTEGER, computed_time REAL, "
    "shape TEXT, data BLOB",
    "TensorStrings": "rowid INTEGER PRIMARY KEY, tensor_rowid INTEGER NOT NULL, idx INTEGER NOT NULL, data BLOB",
    "Tags": "rowid INTEGER PRIMARY KEY, run_id INTEGER, tag_id INTEGER NOT NULL, inserted_time DOUBLE, tag_name TEXT, "
    "display_name TEXT, plugin_name TEXT, plugin_data BLOB",
    "Runs": "rowid INTEGER PRIMARY KEY, experiment_id INTEGER, run_id INTEGER NOT NULL, inserted_time REAL, "
    "started_time REAL, finished_time REAL, run_name TEXT",
    "Experiments": "rowid INTEGER PRIMARY KEY, user_id INTEGER, experiment_id INTEGER NOT NULL, inserted_time REAL, "
    "started_time REAL, is_watching INTEGER, experiment_name TEXT",
    "Users": "rowid INTEGER PRIMARY KEY, user_id INTEGER NOT NULL, inserted_time REAL, user_name TEXT, email TEXT",
    "Graphs": "rowid INTEGER PRIMARY KEY, run_id INTEGER, graph_id INTEGER NOT NULL, inserted_time REAL, "
    "graph_def BLOB",
    "Nodes": "rowid INTEGER PRIMARY KEY, graph_id INTEGER NOT NULL, node_id INTEGER NOT NULL, node_name TEXT, op TEXT, "
    "device TEXT, node_def BLOB",
    "NodeInputs": "rowid INTEGER PRIMARY KEY, graph_id INTEGER NOT NULL, node_id INTEGER NOT NULL, "
    "idx INTEGER NOT NULL, input_node_id INTEGER NOT NULL, input_node_idx INTEGER, is_control INTEGER",
}
#: unique index -> table and columns; those that end with ? may be missing
_INDEXES: Final = {
    "TensorSeriesStepIndex": ("Tensors", "series?, step?"),
    "TensorStringIndex": ("TensorStrings", "tensor_rowid, idx"),
    "TagIdIndex": ("Tags", "tag_id"),
    "TagRunNameIndex": ("Tags", "run_id?, tag_name?"),
    "RunIdIndex": ("Runs", "run_id"),
    "RunNameIndex": ("Runs", "experiment_id, run_name?"),
    "ExperimentIdIndex": ("Experiments", "experiment_id"),
    "ExperimentNameIndex": ("Experiments", "user_id, experiment_name?"),
    "UserIdIndex": ("Users", "user_id"),
    "UserNameIndex": ("Users", "user_name?"),
    "UserEmailIndex": ("Users", "email?"),
    "GraphIdIndex": ("Graphs", "graph_id"),
    "GraphRunIndex": ("Graphs", "run_id?"),
    "NodeIdIndex": ("Nodes", "graph_id, node_id"),
    "NodeNameIndex": ("Nodes", "graph_id, node_name?"),
    "NodeInputsIndex": ("NodeInputs", "graph_id, node_id, idx"),
}
#: identifiers below this are tried first, a few times, then those below eight times as many, ...
_FIRST_TIER: Final = 1 << 23
_TRIES: Final = 4


class SummaryDatabase:
    """One run, to which events are added. Not thread-safe.

    Args:
        path: the file; it is made if it is not there.
        experiment, run, user: names; those that are empty get no rows.

    Raises:
        UnknownError: it cannot be opened, or is no database.
    """

    def __init__(self, path: str, experiment: str, run: str, user: str) -> None:
        self._path = path
        self._experiment, self._run, self._user = experiment, run, user
        self._experiment_id: int | None = None
        self._run_id: int | None = None
        self._begun = False
        try:
            # steps run in several threads, one after the other
            self._database = sqlite3.connect(path, check_same_thread=False, uri=path.startswith("file:"))
        except sqlite3.Error as error:
            raise self._failed(error) from error
        try:
            with self._database:
                for table, columns in _TABLES.items():
                    self._database.execute(f"CREATE TABLE IF NOT EXISTS {table} ({columns})")
                for index, (table, listed) in _INDEXES.items():
                    self._database.execute(_index(index, table, listed))
        except sqlite3.Error as error:
            self._database.close()
            raise self._failed(error) from error

    def _failed(self, error: sqlite3.Error) -> UnknownError:
        return UnknownError(None, None, f"the database of summaries {self._path!r} cannot be written: {error}")

    # ------------------------------------------------------------------ what a writer of events does
    def write_event(self, event: Event) -> None:
        """Adds what an event holds: summaries, or a graph."""
        try:
            self._begin(event.wall_time)
            if event.HasField("graph_def"):
                self._write_graph(GraphDef.FromString(event.graph_def), event.wall_time)
            for value in event.summary.value:
                self._write_value(value, event)
        except sqlite3.Error as error:
            raise self._failed(error) from error

    def flush(self) -> None:
        """Everything is in the file."""
        try:
            self._database.commit()
        except sqlite3.Error as error:
            raise self._failed(error) from error

    def close(self) -> None:
        """Says when the run ended, and closes the file."""
        try:
            if self._run_id is not None:
                self._database.execute(
                    "UPDATE Runs SET finished_time = ? WHERE run_id = ?", (time.time(), self._run_id)
                )
            self._database.commit()
        except sqlite3.Error as error:
            raise self._failed(error) from error
        finally:
            self._database.close()

    def __del__(self) -> None:
        # nobody has closed it, and Python 3.13 warns of that; it says of no end of the run
        if hasattr(self, "_database"):
            self._database.close()

    # ------------------------------------------------------------------ rows
    def _new_id(self) -> int:
        tier = _FIRST_TIER
        while True:
            for _ in range(_TRIES):
                number = random.randrange(1, tier)
                found = self._database.execute("INSERT OR IGNORE INTO Ids (id) VALUES (?)", (number,))
                if found.rowcount:
                    return number
            tier = min(tier * 8, 1 << 62)

    def _found_or_made(self, table: str, key: str, name: dict[str, Any], others: dict[str, Any]) -> int:
        """The identifier of a row with some names, which is added where there is none."""
        conditions = " AND ".join(f"{column} IS ?" for column in name)
        found = self._database.execute(f"SELECT {key} FROM {table} WHERE {conditions}", tuple(name.values())).fetchone()
        if found is not None:
            return int(found[0])
        number = self._new_id()
        columns = {key: number, **name, **others}
        places = ", ".join("?" * len(columns))
        self._database.execute(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({places})", tuple(columns.values()))
        return number

    def _begin(self, wall_time: float) -> None:
        """The rows of user, experiment and run at the first event; the earliest event says when they began."""
        if not self._begun:
            self._begun = True
            now, user = time.time(), None
            if self._user:
                user = self._found_or_made("Users", "user_id", {"user_name": self._user}, {"inserted_time": now})
            started = {"inserted_time": now, "started_time": wall_time}
            if self._experiment:
                name = {"user_id": user, "experiment_name": self._experiment}
                self._experiment_id = self._found_or_made(
                    "Experiments", "experiment_id", name, {**started, "is_watching": 0}
                )
            if self._run:
                name = {"experiment_id": self._experiment_id, "run_name": self._run}
                self._run_id = self._found_or_made("Runs", "run_id", name, started)
        for table, key, number in (
            ("Runs", "run_id", self._run_id),
            ("Experiments", "experiment_id", self._experiment_id),
        ):
            if number is not None:
                query = f"UPDATE {table} SET started_time = ? WHERE {key} = ? AND started_time > ?"
                self._database.execute(query, (wall_time, number, wall_time))

    def _write_value(self, value: Summary.Value, event: Event) -> None:
        found = _tensor_of(value)
        if found is None:
            return
        array, plugin = found
        metadata = value.metadata
        name = {"run_id": self._run_id, "tag_name": value.tag}
        others = {
            "inserted_time": time.time(),
            "display_name": metadata.display_name,
            "plugin_name": metadata.plugin_data.plugin_name or plugin,
            "plugin_data": metadata.plugin_data.content,
        }
        tag = self._found_or_made("Tags", "tag_id", name, others)
        text = (tag, metadata.summary_description)
        self._database.execute("INSERT OR IGNORE INTO Descriptions (id, description) VALUES (?, ?)", text)
        is_text = array.dtype == np.object_
        shape = ",".join(map(str, array.shape))
        row = (tag, event.step, as_dtype(array.dtype).as_datatype_enum, event.wall_time, shape)
        columns = "series, step, dtype, computed_time, shape, data"
        made = self._database.execute(
            f"INSERT OR REPLACE INTO Tensors ({columns}) VALUES (?, ?, ?, ?, ?, ?)",
            (*row, None if is_text else array.tobytes()),
        )
        if is_text:
            strings = [(made.lastrowid, i, bytes(text)) for i, text in enumerate(array.reshape(-1).tolist())]
            self._database.executemany("INSERT INTO TensorStrings (tensor_rowid, idx, data) VALUES (?, ?, ?)", strings)

    def _write_graph(self, graph: GraphDef, wall_time: float) -> None:
        number = self._new_id()
        places = {node.name: at for at, node in enumerate(graph.node)}
        for at, node in enumerate(graph.node):
            for idx, text in enumerate(node.input):
                source, output, is_control = _input(text)
                row = number, at, idx, places.get(source, -1), output, is_control
                self._database.execute(
                    "INSERT INTO NodeInputs (graph_id, node_id, idx, input_node_id, input_node_idx, is_control) "
                    "VALUES (?, ?, ?, ?, ?, ?)",
                    row,
                )
            rest = NodeDef()
            rest.CopyFrom(node)
            for field in ("name", "op", "device", "input"):
                rest.ClearField(field)
            self._database.execute(
                "INSERT INTO Nodes (graph_id, node_id, node_name, op, device, node_def) VALUES (?, ?, ?, ?, ?, ?)",
                (number, at, node.name, node.op, node.device, rest.SerializeToString(deterministic=True)),
            )
        whole = GraphDef()
        whole.CopyFrom(graph)
        whole.ClearField("node")
        self._database.execute(
            "INSERT OR REPLACE INTO Graphs (run_id, graph_id, inserted_time, graph_def) VALUES (?, ?, ?, ?)",
            (self._run_id, number, wall_time, whole.SerializeToString(deterministic=True)),
        )


def _index(name: str, table: str, listed: str) -> str:
    columns = [column.strip() for column in listed.split(",")]
    optional = [f"{column[:-1]} IS NOT NULL" for column in columns if column.endswith("?")]
    where = f" WHERE {' AND '.join(optional)}" if optional else ""
    return f"CREATE UNIQUE INDEX IF NOT EXISTS {name} ON {table} ({', '.join(c.rstrip('?') for c in columns)}){where}"


def _input(text: str) -> tuple[str, int, int]:
    """The node, the output, and whether it is waited for only."""
    if text.startswith("^"):
        return text[1:], 0, 1
    name, _, index = text.partition(":")
    return name, int(index or 0), 0


def _tensor_of(value: Summary.Value) -> tuple[np.ndarray[Any, Any], str] | None:
    """What a value of a summary is as a tensor, and the plugin that shows such ones; None where it holds nothing."""
    kind = value.WhichOneof("value")
    if kind == "simple_value":
        return np.array(value.simple_value, np.float32), "scalars"
    if kind == "tensor":
        return make_ndarray(value.tensor), ""
    if kind == "histo":
        limits, counts = list(value.histo.bucket_limit), list(value.histo.bucket)
        begins = [sys.float_info.min, *limits[:-1]]
        return np.array([begins, limits, counts], np.float64).T.reshape(-1, 3), "histograms"
    if kind == "image":
        image = value.image
        parts = [str(image.width).encode(), str(image.height).encode(), image.encoded_image_string]
        return np.array(parts, np.object_), "images"
    if kind == "audio":
        pair = np.empty((1, 2), np.object_)
        pair[0, 0], pair[0, 1] = value.audio.encoded_audio_string, b""
        return pair, "audio"
    return None
