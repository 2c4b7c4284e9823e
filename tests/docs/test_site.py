"""The documentation site: it builds without a warning, needs no network, and can be searched and read on a phone."""

from __future__ import annotations

import doctest
import html.parser
import importlib
import os
import re
import subprocess
import sys

import pytest
from selenium.webdriver.support.ui import WebDriverWait

from tests.helpers.browser import Browser, needs_browser, start
from tests.helpers.places import ROOT

needs_mkdocs = pytest.mark.skipif(
    not importlib.util.find_spec("mkdocs") or not (ROOT / "results").exists(),
    reason="needs what `make site` installs, in a clone",
)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    out = tmp_path_factory.mktemp("site")
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(out)]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    quiet.pop("GITHUB_REPOSITORY", None)  # or links would lead to GitHub
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False, env=quiet)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


PAGES = (
    "index",
    "results",
    "results/cifar100-resnet18",
    "compared",
    *(f"reference/{name}" for name in ("python", "settings", "command-line", "metrics")),
    "tutorials/compare-methods",
)


class Loaded(html.parser.HTMLParser):
    """What a page loads by itself: scripts, styles, pictures, frames."""

    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attrs):
        named = dict(attrs)
        if tag in ("script", "img", "iframe", "source", "video", "audio"):
            self.found.append(named.get("src") or "")
        if tag == "link" and named.get("rel") in ("stylesheet", "icon", "preload", "preconnect"):
            self.found.append(named["href"])


@needs_mkdocs
def test_no_page_loads_anything_from_the_network(site):
    pages = sorted(site.rglob("*.html"))
    assert len(pages) >= 45
    for page in pages:
        reader = Loaded()
        reader.feed(page.read_text(encoding="utf-8"))
        assert [one for one in reader.found if "//" in one and not one.startswith("data:")] == [], page
        assert reader.found
    for style in site.rglob("*.css"):
        assert not re.search(r"(url\(|@import )[\"']?https?:", style.read_text(encoding="utf-8")), style


@needs_mkdocs
def test_a_tutorial_has_its_code_its_outputs_and_its_pictures(site):
    text = (site / "tutorials" / "forget-a-class.html").read_text(encoding="utf-8")
    assert "language-python" in text
    assert "Forgotten: yes." in text
    assert re.findall(r'src="forget-a-class-\d\.png"', text)
    assert 'href="remove-people.html"' in text


@needs_mkdocs
def test_links_to_files_of_the_repository_lead_to_the_clone(site):
    text = (site / "results" / "digits.html").read_text(encoding="utf-8")
    assert 'href="../../results/digits/all"' in text
    assert "source:" not in text


@needs_mkdocs
@needs_browser
def test_the_site_from_a_folder_in_a_browser(site, tmp_path):
    """The search finds a word; at the width of a phone nothing is wider than the screen, in light and dark."""
    driver = start(tmp_path / "profile")
    try:
        browser = Browser(driver)
        browser.open(site / "gallery" / "index.html")
        browser.run("document.querySelector('.md-search__input').focus()")
        driver.find_element("css selector", ".md-search__input").send_keys("Wasserstein")
        results = "return [...document.querySelectorAll('.md-search-result__item a')].map((found) => found.href)"
        found = WebDriverWait(driver, 20).until(lambda _: browser.run(results))
        assert all(page.startswith(site.as_uri()) for page in found)
        backgrounds = set()
        browser.develop("Emulation.setDeviceMetricsOverride", width=390, height=844, deviceScaleFactor=1, mobile=True)
        for scheme in ("light", "dark"):
            browser.develop("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
            for page in PAGES:
                browser.open(site / f"{page}.html")
                assert browser.run("return document.documentElement.scrollWidth") == 390, page
                assert browser.run("return [...document.images].filter((one) => !one.naturalWidth || !one.alt)") == []
            backgrounds.add(browser.run("return getComputedStyle(document.body).backgroundColor"))
        assert len(backgrounds) == 2
        assert [entry for entry in browser.log("browser") if entry["level"] == "SEVERE"] == []
    finally:
        driver.quit()


@pytest.mark.skipif(not importlib.util.find_spec("mkdocs"), reason="needs what `make site` installs")
def test_examples_of_the_hooks(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    for name in ("site_hooks", "reference"):
        found = doctest.testmod(importlib.import_module(name))
        assert found.attempted
        assert not found.failed
