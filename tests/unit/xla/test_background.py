"""What is compiled in the background is finished before the interpreter ends, whoever asked for it."""

from __future__ import annotations

import threading

from anabranch.xla.background import BackgroundCompiler


def test_the_interpreter_waits_for_the_compiler_that_a_daemon_started() -> None:
    """Steps with calls into libraries run on daemons; a thread that is ended inside of XLA aborts the process."""
    compiler = BackgroundCompiler()
    going, seen = threading.Event(), []

    def work() -> None:
        seen.append(threading.current_thread())
        going.wait(30)

    daemon = threading.Thread(target=lambda: compiler.start(work), daemon=True)
    daemon.start()
    daemon.join(30)
    (thread,) = [one for one in threading.enumerate() if one.name == "anabranch-compiler"]
    going.set()
    assert compiler.wait(30)
    assert seen == [thread]
    assert not thread.daemon
