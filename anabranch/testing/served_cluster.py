"""tf.test.create_local_cluster: the tasks of a cluster in this process, for tests."""

from __future__ import annotations

from anabranch.distributed.cluster_spec import ClusterSpec
from anabranch.distributed.held_ports import HeldPorts
from anabranch.distributed.server import Server
from anabranch.proto.config_pb2 import ConfigProto


def create_local_cluster(
    num_workers: int,
    num_ps: int,
    protocol: str = "grpc",
    worker_config: ConfigProto | None = None,
    ps_config: ConfigProto | None = None,
) -> tuple[list[Server], list[Server]]:
    """Starts servers of a cluster of the jobs "worker" and "ps" in this process, at free ports of this machine.

    Args:
        num_workers, num_ps: how many tasks each job has.
        protocol: as for `tf.train.Server`.
        worker_config, ps_config: for sessions that bring no configuration.

    Returns:
        The servers of the workers, and those of the parameter servers.

    Raises:
        ValueError: a job would have fewer than no tasks, or the cluster none.
        UnavailableError: the machine has no free ports.

    Example:
        >>> workers, ps = tf.test.create_local_cluster(num_workers=1, num_ps=1)
        >>> with tf.device("/job:ps/task:0"):
        ...     x = tf.constant(6.0)
        >>> with tf.Session(workers[0].target) as session:
        ...     print(session.run(x * 7.0))
        42.0
        >>> for server in (*workers, *ps):
        ...     server.stop()
    """
    if num_workers < 0 or num_ps < 0 or num_workers + num_ps == 0:
        raise ValueError(f"a cluster needs tasks: num_workers={num_workers}, num_ps={num_ps}")
    with HeldPorts(num_workers + num_ps) as held:
        addresses = [f"localhost:{port}" for port in held.ports]
        jobs = {"worker": addresses[:num_workers], "ps": addresses[num_workers:]}
        spec = ClusterSpec({job: tasks for job, tasks in jobs.items() if tasks})
        configs = {"worker": worker_config, "ps": ps_config}
        started: list[Server] = []
        try:
            for job, index in [(job, index) for job, tasks in jobs.items() for index in range(len(tasks))]:
                started.append(Server(spec, job, index, protocol=protocol, config=configs[job]))
        except BaseException:
            for server in started:
                server.stop()
            raise
    return started[:num_workers], started[num_workers:]
