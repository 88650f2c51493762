"""The pictures of README and docs/tour.md: the page, height and language of each."""

from __future__ import annotations

from dataclasses import dataclass

from tests.support.sources import ROOT

DOCS = ROOT / "docs"
WIDTH = 1_280
BYTES_MAX = 160_000
"""Size limit of a picture, because every clone of the repository contains all of them."""


@dataclass(frozen=True, slots=True)
class Picture:
    """One picture.

    `path` is below docs/, `address` a page with names of `Scene`, `shows` a CSS selector that must
    match first, `height` the visible part of the page, in CSS pixels.
    """

    path: str
    address: str
    height: int
    shows: str = "main"
    locale: str = "en-GB"


PICTURES = (
    Picture("images/overview.png", "/?range=15m", 980, "main .uplot canvas"),
    Picture("images/tour/live.png", "/live/", 800, "#river-rows tr:nth-child(12)"),
    Picture("images/tour/message.png", "{message}", 820, "main dl"),
    Picture("images/tour/family.png", "{family}", 640, ".family__row"),
    Picture("images/tour/group.png", "/groups/g/demo-consumers/", 900, "main table"),
    Picture("images/tour/dead-letters.png", "{dead_letters}", 820, "main table"),
    Picture("images/tour/offsets.png", "{offsets}", 820, "main .effects"),
    Picture("images/tour/configuration.png", "{configuration}", 800, "#file-text"),
    Picture("images/tour/alert-rule.png", "{rule}", 900, "main form"),
    Picture("images/tour/overview-zh.png", "/?range=15m", 980, "main .uplot canvas", "zh-CN"),
    Picture("images/tour/group-zh.png", "/groups/g/demo-consumers/", 900, "main table", "zh-CN"),
)
