"""`anabranch cluster page`: a cluster in the browser, as it works."""

from __future__ import annotations

import contextlib
import json
import secrets
import threading
import time
import webbrowser
from collections.abc import Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from typing import Any, Final

from anabranch.distributed.activity import ActivityWatch, TaskRate
from anabranch.distributed.cluster_files import ClusterFolder
from anabranch.errors import NotFoundError, UnavailableError
from anabranch.tools.cluster.names import chosen, cluster_parser
from anabranch.train.replica_status import TABLE_NAME, statuses

_GLOBAL_STEP: Final = "global_step"
#: how long (s) tasks may take to answer, all together
_ANSWER_WITHIN: Final = 1.0
#: the tasks are not asked again within this time (s), however many browsers ask
_LOOK_EVERY: Final = 0.5
_HOST: Final = "127.0.0.1"


def page(arguments: Sequence[str]) -> int:
    """`anabranch cluster page`"""
    parser = cluster_parser(
        "page",
        "Shows a running cluster in the browser: tasks, steps per second, what goes over which link, and how stale the "
        "gradients of which worker are. Ctrl-C ends it; the cluster goes on.",
    )
    parser.add_argument("--port", type=int, default=0, metavar="P", help="of this machine (a free one)")
    parser.add_argument("--open", action="store_true", help="open the browser")
    options = parser.parse_args(arguments)
    with contextlib.closing(ClusterPage(chosen(options.name), options.port)) as served:
        print(f"{served.address}  (Ctrl-C ends it)", flush=True)
        if options.open:
            webbrowser.open(served.address)
        with contextlib.suppress(KeyboardInterrupt):
            served.wait()
    return 0


class ClusterPage:
    """Serves the page of a cluster, to who knows its address: a secret is part of it.

    Only processes of this machine can connect. A browser that some other page sends here finds nothing without the
    secret; what it shows is read only.

    Args:
        folder: the cluster's.
        port: of this machine; 0 takes a free one.

    Attributes:
        address: what a browser opens.

    Raises:
        UnavailableError: the port is taken.
    """

    def __init__(self, folder: ClusterFolder, port: int = 0) -> None:
        self._view = ClusterView(folder)
        secret = secrets.token_urlsafe(16)
        try:
            self._server = ThreadingHTTPServer((_HOST, port), _handler(self._view, secret))
        except OSError as error:
            self._view.close()
            raise UnavailableError(
                None, None, f"cannot listen at port {port}: {error.strerror}; take another"
            ) from None
        self._server.daemon_threads = True
        self.address = f"http://{_HOST}:{self._server.server_port}/{secret}/"
        self._thread = threading.Thread(target=self._server.serve_forever, name="cluster page", daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Until another thread closes it, or Ctrl-C."""
        self._thread.join()

    def close(self) -> None:
        """Serves no more."""
        self._server.shutdown()
        self._server.server_close()
        self._view.close()


class ClusterView:
    """What the page shows, as JSON can say it. Thread-safe."""

    def __init__(self, folder: ClusterFolder) -> None:
        self._folder = folder
        self._watch = ActivityWatch((TABLE_NAME, _GLOBAL_STEP))
        self._lock = threading.Lock()
        self._latest: dict[str, Any] = {}
        self._looked = -_LOOK_EVERY

    def latest(self) -> dict[str, Any]:
        """How the cluster is; {"ended": true} when it has ended."""
        with self._lock:
            if time.monotonic() - self._looked >= _LOOK_EVERY:
                self._latest = self._look()
                self._looked = time.monotonic()
            return self._latest

    def close(self) -> None:
        self._watch.close()

    def _look(self) -> dict[str, Any]:
        if not self._folder.is_running:
            return {"ended": True}
        try:
            state = self._folder.state()
        except NotFoundError:
            return {"ended": True}
        running = [task["address"] for task in state["tasks"] if task["state"] == "running" and task["address"]]
        seen = self._watch.look(running, _ANSWER_WITHIN)
        variables = {name.rpartition("/")[2]: value for rate in seen.values() for name, value in rate.variables.items()}
        step = variables.get(_GLOBAL_STEP)
        table = variables.get(TABLE_NAME)
        now = time.time()
        return {
            "name": state["name"],
            "seconds": time.monotonic(),
            "global_step": int(step) if step is not None and step.ndim == 0 else None,
            "replicas": [] if table is None or table.ndim != 2 else [row._asdict() for row in statuses(table)],
            "tasks": [_task_shown(task, seen.get(task["address"]), now) for task in state["tasks"]],
        }


def _task_shown(task: dict[str, Any], rate: TaskRate | None, now: float) -> dict[str, Any]:
    shown = {key: task[key] for key in ("name", "target", "pid", "state", "restarts")}
    shown["uptime"] = now - task["started"] if task["started"] else None
    if rate is None:
        if task["state"] == "running" and task["address"]:
            shown["state"] = "does not answer"
        return shown
    return shown | {
        "steps": rate.steps,
        "ended_steps": rate.ended_steps,
        "running_steps": rate.running_steps,
        "links": [link._asdict() for link in rate.links],
    }


def _handler(view: ClusterView, secret: str) -> type[BaseHTTPRequestHandler]:
    document = resources.files(__package__).joinpath("page.html").read_bytes()

    class Handler(BaseHTTPRequestHandler):
        """Answers two paths, and no others."""

        def do_GET(self) -> None:
            # in constant time: who guesses learns nothing from how long an answer takes
            if secrets.compare_digest(self.path.encode(), f"/{secret}/".encode()):
                self._answer(document, "text/html; charset=utf-8")
            elif secrets.compare_digest(self.path.encode(), f"/{secret}/state".encode()):
                self._answer(json.dumps(view.latest()).encode(), "application/json")
            else:
                self.send_error(HTTPStatus.NOT_FOUND)

        def _answer(self, content: bytes, kind: str) -> None:
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Cache-Control", "no-store")
            self.send_header("Referrer-Policy", "no-referrer")
            self.send_header("X-Content-Type-Options", "nosniff")
            self.send_header("Content-Security-Policy", "default-src 'self' 'unsafe-inline'")
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing: the path has the secret."""

    return Handler
