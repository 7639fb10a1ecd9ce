"""Every action has a least role, every method of the admin client is a read or a checked change."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest

from streamlog.client.admin.async_admin import AsyncAdmin
from streamlog.console import guard
from streamlog.console.access.roles import LEAST_ROLE, Action, UserRole, allows

CONSOLE = Path(guard.__file__).parent
OWN = {"start", "close", "__aenter__", "__aexit__"}


@pytest.mark.parametrize("action", Action)
def test_every_action_has_a_row(action: Action) -> None:
    least = LEAST_ROLE[action]
    assert [allows(role, action) for role in UserRole] == [role >= least for role in UserRole]


def test_viewers_only_look() -> None:
    assert {action for action in Action if allows(UserRole.VIEWER, action)} == {Action.VIEW, Action.RECORDS_READ}


def test_every_method_of_the_admin_client_is_a_read_or_a_change() -> None:
    methods = {name for name, _ in inspect.getmembers(AsyncAdmin, inspect.isfunction) if not name.startswith("_")}
    assert guard.READS | set(guard.CHANGES) == methods - OWN
    assert not guard.READS & set(guard.CHANGES)


def test_nothing_else_in_the_console_changes_the_cluster() -> None:
    """Only the server makes an admin client (and `versions` and `voters`, which read), only the guard a producer."""
    makers: dict[str, set[str]] = {"AsyncAdmin": set(), "AsyncProducer": set()}
    for path in CONSOLE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in makers:
                makers[node.func.id].add(str(path.relative_to(CONSOLE)))
    assert makers == {
        "AsyncAdmin": {"server.py", "collection/versions.py", "collection/voters.py"},
        "AsyncProducer": {"guard.py"},
    }


def test_roles_by_their_labels() -> None:
    assert [UserRole.of(role.label) for role in UserRole] == list(UserRole)
    with pytest.raises(ValueError, match="roles are viewer, operator, admin"):
        UserRole.of("root")
