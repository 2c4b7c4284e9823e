"""Hooks of MkDocs: pages that lie outside docs/, notebooks as pages, links to files of the repository.

README.md, CONTRIBUTING.md and CHANGELOG.md become pages. A committed notebook becomes a page of its cells and outputs.
A link to another file of the repository leads to GitHub where the repository's name is known (GITHUB_REPOSITORY, as in
its workflows), otherwise to the file in the clone. A link to a file that does not exist stops the build.
"""

from __future__ import annotations

import base64
import json
import os
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
OUTSIDE = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
LINK = re.compile(r"(?<=\]\()(?!https?:|mailto:|#|attachment:)([^)\s#]+)(#[^)\s]*)?(?=\))")
FENCED = re.compile(r"(^ *(```+).*?^ *\2 *$)", flags=re.S | re.M)
SOURCE = "source:"  # the scheme of a link to a file of the repository, until the page is rendered


def on_config(config: Any) -> Any:
    """Name the repository, where it is known."""
    if name := os.environ.get("GITHUB_REPOSITORY"):
        config.repo_url = f"https://github.com/{name}"
        config.repo_name = name
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that lie outside docs/, and a page for every notebook."""
    for name, page in OUTSIDE.items():
        files.append(File.generated(config, page, content=(ROOT / name).read_text(encoding="utf-8")))
    for notebook in [file for file in files if file.src_uri.endswith(".ipynb")]:
        for path, content in pages_of(notebook.src_uri, json.loads(notebook.content_string)).items():
            files.append(File.generated(config, path, content=content))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Turn links that are right in the repository into links of the site."""
    here = next((name for name, uri in OUTSIDE.items() if uri == page.file.src_uri), f"docs/{page.file.src_uri}")
    folder = posixpath.dirname(here)

    def of_site(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(folder, link[1]))
        if not (ROOT / target).exists() and not target.startswith("docs/"):
            raise PluginError(f"{here} links to {link[1]}, which does not exist.")
        if target in OUTSIDE:
            target = f"docs/{OUTSIDE[target]}"
        if not target.startswith("docs/") or (ROOT / target).is_dir():
            return f"{SOURCE}{target}{link[2] or ''}"
        target = re.sub(r"\.ipynb$", ".md", target)
        return posixpath.relpath(target, posixpath.dirname(f"docs/{page.file.src_uri}")) + (link[2] or "")

    parts = FENCED.split(markdown)  # text, fenced block, its fence, text, ...
    return "".join(LINK.sub(of_site, part) if at % 3 == 0 else part for at, part in enumerate(parts) if at % 3 != 2)


def on_page_content(html: str, *, page: Any, config: Any, **_: Any) -> str:
    """Lead links to files of the repository to GitHub or, where it is not known, to the clone around the site."""
    up = "../" * (page.url.count("/") + 1)
    return html.replace(f'href="{SOURCE}', f'href="{config.repo_url}/blob/main/' if config.repo_url else f'href="{up}')


def pages_of(path: str, notebook: dict[str, Any]) -> dict[str, str | bytes]:
    """Return the page of a notebook and its pictures, by path.

    >>> first, second = {"cell_type": "markdown", "source": ["# Title"]}, {"cell_type": "code", "source": ["1"]}
    >>> print(pages_of("tutorials/a.ipynb", {"cells": [first, second]})["tutorials/a.md"])
    # Title
    <BLANKLINE>
    ```python
    1
    ```
    """
    stem = path.removesuffix(".ipynb")
    found: dict[str, str | bytes] = {}
    parts: list[str] = []
    for cell in notebook["cells"]:
        text = "".join(cell["source"])
        parts.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
        for output in cell.get("outputs", []):
            data = output.get("data", {"text/plain": output.get("text", [])})
            if "image/png" in data:
                picture = f"{stem}-{len(found) + 1}.png"
                found[picture] = base64.b64decode("".join(data["image/png"]))
                parts.append(f"![{cell['metadata']['alt']}]({posixpath.basename(picture)})")
            else:
                parts.append("```text\n" + "".join(data["text/plain"]).rstrip() + "\n```")
    return {f"{stem}.md": "\n\n".join(parts), **found}
