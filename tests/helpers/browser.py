"""A real browser: Debian's chromium, spoken to in WebDriver's protocol, JSON over HTTP."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
import urllib.request

import pytest

BROWSER, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")

needs_browser = pytest.mark.skipif(
    not (BROWSER and DRIVER),
    reason="needs chromium and chromedriver (Debian: apt-get install chromium chromium-driver)",
)

OPTIONS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
]


class Browser:
    """As much of the protocol as these tests need."""

    def __init__(self, port, profile):
        self.base = f"http://127.0.0.1:{port}"
        chrome = {"binary": BROWSER, "args": [*OPTIONS, f"--user-data-dir={profile}"]}
        wanted = {"goog:chromeOptions": chrome, "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"}}
        session = self.call("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})["sessionId"]
        self.base += f"/session/{session}"

    def call(self, verb, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.base + path, data, {"Content-Type": "application/json"}, method=verb)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)["value"]

    def open(self, page):
        self.call("POST", "/url", {"url": page.as_uri()})

    def run(self, script, *arguments):
        return self.call("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def develop(self, command, **parameters):
        return self.call("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def log(self, kind):
        return self.call("POST", "/se/log", {"type": kind})

    def select(self, name, value):
        script = """const select = document.getElementById(arguments[0]);
            const there = [...select.options].some((option) => option.value === arguments[1]);
            if (!there) throw new Error("no " + arguments[1]);
            select.value = arguments[1]; select.dispatchEvent(new Event("change"));"""
        self.run(script, name, str(value))

    def table(self):
        script = """return [...document.querySelectorAll("#main-table tbody tr")].map(
            (row) => [...row.children].map((cell) => cell.textContent))"""
        return {row[0]: row[1:] for row in self.run(script)}


@pytest.fixture(scope="module")
def browser(study, tmp_path_factory):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    driver = subprocess.Popen([DRIVER, f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    found = None
    try:
        for _ in range(150):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/status", timeout=5).close()
                break
            except OSError:
                time.sleep(0.1)
        found = Browser(port, tmp_path_factory.mktemp("profile"))
        found.open(study / "report" / "index.html")
        yield found
    finally:
        if found is not None:
            found.call("DELETE", "")
        driver.terminate()
        driver.wait()
