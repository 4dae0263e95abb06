"""Messages that are damaged at random between a session and a live task: its link is closed, and the task lives."""

from __future__ import annotations

from tests.fuzz.frames import Damage, Rounds, Task


def test_a_task_survives_damaged_messages() -> None:
    damage = Damage(5, share=0.15)
    task = Task(6, share=0.15)
    try:
        with damage.installed():
            rounds = Rounds(task, damage)
            rounds.play()
            before = task.memory
            for _ in range(5):
                rounds.play()
        assert task.is_alive
        # a claim of a gigabyte is not believed
        assert task.memory - before < 100 << 20
    finally:
        there = task.stop()
    assert sum(damage.counts.values()) + sum(there.values()) >= 4
    assert set(rounds.outcomes) - {"value"}
