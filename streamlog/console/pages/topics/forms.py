"""Dialogs that create, grow, alter and delete a topic."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from nicegui import ui

from streamlog.client.admin.values import ConfigChange, ConfigResource
from streamlog.config import Operation
from streamlog.console.widgets.actions import confirmed_by_name, refused, run
from streamlog.console.widgets.page import Page
from streamlog.console.widgets.table_view import Row


def configs_of(text: str) -> dict[str, str]:
    """Lines of name=value. ValueError: one has no '='."""
    found = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        name, separator, value = line.partition("=")
        if not separator:
            raise ValueError(f"{line!r} is not a setting: give one such as retention.ms=3600000 in each line")
        found[name.strip()] = value.strip()
    return found


def new_topic(page: Page) -> None:
    with ui.dialog(value=True) as dialog, ui.card().classes("w-full max-w-md"):
        _title("New topic")
        name = ui.input("Name").props("autofocus autocomplete=off").classes("w-full")
        partitions = ui.number("Partitions (empty: the cluster's default)", min=1, precision=0).classes("w-full")
        replicas = ui.number("Replicas (empty: the cluster's default)", min=1, precision=0).classes("w-full")
        settings = ui.textarea("Settings, as name=value in each line").classes("w-full")

        async def create() -> None:
            try:
                configs = configs_of(settings.value or "")
            except ValueError as error:
                refused(f"{error}.")
                return
            wanted = (name.value or "").strip()

            async def work() -> None:
                await page.sampler.admin.create_topic(
                    wanted,
                    partitions=None if partitions.value is None else int(partitions.value),
                    replication_factor=None if replicas.value is None else int(replicas.value),
                    configs=configs,
                )

            if await run(page.sampler, work, f"Topic {wanted} is created."):
                dialog.close()

        name.on("keydown.enter", create)
        _buttons("Create", create, dialog)


def grow_topic(page: Page, name: str) -> None:
    with ui.dialog(value=True) as dialog, ui.card().classes("w-full max-w-md"):
        _title(f"Partitions of topic {name}")
        ui.label("The number can only grow, and keys move to other partitions.").classes("text-sm text-note")
        count = ui.number("Partitions in all", min=1, precision=0).props("autofocus").classes("w-full")

        async def grow() -> None:
            total = int(count.value or 0)
            done = f"Topic {name} has {total} partitions."
            if await run(page.sampler, lambda: page.sampler.admin.grow_topic(name, total), done):
                dialog.close()

        count.on("keydown.enter", grow)
        _buttons("Grow", grow, dialog)


def change_setting(page: Page, topic: str, row: Row, changed: Callable[[], Awaitable[None]]) -> None:
    setting = str(row["name"])
    with ui.dialog(value=True) as dialog, ui.card().classes("w-full max-w-lg"):
        _title(f"{setting} of topic {topic}")
        ui.label(str(row["what"])).classes("text-sm text-note")
        given = ui.input("Value", value=str(row["value"])).props("autofocus autocomplete=off").classes("w-full")
        ui.label(f"Default: {row['default']}").classes("text-sm text-note")

        async def alter(change: ConfigChange, done: str) -> None:
            resource = ConfigResource.topic(topic)

            async def work() -> None:
                await page.sampler.admin.alter_config(resource, [change])

            if await run(page.sampler, work, done):
                dialog.close()
                await changed()

        async def set_value() -> None:
            await alter(ConfigChange(name=setting, value=given.value or ""), f"{setting} is {given.value}.")

        async def remove() -> None:
            await alter(ConfigChange(name=setting, operation=Operation.DELETE), f"{setting} has its default.")

        given.on("keydown.enter", set_value)
        with ui.row():
            ui.button("Set", on_click=set_value).props("no-caps")
            ui.button("Back to the default", on_click=remove).props("no-caps outline")
            ui.button("Cancel", on_click=dialog.close).props("flat no-caps color=inherit")


def delete_topic(page: Page, name: str) -> None:
    async def delete() -> bool:
        async def work() -> None:
            await page.sampler.admin.delete_topic(name)

        if not await run(page.sampler, work, f"Topic {name} is deleted."):
            return False
        ui.navigate.to("/topics")
        return True

    confirmed_by_name(f"Delete topic {name} with all its records?", "It cannot be restored.", name, delete)


def _title(text: str) -> None:
    ui.label(text).classes("text-lg font-semibold break-all").props('role="heading" aria-level="2"')


def _buttons(name: str, action: Callable[[], Awaitable[None]], dialog: ui.dialog) -> None:
    with ui.row():
        ui.button(name, on_click=action).props("no-caps")
        ui.button("Cancel", on_click=dialog.close).props("flat no-caps color=inherit")
