"""``python -m benchmarks [NAME ...]``: runs the benchmarks and prints their tables."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from rich.console import Console

from benchmarks.harness import available, measure, print_table


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


def embedding(console: Console, rounds: int) -> None:
    """Gather and sparse update of 32 rows, in tables of 16 MB and 1 GB."""
    systems = ("anabranch", "tensorflow")
    results = measure("embedding", systems, rounds, console)
    print_table("embedding gather + sparse SGD of 32 rows", results, systems, "µs", 1e6, console)


def building(console: Console, rounds: int) -> None:
    """Building and differentiating Inception-v3."""
    systems = ("anabranch", "tensorflow")
    print_table("Inception-v3's graph", measure("building", systems, rounds, console), systems, "s", 1, console)


def imports(console: Console, rounds: int) -> None:
    """Importing the package."""
    systems = ("anabranch", "jax", "tensorflow")
    print_table("import", measure("imports", systems, max(rounds, 5), console), systems, "s", 1, console)


def memory(console: Console, rounds: int) -> None:
    """Growth over 10,000 steps, and live copies of each variable."""
    systems = ("anabranch",)
    print_table("memory", measure("memory", systems, 1, console), systems, "as named", 1, console)


BENCHMARKS: dict[str, Callable[[Console, int], None]] = {
    "session": session,
    "training": training,
    "embedding": embedding,
    "building": building,
    "imports": imports,
    "memory": memory,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks", description="Measures anabranch beside its peers.")
    known = "; ".join(f"{n}: {f.__doc__}" for n, f in BENCHMARKS.items())
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which to run (default: all). {known}")
    parser.add_argument("--rounds", type=int, default=3, help="how often each system runs (default: 3)")
    arguments = parser.parse_args()
    unknown = set(arguments.names) - set(BENCHMARKS)
    if unknown:
        parser.error(f"unknown benchmark {sorted(unknown)}; there are {sorted(BENCHMARKS)}")
    console = Console()
    if not available("tensorflow"):
        console.print("the peers are not installed (make bench-env); their columns stay empty")
    for name in arguments.names or BENCHMARKS:
        BENCHMARKS[name](console, arguments.rounds)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
