"""Be a task of a cluster: a server that other processes' sessions use.

It ends on Ctrl-C, and on SIGTERM, after a training has saved what it holds (`Server.leave`).
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from typing import Final, NoReturn

from anabranch.distributed.cluster_files import read_cluster
from anabranch.distributed.cluster_spec import ClusterSpec
from anabranch.distributed.keys import FILE_VARIABLE
from anabranch.distributed.server import Server
from anabranch.distributed.shard_recovery import DIRECTORY_VARIABLE
from anabranch.distributed.task_engine import READY_VARIABLE
from anabranch.distributed.tf_config import TF_CONFIG_VARIABLE, read_tf_config
from anabranch.errors import InvalidArgumentError, OpError
from anabranch.runtime.worker_threads import worker_threads

#: how long the end waits for what steps still run; a function of the user's may never end
_REST_SECONDS: Final = 5.0


def main(arguments: Sequence[str]) -> int:
    """`anabranch task --job ps --index 0 --cluster cluster.toml`"""
    parser = argparse.ArgumentParser(
        prog="anabranch task",
        description="Is a task of a cluster until it is ended by SIGTERM or Ctrl-C. What --job, --index and --cluster "
        "do not say is taken from TF_CONFIG.",
    )
    parser.add_argument("--job", help="the task's job, such as ps")
    parser.add_argument("--index", type=int, help="the task's number in its job")
    parser.add_argument("--cluster", metavar="FILE", help="the jobs and their addresses, as TOML or JSON")
    parser.add_argument(
        "--checkpoint", metavar="DIR", help="where a training saves: a task that comes back goes on from there"
    )
    parser.add_argument("--keys", metavar="FILE", help="the cluster's keys, which `anabranch cluster keys` makes")
    options = parser.parse_args(arguments)
    if options.keys:
        os.environ[FILE_VARIABLE] = options.keys
    if options.checkpoint:
        os.environ[DIRECTORY_VARIABLE] = os.path.abspath(options.checkpoint)
    signal.signal(signal.SIGTERM, _end)
    try:
        spec, job, index = _from_options(options)
        server = Server(spec, job_name=job, task_index=index, cluster_file=options.cluster)
    except ValueError as error:
        parser.error(str(error))
    try:
        _serve(server)
    finally:
        # what steps run whose end nobody waits for any more
        worker_threads.rest(_REST_SECONDS)
    return 0


def _serve(server: Server) -> None:
    with server:
        print(f"{server.server_def.job_name}/{server.server_def.task_index} listens at {server.target}", flush=True)
        _announce(server.target)
        try:
            server.join()
        except SystemExit:
            # another signal ends this as well
            server.leave()
            raise


def _from_options(options: argparse.Namespace) -> tuple[ClusterSpec, str | None, int | None]:
    config = read_tf_config(os.environ)
    spec = read_cluster(options.cluster) if options.cluster else config.cluster
    if not spec:
        raise InvalidArgumentError(
            None, None, f"which cluster? Name a file with --cluster, or set {TF_CONFIG_VARIABLE}"
        )
    own = options.job is None or options.job == config.task_type
    index = options.index if options.index is not None else config.task_id if own else None
    return spec, options.job or config.task_type, index


def _announce(target: str) -> None:
    """Tells who started this process that the task can be reached."""
    descriptor = os.environ.pop(READY_VARIABLE, None)
    if descriptor is not None:
        with open(int(descriptor), "w", encoding="utf-8") as file:
            file.write(target + "\n")


def _end(number: int, frame: object) -> NoReturn:
    # as an exception: `Server.stop` takes locks that the interrupted code may hold
    raise SystemExit(0)


def run() -> int:
    """`python -m anabranch.tools.task`, which imports less than the command `anabranch` does."""
    try:
        return main(sys.argv[1:])
    except KeyboardInterrupt:
        return 0
    except (OpError, OSError) as error:
        print(f"anabranch: {error.message if isinstance(error, OpError) else error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(run())
