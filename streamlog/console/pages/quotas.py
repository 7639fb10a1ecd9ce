"""/quotas: the limits of users, client ids and addresses, as `streamlogctl quota` has them; set, change, delete.

The kinds of limits and what they mean come from tables (`streamlog.access.quotas`), so that a new one is shown and can
be set here. A limit is of a user, a client id, or both, or of an address, each by name or as the default of those
without their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from msgspec import Struct
from nicegui import ui

from streamlog.access.addresses import address_of
from streamlog.access.quotas import ADDRESS_KEYS, DEFAULT, KEYS, QuotaEntity, check_entity, check_limit
from streamlog.console.access.caller import may
from streamlog.console.access.roles import Action
from streamlog.console.collection.sampler import ClusterSampler
from streamlog.console.widgets.actions import confirmed, run
from streamlog.console.widgets.page import Page, show, view
from streamlog.console.widgets.table_view import Column, Row
from streamlog.errors import InvalidRequestError, StreamlogError

Quotas = Mapping[QuotaEntity, Mapping[str, float]]

EACH: Final = "(default)"
"""How a default is shown."""
ANY: Final = "any"
NAME_SHOWN: Final = 60
_CLIENTS, _ADDRESSES = "clients", "addresses"
_KINDS: Final = {_CLIENTS: "Users and client ids", _ADDRESSES: "Addresses"}
_KEYS: Final[Mapping[str, Mapping[str, str]]] = {_CLIENTS: KEYS, _ADDRESSES: ADDRESS_KEYS}
_CONSEQUENCE: Final = "The limit of the next level applies then, if there is one."
_CHOICES: Final = {"any": "Any", "named": "Named", "default": "Each without its own"}


def value_text(value: object) -> str:
    """In full, with separators: a user compares it with what is measured."""
    if not isinstance(value, int | float):
        return ""
    return f"{int(value):,}" if value == int(value) else f"{value:,}"


def name_text(value: object) -> str:
    """A name may have 900 characters; its dialogs show all of it."""
    name = str(value)
    return name if len(name) <= NAME_SHOWN else f"{name[: NAME_SHOWN - 1]}…"


COLUMNS: Final = (
    Column("user", "User", name_text),
    Column("client_id", "Client id", name_text),
    Column("ip", "Address"),
    Column("limit", "Limit"),
    Column("value", "Value", value_text),
    Column("what", "Of what"),
)


class Part(Struct, frozen=True):
    """Of a form: a part of whose limits it is. `choice`: of _CHOICES."""

    choice: str
    name: str

    def value(self, what: str) -> str | None:
        """As a part of a QuotaEntity. ValueError."""
        if self.choice == "default":
            return DEFAULT
        if self.choice == "any":
            return None
        if not self.name.strip():
            raise ValueError(f"Give the {what}'s name.")
        return self.name.strip()


NONE: Final = Part("any", "")


def entity_of(user: Part, client_id: Part, address: Part) -> QuotaEntity:
    """ValueError, InvalidRequestError."""
    ip = address.value("address")
    entity = QuotaEntity(
        user=user.value("user"), client_id=client_id.value("client id"), ip=ip and (address_of(ip) or ip)
    )
    if entity == QuotaEntity():
        raise ValueError("Give whose limit it is: a user, a client id, or both; or an address.")
    check_entity(entity)
    return entity


def changes_of(
    entity: QuotaEntity, before: Mapping[str, float], wanted: Mapping[str, float | None]
) -> dict[str, float | None]:
    """What differs; None: removed. InvalidRequestError."""
    changes = {key: value for key, value in wanted.items() if value != before.get(key)}
    for key, value in changes.items():
        check_limit(entity, key, value)
    return changes


def quota_rows(quotas: Quotas) -> list[Row]:
    return [
        {
            "key": f"{entity}: {key}",
            "entity": entity,
            "user": _shown(entity.user),
            "client_id": _shown(entity.client_id),
            "ip": _shown(entity.ip),
            "limit": key,
            "value": value,
            "what": _KEYS[_kind(entity)].get(key, ""),
        }
        for entity, limits in sorted(quotas.items())
        for key, value in sorted(limits.items())
    ]


def _kind(entity: QuotaEntity) -> str:
    return _CLIENTS if entity.ip is None else _ADDRESSES


def _shown(part: str | None) -> str:
    return ANY if part is None else part or EACH


def register(sampler: ClusterSampler) -> None:
    @view("/quotas")
    async def quotas() -> None:
        await show(sampler, "Quotas", lambda page: _QuotaPage(page).build())


class _QuotaPage:
    def __init__(self, page: Page) -> None:
        self._page = page
        self._quotas: Quotas = {}

    async def build(self) -> None:
        note = "A client beyond its limit is slowed down. The limit of a name precedes the default, that of a user and "
        note += "client id that of the user, and that of the user that of the client id."
        ui.label(note).classes("text-sm text-note")
        self._problem = ui.label("").classes("text-bad")
        await self._read()
        changeable = may(Action.QUOTA_CHANGE)
        if changeable:
            with self._page.actions:
                ui.button("Set limits", icon="add", on_click=lambda: self._form(None)).props("no-caps")
        self._page.each_sample(self._read)
        self._table = self._page.table(
            COLUMNS,
            lambda: quota_rows(self._quotas),
            key="key",
            name="quotas",
            actions=(lambda _: ["Change", "Delete"]) if changeable else None,
            on_action=self._act,
            empty="There are no limits.",
            addressed=True,
        )

    async def _read(self) -> None:
        """Without an answer, what was read last is shown under the reason."""
        try:
            self._quotas = await self._page.sampler.admin.describe_client_quotas()
        except StreamlogError as error:
            self._problem.set_text(error.message)
        else:
            self._problem.set_text("")
        self._problem.set_visibility(bool(self._problem.text))

    async def _changed(self) -> None:
        await self._read()
        self._table.refresh()

    def _act(self, name: str, row: Row) -> None:
        entity, key = row["entity"], str(row["limit"])
        assert isinstance(entity, QuotaEntity)
        if name == "Change":
            self._form(entity)
            return

        async def delete() -> bool:
            return await self._alter(entity, {key: None}, f"{key} of {entity} is deleted.")

        confirmed(f"Delete {key} of {entity}?", _CONSEQUENCE, "Delete", delete)

    async def _alter(self, entity: QuotaEntity, changes: Mapping[str, float | None], done: str) -> bool:
        async def work() -> None:
            await self._page.sampler.admin.alter_client_quotas({entity: changes})

        if not await run(self._page.sampler, work, done):
            return False
        await self._changed()
        return True

    def _form(self, entity: QuotaEntity | None) -> None:
        """`entity`: whose limits are changed; None: it is chosen."""
        with ui.dialog(value=True) as dialog, ui.card().classes("w-full max-w-lg"):
            ui.label(f"Limits of {entity}" if entity else "Set limits").classes(
                "text-lg font-semibold break-all"
            ).props('role="heading" aria-level="2"')
            form = _WhoseForm() if entity is None else None
            before = self._quotas.get(entity, {}) if entity else {}
            fields: dict[str, dict[str, ui.number]] = {}
            for kind in _KINDS if entity is None else (_kind(entity),):
                with ui.column().classes("w-full gap-4") as place:
                    fields[kind] = {key: _field(key, what, before.get(key)) for key, what in _KEYS[kind].items()}
                if form is not None:
                    place.bind_visibility_from(form.kind, "value", value=kind)
            ui.label("Empty: no limit." if entity else "Empty: unchanged.").classes("text-sm text-note")

            async def save() -> None:
                try:
                    whose = form.entity() if form is not None else entity
                    assert whose is not None
                    wanted = {key: field.value for key, field in fields[_kind(whose)].items()}
                    if entity is None:
                        wanted = {key: value for key, value in wanted.items() if value is not None}
                    changes = changes_of(whose, self._quotas.get(whose, {}), wanted)
                except InvalidRequestError as error:
                    problem.set_text(f"{error.message}.")
                    return
                except ValueError as error:
                    problem.set_text(str(error))
                    return
                problem.set_text("" if changes else "Nothing is changed: give a limit.")
                if not changes:
                    return
                removed = [key for key, value in changes.items() if value is None]

                async def alter() -> bool:
                    done = await self._alter(whose, changes, f"Changed of {whose}: {', '.join(changes)}.")
                    if done:
                        dialog.close()
                    return done

                if removed:
                    confirmed(f"Delete {', '.join(removed)} of {whose}?", _CONSEQUENCE, "Delete", alter)
                else:
                    await alter()

            # A notification would cover the buttons.
            problem = ui.label("").classes("text-bad break-words empty:hidden").props("aria-live=polite")
            with ui.row():
                ui.button("Set", on_click=save).props("no-caps")
                ui.button("Cancel", on_click=dialog.close).props("flat no-caps color=inherit")


class _WhoseForm:
    """Inputs for whose limits it is."""

    def __init__(self) -> None:
        self.kind = ui.select(_KINDS, label="Limits of", value=_CLIENTS).classes("w-full")
        with ui.column().classes("w-full gap-4") as clients:
            self._user, self._client_id = _part("User"), _part("Client id")
        with ui.column().classes("w-full gap-4") as addresses:
            self._address = _part("Address")
        clients.bind_visibility_from(self.kind, "value", value=_CLIENTS)
        addresses.bind_visibility_from(self.kind, "value", value=_ADDRESSES)

    def entity(self) -> QuotaEntity:
        """ValueError, InvalidRequestError."""
        if self.kind.value == _ADDRESSES:
            return entity_of(NONE, NONE, self._address())
        return entity_of(self._user(), self._client_id(), NONE)


def _field(key: str, what: str, value: float | None) -> ui.number:
    field = ui.number(key, value=value, min=0).classes("w-full")
    field.props(f'hint="{what}" autocomplete=off')
    return field


def _part(what: str) -> Callable[[], Part]:
    with ui.row().classes("w-full items-end gap-3 no-wrap"):
        choice = ui.select(_CHOICES, label=what, value="any").classes("w-48")
        name = ui.input(f"{what}: name").props("autocomplete=off").classes("grow")
        name.bind_visibility_from(choice, "value", value="named")
    return lambda: Part(str(choice.value), str(name.value or ""))
