"""A headless Chromium that is controlled through a pipe, for tests of pages."""

import base64
import json
import os
import select
import shutil
import subprocess
import time

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-dev-shm-usage", "--hide-scrollbars", "--remote-debugging-pipe",
)  # fmt: skip


def find():
    """Return the path of a Chromium, None if there is none."""
    return next((path for path in map(shutil.which, NAMES) if path), None)


class Browser:
    """One page in a browser with an empty profile.

    ``events`` collects the events that the browser reports, such as requests and
    console messages.
    """

    def __init__(self, profile, seconds=300):
        self.events, self._seconds = [], seconds
        self._count, self._rest, self._session = 0, b"", None
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        command = [find(), *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        # the browser reads from descriptor 3 and writes to 4
        shell = f'exec "$0" "$@" 3<&{theirs_in} 4>&{theirs_out}'
        self._process = subprocess.Popen(
            ["bash", "-c", shell, *command],
            pass_fds=(theirs_in, theirs_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        pages = self.ask("Target.getTargets")["targetInfos"]
        page = next(t["targetId"] for t in pages if t["type"] == "page")
        found = self.ask("Target.attachToTarget", targetId=page, flatten=True)
        self._session = found["sessionId"]
        # keys reach a page whose window is behind others, too
        self.ask("Emulation.setFocusEmulationEnabled", enabled=True)
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.ask(f"{domain}.enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self._session = None
            self.ask("Browser.close")
        finally:
            self._process.kill()
            self._process.wait()
            os.close(self._in)
            os.close(self._out)

    def ask(self, method, **params):
        """Send a command and return its result."""
        self._count += 1
        message = {"id": self._count, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + self._seconds
        while True:
            answer = self._read(end)
            if answer.get("id") == self._count:
                assert "error" not in answer, answer
                return answer["result"]
            self.events.append(answer)

    def _read(self, end):
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._in], [], [], end - time.monotonic())
            assert ready, "the browser does not answer"
            part = os.read(self._in, 2**16)
            assert part, "the browser has ended"
            self._rest += part
        message, self._rest = self._rest.split(b"\0", 1)
        return json.loads(message)

    def open(self, address, width=1000, height=900, dark=False):
        """Open an address in a window of a given size and theme, and wait for it."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", features=[scheme])
        self.ask(
            "Emulation.setDeviceMetricsOverride", width=width, height=height,
            deviceScaleFactor=1, mobile=width < 600,
        )  # fmt: skip
        self.events.clear()
        self.ask("Page.navigate", url=address)
        end = time.monotonic() + self._seconds
        while not any(e.get("method") == "Page.loadEventFired" for e in self.events):
            self.events.append(self._read(end))

    def value(self, expression):
        """Return the value of a JavaScript expression in the page."""
        found = self.ask("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def picture(self, path):
        """Save the whole page as PNG."""
        found = self.ask("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(found["data"]))

    def said(self, *methods):
        """Return the parameters of all events of some kinds."""
        return [e["params"] for e in self.events if e.get("method") in methods]
