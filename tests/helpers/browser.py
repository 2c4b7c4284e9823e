"""A real browser for tests of pages: the installed chromium, driven by Selenium."""

from __future__ import annotations

import shutil

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


@pytest.fixture(scope="module")
def browser(study, tmp_path_factory):
    """A browser that shows the page of the module's study."""
    driver = start(tmp_path_factory.mktemp("profile"))
    try:
        found = Browser(driver)
        found.open(study / "report" / "index.html")
        yield found
    finally:
        driver.quit()
