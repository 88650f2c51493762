"""Renders a picture as PNG with Pillow, at twice its size for high-resolution screens.

Lines are drawn at double size again and scaled down, for anti-aliasing. Text uses the console's
font; missing characters use a font of this machine, or their code point if there is none.
"""

from __future__ import annotations

import io
import logging
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image, ImageDraw, ImageFont

from console.observe.alerts import fonts
from console.observe.alerts.pictures import TEXT_SIZE, TITLE_SIZE, WIDTH, Box, Line, Words, cut

if TYPE_CHECKING:
    from console.observe.alerts.pictures import Picture

logger = logging.getLogger(__name__)

CONTENT_TYPE = "image/png"
SCALE, SMOOTHING = 2, 2
OWN_FONT = Path(__file__).parents[2] / "static" / "console" / "vendor" / "inter.woff2"
INSTEAD = str.maketrans(
    {
        "\N{LESS-THAN OR EQUAL TO}": "<=",
        "\N{GREATER-THAN OR EQUAL TO}": ">=",
        "\N{RIGHTWARDS ARROW}": "->",
    }
)
SAMPLES = {"zh": "\N{CJK UNIFIED IDEOGRAPH-4E2D}"}
"""A character that the console's font lacks, for each language."""
BOLD = 600
NOBODYS = "\uffff"
"""No font has this character, so its glyph is the font's replacement for missing ones."""
EAST_ASIAN = ((0x2E80, 0x9FFF), (0xAC00, 0xD7FF), (0xF900, 0xFAFF), (0xFF00, 0xFFEF))
"""Unicode ranges that a Chinese font covers."""

Font = ImageFont.FreeTypeFont


def png_of(picture: Picture) -> bytes:
    """Return a picture as PNG."""
    if is_font_missing(picture):
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
                pass  # can't be scaled down: see below
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
    """Return the language for a picture's own text: this one if a font has it, or English."""
    letter = SAMPLES.get(language.partition("-")[0])
    return language if letter is None or _has_glyph(letter) else "en"


def is_font_missing(picture: Picture) -> bool:
    """Return whether a picture shows code points because this machine has no Chinese font."""
    letters = {each for shape in picture.shapes if isinstance(shape, Words) for each in shape.text}
    has_all = all(map(_has_glyph, filter(is_east_asian, letters)))
    return not has_all and not fonts.files(fonts.CHINESE)


def is_east_asian(letter: str) -> bool:
    return any(first <= ord(letter) <= last for first, last in EAST_ASIAN)


def _has_glyph(letter: str) -> bool:
    """Return whether a font has a character; search for fonts again before reporting it missing."""
    if any(_has(font, letter) for font in fonts_of(TEXT_SIZE)):
        return True
    if _known_files() == tuple(fonts.files()):
        return False
    forget()
    return any(_has(font, letter) for font in fonts_of(TEXT_SIZE))


def forget() -> None:
    """Search for fonts again when one is next needed."""
    for known in (_known_files, fonts_of, _has):
        known.cache_clear()


def font_for(text: str, size: int, most: int) -> tuple[Font, str]:
    """Return a font, and the text with only characters that the font has.

    Other characters are replaced with their code points, as in JSON, so that different names stay
    different. A text that gets longer is cut to the width of `most` letters.
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
    """Return a character's escape: backslash, u and four hexadecimal digits, or U and eight."""
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
            continue  # unknown kind
    return tuple(found)


@lru_cache
def _known_files() -> tuple[Path, ...]:
    return tuple(fonts.files())


@lru_cache
def warn_once() -> None:
    """Log a warning about missing fonts once."""
    logger.warning(
        "no Chinese font, images show codes package=%s",
        fonts.PACKAGE,
    )


@lru_cache(4096)
def _has(font: Font, letter: str) -> bool:
    return letter.isspace() or bytes(font.getmask(letter)) != bytes(font.getmask(NOBODYS))
