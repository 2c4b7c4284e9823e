"""A real browser for tests of pages: the installed chromium, driven by Selenium."""

from __future__ import annotations

import base64
import re
import shutil
from contextlib import contextmanager

import pytest
from selenium.webdriver import Chrome, ChromeOptions, ChromeService
from selenium.webdriver.common.action_chains import ActionBuilder

# Both are given to Selenium, which would otherwise look for a driver on the network.
BROWSER, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")

needs_browser = pytest.mark.skipif(
    not (BROWSER and DRIVER),
    reason="needs chromium and chromedriver (Debian: apt-get install chromium chromium-driver)",
)

ARGUMENTS = [
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


# What hangs over the right edge, outside of boxes that scroll and of what only a reader of the screen gets.
TOO_WIDE = """const edge = document.documentElement.clientWidth + 1;
    const scrolls = (e) => { const box = e.parentElement.closest(".scroll");
        return box && getComputedStyle(box).overflowX !== "visible"; };
    return [...document.querySelectorAll("body *")].filter((e) => e.getClientRects().length
        && !e.closest(".unseen, .skip, svg") && e.getBoundingClientRect().right > edge && !scrolls(e))
        .map((e) => `${e.tagName} ${e.className} ${e.textContent.slice(0, 40)}`)"""


class Browser:
    """What these tests ask of a browser, in their words."""

    def __init__(self, driver):
        self.driver = driver

    def open(self, page):
        self.driver.get(page.as_uri())

    def run(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def develop(self, command, **parameters):
        """Send a command of the developer tools."""
        return self.driver.execute_cdp_cmd(command, parameters)

    def log(self, kind):
        """Return and empty a log."""
        return self.driver.get_log(kind)

    @contextmanager
    def shown(self, page, *, width=1280, scheme="light"):
        """Show a page in a window of this width, light or dark; then as before."""
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
        try:
            self.develop("Emulation.setDeviceMetricsOverride", **size)
            self.develop("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
            self.open(page)
            yield self
        finally:
            self.develop("Emulation.clearDeviceMetricsOverride")
            self.develop("Emulation.setEmulatedMedia", media="", features=[])

    def sheets(self):
        """Return the number of sheets that the page takes on paper."""
        whole = base64.b64decode(self.develop("Page.printToPDF")["data"])
        return len(re.findall(rb"/Type\s*/Page\b", whole))

    def too_wide(self):
        """Return what is wider than the window and cannot be scrolled to: its tag, class and text."""
        return self.run(TOO_WIDE)

    def hover(self, x, y):
        actions = ActionBuilder(self.driver)
        actions.pointer_action.move_to_location(x, y)
        actions.perform()

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


def start(profile):
    """Start a browser with a profile of its own, on a free port: several test processes may do so at once."""
    options = ChromeOptions()
    options.binary_location = BROWSER
    for argument in [*ARGUMENTS, f"--user-data-dir={profile}"]:
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    return Chrome(options=options, service=ChromeService(executable_path=DRIVER))


@pytest.fixture(scope="session")
def driver(tmp_path_factory):
    """One browser for all modules of a test process: to start one takes longer than most tests."""
    driver = start(tmp_path_factory.mktemp("profile"))
    try:
        yield driver
    finally:
        driver.quit()


@pytest.fixture(scope="module")
def page_browser(driver):
    """A browser for pages that a test opens itself."""
    found = Browser(driver)
    for kind in ("browser", "performance"):
        found.log(kind)
    return found


@pytest.fixture(scope="module")
def browser(study, driver):
    """A browser that shows the page of the module's study."""
    found = Browser(driver)
    found.open(study / "report" / "index.html")
    for kind in ("browser", "performance"):
        found.log(kind)
    return found
