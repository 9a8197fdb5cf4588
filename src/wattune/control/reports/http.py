"""Metrics over HTTP: a program posts them to this machine, and the answer is whether to go on.

`POST /TOKEN/metric` takes what a line of a metric file takes (`{"metric": 0.71, "epoch": 3}` or `0.71`), and
`POST /TOKEN/step` one more iteration (an empty body, or `{"step": 200}`). Only requests from this machine
with the token are accepted.
"""

from __future__ import annotations

import json
import os
import secrets
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import asdict, dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Self

from wattune.control.reports.file import LineForm, read_object
from wattune.control.reports.report import AnyReport, StepReport, Unreadable
from wattune.core.errors import InputError

HOST = "127.0.0.1"
LONGEST_BODY = 1 << 16
PATIENCE_S = 30.0
"""Time that a caller has to send its body."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer to a report: whether the program should end, why, and within what time."""

    stop: bool = False
    why: str | None = None
    within_s: float | None = None
    """Seconds to end by itself; None where it may go on."""


Answerer = Callable[[AnyReport], Answer]


class MetricServer:
    """Listens while its block lasts. `answer` is called in threads of the server, one call at a time per caller."""

    def __init__(self, answer: Answerer, *, port: int = 0) -> None:
        self._token = secrets.token_urlsafe(16)
        try:
            self._server = _Server((HOST, port), _handler(answer, self._token))
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise InputError(
                f"cannot listen on port {port} of {HOST}: {reason}", hint="choose another port, or leave it out"
            ) from None

    def url(self, what: str) -> str:
        """Return the address to which a program posts each `metric` or `step`."""
        return f"http://{HOST}:{self._server.server_port}/{self._token}/{what}"

    def __enter__(self) -> Self:
        self._thread = Thread(target=self._server.serve_forever, args=(0.05,), daemon=True, name="wattune-metrics")
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore a caller that disconnected."""


def _handler(answer: Answerer, token: str) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = PATIENCE_S
        server_version, sys_version = "wattune", ""

        def do_POST(self) -> None:
            given, *what = self.path.strip("/").split("/")
            if not secrets.compare_digest(given.encode(), token.encode()):
                self._refuse(403, "the token is wrong; post to the address in WATTUNE_METRIC_URL")
            elif what not in (["metric"], ["step"]):
                self._refuse(404, "there is no such address; post to metric or step")
            else:
                self._take(what[0])

        def do_GET(self) -> None:
            self._refuse(405, 'metrics are posted, such as {"metric": 0.71, "epoch": 3}')

        do_PUT = do_GET  # noqa: N815

        def _take(self, what: str) -> None:
            length = self.headers.get("Content-Length", "0")
            if not length.isdecimal():
                self._refuse(411, "the length of the body is not known")
            elif int(length) > LONGEST_BODY:
                self._refuse(413, f"the body is longer than {LONGEST_BODY} bytes")
            else:
                report = understood(what, self.rfile.read(int(length)))
                if isinstance(report, Unreadable):
                    self._refuse(400, report.complaint)
                else:
                    self._reply(200, asdict(answer(report)))

        def _refuse(self, status: int, line: str) -> None:
            self.close_connection = True
            self._reply(status, {"error": line})

        def _reply(self, status: int, document: dict[str, object]) -> None:
            body = json.dumps(document).encode() + b"\n"
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Keep requests out of the output of the program."""

    return Handler


def understood(what: str, body: bytes) -> AnyReport:
    """Parse a body that was posted to `metric` or `step`."""
    try:
        text = body.decode("utf-8").strip()
    except UnicodeDecodeError:
        return Unreadable("the body is no text")
    if what == "step":
        return (
            StepReport() if text in ("", "{}") else read_object(text if text.startswith("{") else f'{{"step": {text}}}')
        )
    if "\n" in text and not text.startswith("{"):
        return Unreadable("the body is more than one line")
    report = LineForm().read(text.replace("\n", " "))[1]
    return Unreadable('the body has no metric; for example {"metric": 0.71, "epoch": 3}') if report is None else report


RUN_OVER = Answer(stop=True, why="the run is over", within_s=0.0)


class ReportQueue:
    """Queues reports of any thread; `descriptor` is readable while one waits for an answer."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._waiting: deque[tuple[AnyReport, Future[Answer]]] = deque()
        self._is_open = True
        self.descriptor, self._bell = os.pipe()

    def put(self, report: AnyReport) -> Answer:
        """Queue a report and wait for its answer, which is RUN_OVER once the queue is closed."""
        future: Future[Answer] = Future()
        with self._lock:
            if not self._is_open:
                return RUN_OVER
            self._waiting.append((report, future))
            os.write(self._bell, b"\0")
        return future.result()

    def answer_all(self, answer: Answerer) -> None:
        """Answer all reports that wait, in the calling thread."""
        while self._waiting:
            report, future = self._waiting.popleft()
            os.read(self.descriptor, 1)
            answered = RUN_OVER  # for the caller, where `answer` fails
            try:
                answered = answer(report)
            finally:
                future.set_result(answered)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._is_open = False
            for _report, future in self._waiting:
                future.set_result(RUN_OVER)
            self._waiting.clear()
            os.close(self.descriptor)
            os.close(self._bell)
