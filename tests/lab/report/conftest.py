"""A browser for the tests of pages."""

from tests.helpers.browser import browser, driver, page_browser

__all__ = ["browser", "driver", "page_browser"]
