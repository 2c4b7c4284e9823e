"""A browser for the tests of pages."""

from tests.helpers.browser import driver, page_browser

__all__ = ["driver", "page_browser"]
