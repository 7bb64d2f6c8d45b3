"""A real browser for tests: Chromium without a window, driven by chromedriver over plain HTTP (WebDriver)."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest

_BINARIES, _DRIVERS = ("chromium", "chromium-browser", "google-chrome"), ("chromedriver",)
# Nothing of the browser's own goes to the network, so that what the log shows is the page's.
_ARGUMENTS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-default-apps",
    "--disable-dev-shm-usage", "--hide-scrollbars",
)  # fmt: skip
_PATIENCE_SECONDS = 300

_NAMELESS = """
    const named = (one) => one.textContent.trim() || one.getAttribute("aria-label") || one.labels?.[0]?.textContent
        || document.getElementById(one.getAttribute("aria-labelledby"))?.textContent;
    return [...document.querySelectorAll("button, input, summary, a, [role=region], [role=group], section, nav")]
        .filter((one) => one.closest(".vega-embed") === null && !named(one))
        .map((one) => one.outerHTML.slice(0, 80));
"""


class Browser:
    """One session: opens pages, runs scripts in them, and says what they logged and asked for."""

    def __init__(self, address: str, session: str) -> None:
        self._session = f"{address}/session/{session}"

    def open(self, page: Path, *, query: str = "") -> None:
        """Open a file, with what stands behind a question mark in its address, and wait until it is whole.

        The driver waits for that, too, but on a busy machine it has answered while a large page was being read.
        """
        self.evaluate("window.isLeft = true")
        self._post("/url", {"url": page.absolute().as_uri() + (f"?{query}" if query else "")})
        end = monotonic() + _PATIENCE_SECONDS
        while not self.evaluate("document.readyState === 'complete' && window.isLeft === undefined"):
            assert monotonic() < end, f"{page}: not whole after {_PATIENCE_SECONDS} s: {self.complaints()}"
            sleep(0.05)

    def run(self, script: str, *arguments: object) -> Any:
        """Run a script's function body in the page and return what it returns."""
        return self._post("/execute/sync", {"script": script, "args": list(arguments)})

    def wait(self, promise: str) -> Any:
        """Return what a promise in the page comes to."""
        script = f"const done = arguments[0]; ({promise}).then(done, (error) => done(String(error)));"
        return self._post("/execute/async", {"script": script, "args": []})

    def resize(self, width: int, height: int) -> None:
        """Give the page another size, in pixels."""
        numbers = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self._devtools("Emulation.setDeviceMetricsOverride", numbers)

    def prefer(self, theme: str) -> None:
        """Let the user prefer ``light`` or ``dark``."""
        features = [{"name": "prefers-color-scheme", "value": theme}]
        self._devtools("Emulation.setEmulatedMedia", {"features": features})

    def screen(self, media: str = "screen") -> None:
        """Show the page as on a screen, or as in ``print``."""
        self._devtools("Emulation.setEmulatedMedia", {"media": media, "features": []})

    def scripts(self, allowed: bool) -> None:
        """Let pages that are opened from here on run their scripts, or not."""
        self._devtools("Emulation.setScriptExecutionDisabled", {"value": not allowed})

    def evaluate(self, expression: str) -> Any:
        """Return what an expression of the developer tools is, also where a page may run no script."""
        found = self._devtools("Runtime.evaluate", {"expression": expression, "returnByValue": True})
        return found["result"]["value"]

    def click(self, selector: str) -> None:
        """Click what a selector finds as a person does, with the mouse."""
        middle = self.run(
            "const one = document.querySelector(arguments[0]); one.scrollIntoView({ block: 'center' });"
            "const at = one.getBoundingClientRect(); return { x: at.x + at.width / 2, y: at.y + at.height / 2 };",
            selector,
        )
        for kind in ("mousePressed", "mouseReleased"):
            self._devtools("Input.dispatchMouseEvent", {"type": kind, "button": "left", "clickCount": 1, **middle})

    def press(self, key: str) -> None:
        """Press a key, such as ``Tab``."""
        code, text = {"Enter": (13, "\r"), "Tab": (9, ""), " ": (32, " "), "Escape": (27, "")}[key]
        common = {"key": key, "windowsVirtualKeyCode": code}
        self._devtools("Input.dispatchKeyEvent", {"type": "keyDown", "text": text, **common})
        self._devtools("Input.dispatchKeyEvent", {"type": "keyUp", **common})

    def picture(self, file: Path, *, whole: bool = False) -> None:
        """Keep what the page looks like as PNG, all of it or what is in view."""
        shot = self._devtools("Page.captureScreenshot", {"format": "png", "captureBeyondViewport": whole})
        file.write_bytes(base64.b64decode(shot["data"]))

    def picture_of(self, script: str, file: Path) -> None:
        """Keep what a part of the page looks like as PNG: a script returns ``x``, ``y``, ``width`` and ``height``."""
        part = {**self.run(script), "scale": 1}
        options = {"format": "png", "captureBeyondViewport": True, "clip": part}
        file.write_bytes(base64.b64decode(self._devtools("Page.captureScreenshot", options)["data"]))

    def see(self, vision: str) -> None:
        """Show pages as an eye sees them: ``none`` for most, ``deuteranopia``, ``achromatopsia`` and others."""
        self._devtools("Emulation.setEmulatedVisionDeficiency", {"type": vision})

    def paper(self, file: Path) -> None:
        """Print the page to a PDF as Ctrl+P does: the page hears of it and has no time."""
        self.screen("")
        file.write_bytes(base64.b64decode(self._post("/print", {})))

    def paper_text(self, folder: Path) -> str:
        """Return what the page prints, as pdftotext lays it out, by way of files in a folder. Skips without it."""
        reader, pdf, text = installed(("pdftotext",)), folder / "paper.pdf", folder / "paper.txt"
        self.paper(pdf)
        subprocess.run([reader, "-layout", str(pdf), str(text)], check=True)
        return text.read_text(encoding="utf-8")

    def begin(self, page: Path) -> None:
        """Open a page on a screen of 1280 pixels. What was logged before is not its."""
        self.complaints()
        self.screen()
        self.resize(1280, 900)
        self.open(page)

    def nameless(self) -> list[str]:
        """Return the beginnings of what can be used on the page and has no name for who does not see it."""
        found: list[str] = self.run(_NAMELESS)
        return found

    def complaints(self) -> list[str]:
        """Return what the page's console has said since it was last asked, but for its plain notes."""
        return [entry["message"] for entry in self._log("browser") if entry["level"] in ("WARNING", "SEVERE")]

    def requests(self) -> list[str]:
        """Return the addresses that pages asked for since this was last asked, without the browser's own."""
        events = [json.loads(entry["message"])["message"] for entry in self._log("performance")]
        sent = [event["params"] for event in events if event["method"] == "Network.requestWillBeSent"]
        addresses = [str(params["request"]["url"]) for params in sent]
        return [address for address in addresses if not address.startswith(("chrome://", "chrome-untrusted://"))]

    def _log(self, kind: str) -> list[Any]:
        entries: list[Any] = self._post("/se/log", {"type": kind})
        return entries

    def _devtools(self, command: str, parameters: dict[str, Any]) -> Any:
        return self._post("/goog/cdp/execute", {"cmd": command, "params": parameters})

    def _post(self, path: str, body: dict[str, Any]) -> Any:
        return _send(f"{self._session}{path}", body)

    def close(self) -> None:
        """End the session and its browser."""
        _send(self._session, None, method="DELETE")


def _send(address: str, body: dict[str, Any] | None, method: str = "POST") -> Any:
    content = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(address, content, {"Content-Type": "application/json"}, method=method)
    # Whatever proxy the machine has, this is the machine itself.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=_PATIENCE_SECONDS) as answer:
            return json.load(answer)["value"]
    except urllib.error.HTTPError as error:
        raise AssertionError(f"{address}: {error.read().decode('utf-8', 'replace')[:2000]}") from None


def installed(names: tuple[str, ...]) -> str:
    """Return the path of the first of these programs; skip where there is none."""
    found = next(filter(None, map(shutil.which, names)), None)
    if found is None:
        pytest.skip(f"no {' or '.join(names)} here")
    return found


@contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    """Start a browser whose profile is in a folder; it ends with this."""
    binary, driver = installed(_BINARIES), installed(_DRIVERS)
    process = subprocess.Popen([driver, "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        # It says on which free port it listens.
        port = next(found[1] for line in process.stdout if (found := re.search(r"successfully on port (\d+)", line)))
        options = {"binary": binary, "args": [*_ARGUMENTS, f"--user-data-dir={folder}"]}
        logs = {"browser": "ALL", "performance": "ALL"}
        limits = dict.fromkeys(("script", "pageLoad"), 1000 * _PATIENCE_SECONDS)
        wanted = {"browserName": "chrome", "timeouts": limits, "goog:chromeOptions": options, "goog:loggingPrefs": logs}
        address = f"http://127.0.0.1:{port}"
        session = _send(f"{address}/session", {"capabilities": {"alwaysMatch": wanted}})["sessionId"]
        found_browser = Browser(address, session)
        try:
            yield found_browser
        finally:
            found_browser.close()
    finally:
        process.terminate()
        process.wait(60)
        if process.stdout is not None:
            process.stdout.close()
