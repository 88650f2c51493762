"""Rasters: a picture as PNG, by Pillow, twice as many points as its size for sharp screens.

Lines are drawn twice as large again and made smaller, which smooths them. Text has the console's
own font; where that lacks a letter, a font of the machine, and without one the letter's code.
"""

from __future__ import annotations

import io
import logging
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image, ImageDraw, ImageFont

from console.alerts import fonts
from console.alerts.pictures import TEXT_SIZE, TITLE_SIZE, WIDTH, Box, Line, Words, cut

if TYPE_CHECKING:
    from console.alerts.pictures import Picture

logger = logging.getLogger(__name__)

CONTENT_TYPE = "image/png"
SCALE, SMOOTHING = 2, 2
OWN_FONT = Path(__file__).parent.parent / "static" / "console" / "vendor" / "inter.woff2"
INSTEAD = str.maketrans(
    {
        "\N{LESS-THAN OR EQUAL TO}": "<=",
        "\N{GREATER-THAN OR EQUAL TO}": ">=",
        "\N{RIGHTWARDS ARROW}": "->",
    }
)
SAMPLES = {"zh": "\N{CJK UNIFIED IDEOGRAPH-4E2D}"}
"""Letters of languages that the console's own font lacks."""
BOLD = 600
NOBODYS = "\uffff"
"""No font has it: what it looks like is what a missing letter looks like."""
EAST_ASIAN = ((0x2E80, 0x9FFF), (0xAC00, 0xD7FF), (0xF900, 0xFAFF), (0xFF00, 0xFFEF))
"""Where Unicode has the letters that a Chinese font brings, from and to."""

Font = ImageFont.FreeTypeFont


def png_of(picture: Picture) -> bytes:
    """Return a picture as PNG."""
    if lacks_a_font(picture):
        warn_once()
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
            font, text = font_for(shape.text, shape.size, shape.most)
            place = (shape.at[0] * SCALE, shape.at[1] * SCALE)
            pen.text(place, text, shape.colour, font, "rs" if shape.is_end else "ls")
    stream = io.BytesIO()
    image.save(stream, "PNG")
    return stream.getvalue()


def writable(language: str) -> str:
    """Return the language that a picture's own words can have: this one, or English."""
    letter = SAMPLES.get(language.partition("-")[0])
    return language if letter is None or _is_there(letter) else "en"


def lacks_a_font(picture: Picture) -> bool:
    """Whether letters of a picture are codes because this machine has no Chinese font."""
    letters = {each for shape in picture.shapes if isinstance(shape, Words) for each in shape.text}
    has_all = all(map(_is_there, filter(is_east_asian, letters)))
    return not has_all and not fonts.files(fonts.CHINESE)


def is_east_asian(letter: str) -> bool:
    return any(first <= ord(letter) <= last for first, last in EAST_ASIAN)


def _is_there(letter: str) -> bool:
    """Whether a font has a letter; before it is missing, fonts are looked for anew."""
    if any(_has(font, letter) for font in fonts_of(TEXT_SIZE)):
        return True
    if _known_files() == tuple(fonts.files()):
        return False
    forget()
    return any(_has(font, letter) for font in fonts_of(TEXT_SIZE))


def forget() -> None:
    """Look for fonts anew when one is needed."""
    for known in (_known_files, fonts_of, _has):
        known.cache_clear()


def font_for(text: str, size: int, most: int) -> tuple[Font, str]:
    """Return a font, and the text with only letters that the font has.

    Letters that no font has are their codes, as in JSON: names stay different. A text that is
    longer by that is cut where `most` letters have room.
    """
    found = fonts_of(size)
    for font in found:
        if all(_has(font, each) for each in text):
            return font, text
    text = text.translate(INSTEAD)
    font = max(found, key=lambda each: sum(_has(each, letter) for letter in text))
    letters = (each if _has(font, each) else code_of(each) for each in text)
    return font, cut("".join(letters), most)


def code_of(letter: str) -> str:
    """Return the code of a letter as text: backslash, u and four hexadecimal digits, or U and 8."""
    return f"\\u{ord(letter):04x}" if ord(letter) <= 0xFFFF else f"\\U{ord(letter):08x}"


@lru_cache
def fonts_of(size: int) -> tuple[Font, ...]:
    """Return the fonts to try, our own first."""
    own = ImageFont.truetype(OWN_FONT, size * SCALE)
    if size >= TITLE_SIZE:
        own.set_variation_by_axes([BOLD])
    found = [own]
    for path in _known_files():
        try:
            found.append(ImageFont.truetype(path, size * SCALE))
        except OSError:
            continue  # of a kind that is not known
    return tuple(found)


@lru_cache
def _known_files() -> tuple[Path, ...]:
    return tuple(fonts.files())


@lru_cache
def warn_once() -> None:
    """Say once what is missing."""
    logger.warning(
        "pictures have Chinese letters as codes: no font here has them; Debian's %s does",
        fonts.PACKAGE,
    )


@lru_cache(4096)
def _has(font: Font, letter: str) -> bool:
    return letter.isspace() or bytes(font.getmask(letter)) != bytes(font.getmask(NOBODYS))
