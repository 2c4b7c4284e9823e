"""Open an image that may be damaged, or made to do harm.

>>> import io
>>> from PIL import Image
>>> file = io.BytesIO()
>>> Image.new("L", (4, 2)).save(file, format="PNG")
>>> open_image(file, "RGB").size
(4, 2)
>>> open_image(io.BytesIO(b"no image"), "RGB")
Traceback (most recent call last):
OSError: cannot identify image file ...
"""

from __future__ import annotations

import os
from typing import IO, Any

# Pillow knows dozens of formats, most of them rare and little tested. It hands EPS to Ghostscript, a program that runs
# what the file says.
FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")


def open_image(file: str | os.PathLike[str] | IO[bytes], mode: str) -> Any:
    """Return the image in a file, in a mode of Pillow such as ``RGB``; raise an `OSError` if it cannot be read."""
    from PIL import Image

    Image.init()
    known = [kind for kind in FORMATS if kind in Image.OPEN]  # a build of Pillow may lack WebP
    try:
        return Image.open(file, formats=known).convert(mode)
    except Exception as error:  # Pillow raises many kinds for odd files
        raise OSError(str(error).strip().partition("\n")[0] or type(error).__name__) from error
