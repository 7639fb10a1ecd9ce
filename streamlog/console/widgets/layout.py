"""What all pages share: the frame with its navigation, headings, tiles."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from nicegui import app, background_tasks, context, ui

from streamlog.console.access.caller import LOCAL, current_caller, may
from streamlog.console.access.control import SessionCaller
from streamlog.console.access.roles import Action
from streamlog.console.collection.sampler import ClusterSampler
from streamlog.console.widgets.tables import STYLE

NAVIGATION: Final = (
    ("/", "Overview", "dashboard"),
    ("/brokers", "Brokers", "dns"),
    ("/topics", "Topics", "view_list"),
    ("/records", "Records", "article"),
    ("/groups", "Groups", "groups"),
    ("/transactions", "Transactions", "receipt_long"),
    ("/quorum", "Quorum", "how_to_vote"),
    ("/quotas", "Quotas", "speed"),
    ("/operations", "Operations", "build"),
    ("/alarms", "Alarms", "notifications"),
)
AUDIT_PAGE: Final = ("/audit", "Audit", "fact_check")
PRIMARY: Final = "#1f5fa8"
NEGATIVE: Final = "#c62828"
"""Both have a contrast of 4.5 to 1 with white."""
_STYLE: Final = """
.console-nav { display: flex; flex-wrap: nowrap; gap: 4px; overflow-x: auto; scrollbar-width: none; }
.console-nav .q-btn { flex: none; }
@media (max-width: 1439px) { .console-nav .q-icon { display: none; } .console-nav .q-btn { padding: 4px 8px; } }
@media (max-width: 1023px) { .console-nav { order: 1; width: 100%; } }
@media (max-width: 639px) { .console-cluster { display: none; } }
.body--dark .q-field { --q-primary: #8ab8f0; }
a:focus-visible, button:focus-visible { outline: 2px solid #1f5fa8; outline-offset: 1px; }
.body--dark a:focus-visible, .body--dark button:focus-visible { outline-color: #8ab8f0; }
.q-btn:focus-visible, .q-toggle:focus-visible, .q-checkbox:focus-visible {
  box-shadow: 0 0 0 2px white, 0 0 0 4px #1f5fa8; z-index: 1; }
.body--dark .q-btn:focus-visible, .body--dark .q-toggle:focus-visible, .body--dark .q-checkbox:focus-visible {
  box-shadow: 0 0 0 2px #121212, 0 0 0 4px #8ab8f0; }
.q-header a:focus-visible { outline-color: white; }
.q-header .q-btn:focus-visible { box-shadow: inset 0 0 0 2px white; }
.q-btn-toggle { border: 1px solid #8888; }
"""
"""Icons only where everything fits in one line; on a narrow screen the navigation is a line of its own that scrolls.
Quasar removes the outline of its controls, so these show the focus as a shadow.
"""
_SHOW_CURRENT: Final = (
    "document.querySelector('nav [aria-current]')?.scrollIntoView({block: 'nearest', inline: 'center'})"
)


@contextmanager
def frame(sampler: ClusterSampler, title: str, refresh: Callable[[], Awaitable[object] | object]) -> Iterator[None]:
    """A page. `refresh` is called after each sample, while the page is open, in the page's context."""
    ui.page_title(f"{title} - streamlog")
    section = f"/{context.client.request.url.path.split('/')[1]}"
    ui.colors(primary=PRIMARY, negative=NEGATIVE)
    dark = ui.dark_mode(app.storage.user.get("dark"))
    ui.query(".nicegui-content").classes("p-4 gap-4 w-full max-w-screen-xl mx-auto")
    ui.add_css(STYLE + _STYLE)
    ui.add_head_html("<script>document.documentElement.lang = 'en'</script>")
    with ui.header().classes("items-center gap-x-2 gap-y-1 py-2 px-4 bg-primary"):
        ui.link("streamlog", "/").classes("text-white text-lg font-bold no-underline mr-4")
        with ui.element("nav").classes("console-nav").props('aria-label="Main"'):
            for address, name, icon in (*NAVIGATION, AUDIT_PAGE) if may(Action.AUDIT_READ) else NAVIGATION:
                shown = ui.button(name, icon=icon).props(f'flat dense no-caps color=white type=a href="{address}"')
                if address == section:
                    shown.classes("bg-white/25").props('aria-current="page"')
        ui.space()
        _freshness(sampler)

        async def toggle() -> None:
            dark.value = not await ui.run_javascript("document.body.classList.contains('body--dark')", timeout=10)
            app.storage.user["dark"] = dark.value

        ui.button(icon="dark_mode", on_click=toggle).props('flat dense color=white aria-label="Light or dark"')
        _user_menu()
    client = context.client
    client.on_connect(lambda: client.run_javascript(_SHOW_CURRENT))
    sampler.add_listener(client.id, _OnePage(client, refresh).sampled)
    client.on_delete(lambda: sampler.remove_listener(client.id))
    with ui.element("div").classes("w-full flex flex-col gap-4"):
        yield


def _user_menu() -> None:
    """Who is logged in, and the logout. When the session ends, the page goes to the login."""
    caller, client = current_caller(), context.client
    if not isinstance(caller, SessionCaller):
        return

    def leave() -> None:
        client.open("/login")

    caller.session.add_closer(leave)
    client.on_delete(lambda: caller.session.remove_closer(leave))
    user = caller.user
    if user is None or user is LOCAL:
        return
    with ui.button(icon="person").props('flat dense color=white aria-label="User"'), ui.menu():
        ui.label(f"{user.name}, {user.role.label}").classes("px-4 py-2 text-sm opacity-80")
        ui.menu_item("Log out", on_click=lambda: caller.access.log_out(caller.session, caller.address))


class _OnePage:
    """Refreshes a page after samples, one at a time: a sample during a slow refresh is skipped."""

    def __init__(self, client: Any, refresh: Callable[[], Awaitable[object] | object]) -> None:
        self._client, self._refresh = client, refresh
        self._running: asyncio.Future[object] | None = None

    def sampled(self) -> None:
        if not self._client.has_socket_connection or (self._running is not None and not self._running.done()):
            return
        with self._client:
            result = self._refresh()
            if asyncio.iscoroutine(result):
                self._running = background_tasks.create(result, name="refresh of a page")


def _freshness(sampler: ClusterSampler) -> None:
    """The age of the data; and a problem of the console itself."""

    def age() -> str:
        latest = sampler.latest
        if latest is None:
            return "connecting to the cluster ..."
        if latest.state.cluster is None:
            if latest.state.is_refused:
                return "refused"
            return "throttled" if latest.state.is_throttled else "no node answers"
        return f"{max(0, time.time() - latest.at_s):.0f} s ago"

    def cluster_id() -> str:
        latest = sampler.latest
        return latest.state.cluster.cluster_id if latest is not None and latest.state.cluster is not None else ""

    name = ui.label(cluster_id()).classes("console-cluster text-white text-sm").tooltip("Cluster id")
    label = ui.label(age()).classes("text-white text-sm whitespace-nowrap").tooltip("Age of what is shown")
    problem = ui.icon("warning", color="amber", size="sm").props('role="img" aria-hidden="false" tabindex=0')
    with problem:
        reason = ui.tooltip("").classes("text-sm")

    def draw() -> None:
        name.set_text(cluster_id())
        label.set_text(age())
        reason.set_text(sampler.history_problem)
        problem.props["aria-label"] = sampler.history_problem
        problem.set_visibility(bool(sampler.history_problem))

    draw()
    ui.timer(1.0, draw)


class Heading:
    """With a note beside it that changes."""

    def __init__(self, text: str) -> None:
        with ui.row().classes("items-baseline gap-3 w-full"):
            ui.label(text).classes("text-xl font-semibold").props('role="heading" aria-level="2"')
            self._note = ui.label().classes("text-sm text-note")
        self._note.set_visibility(False)

    def note(self, text: str) -> None:
        """Empty: none."""
        self._note.set_text(text)
        self._note.set_visibility(bool(text))


def heading(text: str, note: str = "") -> None:
    Heading(text).note(note)


def tile(name: str, value: str, *, bad: bool = False, note: str = "") -> None:
    with ui.card().classes("p-3 gap-0 min-w-[9rem] grow self-stretch"):
        ui.label(name).classes("text-sm text-note")
        ui.label(value).classes(f"text-2xl font-semibold {'text-bad' if bad else ''}")
        if note:
            ui.label(note).classes("text-xs text-note")


def outage(sampler: ClusterSampler) -> None:
    """Why there is nothing to show: to be called while the cluster is unknown."""
    latest = sampler.latest
    if latest is None:
        with ui.row().classes("items-center gap-2"):
            ui.spinner()
            ui.label("Connecting to the cluster ...")
        return
    reason = next(iter(latest.state.missing.values()))
    with ui.card().classes("w-full"):
        what, until = "No node of the cluster answers.", "a node answers"
        if latest.state.is_refused:
            what, until = "The cluster refuses the console's user.", "the user may see it"
        elif latest.state.is_throttled:
            what, until = "The cluster is throttling the console.", "it no longer is"
        ui.label(what).classes("text-lg font-semibold text-bad")
        ui.label(reason.message)
        if latest.state.is_login_refused:
            ui.label(
                "Correct the user's name and password, or the token, in the console's --command-config, and restart "
                f"it: it then logs in at once. Otherwise it tries again after {sampler.pause_s:,.0f} s, and less and "
                "less often, since its failed logins slow down those of others from its address."
            )
            return
        ui.label(f"The console retries, and shows the cluster as soon as {until}.")
