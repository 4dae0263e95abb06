"""The program of a soaked training: `anabranch cluster run ... -m tests.fuzz.soak.program WAY FOLDER`.

Each worker makes steps until the folder has a file `enough`. Where steps may follow each other's last one, worker 0
leaves last, as the chief, so that the last checkpoint has all of them.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any, Final

import anabranch as tf
from tests.cluster.training_worker import is_chief
from tests.fuzz.soak.estimators import ESTIMATORS, Estimators
from tests.fuzz.soak.ways import PS, WAYS, WORKERS, Notes, Older, Ranges, Way

#: seconds between two steps, so that seven processes get along on two cores
_PAUSE: Final = 0.005
_LOOK_EVERY: Final = 0.05


def main(way_name: str, folder: Path) -> None:
    """What a worker does."""
    faulthandler.register(signal.SIGUSR1)
    described = json.loads(os.environ["TF_CONFIG"])
    job, index = described["task"]["type"], described["task"]["index"]
    notes = Notes(folder, job, index)
    if way_name == ESTIMATORS:
        Estimators(index + (job == "worker")).run(folder, notes, job)
        return
    server = tf.train.Server(described["cluster"], "worker", index)
    way = WAYS[way_name](index)
    with tf.device(tf.train.replica_device_setter(PS, worker_device=f"/job:worker/task:{index}")):
        way.build()
    with tf.train.MonitoredTrainingSession(
        server.target, index == 0, hooks=way.hooks, save_summaries_steps=None, log_step_count_steps=None
    ) as session:
        print("has a session", flush=True)
        train(way, session, notes, folder)
        if not way.in_rounds and index == 0:
            leave_last(way, session, folder)
    if (folder / "enough").exists():
        (folder / f"worker-{index}.left").touch()
    print("has left", flush=True)


def train(way: Way, session: Any, notes: Notes, folder: Path) -> None:
    enough = folder / "enough"
    # its chief ends the training of all
    goes_on = isinstance(way, Older) and way.index > 0

    def is_over() -> bool:
        time.sleep(_PAUSE)
        return not goes_on and enough.exists()

    if isinstance(way, Ranges):
        for epoch, begin, end in way.ranges.leased(session):
            session.run(way.step, {way.begin: begin, way.end: end})
            notes.note(f"{epoch} {begin}")
            if is_over():
                way.ranges.done(session)
                break
        return
    while not session.should_stop() and not is_over():
        notes.note(way.take(session))


def leave_last(way: Way, session: Any, folder: Path) -> None:
    """Waits until the others have left, and this worker is chief."""
    step = tf.train.get_global_step(session.graph)
    while len(list(folder.glob("*.left"))) < WORKERS - 1 or not is_chief(session):
        time.sleep(_LOOK_EVERY)
        session.run(step)
    (folder / "results.json").write_text(json.dumps(way.last_words(session)))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
