"""Chromium, as tests and the tour start it and sign in to the console."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.appliance import PASSWORD

if TYPE_CHECKING:
    from playwright.sync_api import Page

# A browser at rest talks to its maker's servers; these keep every request one of our pages.
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def sign_in(page: Page, url: str) -> None:
    page.goto(f"{url}/accounts/sign-in/")
    page.fill("input[name=username]", "admin")
    page.fill("input[name=password]", PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url(f"{url}/")
