"""`make console-picture`: docs/images/console.png, which README.md shows, from the console of `make demo-console`.

Needs Chromium and playwright (`make test-console` installs it).
"""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
PICTURE: Final = ROOT / "docs" / "images" / "console.png"
SIZE: Final = {"width": 1280, "height": 1040}
START_S: Final = 120.0
FILLED_S: Final = 120.0
"""Until the charts have something to show."""
WAIT_MS: Final = 60_000


def main() -> int:
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        sys.exit("Chromium is not installed.")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}/"
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's job may ignore it, and so would the demo
    demo = subprocess.Popen([sys.executable, "-m", "demo.console", "--port", str(port)], cwd=ROOT)
    try:
        _wait_until_up(url)
        time.sleep(FILLED_S)
        with sync_playwright() as running:
            browser = running.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            page = browser.new_page(viewport=SIZE)
            page.set_default_timeout(WAIT_MS)
            page.goto(url)
            page.get_by_text("Nothing: the cluster is healthy.").wait_for()
            page.locator("canvas").last.wait_for()
            page.screenshot(path=PICTURE)
            browser.close()
    finally:
        demo.send_signal(signal.SIGINT)
        demo.wait()
    print(f"{PICTURE.relative_to(ROOT)} is current.")
    return 0


def _wait_until_up(url: str) -> None:
    deadline = time.monotonic() + START_S
    while True:
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except (urllib.error.URLError, OSError):
            if time.monotonic() > deadline:
                sys.exit("The console has not started.")
            time.sleep(1)


if __name__ == "__main__":
    sys.exit(main())
