"""Images that are damaged, or made to do harm."""

from __future__ import annotations

import io
from random import Random

import numpy as np
import pytest
from PIL import Image

from tests.helpers.fuzz_values import flipped
from unweave.data import open_image
from unweave.data.image_files import FORMATS


def encoded(kind):
    pixels = np.random.default_rng(0).integers(0, 255, (12, 12, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, format=kind)
    return file.getvalue()


@pytest.mark.parametrize("kind", FORMATS)
def test_images_of_known_formats_are_opened_in_the_mode_that_is_wanted(kind):
    assert open_image(io.BytesIO(encoded(kind)), "L").mode == "L"


@pytest.mark.parametrize("kind", ["EPS", "PDF", "DDS", "SPIDER", "ICNS", "AVIF"])
def test_rare_formats_are_refused(kind):
    """Pillow gives EPS to Ghostscript, and raises errors of many kinds for the others."""
    try:
        content = encoded(kind)
    except (KeyError, OSError):
        pytest.skip("this Pillow does not write it")
    with pytest.raises(OSError, match="cannot identify"):
        open_image(io.BytesIO(content), "RGB")


@pytest.mark.parametrize("kind", FORMATS)
def test_a_damaged_image_raises_no_other_error(kind):
    content, refused = encoded(kind), 0
    for number in range(150):
        try:
            open_image(io.BytesIO(flipped(content, Random(f"{kind} {number}"))), "RGB")
        except OSError:
            refused += 1
    assert refused > 5
