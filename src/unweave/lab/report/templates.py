"""The HTML pages from their templates. Every text from data is escaped, and a content policy forbids the rest.

A page needs no network and runs no script but its own. The policy names its style and its scripts by their hashes, so
the browser refuses any other script or style, and every request.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from functools import cache, partial
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from unweave.errors import printable

if TYPE_CHECKING:
    from jinja2 import Environment

JSON = {"ensure_ascii": False, "separators": (",", ":"), "allow_nan": False}


def render(template: str, *, style: str, scripts: Mapping[str, str] | None = None, **values: Any) -> str:
    """Return a page. ``style`` and ``scripts`` are the package's own texts: they alone are not escaped."""
    from markupsafe import Markup

    own = {"style": style, **(scripts or {})}
    allowed = policy(style, *(scripts or {}).values())
    trusted = {name: Markup(text) for name, text in own.items()}
    return environment().get_template(template).render(policy=allowed, **trusted, **values) + "\n"


@cache
def environment() -> Environment:
    r"""Return Jinja's environment for the pages: it escapes every text, and raises where a value is missing.

    >>> print(environment().from_string("<p>{{ name }}</p>").render(name="<script>"))
    <p>&lt;script&gt;</p>
    >>> print(environment().from_string("{{ content | tojson }}").render(content={"name": "</script>"}))
    {"name":"\u003c/script\u003e"}
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader("unweave.lab.report", "page")
    made = Environment(
        loader=loader,
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda shown: printable(shown) if type(shown) is str else shown,  # not what is marked as safe
    )
    made.policies["json.dumps_kwargs"] = JSON
    made.filters["unbroken"] = unbroken
    made.filters["sentence"] = sentence
    made.globals["pairs"] = partial(zip, strict=True)
    return made


def unbroken(heading: str) -> str:
    r"""Keep an arrow on the line of the word before it.

    >>> unbroken("forget loss ↑")
    'forget loss\xa0↑'
    """
    return re.sub(r" ([↓↑→])", "\u00a0\\1", heading)


def sentence(text: str) -> str:
    """Begin a text with a capital, unless it begins with a name: methods are called by their own names.

    >>> sentence("it loses 2 points."), sentence("two-stage keeps.")
    ('It loses 2 points.', 'two-stage keeps.')
    """
    first = text.partition(" ")[0]
    return text[:1].upper() + text[1:] if first in ("a", "it", "its", "no", "not", "of", "the") else text


def policy(style: str, *scripts: str) -> str:
    """Return a content policy that allows these texts and pictures inside the page, and nothing else."""
    allowed = " ".join(_digest(script) for script in scripts) or "'none'"
    rest = "base-uri 'none'; form-action 'none'"
    return f"default-src 'none'; img-src data:; style-src {_digest(style)}; script-src {allowed}; {rest}"


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def resource(name: str) -> str:
    """Return the text of a file of this room."""
    return files("unweave.lab.report").joinpath(*name.split("/")).read_text(encoding="utf-8")
