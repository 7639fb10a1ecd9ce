"""The alarms, silences and events: in memory, and in the database.

One event loop. A state changes on the loop in one step and is then written. Where the database cannot be written,
alarms continue in memory, `problem` has the reason, and what was not written is written with the next change. All of
it is written again where the database's file was replaced.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from streamlog.console.alarms.deliveries import NoticeDelivery
from streamlog.console.alarms.evaluation import (
    AlarmChange,
    AlarmState,
    AlarmStatus,
    Evaluation,
    Key,
    Silence,
    Transition,
    acknowledged,
    shifted,
)
from streamlog.console.alarms.store import AlarmEvent, AlarmStore
from streamlog.console.collection.history_database import HistoryError
from streamlog.console.database_waits import DatabaseThread

SILENCES_MAX: Final = 200


class AlarmBook:
    def __init__(self, store: AlarmStore) -> None:
        self._store = store
        self._thread = DatabaseThread("alarms", "The alarms", HistoryError)
        self._alarms: dict[Key, AlarmState] = {}
        self._silences: list[Silence] = []
        self._unwritten: set[Key] = set()
        self._unwritten_silences = False
        self._opened_count = store.opened_count
        self.problem = ""  # empty: the database can be written
        self.written_count = 0  # how often it was; what was read from it before may be out of date

    @property
    def alarms(self) -> Mapping[Key, AlarmState]:
        return self._alarms

    @property
    def silences(self) -> Sequence[Silence]:
        return self._silences

    async def load(self) -> Sequence[NoticeDelivery]:
        """Returns the deliveries that a previous process left."""
        try:
            stored = await self._thread.run(self._store.load)
        except HistoryError as error:
            self.problem = str(error)
            return ()
        self._alarms = {one.key: one for one in stored.alarms}
        self._silences = list(stored.silences)
        return stored.queued

    def advance(self, now_s: float, jumped_s: float) -> None:
        """Silences follow the wall clock where it jumped, and end."""
        silences = [one for one in shifted(self._silences, jumped_s) if one.until_s > now_s]
        if silences != self._silences:
            self._silences = silences
            self._unwritten_silences = True

    async def keep(self, outcome: Evaluation, at_s: float, deliveries: Sequence[NoticeDelivery]) -> None:
        before, self._alarms = self._alarms, dict(outcome.alarms)
        for key in before.keys() | self._alarms.keys():
            if _identity(before.get(key)) != _identity(self._alarms.get(key)):
                self._unwritten.add(key)
        await self._write([_event(one, at_s) for one in outcome.transitions], deliveries)

    async def acknowledge(self, key: Key, by: str) -> bool:
        """False: it does not fire any more."""
        alarm = self._alarms.get(key)
        if alarm is None or alarm.status is not AlarmStatus.FIRING:
            return False
        now_s = time.time()
        self._alarms[key] = acknowledged(alarm, by, now_s)
        self._unwritten.add(key)
        await self._write([_event(Transition(AlarmChange.ACKNOWLEDGED, alarm), now_s, by)])
        return True

    async def silence(self, rule: str, subject: str, duration_s: float, comment: str, by: str) -> None:
        """`rule`, `subject`: patterns. ValueError: there are too many."""
        if len(self._silences) >= SILENCES_MAX:
            raise ValueError(f"There are {SILENCES_MAX} silences already: end some of them.")
        now_s = time.time()
        self._silences.append(
            Silence(
                silence_id=uuid.uuid4().hex,
                rule=rule,
                subject=subject,
                until_s=now_s + duration_s,
                comment=comment,
                created_by=by,
                created_at_s=now_s,
            )
        )
        self._unwritten_silences = True
        await self._write()

    async def end_silence(self, silence_id: str) -> None:
        self._silences = [one for one in self._silences if one.silence_id != silence_id]
        self._unwritten_silences = True
        await self._write()

    async def record(self, delivery: NoticeDelivery) -> None:
        await self._written(lambda: self._store.write(deliveries=[delivery]))

    async def clean(self, now_s: float) -> None:
        await self._written(lambda: self._store.clean(now_s))

    async def events(self, limit: int) -> list[AlarmEvent]:
        """The newest first. HistoryError."""
        return await self._thread.run(lambda: self._store.events(limit))

    async def deliveries(self, limit: int) -> list[NoticeDelivery]:
        """The newest first. HistoryError."""
        return await self._thread.run(lambda: self._store.deliveries(limit))

    def close(self) -> None:
        self._thread.close()

    async def _write(self, events: Sequence[AlarmEvent] = (), deliveries: Sequence[NoticeDelivery] = ()) -> None:
        if self._store.opened_count != self._opened_count:
            self._opened_count = self._store.opened_count
            self._unwritten |= self._alarms.keys()
            self._unwritten_silences = True
        keys, with_silences = set(self._unwritten), self._unwritten_silences
        if not (keys or events or deliveries or with_silences):
            return
        states = [
            msgspec.structs.replace(one, clear_s=0.0)
            for key in keys
            if (one := self._alarms.get(key)) is not None and one.status is AlarmStatus.FIRING
        ]
        silences = list(self._silences) if with_silences else None
        self._unwritten -= keys
        self._unwritten_silences = False
        if not await self._written(lambda: self._store.write(states, list(keys), events, deliveries, silences)):
            self._unwritten |= keys
            self._unwritten_silences |= with_silences

    async def _written(self, work: Callable[[], None]) -> bool:
        try:
            await self._thread.run(work)
        except HistoryError as error:
            self.problem = str(error)
            return False
        self.problem = ""
        self.written_count += 1
        return True


def _identity(alarm: AlarmState | None) -> object:
    """What differs after a restart: a change of it is written. Of pending alarms nothing is."""
    if alarm is None or alarm.status is not AlarmStatus.FIRING:
        return None
    return alarm.alarm_id, alarm.severity, alarm.above, alarm.channels, alarm.announced, alarm.acknowledged_by


def _event(transition: Transition, at_s: float, by: str = "") -> AlarmEvent:
    alarm = transition.alarm
    return AlarmEvent(
        at_s=at_s,
        change=transition.change.value,
        rule=alarm.rule,
        subject=alarm.subject,
        severity=alarm.severity.value,
        summary=alarm.summary,
        by=by,
    )
