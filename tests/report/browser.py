# SPDX-License-Identifier: Apache-2.0
"""A headless Chromium for tests of pages, driven over a DevTools pipe, with nothing but the standard library."""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

TIMEOUT = 120.0


def executable():
    """Path of a Chromium, or None."""
    return next(
        (path for path in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if path), None
    )


class Browser:
    """One browser process; `open` makes pages. Use it as a context."""

    def __enter__(self):
        self.profile = tempfile.mkdtemp(prefix="sluice-browser-")
        to_child, self.write = os.pipe()
        self.read, from_child = os.pipe()

        def pipes():  # DevTools reads descriptor 3 and writes descriptor 4
            low, high = os.dup(to_child), os.dup(from_child)
            os.dup2(low, 3)
            os.dup2(high, 4)

        command = [
            executable(),
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--remote-debugging-pipe",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            "--hide-scrollbars",
            "--host-resolver-rules=MAP * ~NOTFOUND",
            "--user-data-dir=" + self.profile,
            "about:blank",
        ]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            close_fds=False,
            preexec_fn=pipes,
        )
        os.close(to_child)
        os.close(from_child)
        self.buffer, self.count, self.events = b"", 0, []
        return self

    def __exit__(self, *problem):
        try:
            self.call("Browser.close")
            self.process.wait(10)
        except Exception:
            self.process.kill()
            self.process.wait()
        os.close(self.write)
        os.close(self.read)
        shutil.rmtree(self.profile, ignore_errors=True)

    def call(self, method, session=None, **params):
        self.count += 1
        message = {"id": self.count, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        self._send(message)
        number = self.count
        deadline = time.monotonic() + TIMEOUT
        while time.monotonic() < deadline:
            answer = self._receive(deadline)
            if answer.get("id") == number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]
            self.events.append(answer)
        raise TimeoutError(method)

    def _send(self, message):
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.write, data) :]

    def _receive(self, deadline):
        while b"\0" not in self.buffer:
            if not select.select([self.read], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise TimeoutError("no answer from the browser")
            piece = os.read(self.read, 1 << 20)
            if not piece:
                raise RuntimeError("the browser ended")
            self.buffer += piece
        line, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(line)

    def open(self, path, width=1280, height=900, dark=False):
        return Page(self, path, width, height, dark)


class Page:
    """One tab: what it said on the console, what it asked the network for, and what it looks like."""

    def __init__(self, browser, path, width, height, dark):
        self.browser = browser
        target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        self.target = target
        self.session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(domain + ".enable")
        self.size(width, height)
        self.call(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}],
        )
        self.url = "file://" + os.path.abspath(path)
        self.call("Page.navigate", url=self.url)
        self.wait("document.documentElement?.dataset.state === 'drawn'")

    def call(self, method, **params):
        return self.browser.call(method, self.session, **params)

    def size(self, width, height=900):
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def value(self, expression):
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(
                answer["exceptionDetails"].get("exception", {}).get("description", "exception")
            )
        return answer["result"].get("value")

    def wait(self, expression):
        deadline = time.monotonic() + TIMEOUT
        while not self.value(expression):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{expression}: {self.complaints()}")
            time.sleep(0.05)

    def _own(self, method):
        return [
            e["params"]
            for e in self.browser.events
            if e.get("sessionId") == self.session and e.get("method") == method
        ]

    def complaints(self):
        """Everything that the page put on the console, exceptions with it."""
        out = [
            e["exceptionDetails"].get("exception", {}).get("description", "exception")
            for e in self._own("Runtime.exceptionThrown")
        ]
        out += [str(e["args"]) for e in self._own("Runtime.consoleAPICalled")]
        return out + [e["entry"]["text"] for e in self._own("Log.entryAdded")]

    def requests(self):
        """Addresses that were asked for, but the page itself and data: URLs."""
        asked = [e["request"]["url"] for e in self._own("Network.requestWillBeSent")]
        return [url for url in asked if url not in (self.url, "about:blank") and not url.startswith("data:")]

    def picture(self, path, full=True, **clip):
        options = {"clip": {**clip, "scale": 1}} if clip else {}
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=full, **options)[
            "data"
        ]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))

    def pdf(self):
        return base64.b64decode(
            self.call("Page.printToPDF", printBackground=True, preferCSSPageSize=True)["data"]
        )

    def close(self):
        self.browser.call("Target.closeTarget", targetId=self.target)
