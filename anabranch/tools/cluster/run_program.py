"""`anabranch cluster run`."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
from collections.abc import Sequence
from typing import Final

from anabranch.distributed.cluster_files import ClusterFolder
from anabranch.distributed.cluster_spec import ClusterSpec
from anabranch.distributed.restarts import ENDED, RestartLimits, RestartRule, TaskState
from anabranch.distributed.supervisor import (
    EVALUATOR,
    ClusterSupervisor,
    checkpoints_at,
    task_key,
    task_program,
    tf_config,
    training_tasks,
)
from anabranch.distributed.task_engine import ClusterPlan, TaskProgram, TaskStatus, shown_end, shown_state
from anabranch.tools.cluster.engines import LOCAL, RAY, add_ray_options, plan_of
from anabranch.tools.cluster.start import ended_by_signals

_PS: Final = "ps"
#: where a training can go on
_RESTARTS: Final = 5
_INTERRUPTED: Final = 130
_KILLED: Final = 128


def main(arguments: Sequence[str]) -> int:
    """`anabranch cluster run program.py --job_name={job} --task_index={index}`"""
    parser = _parser()
    options = parser.parse_args(arguments)
    program = options.program[1:] if options.program[:1] == ["--"] else options.program
    if options.module is not None:
        program = ["-m", *options.module]
    if not program or program == ["-m"]:
        parser.error("which program? Name a script, or a module after -m")
    counts = {"chief": int(options.chief), _PS: options.ps, "worker": options.workers}
    if min(counts.values()) < 0 or counts["chief"] + counts["worker"] < 1:
        parser.error("a program runs on one worker at least")
    if options.evaluator:
        counts[EVALUATOR] = 1
    if options.restarts is None:
        options.restarts = 0 if options.checkpoint is None else _RESTARTS
    folder = ClusterFolder(options.name or f"run-{os.getpid()}")
    try:
        with plan_of(RAY if options.ray else LOCAL, counts, options) as plan, ended_by_signals():
            return _run(folder, plan, program, options)
    except KeyboardInterrupt:
        return _INTERRUPTED
    finally:
        if options.name is None:
            shutil.rmtree(folder.path, ignore_errors=True)


def _run(folder: ClusterFolder, plan: ClusterPlan, program: Sequence[str], options: argparse.Namespace) -> int:
    printer = _Printer(max(len(task_key(job, index)) for job, index, _ in plan.spec.tasks()))
    rule = RestartRule.ON_FAILURE if options.restarts else RestartRule.NEVER
    spec = training_tasks(plan.spec)
    programs = [
        task_program(spec, job, index, options.checkpoint)
        if job == _PS and not options.ps_too
        else _program(
            spec,
            (job, index),
            program,
            RestartRule.ALWAYS if job == _PS and options.restarts else rule,
            checkpoints_at(options.checkpoint),
        )
        for job, index, _ in plan.spec.tasks()
    ]
    with ClusterSupervisor(folder, plan, programs, RestartLimits(restarts=options.restarts), printer) as supervisor:
        return _outcome(supervisor)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="anabranch cluster run",
        usage="%(prog)s [option ...] [--] script.py [argument ...]\n"
        "       %(prog)s [option ...] [--] -m module [argument ...]",
        description="Runs a TensorFlow 1 program once per worker, as `anabranch run` does, with parameter servers for "
        "the time that it takes. In its arguments {job}, {index}, {ps_hosts} and {worker_hosts} are replaced by the "
        "task's own; TF_CONFIG has the same. Each copy starts its own tf.train.Server. Ends with the "
        "first worker that fails, and with its status; Ctrl-C ends all.",
    )
    parser.add_argument("--ps", type=int, default=1, metavar="N", help="how many parameter servers (1)")
    parser.add_argument("--workers", type=int, default=2, metavar="N", help="how many workers (2)")
    parser.add_argument("--chief", action="store_true", help="a task chief/0 beside them, as estimators want it")
    parser.add_argument(
        "--evaluator",
        action="store_true",
        help="a task evaluator/0, which evaluates what the chief of estimators saves",
    )
    parser.add_argument("--ps-too", action="store_true", help="parameter servers run the program as well")
    parser.add_argument(
        "--restarts",
        type=int,
        metavar="N",
        help="start what fails again, each task N times in 10 minutes (0; with --checkpoint 5)",
    )
    parser.add_argument(
        "--name", help="by which `anabranch cluster status` and `logs` find it (run-PID); keeps its logs"
    )
    parser.add_argument(
        "--checkpoint",
        metavar="DIR",
        help="training sessions save there as often as it pays; parameter servers that are started again go on from "
        "there",
    )
    parser.add_argument("--port", type=int, metavar="P", help="tasks listen at P, P + 1, ... (at free ports)")
    parser.add_argument("--ray", action="store_true", help="on the machines of a Ray cluster, not on this one")
    add_ray_options(parser)
    parser.add_argument("-m", dest="module", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    parser.add_argument("program", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return parser


def filled_in(argument: str, spec: ClusterSpec, job: str, index: int) -> str:
    """An argument of a program with what is in braces replaced; other braces stay.

    Example:
        >>> spec = ClusterSpec({"ps": ["a:1", "b:1"], "worker": ["c:1"]})
        >>> filled_in("--ps={ps_hosts} --me={job}/{index}", spec, "worker", 0)
        '--ps=a:1,b:1 --me=worker/0'
    """
    known = {"job": job, "index": str(index), "ps_hosts": "", "worker_hosts": ""}
    known |= {f"{name}_hosts": ",".join(filter(None, spec.job_tasks(name))) for name in spec.jobs}
    for name, value in known.items():
        argument = argument.replace(f"{{{name}}}", value)
    return argument


def _program(
    spec: ClusterSpec, task: tuple[str, int], program: Sequence[str], rule: RestartRule, more: dict[str, str]
) -> TaskProgram:
    job, index = task
    words = [filled_in(word, spec, job, index) for word in program]
    command = [sys.executable, "-m", "anabranch", "run", "--", *words]
    environment = tf_config(spec, job, index) | {"PYTHONUNBUFFERED": "1"} | more
    return TaskProgram(task_key(job, index), command, environment, rule)


class _Printer:
    """Prints the lines that tasks write, each after the task's name."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._is_broken = False

    def __call__(self, task: str, line: bytes, /) -> None:
        if self._is_broken:
            return
        try:
            sys.stdout.write(f"{task:{self._width}} | {line.decode('utf-8', 'replace')}\n")
            sys.stdout.flush()
        except BrokenPipeError:
            # whoever read has gone; as for any program, that ends it, and on the thread that can end the tasks
            self._is_broken = True
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            os.kill(os.getpid(), signal.SIGTERM)


def _outcome(supervisor: ClusterSupervisor) -> int:
    """Waits until all workers have finished, or one task has failed for good; the exit status.

    Says of each task that ended and is started again how it ended: what it wrote last may not say.
    """
    restarts: dict[str, int] = {}
    while (statuses := supervisor.next_change(None)) is not None:
        for status in statuses:
            if status.restarts > restarts.get(status.name, 0) and status.status is not None:
                print(f"{status.name} ended ({shown_end(status.status)}) and was started again", file=sys.stderr)
            restarts[status.name] = status.restarts
            if status.state is TaskState.FAILED:
                print(f"{status.name} {shown_state(status)}; the others are ended", file=sys.stderr)
                return _exit_status(status)
        if all(status.state in ENDED for status in statuses if not status.name.startswith(f"{_PS}/")):
            return 0
    print(f"the cluster {supervisor.folder.name} was asked to stop", file=sys.stderr)
    return _INTERRUPTED


def _exit_status(status: TaskStatus) -> int:
    assert status.status is not None
    return status.status if status.status > 0 else _KILLED - status.status
