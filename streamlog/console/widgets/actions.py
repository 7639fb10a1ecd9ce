"""A user's changes of the cluster: confirmed, run, and their results shown, all in one way. `guard` checks them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from nicegui import ui

from streamlog.console.collection.sampler import ClusterSampler
from streamlog.errors import StreamlogError


async def run(sampler: ClusterSampler, work: Callable[[], Awaitable[object]], done: str) -> bool:
    """Runs `work` and shows its result. False: it failed or was refused; the reason is shown until it is closed."""
    try:
        await work()
    except StreamlogError as error:
        refused(f"{error.message}")
        return False
    ui.notify(done, type="positive")
    await sampler.refresh()
    return True


def refused(reason: str) -> None:
    """Why an action was not done."""
    ui.notify(reason, type="negative", multi_line=True, close_button="Close", timeout=0)


def confirmed_by_name(question: str, consequence: str, name: str, action: Callable[[], Awaitable[bool]]) -> None:
    """A dialog that runs `action` once `name` was typed; it stays open where the action fails."""
    with ui.dialog(value=True) as dialog, ui.card().classes("w-full max-w-lg"):
        ui.label(question).classes("text-lg font-semibold break-all").props('role="heading" aria-level="2"')
        ui.label(consequence)
        ui.label("Type its name to confirm:").classes("text-sm text-note")
        ui.label(name).classes("font-mono break-all")
        typed = ui.input("Name").props("autofocus autocomplete=off").classes("w-full")

        async def confirm() -> None:
            if typed.value != name:
                ui.notify(f"Type {name} to confirm.", type="warning")
            elif await action():
                dialog.close()

        typed.on("keydown.enter", confirm)
        with ui.row():
            ui.button("Confirm", on_click=confirm).props("no-caps color=negative")
            ui.button("Cancel", on_click=dialog.close).props("flat no-caps color=inherit")


def confirmed(question: str, consequence: str, label: str, action: Callable[[], Awaitable[bool]]) -> None:
    """A dialog with a button `label` that runs `action`."""
    with ui.dialog(value=True) as dialog, ui.card().classes("w-full max-w-lg"):
        ui.label(question).classes("text-lg font-semibold break-all").props('role="heading" aria-level="2"')
        ui.label(consequence)

        async def confirm() -> None:
            if await action():
                dialog.close()

        with ui.row():
            ui.button(label, on_click=confirm).props("no-caps autofocus")
            ui.button("Cancel", on_click=dialog.close).props("flat no-caps color=inherit")
