"""Chromium without a window, driven over its DevTools protocol: what a reader's browser makes of a page."""

from __future__ import annotations

import base64
import itertools
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from websocket import WebSocket, create_connection

__all__ = ["Browser", "browser", "find_chromium"]

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_PATIENCE_S = 60.0
_FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--remote-debugging-port=0", "--remote-allow-origins=*"),
)


def find_chromium() -> str | None:
    """Where it is; None where it is not installed."""
    return next((found for name in _NAMES if (found := shutil.which(name))), None)


class Browser:
    """One page of it. `seen` holds every event since the page was opened."""

    def __init__(self, socket: WebSocket) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self.seen: list[dict[str, Any]] = []
        for domain in ("Page", "Runtime", "Network", "Log", "DOM", "Accessibility"):
            self.do(f"{domain}.enable")

    def do(self, method: str, **params: Any) -> dict[str, Any]:
        """One command; its result."""
        number = next(self._numbers)
        self._socket.send(json.dumps({"id": number, "method": method, "params": params}))
        while True:
            answer = json.loads(self._socket.recv())
            if answer.get("id") == number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                result: dict[str, Any] = answer["result"]
                return result
            self.seen.append(answer)

    def open(self, file: Path, *, width: int = 1280, dark: bool = False, media: str = "screen") -> None:
        """Shows a file and waits until all of it is there."""
        self.seen.clear()
        self.look(width=width, dark=dark, media=media)
        self.do("Page.navigate", url=file.resolve().as_uri())
        while not any(event["method"] == "Page.loadEventFired" for event in self.seen):
            self.seen.append(json.loads(self._socket.recv()))

    def look(self, *, width: int = 1280, dark: bool = False, media: str = "screen") -> None:
        """Another window, theme or medium."""
        mobile = width < 600
        self.do("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=mobile)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.do("Emulation.setEmulatedMedia", media=media, features=[scheme])

    def value(self, expression: str) -> Any:
        """What an expression of JavaScript gives, as plain data."""
        found = self.do("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def picture(self, file: Path, *, whole: bool = True) -> None:
        """The page as a PNG."""
        found = self.do("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        file.write_bytes(base64.b64decode(found["data"]))

    def pdf(self) -> bytes:
        """The page as it is printed."""
        return base64.b64decode(self.do("Page.printToPDF", printBackground=True, preferCSSPageSize=True)["data"])

    def complaints(self) -> list[str]:
        """What it wrote to the console or its log, violations of the page's policy among that."""
        told = [event for event in self.seen if event["method"] in ("Log.entryAdded", "Runtime.exceptionThrown")]
        told += [event for event in self.seen if event["method"] == "Runtime.consoleAPICalled"]
        return [json.dumps(event["params"]) for event in told]

    def requests(self) -> list[str]:
        """What it asked for, the page itself left out."""
        sent = [
            event["params"]["request"]["url"] for event in self.seen if event["method"] == "Network.requestWillBeSent"
        ]
        return sent[1:]


@contextmanager
def browser() -> Iterator[Browser]:
    """A browser of its own, which is ended and leaves nothing."""
    program = find_chromium()
    assert program is not None
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        # Its sandbox needs more rights than a container gives; the page is ours.
        process = subprocess.Popen(
            [program, *_FLAGS, f"--user-data-dir={profile}", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            socket = create_connection(_page(Path(profile), process), timeout=_PATIENCE_S)
            yield Browser(socket)
            socket.close()
        finally:
            os.killpg(process.pid, 9)
            process.wait()


def _page(profile: Path, process: subprocess.Popen[bytes]) -> str:
    """The address of its first page, once it listens."""
    from urllib.request import ProxyHandler, build_opener

    opener = build_opener(ProxyHandler({}))
    until = time.monotonic() + _PATIENCE_S
    while time.monotonic() < until and process.poll() is None:
        lines = _lines(profile / "DevToolsActivePort")
        if len(lines) > 1:
            with opener.open(f"http://127.0.0.1:{lines[0]}/json", timeout=_PATIENCE_S) as answer:
                pages = [page for page in json.load(answer) if page["type"] == "page"]
            if pages:
                return str(pages[0]["webSocketDebuggerUrl"])
        time.sleep(0.05)
    raise AssertionError(f"Chromium did not begin to listen (exit code {process.poll()})")


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text().splitlines()
    except FileNotFoundError:
        return []
