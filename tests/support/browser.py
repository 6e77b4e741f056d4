"""Pages as Chromium shows them."""

import base64
import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import ssl
import subprocess

from support.server import ROOT
from support.tls import openssl

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--enable-logging=stderr", "--virtual-time-budget=5000",
]

# Pictures of pages, kept for a look at them after the tests.
SCREENSHOTS = ROOT / "target" / "screenshots"

TEXTS = {"Enter": "\r"}
KEY_CODES = {"Tab": 9, "Enter": 13, "Escape": 27, "End": 35, "Home": 36, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}


def trusting(certificate):
    """The flag of a browser that trusts the key of a certificate. One that accepts any certificate keeps nothing of what it gets."""
    public = openssl("x509", "-in", certificate, "-noout", "-pubkey").encode()
    der = ssl.PEM_cert_to_DER_cert(public.decode().replace("PUBLIC KEY", "CERTIFICATE"))
    return f"--ignore-certificate-errors-spki-list={base64.b64encode(hashlib.sha256(der).digest()).decode()}"


def dom(url, profile):
    """The page after its scripts have run, and the console's messages."""
    done = subprocess.run(
        [CHROMIUM, *FLAGS, f"--user-data-dir={profile}", "--dump-dom", url],
        capture_output=True, text=True, timeout=120,
    )
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return done.stdout, console


class Navigated(Exception):
    """The page has changed during a call."""


class Browser:
    """A running browser, controlled by its debugging pipe."""

    def __init__(self, profile):
        to_browser, self._out = os.pipe()
        self._in, from_browser = os.pipe()

        def connect():
            # The browser reads from 3 and writes to 4.
            there, back = fcntl.fcntl(to_browser, fcntl.F_DUPFD, 10), fcntl.fcntl(from_browser, fcntl.F_DUPFD, 10)
            os.dup2(there, 3)
            os.dup2(back, 4)

        flags = [flag for flag in FLAGS if "budget" not in flag]
        self.process = subprocess.Popen(
            [CHROMIUM, *flags, "--remote-debugging-pipe", f"--user-data-dir={profile}", "about:blank"],
            preexec_fn=connect, close_fds=False, stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        self._rest, self._number, self._session, self.events = b"", 0, None, []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")
        # The page has the focus although there is no window.
        self.call("Emulation.setFocusEmulationEnabled", enabled=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def call(self, method, **parameters):
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            response = self._message()
            if response.get("id") == self._number:
                if "navigated" in response.get("error", {}).get("message", ""):
                    raise Navigated
                assert "error" not in response, response
                return response["result"]
            self.events.append(response)

    def _message(self):
        while b"\0" not in self._rest:
            part = os.read(self._in, 1 << 16)
            assert part, "the browser is gone"
            self._rest += part
        text, _, self._rest = self._rest.partition(b"\0")
        return json.loads(text)

    def open(self, url, width=1280, height=900, scheme="light"):
        """Loads a page in a window of that size, and waits until it is complete."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.events.clear()
        self.call("Page.navigate", url=url)
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._message())

    def evaluate(self, expression):
        """The value of an expression, or of the promise that it is, on the page to which the browser is on its way."""
        while True:
            with contextlib.suppress(Navigated):
                done = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
                break
        assert "exceptionDetails" not in done, done
        return done["result"].get("value")

    def press(self, key):
        for kind in ("keyDown", "keyUp"):
            text = TEXTS.get(key, key if len(key) == 1 else None) if kind == "keyDown" else None
            text = {"text": text} if text else {}
            self.call("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=KEY_CODES.get(key, 0), **text)

    def console_errors(self):
        names = ("Log.entryAdded", "Runtime.exceptionThrown", "Runtime.consoleAPICalled")
        return [event for event in self.events if event.get("method") in names]

    def picture(self, path):
        """Writes the whole page as an image."""
        path.parent.mkdir(parents=True, exist_ok=True)
        data = self.call("Page.captureScreenshot", captureBeyondViewport=True)["data"]
        path.write_bytes(base64.b64decode(data))
