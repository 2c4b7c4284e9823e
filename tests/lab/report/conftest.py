"""A browser for the tests of pages."""

from tests.helpers.browser import browser

__all__ = ["browser"]
