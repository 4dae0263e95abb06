"""`anabranch cluster restart`, `scale`, `stop` and `keys`."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import Final

from anabranch.distributed.cluster_control import ask
from anabranch.distributed.keys import FILE_VARIABLE, CurveKeys
from anabranch.errors import AlreadyExistsError, DeadlineExceededError
from anabranch.tools.cluster.names import chosen, cluster_parser

_ANSWER_WITHIN: Final = 30.0
#: of the tasks, which get 10 s to end by themselves, and of their supervisor
_STOP_WITHIN: Final = 60.0
_KEYS: Final = "cluster.keys"


def restart(arguments: Sequence[str]) -> int:
    """`anabranch cluster restart ps/1`"""
    parser = cluster_parser("restart", "Ends a task, and starts it again; a task that has ended is started.")
    parser.add_argument("task", metavar="TASK", help="the task, such as ps/1")
    options = parser.parse_args(arguments)
    folder = chosen(options.name)
    ask(folder.control, {"do": "restart", "task": options.task}, _ANSWER_WITHIN)
    print(f"{options.task} of the cluster {folder.name} is restarted")
    return 0


def scale(arguments: Sequence[str]) -> int:
    """`anabranch cluster scale worker=2`"""
    parser = cluster_parser(
        "scale",
        "Lets so many tasks of a job run: the others end, and are started again when they are wanted. A cluster cannot "
        "grow beyond the tasks it was started with, since those that run know no others.",
    )
    parser.add_argument("count", metavar="JOB=COUNT", help="the job, and how many of its tasks are to run")
    options = parser.parse_args(arguments)
    wanted = re.fullmatch(r"([^=]+)=(\d{1,6})", options.count)
    if wanted is None:
        parser.error(f"{options.count!r} is not of the form JOB=COUNT, such as worker=2")
    folder = chosen(options.name)
    done = ask(folder.control, {"do": "scale", "job": wanted[1], "count": int(wanted[2])}, _ANSWER_WITHIN)
    for what in ("started", "stopped"):
        if done[what]:
            print(f"{what}: {', '.join(done[what])}")
    if not (done["started"] or done["stopped"]):
        print(f"{wanted[2]} tasks of {wanted[1]} are running already")
    return 0


def stop(arguments: Sequence[str]) -> int:
    """`anabranch cluster stop`"""
    parser = cluster_parser("stop", "Ends a cluster: each task is asked to end, and after 10 s made to.")
    options = parser.parse_args(arguments)
    folder = chosen(options.name)
    ask(folder.control, {"do": "stop"}, _ANSWER_WITHIN)
    if not folder.wait_until_free(_STOP_WITHIN):
        raise DeadlineExceededError(None, None, f"the cluster {folder.name!r} has not ended within {_STOP_WITHIN:g} s")
    print(f"the cluster {folder.name} has ended; what its tasks wrote is in {folder.path}")
    return 0


def keys(arguments: Sequence[str]) -> int:
    """`anabranch cluster keys`"""
    parser = argparse.ArgumentParser(
        prog="anabranch cluster keys",
        description="Writes new keys for a cluster to a file that only you may read. Tasks and clients on several "
        "machines need the same file: copy it by a way that nobody reads. Whoever has it can run graphs as the user of "
        "the tasks, which read and write that user's files.",
    )
    parser.add_argument("file", metavar="FILE", nargs="?", default=_KEYS, help=f"where to ({_KEYS})")
    options = parser.parse_args(arguments)
    try:
        CurveKeys.generate().save(options.file)
    except FileExistsError:
        raise AlreadyExistsError(
            None, None, f"there is a file {options.file}, which may be the keys of a running cluster; name another"
        ) from None
    print(f"{options.file} holds the keys of a cluster; let {FILE_VARIABLE} name it wherever a task or a client runs")
    return 0
