"""Checks of a page's appearance and accessibility, and screenshots."""

from __future__ import annotations

from typing import TYPE_CHECKING

from axe_playwright_python.sync_playwright import Axe

from tests.browser.conftest import ARTIFACTS, SCHEMES

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.browser.conftest import Scheme

AXE = Axe()
EVERYTHING: dict[str, object] = {"resultTypes": ["violations"]}
# The other theme only differs in colours.
COLOURS: dict[str, object] = {**EVERYTHING, "runOnly": ["color-contrast"]}
WITHOUT_ADDRESS = """
[...document.querySelectorAll('main a:not([href]), main a[href=""]')]
  .map((each) => `leads nowhere: ${each.outerHTML.slice(0, 200)}`)
"""
WATCH_FOCUS = """
(() => {
  const wanted = [...document.querySelectorAll(
    "a[href], button, input, select, textarea, summary, [tabindex], [role=button], [hx-get]"
  )].filter((each) =>
    each.tabIndex >= 0 && !each.disabled && !each.closest("[inert]") && !each.ariaHidden
    && each.checkVisibility({ visibilityProperty: true })
  );
  const plain = [...document.querySelectorAll("[role=button], [onclick]")].filter((each) =>
    each.tabIndex < 0 && each.checkVisibility({ visibilityProperty: true }));
  window.focused = new Set();
  window.ringless = new Set();
  document.addEventListener("focusin", ({ target }) => {
    window.focused.add(target);
    const style = getComputedStyle(target);
    if (target.matches("a, button, summary") && style.outlineStyle === "none"
        && style.boxShadow === "none") window.ringless.add(target);
  });
  window.unfocused = () => wanted.filter((each) =>
    each.isConnected && each.checkVisibility({ visibilityProperty: true })
    && !window.focused.has(each)
    // One radio button of a group takes the focus; arrows lead to the others.
    && !(each.type === "radio" && [...window.focused].some((one) => one.name === each.name)));
  window.plain = plain;
  return wanted.length;
})()
"""
FOCUSED = """
[["no key leads to", window.unfocused()], ["no key presses", window.plain],
 ["nothing shows the focus of", [...window.ringless]]]
  .flatMap(([what, found]) =>
    found.slice(0, 3).map((one) => `${what} ${one.outerHTML.slice(0, 200)}`))
"""
FOCUS_SPARE = 10
"""Scrollable parts take the focus, too."""
PHONE = {"width": 390, "height": 900}


def inaccessible(page: Page, scheme: Scheme, rules: dict[str, object]) -> list[str]:
    """Return all of axe's findings, including minor ones."""
    return [
        f"{scheme}: {found['id']}: {node['html'][:200]} {node['failureSummary']}"
        for found in AXE.run(page, options=rules).response["violations"]
        for node in found["nodes"][:3]
    ]


def too_wide(page: Page) -> str | None:
    wide, shown = page.evaluate("[document.scrollingElement.scrollWidth, window.innerWidth]")
    return f"{wide} px wide in a window of {shown} px" if wide > shown else None


def pointless(page: Page) -> list[str]:
    """Return links without an address, which lead to the same page."""
    return list(page.evaluate(WITHOUT_ADDRESS))


def out_of_reach(page: Page) -> list[str]:
    """Walk through a page with the Tab key; return unreachable elements."""
    for _ in range(page.evaluate(WATCH_FOCUS) + FOCUS_SPARE):
        page.keyboard.press("Tab")
    return list(page.evaluate(FOCUSED))


def problems_of(page: Page, name: str) -> list[str]:
    """Save screenshots of a page, wide and narrow, in both themes; return the problems."""
    wide, found = page.viewport_size, pointless(page)
    assert wide is not None
    for size in (wide, PHONE):
        page.set_viewport_size({"width": size["width"], "height": size["height"]})
        for scheme in SCHEMES:
            page.emulate_media(color_scheme=scheme)
            path = ARTIFACTS / f"{name}-{size['width']}-{scheme}.png"
            page.screenshot(path=path, full_page=True)
            if size is wide:
                found += inaccessible(page, scheme, EVERYTHING if scheme == "light" else COLOURS)
        if size is wide:
            found += out_of_reach(page)
        if (problem := too_wide(page)) is not None:
            found.append(problem)
    page.set_viewport_size(wide)
    page.emulate_media(color_scheme=SCHEMES[0])
    return [f"{name}: {each}" for each in found]
