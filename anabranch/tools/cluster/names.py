"""Which of the running clusters a command is about."""

from __future__ import annotations

import argparse
from typing import Final

from anabranch.distributed.cluster_files import ClusterFolder, running_clusters
from anabranch.errors import InvalidArgumentError, NotFoundError

DEFAULT_NAME: Final = "local"


def cluster_parser(command: str, description: str) -> argparse.ArgumentParser:
    """The parser of a command that is about a running cluster."""
    parser = argparse.ArgumentParser(prog=f"anabranch cluster {command}", description=description)
    parser.add_argument("--name", help="the cluster's name; not needed where only one is running")
    return parser


def chosen(name: str | None) -> ClusterFolder:
    """The running cluster of this name, or the only one.

    Raises:
        NotFoundError: it is not running, or none is.
        InvalidArgumentError: several are running, and no name is given.
    """
    running = running_clusters()
    if name is None:
        if not running and ClusterFolder(DEFAULT_NAME).was_killed:
            name = DEFAULT_NAME
        elif not running:
            raise NotFoundError(
                None, None, "no cluster is running; start one with `anabranch cluster start local 1 ps 2 workers`"
            )
        elif len(running) > 1:
            raise InvalidArgumentError(None, None, f"which cluster? Say --name with one of: {', '.join(running)}")
        else:
            name = running[0]
    folder = ClusterFolder(name)
    if name not in running:
        if folder.was_killed:
            raise NotFoundError(
                None, None, f"the supervisor of the cluster {name!r} was killed, and its tasks with it; start it again"
            )
        raise NotFoundError(
            None, None, f"no cluster named {name!r} is running; there are: {', '.join(running) or 'none'}"
        )
    return folder
