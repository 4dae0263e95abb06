"""Clusters on a Ray that starts machines as they are needed: its own autoscaler, whose machines are made up here."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ray.cluster_utils import Cluster

from anabranch.distributed.held_ports import HeldPorts
from anabranch.distributed.keys import FILE_VARIABLE
from anabranch.distributed.ray_cluster import RayPlan, TaskResources
from anabranch.distributed.restarts import RestartLimits
from anabranch.distributed.supervisor import all_ready
from anabranch.distributed.task_engine import TaskProgram
from anabranch.tools import command_line
from tests.cluster.places import until

# Ray forks to start its programs, beside JAX's threads; what is forked does nothing but that
pytestmark = pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")
DEADLINE = 90.0
#: the kind of machine that the autoscaler can start: one holds all tasks of the test, and two are the most
MACHINE = {"resources": {"CPU": 3, "GPU": 2}, "node_config": {}, "min_workers": 0, "max_workers": 2}
#: what a configuration has to have, though there is nothing to say
NOTHING: dict[str, Any] = {
    **{key: {} for key in ("auth", "file_mounts", "docker")},
    **{key: [] for key in ("cluster_synced_files", "rsync_exclude", "rsync_filter")},
    **{f"{which}_commands": [] for which in ("initialization", "setup", "head_setup", "worker_setup")},
    **{f"{which}_start_ray_commands": [] for which in ("head", "worker")},
}


def configuration(port: int) -> dict[str, Any]:
    """What the autoscaler of a head is told whose control service listens at a port."""
    provider = {
        "type": "fake_multinode",
        "use_node_id_as_ip": True,
        "disable_node_updaters": True,
        "gcs_address": f"127.0.0.1:{port}",
    }
    head = {"resources": {"CPU": 0}, "node_config": {}, "max_workers": 0}
    return NOTHING | {
        "cluster_name": "made-up",
        "max_workers": 2,
        "upscaling_speed": 1.0,
        "idle_timeout_minutes": 5,
        "file_mounts_sync_continuously": False,
        "provider": provider,
        "head_node_type": "ray.head.default",
        "available_node_types": {"ray.head.default": head, "machine": MACHINE},
    }


def started_with(argument: str) -> list[tuple[int, list[str]]]:
    """The processes that were started with an argument, and all arguments of each."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            arguments = (entry / "cmdline").read_bytes().decode().split("\0") if entry.name.isdigit() else []
            if argument in arguments:
                found.append((int(entry.name), arguments))
    return found


def made_up_machines(port: int) -> list[int]:
    """The processes of Ray, one for each machine, that know a head by the address that only its autoscaler says."""
    knowing = started_with(f"--gcs-address=127.0.0.1:{port}")
    return [process for process, (program, *_) in knowing if program.endswith("raylet/raylet")]


@pytest.fixture
def ray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, int]]:
    """A head that has no room, and an autoscaler: the head's address, and its port."""
    keys = tmp_path / "cluster.keys"
    assert command_line.main(["cluster", "keys", str(keys)]) == 0
    monkeypatch.setenv(FILE_VARIABLE, str(keys))
    # who starts a machine must not be told that it sees none of its graphics processors
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("RAY_FAKE_CLUSTER", "1")
    monkeypatch.setenv("AUTOSCALER_UPDATE_INTERVAL_S", "1")
    monkeypatch.setenv("RAY_enable_worker_prestart", "0")
    # the priority of all others, so that beside other tests it is not the last to run
    monkeypatch.setenv("RAY_worker_niceness", "0")
    # a head believes after five of them that a machine is lost
    monkeypatch.setenv("RAY_health_check_period_ms", "500")
    # until it has ended: a port that was only looked up may be somebody else's when the head comes to listen there
    held = HeldPorts(1)
    (port,) = held.ports
    told = tmp_path / "autoscaler.json"
    told.write_text(json.dumps(configuration(port)), "utf-8")
    head = {"num_cpus": 0, "include_dashboard": False, "gcs_server_port": port, "autoscaling_config": str(told)}
    cluster: Any = Cluster(initialize_head=True, head_node_args=head)
    session = f"--session-dir={cluster.head_node.get_session_dir_path()}"
    try:
        yield str(cluster.address), port
    finally:
        cluster.shutdown()
        # nobody else ends them, nor the processes that read their logs
        for process in (*made_up_machines(port), *(process for process, _ in started_with(session))):
            os.kill(process, signal.SIGKILL)
        held.close()


def test_machines_are_started_for_tasks_and_each_task_sees_its_own_graphics_processors(
    ray: tuple[str, int], tmp_path: Path
) -> None:
    address, port = ray
    assert made_up_machines(port) == []
    # of each task, the graphics processors that it has seen at each start
    seen: dict[str, list[str]] = {"ps/0": [], "worker/0": [], "worker/1": []}

    def read(task: str, line: bytes) -> None:
        if line.startswith(b"sees:"):
            seen[task].append(line.removeprefix(b"sees:").decode())

    with RayPlan({"ps": 1, "worker": 2}, address, TaskResources(cpus=1, gpus=1), within=DEADLINE) as plan:
        (machine,) = made_up_machines(port)
        look = "import os, time; print('sees:' + os.environ['CUDA_VISIBLE_DEVICES'], flush=True); time.sleep(1000)"
        programs = [TaskProgram(name, ["python", "-c", look]) for name in seen]
        limits = RestartLimits(first_pause=0.05, longest_pause=0.5)
        engine = plan.engine(programs, tmp_path, limits, read)
        engine.start()
        try:
            until(lambda: all(seen.values()), "the start of each task", DEADLINE)
            assert seen["ps/0"] == [""]
            assert sorted(seen["worker/0"] + seen["worker/1"]) == ["0", "1"]
            # the machine is lost: the autoscaler finds that out, and starts another one for the tasks
            os.kill(machine, signal.SIGKILL)
            until(lambda: all(len(starts) == 2 for starts in seen.values()), "the second start of each task", DEADLINE)
            (other,) = made_up_machines(port)
            assert other != machine
            assert seen["ps/0"] == ["", ""]
            assert sorted(seen[f"worker/{index}"][1] for index in (0, 1)) == ["0", "1"]
            assert [status.restarts for status in engine.wait(all_ready, DEADLINE)] == [1, 1, 1]
        finally:
            engine.close()
