"""A headless Chromium, driven over its DevTools protocol by a pair of pipes, without any library.

    with Browser(directory) as browser:
        page = browser.page(width=390, height=844, dark=True)
        page.open("http://127.0.0.1:9337/")
        page.wait("document.querySelector('h2')")
        page.picture("shown.png")

Owns the browser's process and its profile in `directory`. What the page says on its console, throws, or is refused by its
policy is collected in `Page.complaints`.
"""

import base64
import json
import os
import select
import shutil
import signal
import subprocess
import time
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome")
# The first start of a browser on a busy machine.
PATIENCE_S = 60


def program():
    """The browser, or None."""
    return next((found for found in map(shutil.which, NAMES) if found), None)


class Browser:
    """The browser."""

    def __init__(self, directory):
        command_read, command_write = os.pipe()
        answer_read, answer_write = os.pipe()
        command = [program(), "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                   "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
                   "--force-color-profile=srgb", "--font-render-hinting=none", "--remote-debugging-pipe",
                   f"--user-data-dir={directory}/profile", "about:blank"]
        # The protocol is on descriptors 3 and 4. None of the numbers is 3 or 4 where it would be lost before it is used.
        script = f'exec "$@" 3<&{command_read} 4>&{answer_write}'
        self.log = open(f"{directory}/browser.log", "ab")
        self.process = subprocess.Popen(["bash", "-c", script, "sh", *command], pass_fds=(command_read, answer_write),
                                        stdout=self.log, stderr=self.log, start_new_session=True,
                                        env={**os.environ, "HOME": str(directory)})
        os.close(command_read)
        os.close(answer_write)
        self.write, self.read = command_write, answer_read
        self.number, self.received, self.pages = 0, b"", {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self.call("Browser.close")
            self.process.wait(10)
        except (AssertionError, OSError, subprocess.TimeoutExpired):
            pass
        # It has children; all are in a session of their own.
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()

    def receive(self, until):
        while b"\0" not in self.received:
            ready, _, _ = select.select([self.read], [], [], max(0, until - time.monotonic()))
            assert ready, "the browser does not answer"
            got = os.read(self.read, 1 << 20)
            assert got, "the browser has ended"
            self.received += got
        message, self.received = self.received.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, session=None, **parameters):
        self.number += 1
        number = self.number
        message = {"id": number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        os.write(self.write, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + PATIENCE_S
        while True:
            answer = self.receive(until)
            if answer.get("id") == number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]
            if answer.get("sessionId") in self.pages:
                self.pages[answer["sessionId"]].noted(answer)

    def page(self, width, height, dark=False):
        return Page(self, width, height, dark)


class Page:
    """A tab."""

    def __init__(self, browser, width, height, dark):
        self.browser, self.complaints = browser, []
        target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        self.target = target
        self.session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        browser.pages[self.session] = self
        for domain in "Page", "Runtime", "Log", "Accessibility":
            self.call(f"{domain}.enable")
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        scheme = "dark" if dark else "light"
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def call(self, method, **parameters):
        return self.browser.call(method, session=self.session, **parameters)

    def noted(self, event):
        parameters = event.get("params", {})
        if event["method"] == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(parameters["exceptionDetails"])[:500])
        elif event["method"] == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
            self.complaints.append(parameters["entry"]["text"])
        elif event["method"] == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning", "assert"):
            self.complaints.append(str(parameters["args"])[:500])

    def open(self, url):
        answer = self.call("Page.navigate", url=url)
        assert "errorText" not in answer, f"{url}: {answer['errorText']}"

    def evaluate(self, expression):
        """The value of an expression in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, f"{expression}: {answer['exceptionDetails']}"
        return answer["result"].get("value")

    def wait(self, expression, seconds=30):
        """Waits until an expression is true of the page."""
        until = time.monotonic() + seconds
        # Before the page is loaded there is not what it is about.
        while not self.evaluate(f"(() => {{ try {{ return Boolean({expression}) }} catch {{ return false }} }})()"):
            text = self.evaluate("document.body.innerText") if time.monotonic() > until else ""
            assert time.monotonic() <= until, f"not within {seconds} s: {expression}\nThe page says: {text}"
            time.sleep(0.1)

    def press(self, key, shift=False):
        """Presses a key, such as Tab, Enter or ArrowLeft."""
        codes = {"Tab": 9, "Enter": 13, "Escape": 27, "ArrowLeft": 37, "ArrowRight": 39, "Home": 36, "End": 35}
        event = {"key": key, "code": key, "windowsVirtualKeyCode": codes[key], "modifiers": 8 if shift else 0}
        if key == "Enter":
            event["text"] = "\r"
        self.call("Input.dispatchKeyEvent", type="keyDown", **event)
        self.call("Input.dispatchKeyEvent", type="keyUp", **event)

    def accessible(self):
        """Role and name of what assistive programs are shown."""
        nodes = self.call("Accessibility.getFullAXTree")["nodes"]
        shown = (node for node in nodes if not node.get("ignored"))
        return [(node.get("role", {}).get("value"), node.get("name", {}).get("value", "")) for node in shown]

    def picture(self, path, height=None):
        """Keeps a picture: of what is on the screen, or of the page up to a height."""
        if height:
            size = self.call("Page.getLayoutMetrics")["cssContentSize"]
            clip = {"x": 0, "y": 0, "width": size["width"], "height": min(size["height"], height), "scale": 1}
            taken = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        else:
            taken = self.call("Page.captureScreenshot", format="png")
        Path(path).write_bytes(base64.b64decode(taken["data"]))

    def close(self):
        del self.browser.pages[self.session]
        self.browser.call("Target.closeTarget", targetId=self.target)
