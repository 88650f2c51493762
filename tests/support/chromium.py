"""Chromium for tests and the tour, and signing in to the console."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.appliance import PASSWORD

if TYPE_CHECKING:
    from playwright.sync_api import Page

# Keep an idle browser from contacting Google's servers, so that every request comes from our pages.
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
