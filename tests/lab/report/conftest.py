"""A browser for the tests of pages."""

from tests.helpers.browser import browser, driver

__all__ = ["browser", "driver"]
