"""Take the pictures of the page in docs/images/, from a server that runs already.

    heedful demo
    heedful serve en-de=runs/demo &
    python tools/screenshots.py http://127.0.0.1:5000 docs/images

It needs playwright and a Chromium: $CHROMIUM, or the one on the path.
"""

import os
import shutil
import sys
from pathlib import Path

from playwright.sync_api import Browser, Page, ViewportSize, sync_playwright

TEXT = "When the customer tried on the jacket, this mechanic was dancing in the big garden."
WIDE: ViewportSize = {"width": 1180, "height": 900}
PHONE: ViewportSize = {"width": 360, "height": 740}


def opened(browser: Browser, url: str, *, theme: str, size: ViewportSize, text: str = TEXT) -> Page:
    """Return the page with a text translated and explained."""
    dark = theme == "dark"
    page = browser.new_page(viewport=size, color_scheme="dark" if dark else "light")
    page.goto(url)
    page.locator("#source").fill(text)
    page.locator("#output .w").first.wait_for()
    page.locator(".head").first.wait_for()
    return page


def hover(page: Page, word: str) -> None:
    """Let a word of the translation light up."""
    page.locator("#output .w", has_text=word).first.hover()
    page.wait_for_timeout(500)  # until colours have changed


def take(browser: Browser, url: str, folder: Path) -> None:
    """Write the pictures."""
    page = opened(browser, url, theme="light", size=WIDE)
    hover(page, "tanzte")
    page.screenshot(path=folder / "page-light.png", full_page=True)
    page.locator("#tab-beam").click()
    hover(page, "anprobierte")
    page.screenshot(path=folder / "page-beam.png", full_page=True)
    page.close()
    page = opened(browser, url, theme="dark", size=WIDE)
    page.get_by_label("Layer", exact=True).select_option("2")
    page.locator(".head").nth(2).click()
    hover(page, "Mechaniker")
    page.screenshot(path=folder / "page-dark.png", full_page=True)
    page.close()
    page = opened(browser, url, theme="light", size=PHONE)
    page.screenshot(path=folder / "page-phone.png", full_page=True)
    page.close()


def main() -> None:
    """Read the server's address and the folder from the command line."""
    url, folder = sys.argv[1], Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        take(browser, url, folder)
        browser.close()


if __name__ == "__main__":
    main()
