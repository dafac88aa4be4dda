"""The server of the page: one address on this machine, a token in its URL, and nothing that writes to a run.

Owns routes, the token and errors. What it answers comes from `views` and, by the process of `player`, from individuals.
"""

import asyncio
import contextlib
import importlib
import json
import mimetypes
import secrets
import signal
import socket
import struct
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import anyio
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from pyes.config.section import parse
from pyes.errors import ConfigError, PyesError, RunDirectoryError
from pyes.reports.explorer import player, views
from pyes.reports.explorer.player import Busy, Player
from pyes.reports.runs import XAxis
from pyes.system.text import finite, quoted

STATIC = Path(__file__).parent / "static"
mimetypes.add_type("text/javascript", ".js")  # Windows may have other words for these, which browsers refuse
mimetypes.add_type("text/css", ".css")
_HERE = "127.0.0.1"
_PLAY_SECONDS, _MAP_SECONDS = 120.0, 1800.0
#: Nothing from elsewhere; uPlot sets styles.
_POLICY = (
    "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; frame-ancestors 'none'; "
    "base-uri 'none'; form-action 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",  # the URL has the token
    "Cache-Control": "no-store",
}


class _JSON(JSONResponse):
    """JSON in ASCII, since names of folders need not be UTF-8, with null for what JSON has no number for."""

    def render(self, content: Any) -> bytes:
        return json.dumps(finite(content), allow_nan=False).encode()


class _Guarded:
    """Answers only requests with the token, and adds the headers of all answers."""

    def __init__(self, app: Any, token: str) -> None:
        self._app, self._token = app, token

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return

        async def send_with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                added = [(name.lower().encode(), value.encode()) for name, value in _HEADERS.items()]
                message["headers"] = [*message["headers"], *added]
            await send(message)

        given = Request(scope).query_params.get("token", "")
        # The path that routes see: the one of `Request.url` depends on the Host header as well.
        if scope["path"].startswith("/static/") or secrets.compare_digest(given.encode(), self._token.encode()):
            await self._app(scope, receive, send_with_headers)
        else:
            text = "This page needs the token of its URL: open the address that pyes explore has printed.\n"
            await Response(text, 403, media_type="text/plain")(scope, receive, send_with_headers)


class Explorer:
    """The application.

    Parameters
    ----------
    paths : sequence of Path
        Run directories, or folders with runs below them, in which others may begin. Requests name a run by its number.
    token : str
        What requests must have.
    folder : Path
        For videos and policies, until the end.
    """

    def __init__(self, paths: Sequence[Path], token: str, folder: Path) -> None:
        self._paths, self._runs, self._folder = list(paths), views.found(paths), folder
        # A map may take minutes, and must not hold up a click.
        self.players = self._play, self._place = Player(_PLAY_SECONDS), Player(_MAP_SECONDS)
        # By the video: how the journal began that had the individual, and what came of it.
        self._played: dict[Path, tuple[bytes, dict[str, Any]]] = {}
        routes = [
            Route("/", self._page),
            Route("/api/runs", self._states),
            Route("/api/curves", self._curves),
            Route("/api/runs/{run}", self._details),
            Route("/api/runs/{run}/points", self._points),
            Route("/api/runs/{run}/{generation}/{member}", self._member),
            Route("/api/runs/{run}/{generation}/{member}/video", self._video),
            Route("/api/runs/{run}/{generation}/{member}/policy", self._policy),
            Mount("/static", StaticFiles(directory=STATIC)),
        ]
        handlers: dict[Any, Any] = {PyesError: _refuse, OSError: _refuse, Exception: _fail}
        guard = Middleware(_Guarded, token=token)
        self.app = Starlette(routes=routes, middleware=[guard], exception_handlers=handlers)

    def prepare(self) -> None:
        """Let the processes make the map of the first run, then open it for playing, while the user opens the page."""

        def play(placed: Future[None]) -> None:
            if not placed.cancelled() and placed.exception() is None:  # else the run is damaged, or this is the end
                self._play.ask(player.prepare_playing, self._runs[0])

        # One after the other: the page waits for the map, and the browser that draws it needs the other core.
        self._place.ask(player.prepare_map, self._runs[0]).add_done_callback(play)

    async def _page(self, request: Request) -> Response:
        return FileResponse(STATIC / "index.html")

    async def _states(self, request: Request) -> Response:
        found = await _threaded(self._found)
        # Runs that have begun since get the next numbers; not in the thread, where two pages would add them twice.
        self._runs += [path for path in found if path not in self._runs]
        return _JSON(await _threaded(views.states, list(self._runs)))

    def _found(self) -> list[Path]:
        found: list[Path] = []
        for named in self._paths:
            with contextlib.suppress(RunDirectoryError):  # it is gone, and so say its runs
                found += views.found([named])
        return list(dict.fromkeys(found))

    async def _curves(self, request: Request) -> Response:
        x = parse(XAxis, request.query_params.get("x", "timesteps"), "x")
        return _JSON(await _threaded(views.curves, list(self._runs), x))

    async def _details(self, request: Request) -> Response:
        path = self._run(request)
        others = [each for each in self._runs if each != path]
        return _JSON(await _threaded(views.details, path, others))

    async def _points(self, request: Request) -> Response:
        path, asked = self._run(request), request.query_params
        of = self._runs[self._index(asked.get("of", request.path_params["run"]))]
        first, fit = (_whole(asked.get(name, "0"), name) for name in ("first", "fit"))
        described, data = await _answer(self._place, player.points, path, of, first, fit)
        text = json.dumps(described).encode()
        return Response(struct.pack("<I", len(text)) + text + data, media_type="application/octet-stream")

    async def _member(self, request: Request) -> Response:
        path, generation, member = self._individual(request)
        output, begins = self._film(request), player.beginning(path)
        known = self._played.get(output)
        if known is None or known[0] != begins:  # another run may have been begun in the same folder
            known = begins, await _answer(self._play, player.film, path, generation, member, output)
            self._played[output] = known
        where = f"--generation {generation} --member {member}"
        return _JSON({**known[1], "command": f"pyes replay {quoted(path)} {where}"})

    async def _video(self, request: Request) -> Response:
        self._individual(request)
        film = self._film(request)
        if not film.exists():
            raise ConfigError("this individual has not been filmed yet")
        return FileResponse(film, media_type="video/mp4")

    async def _policy(self, request: Request) -> Response:
        path, generation, member = self._individual(request)
        data = await _answer(self._play, player.policy, path, generation, member, self._folder)
        name = f"generation-{generation}-member-{member}.zip"  # not the run's: a header takes few characters
        headers = {"Content-Disposition": f"attachment; filename={name}"}
        return Response(data, media_type="application/zip", headers=headers)

    def _film(self, request: Request) -> Path:
        run, generation, member = self._individual(request)
        return self._folder / f"{self._runs.index(run)}-{generation}-{member}.mp4"

    def _individual(self, request: Request) -> tuple[Path, int, int]:
        generation, member = (_whole(request.path_params[name], name) for name in ("generation", "member"))
        return self._run(request), generation, member

    def _run(self, request: Request) -> Path:
        return self._runs[self._index(request.path_params["run"])]

    def _index(self, value: Any) -> int:
        number = _whole(value, "run")
        if number >= len(self._runs):
            raise ConfigError(f"run: got {number}, expected 0 to {len(self._runs) - 1}")
        return number


def _whole(value: Any, name: str) -> int:
    text = str(value)
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise ConfigError(f"{name}: got {text[:40]!r}, expected a whole number")
    return int(text)


async def _threaded(function: Callable[..., Any], *arguments: Any) -> Any:
    return await anyio.to_thread.run_sync(function, *arguments)


async def _answer(asked: Player, function: Callable[..., Any], *arguments: Any) -> Any:
    return await asyncio.wrap_future(asked.ask(function, *arguments))


async def _refuse(request: Request, error: Exception) -> Response:
    return _JSON({"error": str(error)}, 503 if isinstance(error, Busy) else 404)


async def _fail(request: Request, error: Exception) -> Response:
    return _JSON({"error": f"the explorer failed: {error!r}"}, 500)


def serve(paths: Sequence[Path], port: int, tell: Callable[[str], None]) -> None:
    """Serve the page of runs until Ctrl-C, SIGTERM or, as when a connection is lost, SIGHUP.

    Parameters
    ----------
    paths : sequence of Path
        Run directories, or folders with runs below them.
    port : int
        Port to listen at, on this machine alone; 0: any that is free.
    tell : callable
        Shows the user the URL.

    Raises
    ------
    ConfigError
        The address cannot be listened at.
    RunDirectoryError
        There is no run.
    """
    uvicorn = importlib.import_module("uvicorn")
    token = secrets.token_urlsafe(16)
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(_listen(port))
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="pyes-explore-"))
        explorer = Explorer(paths, token, Path(folder))
        for each in explorer.players:
            stack.enter_context(each)
        explorer.prepare()
        options = {"log_level": "warning", "lifespan": "off", "ws": "none", "timeout_graceful_shutdown": 1}
        config = uvicorn.Config(explorer.app, **options)
        server = uvicorn.Server(config)
        # By default they would end the process before it cleans up; uvicorn raises SIGTERM once more at its end.
        for name in {"SIGTERM", "SIGHUP"} & set(signal.Signals.__members__):
            if signal.getsignal(signal.Signals[name]) is not signal.SIG_IGN:  # as nohup sets it
                signal.signal(signal.Signals[name], lambda *_: setattr(server, "should_exit", True))
        tell(f"http://{_HERE}:{listening.getsockname()[1]}/?token={token}")
        server.run(sockets=[listening])


def _listen(port: int) -> socket.socket:
    try:
        return socket.create_server((_HERE, port), backlog=128)
    except OSError as error:
        advice = "take another one with --port, or --port 0 for any that is free"
        why = (error.strerror or f"{error}").partition(" (while")[0]
        raise ConfigError(f"cannot listen at {_HERE}:{port}: {why}; {advice}") from error
