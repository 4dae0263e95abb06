"""Run a program and tell how its steps are compiled: stages, islands, reasons, kernels.

Prints, to the standard error stream, for each new kind of step the size of its graph after each stage and the islands
and host operations that it became, and every compilation with its reason and the seconds it took, and of each operation
with several kernels (a convolution, say) the one that was chosen, why, and what each costs; with `--placement` also, of
each operation, the device that was asked for, the one that it got, and why.
"""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.runtime import explain
from anabranch.tools.run import parse_program, program_parser, run_program


def main(arguments: Sequence[str]) -> int:
    """`anabranch explain script.py args...`"""
    parser = program_parser(
        "anabranch explain",
        "Runs a program and prints, to the standard error stream, how its steps are compiled. From inside a program, "
        f"the environment variable {explain.EXPLAIN_VARIABLE}=1 does the same, and =placement as --placement does.",
    )
    parser.add_argument(
        "--placement", action="store_true", help="tell which device each operation asked for, which it got, and why"
    )
    options, program = parse_program(parser, arguments)
    explainer = explain.enable(placement=options.placement)
    try:
        return run_program(parser, program)
    finally:
        explainer.print_summary()
