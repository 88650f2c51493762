"""Rasters: a picture as PNG, by Pillow, twice as many points as its size for sharp screens.

Lines are drawn twice as large again and made smaller, which smooths them. Text has the console's
own font; where that lacks a letter, a font of the machine, and without one another letter.
"""

from __future__ import annotations

import io
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image, ImageDraw, ImageFont

from console.alerts.pictures import TEXT_SIZE, TITLE_SIZE, WIDTH, Box, Line, Words

if TYPE_CHECKING:
    from console.alerts.pictures import Picture

CONTENT_TYPE = "image/png"
SCALE, SMOOTHING = 2, 2
OWN_FONT = Path(__file__).parent.parent / "static" / "console" / "vendor" / "inter.woff2"
FONT_FOLDERS = (Path("/usr/share/fonts"), Path("/usr/local/share/fonts"))
FURTHER_FONTS = (
    *("DejaVuSans.ttf", "NotoSansCJK*Regular*", "NotoSansSC*Regular*", "SourceHanSans*Regular*"),
    *("wqy-*.tt[cf]", "DroidSansFallback*"),
)
"""The better first; all but one of them have Chinese letters."""
INSTEAD = str.maketrans(
    {
        "\N{LESS-THAN OR EQUAL TO}": "<=",
        "\N{GREATER-THAN OR EQUAL TO}": ">=",
        "\N{RIGHTWARDS ARROW}": "->",
    }
)
UNKNOWN = "?"
SAMPLES = {"zh": "\N{CJK UNIFIED IDEOGRAPH-4E2D}"}
"""Letters of languages that the console's own font lacks."""
BOLD = 600
NOBODYS = "\uffff"
"""No font has it: what it looks like is what a missing letter looks like."""

Font = ImageFont.FreeTypeFont


def png_of(picture: Picture) -> bytes:
    """Return a picture as PNG."""
    large = SCALE * SMOOTHING
    image = Image.new("RGB", (WIDTH * large, picture.height * large), "white")
    pen = ImageDraw.Draw(image)
    for shape in picture.shapes:
        match shape:
            case Line(points, colour, width):
                places = [(x * large, y * large) for x, y in points]
                pen.line(places, fill=colour, width=round(width * large), joint="curve")
            case Box((left, top, width, height), colour):
                pen.rectangle(
                    [each * large for each in (left, top, left + width, top + height)], fill=colour
                )
            case Words():
                pass  # not to be made smaller: see below
    image = image.reduce(SMOOTHING)
    pen = ImageDraw.Draw(image)
    for shape in picture.shapes:
        if isinstance(shape, Words):
            font, text = font_for(shape.text, shape.size)
            place = (shape.at[0] * SCALE, shape.at[1] * SCALE)
            pen.text(place, text, shape.colour, font, "rs" if shape.is_end else "ls")
    stream = io.BytesIO()
    image.save(stream, "PNG")
    return stream.getvalue()


def writable(language: str) -> str:
    """Return the language that a picture's own words can have: this one, or English."""
    letter = SAMPLES.get(language.partition("-")[0])
    is_written = letter is None or any(_has(font, letter) for font in fonts_of(TEXT_SIZE))
    return language if is_written else "en"


def font_for(text: str, size: int) -> tuple[Font, str]:
    """Return a font, and the text with only letters that the font has."""
    for font in fonts_of(size):
        if all(_has(font, each) for each in text):
            return font, text
    own = fonts_of(size)[0]
    letters = (each if _has(own, each) else UNKNOWN for each in text.translate(INSTEAD))
    return own, "".join(letters)


@lru_cache
def fonts_of(size: int) -> tuple[Font, ...]:
    """Return the fonts to try, our own first."""
    own = ImageFont.truetype(OWN_FONT, size * SCALE)
    if size >= TITLE_SIZE:
        own.set_variation_by_axes([BOLD])
    found = [own]
    for pattern in FURTHER_FONTS:
        for path in (each for folder in FONT_FOLDERS for each in sorted(folder.rglob(pattern))):
            try:
                found.append(ImageFont.truetype(path, size * SCALE))
            except OSError:
                continue  # of a kind that is not known
            break
    return tuple(found)


@lru_cache(4096)
def _has(font: Font, letter: str) -> bool:
    return letter.isspace() or bytes(font.getmask(letter)) != bytes(font.getmask(NOBODYS))
