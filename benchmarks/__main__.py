"""``python -m benchmarks [NAME ...]``: runs the benchmarks and prints their tables."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable

from rich.console import Console

from benchmarks import simulation, strategies
from benchmarks.harness import available, measure, measure_in_turns, print_table
from benchmarks.networks import NETWORKS
from benchmarks.workers.cluster import MEMORY, PROCESSOR

#: what is trained on accelerators: the batch (0: its own), and whether PyTorch compiles it too
ON_ACCELERATORS = {
    "lstm": ("0",),
    "transformer": ("32", "compiled"),
    "AlexNet": ("128",),
    "VGG-A": ("64",),
    "GoogleNet": ("128",),
    "ResNet-50": ("64", "compiled"),
}
#: how many parameter servers null steps run on
NULL_STEP_SERVERS = (1, 4, 16)


def session(console: Console, rounds: int) -> None:
    """What a step costs beyond its computation."""
    systems = ("anabranch", "jax", "tensorflow")
    print_table(
        "one-island step with a scalar feed", measure("session", systems, rounds, console), systems, "µs", 1e6, console
    )


def training(console: Console, rounds: int) -> None:
    """Whole training steps."""
    systems = ("anabranch", "jax", "tensorflow", "torch")
    print_table("training step", measure("training", systems, rounds, console), systems, "ms", 1e3, console)


def lstm(console: Console, rounds: int) -> None:
    """A training step of an LSTM language model: 2 x 512, batch 32, 35 steps, 10,000 words."""
    systems = ("anabranch", "jax", "tensorflow", "torch")
    print_table("LSTM language model", measure("lstm", systems, rounds, console), systems, "ms", 1e3, console)


def transformer(console: Console, rounds: int) -> None:
    """A training step of a transformer language model: 4 blocks of 256, batch 8 of 64 words."""
    systems = ("anabranch", "jax", "tensorflow", "torch")
    print_table("transformer", measure("transformer", systems, rounds, console), systems, "ms", 1e3, console)


def bert(console: Console, rounds: int) -> None:
    """A training step of one block of BERT's base size, batch 8 of 128 words, float32 and bfloat16."""
    systems = ("anabranch", "jax", "tensorflow", "torch")
    for dtype in ("float32", "bfloat16"):
        results = measure("bert_block", systems, rounds, console, dtype)
        print_table(f"a block of BERT in {dtype}", results, systems, "ms", 1e3, console)


def sparse(console: Console, rounds: int) -> None:
    """Training steps of word2vec with sampled classes, and of DeepFM with tables of 10,000 to 10,000,000 rows."""
    systems = ("anabranch", "jax", "tensorflow", "torch")
    print_table("models of tables", measure("sparse", systems, rounds, console), systems, "ms", 1e3, console)


def gemm(console: Console, rounds: int) -> None:
    """Products of square matrices, float32 and bfloat16, on both cores."""
    systems = ("anabranch", "jax", "tensorflow", "torch")
    print_table("products of matrices", measure("gemm", systems, rounds, console), systems, "ms", 1e3, console)


def loops(console: Console, rounds: int) -> None:
    """What an iteration of a compiled loop costs, and a step that holds a loop."""
    systems = ("anabranch", "jax", "tensorflow")
    print_table("while_loop", measure("loops", systems, rounds, console), systems, "µs", 1e6, console)


def compile_time(console: Console, rounds: int) -> None:
    """Compiling an RNN unrolled over 200 steps, a network of 100 layers, and the same RNN as a loop."""
    systems = ("anabranch", "jax", "tensorflow")
    results = measure("compile", systems, rounds, console)
    print_table("first step of a new training program", results, systems, "s", 1, console)


def first(console: Console, rounds: int) -> None:
    """The first runs of new graphs of a dozen small operations: values, gradients, a training step."""
    systems = ("anabranch", "tensorflow")
    print_table("a new small graph", measure("first", systems, rounds, console), systems, "ms", 1e3, console)


def embedding(console: Console, rounds: int) -> None:
    """Gather and sparse update of 32 rows, in tables of 16 MB and 1 GB."""
    systems = ("anabranch", "tensorflow")
    results = measure("embedding", systems, rounds, console)
    print_table("embedding gather + sparse SGD of 32 rows", results, systems, "µs", 1e6, console)


def columns(console: Console, rounds: int) -> None:
    """Training steps of a wide and deep model over hashed columns of strings."""
    systems = ("anabranch", "tensorflow")
    results = measure("columns", systems, rounds, console)
    print_table("wide and deep, a step", results, systems, "ms", 1e3, console)


def highlevel(console: Console, rounds: int) -> None:
    """Short trainings by Keras' `fit` and by estimators: to the first step, a step, all."""
    systems = ("anabranch", "tensorflow")
    results = measure("highlevel", systems, rounds, console)
    print_table("short trainings", results, systems, "ms", 1e3, console)


def building(console: Console, rounds: int) -> None:
    """Building and differentiating Inception-v3."""
    systems = ("anabranch", "tensorflow")
    print_table("Inception-v3's graph", measure("building", systems, rounds, console), systems, "s", 1, console)


def hogwild(console: Console, rounds: int) -> None:
    """Steps in a second of one and of two threads that train one model."""
    systems = ("anabranch", "tensorflow")
    print_table("threads of one model", measure("hogwild", systems, rounds, console), systems, "steps/s", 1, console)


def peak(console: Console, rounds: int) -> None:
    """Memory of a training step at its highest, and with layers that are computed again for their gradients."""
    systems = ("anabranch", "tensorflow", "torch")
    for what in ("chain", "chain, recomputed", "ResNet-50"):
        results = measure("peak", systems, rounds, console, what)
        print_table("memory of a training step", results, systems, "MB, s", 1, console)


def devices(console: Console, rounds: int) -> None:
    """Transfers between two devices of one process, and independent work on them."""
    systems = ("anabranch", "tensorflow")
    results = measure("devices", systems, rounds, console)
    print_table("two virtual devices", results, systems, "µs, if nothing else is named", 1e6, console)


def executor(console: Console, rounds: int) -> None:
    """The executor: nodes that do nothing, and loops of primitives."""
    systems = ("anabranch", "python", "tensorflow")
    print_table("executor", measure("executor", systems, rounds, console), systems, "µs", 1e6, console)


def input_pipelines(console: Console, rounds: int) -> None:
    """Elements of input pipelines: numbers, records, rows, decoded images."""
    systems = ("anabranch", "tensorflow")
    with tempfile.TemporaryDirectory() as folder:
        results = measure("input", systems, rounds, console, folder)
    print_table("input pipelines, per element", results, systems, "µs", 1e6, console)


def queues(console: Console, rounds: int) -> None:
    """Elements through a queue."""
    systems = ("anabranch", "tensorflow")
    print_table("elements through a queue", measure("queues", systems, rounds, console), systems, "µs", 1e6, console)


def imports(console: Console, rounds: int) -> None:
    """Importing the package."""
    systems = ("anabranch", "jax", "tensorflow")
    print_table("import", measure("imports", systems, max(rounds, 5), console), systems, "s", 1, console)


def memory(console: Console, rounds: int) -> None:
    """Growth over 10,000 steps, and live copies of each variable."""
    systems = ("anabranch",)
    print_table("memory", measure("memory", systems, 1, console), systems, "as named", 1, console)


def kernels(console: Console, rounds: int) -> None:
    """The kernels of convolutions, each alone: processor time."""
    names = ("own", "product", "columns", "winograd", "shifts")
    print_table("kernels of convolutions", measure("kernels", names, rounds, console), names, "ms", 1e3, console)


def convolutions(console: Console, rounds: int) -> None:
    """Convolutions of AlexNet, VGG and ResNet by XLA, oneDNN (the extra native), and the peers: GFLOP/s."""
    names = ("own", "winograd", "onednn", "onednn blocked", "tensorflow", "torch")
    for dtype in ("float32", "bfloat16"):
        results = measure("convolutions", names, rounds, console, dtype)
        print_table(f"convolutions in {dtype}", results, names, "GFLOP/s", 1e-9, console)


def products(console: Console, rounds: int) -> None:
    """Products of matrices and pooling, by XLA, oneDNN (the extra native), and PyTorch, each alone: processor time."""
    names = ("own", "onednn", "torch")
    for dtype in ("float32", "bfloat16"):
        results = measure("products", names, rounds, console, dtype)
        print_table(f"products and pooling in {dtype}", results, names, "ms", 1e3, console)


def alexnet(console: Console, rounds: int) -> None:
    """A training step of AlexNet, with oneDNN (where the extra native is installed) and without."""
    for dtype, systems in {
        "float32": ("anabranch", "xla", "tensorflow", "torch"),
        "bfloat16": ("anabranch", "xla", "torch"),
    }.items():
        results = measure("alexnet", systems, rounds, console, dtype)
        print_table(f"AlexNet in {dtype}", results, systems, "s", 1, console)


def layouts(console: Console, rounds: int) -> None:
    """OneDNN's convolutions as they are called, and with filters or all arrays in its layouts beforehand."""
    systems = ("anabranch",)
    results = measure("layouts", systems, rounds, console)
    print_table("oneDNN's layouts, processor time", results, systems, "ms", 1e3, console)


def networks(console: Console, rounds: int) -> None:
    """Training steps (float32, mixed precision) and inference of six networks for images, each with its first step."""
    systems = ("anabranch", "jax", "tensorflow", "torch")
    for kind in ("training", "bfloat16", "inference"):
        for name in NETWORKS:
            results = measure("networks", systems, rounds, console, name, kind)
            print_table(f"{name}, {kind}", results, systems, "s", 1, console)


def accelerator(console: Console, rounds: int) -> None:
    """Training steps on a GPU: float32, TensorFloat-32, bfloat16; all systems in turn, in one process."""
    systems = ("anabranch", "jax", "torch", "torch compiled")
    for model, (batch, *options) in ON_ACCELERATORS.items():
        for precision in ("float32", "tf32", "bfloat16"):
            with console.status(f"{model}, {precision} ..."):
                results, device = measure_in_turns("accelerator", model, precision, batch, *options)
            print_table(f"training step of {model} on {device}", results, systems, "ms", 1e3, console)


def quantised(console: Console, rounds: int) -> None:
    """A small network as floats and as bytes."""
    systems = ("anabranch", "tensorflow")
    with tempfile.TemporaryDirectory() as folder:
        results = measure("quantised", systems, rounds, console, folder)
    print_table("floats and bytes", results, systems, "ms", 1e3, console)


def half(console: Console, rounds: int) -> None:
    """Float32 beside half precision: a product of matrices, a training step of a small network."""
    systems = ("anabranch", "torch")
    print_table("half precision", measure("half", systems, rounds, console), systems, "ms", 1e3, console)


def cluster(console: Console, rounds: int) -> None:
    """Steps on parameter servers in processes of their own: a scalar, 100 MB, 32 rows of a table; 64 ids looked up."""
    systems = ("anabranch", "tensorflow")
    # each number of servers by itself: a limit of time for each, and one that has no room does not lose the others
    for count in NULL_STEP_SERVERS:
        results = measure("cluster", systems, rounds, console, str(count))
        title = f"steps on {count} PS"
        print_table(title, results.without(PROCESSOR, MEMORY), systems, "ms", 1e3, console)
        print_table(f"{title}: all processes", results.only(PROCESSOR), systems, "ms", 1e3, console)
        print_table(f"{title}: the servers", results.only(MEMORY), systems, "MB", 1e-6, console)


def cluster_life(console: Console, rounds: int) -> None:
    """Clusters over time: 1-64 workers, killed tasks, 10,000 steps, 36,000 nodes."""
    _cluster_life(console, rounds, "full")


def cluster_life_small(console: Console, rounds: int) -> None:
    """The same with 1-8 workers, 1,000 steps and 3,000 nodes: to see that it runs."""
    _cluster_life(console, rounds, "small")


def _cluster_life(console: Console, rounds: int, size: str) -> None:
    systems = ("anabranch",)
    for part in ("workers", "recovery", "steps", "graph"):
        results = measure("cluster_life", systems, rounds, console, part, size)
        print_table(f"clusters over time: {part}", results, systems, "as named", 1, console)


def mirrors(console: Console, rounds: int) -> None:
    """Asynchronous steps on two parameter servers, with and without mirrors of what they change."""
    systems = ("anabranch",)
    print_table("steps with mirrors", measure("mirrors", systems, rounds, console), systems, "ms", 1e3, console)


BENCHMARKS: dict[str, Callable[[Console, int], None]] = {
    "session": session,
    "training": training,
    "lstm": lstm,
    "transformer": transformer,
    "bert": bert,
    "sparse": sparse,
    "gemm": gemm,
    "loops": loops,
    "compile": compile_time,
    "first": first,
    "embedding": embedding,
    "columns": columns,
    "highlevel": highlevel,
    "building": building,
    "executor": executor,
    "queues": queues,
    "imports": imports,
    "memory": memory,
    "peak": peak,
    "hogwild": hogwild,
    "devices": devices,
    "input": input_pipelines,
    "kernels": kernels,
    "convolutions": convolutions,
    "products": products,
    "alexnet": alexnet,
    "layouts": layouts,
    "networks": networks,
    "quantised": quantised,
    "half": half,
    "accelerator": accelerator,
    "cluster": cluster,
    "cluster-life": cluster_life,
    "cluster-life-small": cluster_life_small,
    "mirrors": mirrors,
}


def main() -> int:
    if sys.argv[1:2] == ["simulate"]:
        return simulation.main(sys.argv[2:])
    if sys.argv[1:2] == ["strategies"]:
        return strategies.main(sys.argv[2:])
    parser = argparse.ArgumentParser(
        prog="benchmarks",
        description="Measures anabranch beside its peers. `simulate --help`: clusters of up to 200 workers, simulated. "
        "`strategies --help`: how replicas learn together.",
    )
    known = "; ".join(f"{n}: {f.__doc__}" for n, f in BENCHMARKS.items())
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which to run (default: all but the small). {known}")
    parser.add_argument("--rounds", type=int, default=3, help="how often each system runs (default: 3)")
    arguments = parser.parse_args()
    unknown = set(arguments.names) - set(BENCHMARKS)
    if unknown:
        parser.error(f"unknown benchmark {sorted(unknown)}; there are {sorted(BENCHMARKS)}")
    console = Console()
    if not available("tensorflow"):
        console.print("the peers are not installed (make bench-env); their columns stay empty")
    for name in arguments.names or [name for name in BENCHMARKS if not name.endswith("-small")]:
        BENCHMARKS[name](console, arguments.rounds)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
