"""Look into a file: a graph, a meta graph, a saved model, a checkpoint, events.

Takes a GraphDef, MetaGraphDef or SavedModel (binary or text), the prefix of a checkpoint, a safetensors file, an event
file, or a directory that holds a checkpoint, a saved model, event files or safetensors files.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from google.protobuf import text_format
from google.protobuf.message import DecodeError
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, DownloadColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

from anabranch.core.consoles import table_console
from anabranch.core.dtypes import as_dtype
from anabranch.errors import DataLossError, OpError
from anabranch.io.checkpoint_state import read_checkpoint_state
from anabranch.io.checkpoint_store import checkpoint_exists, open_checkpoint, prefix_of
from anabranch.io.event_files import summary_iterator
from anabranch.io.tensor_reader import TensorReader
from anabranch.proto.graph_pb2 import DataType, GraphDef, NodeDef
from anabranch.proto.summary_pb2 import Event, Summary
from anabranch.proto.tensors import shape_from_proto
from anabranch.proto.texts import parse_text
from anabranch.proto.training_pb2 import CheckpointState, CollectionDef, MetaGraphDef, SavedModel, TensorInfo
from anabranch.tools.doctor import size_text

_SAVED_MODEL_FILES: Final = ("saved_model.pb", "saved_model.pbtxt")
_EVENT_FILES: Final = "*tfevents*"
_INPUT_TYPES: Final = frozenset({"Placeholder", "PlaceholderV2", "PlaceholderWithDefault"})


class NotInspectableError(Exception):
    """The path holds nothing that can be inspected; the message says what was looked for."""


def main(arguments: Sequence[str]) -> int:
    """`anabranch inspect path`"""
    parser = argparse.ArgumentParser(
        prog="anabranch inspect",
        description="Shows what is in a file (graph, saved model, checkpoint, safetensors, events) or a directory.",
    )
    parser.add_argument("path", help="a file, the prefix of a checkpoint, or a directory")
    parser.add_argument("--verify", action="store_true", help="read everything and check all checksums")
    parser.add_argument("--all", action="store_true", help="list all entries, however many")
    options = parser.parse_args(arguments)
    report = Report(table_console(), None if options.all else 40)
    try:
        return Inspector(report, verify=options.verify).inspect(options.path)
    except NotInspectableError as error:
        print(f"anabranch inspect: {error}", file=sys.stderr)
        return 1


class Report:
    """Prints titles and tables; a table shows at most `limit` rows (None: all)."""

    def __init__(self, console: Console, limit: int | None) -> None:
        self.console = console
        self.limit = limit

    def title(self, text: str) -> None:
        self.console.print(f"[bold]{escape(text)}[/bold]", highlight=False, soft_wrap=True)

    def line(self, text: str) -> None:
        self.console.print(escape(text), highlight=False, soft_wrap=True)

    def table(self, title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        """Columns that begin with "#" hold numbers. Nothing is printed where there are no rows."""
        listed = list(rows)
        if not listed:
            return
        # a title inside the table would be folded to the table's width
        self.console.print(f"[italic]{escape(title)}[/italic]", highlight=False, soft_wrap=True)
        table = Table(header_style="bold")
        for column in columns:
            numeric = column.startswith("#")
            table.add_column(column.removeprefix("#"), justify="right" if numeric else "left", overflow="fold")
        for row in listed[: self.limit]:
            table.add_row(*(escape(str(cell)) for cell in row))
        self.console.print(table)
        if self.limit is not None and len(listed) > self.limit:
            self.line(f"... and {len(listed) - self.limit} more; --all lists them")

    def progress(self) -> Progress:
        """A bar on the error stream, so that it never mixes with the report."""
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(),
            TimeRemainingColumn(),
        )
        return Progress(*columns, console=Console(stderr=True), transient=True)


class Inspector:
    """Finds out what a path holds, and reports it."""

    def __init__(self, report: Report, *, verify: bool) -> None:
        self.report = report
        self.verify = verify

    def inspect(self, path: str) -> int:
        """Reports on a path; returns the exit status: 1 where a checksum does not match.

        Raises:
            NotInspectableError: the path holds nothing known.
            OpError: it cannot be read.
        """
        if os.path.isdir(path):
            return self._directory(Path(path))
        prefix = prefix_of(path)
        if prefix != path and checkpoint_exists(prefix):
            return self._checkpoint(prefix)
        if checkpoint_exists(path):
            return self._checkpoint(path)
        if not os.path.isfile(path):
            raise NotInspectableError(f"{path} is neither a file, nor a directory, nor the prefix of a checkpoint")
        if "tfevents" in os.path.basename(path):
            return self._events([Path(path)])
        return self._graph_file(Path(path))

    def _directory(self, path: Path) -> int:
        saved_models = [path / name for name in _SAVED_MODEL_FILES if (path / name).is_file()]
        events = sorted(path.glob(_EVENT_FILES))
        state = read_checkpoint_state(str(path))
        done = []
        if saved_models:
            done.append(self._graph_file(saved_models[0]))
        if state is not None and state.model_checkpoint_path:
            done.append(self._state(path, state))
        else:
            done += [self._checkpoint(prefix) for prefix in _prefixes_in(path)]
        if events:
            done.append(self._events(events))
        if not done:
            raise NotInspectableError(f"{path} holds no saved model, no checkpoint and no event files")
        return max(done)

    # ------------------------------------------------------------------ checkpoints
    def _state(self, path: Path, state: CheckpointState) -> int:
        known = list(state.all_model_checkpoint_paths) or [state.model_checkpoint_path]
        rows = [[p, "yes" if checkpoint_exists(p) else "no"] for p in known]
        self.report.table(f"Checkpoints of {path}, the latest last", ["prefix", "there"], rows)
        latest = state.model_checkpoint_path
        return self._checkpoint(latest) if checkpoint_exists(latest) else 0

    def _checkpoint(self, prefix: str) -> int:
        with open_checkpoint(prefix) as reader:
            shapes, types = reader.get_variable_to_shape_map(), reader.get_variable_to_dtype_map()
            sizes = {name: types[name].size * math.prod(shapes[name]) for name in reader.names()}
            step = "" if reader.step is None else f", global step {reader.step}"
            self.report.title(f"Checkpoint {prefix}{step}")
            rows = [
                [name, types[name].name, _shape_text(shapes[name]), size_text(sizes[name])] for name in reader.names()
            ]
            self.report.table("Tensors", ["name", "dtype", "shape", "#size"], rows)
            self.report.line(f"{len(rows)} tensors, {size_text(sum(sizes.values()))}")
            return self._verify_checkpoint(reader, sizes) if self.verify else 0

    def _verify_checkpoint(self, reader: TensorReader, sizes: dict[str, int]) -> int:
        damaged = []
        with self.report.progress() as progress:
            task = progress.add_task("checking", total=sum(sizes.values()) or 1)
            for name, size in sizes.items():
                try:
                    reader.read_tensor(name, copy=False)
                except DataLossError as error:
                    damaged.append([name, error.message])
                progress.advance(task, size)
        self.report.table("Damaged", ["tensor", "what is wrong"], damaged)
        fine = "all checksums match" if reader.has_checksums else "all tensors can be read; the file has no checksums"
        self.report.line(f"{len(damaged)} of {len(sizes)} tensors are damaged" if damaged else fine)
        return int(bool(damaged))

    # ------------------------------------------------------------------ graphs
    def _graph_file(self, path: Path) -> int:
        message = read_message(path)
        if isinstance(message, SavedModel):
            for meta_graph in message.meta_graphs:
                self.report.title(f"Meta graph of {path}, tags: {', '.join(meta_graph.meta_info_def.tags) or 'none'}")
                self._meta_graph(meta_graph)
        elif isinstance(message, MetaGraphDef):
            self.report.title(f"Meta graph {path}")
            self._meta_graph(message)
        else:
            self.report.title(f"Graph {path}")
            self._graph(message)
        return 0

    def _meta_graph(self, message: MetaGraphDef) -> None:
        self._graph(message.graph_def)
        rows = [[key, _collection_size(value)] for key, value in sorted(message.collection_def.items())]
        self.report.table("Collections", ["key", "#items"], rows)
        rows = [
            [key, signature.method_name, _infos_text(signature.inputs), _infos_text(signature.outputs)]
            for key, signature in sorted(message.signature_def.items())
        ]
        self.report.table("Signatures", ["name", "method", "inputs", "outputs"], rows)

    def _graph(self, graph: GraphDef) -> None:
        types = Counter(node.op for node in graph.node)
        functions = len(graph.library.function)
        devices = {node.device for node in graph.node if node.device}
        self.report.line(
            f"{len(graph.node)} operations of {len(types)} types, {functions} functions, {graph.ByteSize()} bytes, "
            f"producer {graph.versions.producer}{', devices ' + ', '.join(sorted(devices)) if devices else ''}"
        )
        self.report.table("Operations by type", ["type", "#count"], types.most_common())
        self.report.table("Inputs", ["name", "dtype", "shape"], _graph_inputs(graph))
        self.report.table("Outputs (results that no operation takes)", ["name", "type"], _graph_outputs(graph))
        variables = list(_graph_variables(graph))
        self.report.table("Variables", ["name", "dtype", "shape", "#size"], variables)

    # ------------------------------------------------------------------ events
    def _events(self, files: Sequence[Path]) -> int:
        status = 0
        for path in files:
            self.report.title(f"Event file {path}, {size_text(path.stat().st_size)}")
            contents = _EventContents()
            try:
                contents.read(path, self.report.progress())
            except OpError as error:
                status = 1
                self.report.line(f"damaged after {contents.count} events: {error.message}")
            self.report.line(contents.summary())
            self.report.table(
                "Values", ["tag", "kind", "#events", "#first step", "#last step", "last value"], contents.rows()
            )
            if self.verify and not status:
                self.report.line("all checksums match")
        return status


def _prefixes_in(directory: Path) -> list[str]:
    """The checkpoints of a directory that no state lists, plain safetensors files among them."""
    prefixes = {prefix_of(str(file)) for file in directory.iterdir()}
    return sorted(prefix for prefix in prefixes if checkpoint_exists(prefix))


# ---------------------------------------------------------------------- reading graphs
def read_message(path: Path) -> Any:
    """The SavedModel, MetaGraphDef or GraphDef in a file, binary or text.

    Raises:
        NotInspectableError: it is none of them.
    """
    data = path.read_bytes()
    kinds: tuple[Any, ...] = (SavedModel, MetaGraphDef, GraphDef)
    readers: tuple[Callable[[Any], Any], ...] = (
        lambda kind: kind.FromString(data),
        lambda kind: parse_text(data.decode("utf-8"), kind()),
    )
    for read in readers:
        for kind in kinds:
            try:
                message = read(kind)
            except (DecodeError, text_format.ParseError, UnicodeDecodeError):
                continue
            if _is_plausible(message):
                return message
    raise NotInspectableError(
        f"{path} holds no SavedModel, no MetaGraphDef and no GraphDef, nor an event file or checkpoint"
    )


def _is_plausible(message: SavedModel | MetaGraphDef | GraphDef) -> bool:
    """Whether a message was read as what it was written as: other kinds leave its required parts empty."""
    if isinstance(message, SavedModel):
        return bool(message.meta_graphs) and all(_is_plausible(meta_graph) for meta_graph in message.meta_graphs)
    if isinstance(message, MetaGraphDef):
        return bool(message.graph_def.node) and _is_plausible(message.graph_def)
    return bool(message.node) and all(node.name and node.op for node in message.node)


def _graph_inputs(graph: GraphDef) -> Iterator[list[str]]:
    for node in graph.node:
        if node.op in _INPUT_TYPES:
            yield [node.name, _dtype_text(node.attr["dtype"].type), _attr_shape(node)]


def _graph_outputs(graph: GraphDef) -> Iterator[list[str]]:
    taken = {name.lstrip("^").split(":")[0] for node in graph.node for name in node.input}
    for node in graph.node:
        if node.name not in taken and node.op not in {"NoOp", "Const", *_INPUT_TYPES}:
            yield [node.name, node.op]


def _graph_variables(graph: GraphDef) -> Iterator[list[str]]:
    for node in graph.node:
        if node.op not in {"VarHandleOp", "VariableV2", "Variable"}:
            continue
        dtype = as_dtype(node.attr["dtype"].type)
        shape = shape_from_proto(node.attr["shape"].shape)
        elements = shape.num_elements()
        yield [node.name, dtype.name, str(shape), "?" if elements is None else size_text(dtype.size * elements)]


def _attr_shape(node: NodeDef) -> str:
    return str(shape_from_proto(node.attr["shape"].shape)) if "shape" in node.attr else "?"


def _dtype_text(number: int) -> str:
    return as_dtype(number).name if number else DataType.Name(DataType.Value("DT_INVALID"))


def _collection_size(collection: CollectionDef) -> int:
    kind = collection.WhichOneof("kind")
    return 0 if kind is None else len(getattr(collection, kind).value)


def _infos_text(infos: Mapping[str, TensorInfo]) -> str:
    return ", ".join(f"{key}={info.name} {shape_from_proto(info.tensor_shape)}" for key, info in sorted(infos.items()))


def _shape_text(shape: Iterable[int]) -> str:
    return f"({', '.join(str(length) for length in shape)})"


# ---------------------------------------------------------------------- reading events
class _EventContents:
    """What an event file holds, per tag."""

    def __init__(self) -> None:
        self.count = 0
        self.others: Counter[str] = Counter()
        self.steps: dict[tuple[str, str], list[int]] = defaultdict(list)
        self.last: dict[tuple[str, str], str] = {}
        self.times: list[float] = []

    def read(self, path: Path, progress: Progress) -> None:
        """Adds the events of a file; those before a damaged place are kept.

        Raises:
            DataLossError: a checksum does not match, or the file is truncated.
        """
        with progress:
            task = progress.add_task(f"reading {path.name}", total=path.stat().st_size)
            for event in summary_iterator(path):
                self._add(event)
                progress.advance(task, event.ByteSize() + 16)  # the record's frame

    def _add(self, event: Event) -> None:
        self.count += 1
        self.times = [*self.times[:1], event.wall_time]
        kind = event.WhichOneof("what")
        if kind != "summary":
            self.others[str(kind)] += 1
        for value in event.summary.value:
            key = value.tag, str(value.WhichOneof("value"))
            self.steps[key].append(event.step)
            self.last[key] = _value_text(value)

    def summary(self) -> str:
        spent = f" over {self.times[-1] - self.times[0]:.1f} s" if self.times else ""
        others = ", ".join(f"{count} {kind}" for kind, count in sorted(self.others.items()))
        return f"{self.count} events{spent}; besides summaries: {others or 'nothing'}"

    def rows(self) -> Iterator[list[Any]]:
        for (tag, kind), steps in sorted(self.steps.items()):
            yield [tag, kind, len(steps), min(steps), max(steps), self.last[tag, kind]]


def _value_text(value: Summary.Value) -> str:
    kind = value.WhichOneof("value")
    if kind == "simple_value":
        return f"{value.simple_value:.6g}"
    if kind == "histo":
        return f"{value.histo.num:.0f} in [{value.histo.min:.4g}, {value.histo.max:.4g}]"
    if kind == "image":
        return f"{value.image.width} x {value.image.height}, {value.image.colorspace} channels"
    if kind == "audio":
        return f"{value.audio.length_frames} frames at {value.audio.sample_rate:.0f} Hz"
    return str(shape_from_proto(value.tensor.tensor_shape)) if kind == "tensor" else ""
