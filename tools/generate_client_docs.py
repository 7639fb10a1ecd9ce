"""Write the table of reasons into docs/clients.md, from the error tree; `--check` only says whether it is out of date.

    python tools/generate_client_docs.py [--check]

The rest of the page is written by hand; the table stands between two marks.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from streamlog import errors  # noqa: E402  of this checkout
from streamlog.errors import Status, StreamlogError, all_errors, grpc_status  # noqa: E402

PATH: Final = ROOT / "docs" / "clients.md"
BEGIN: Final = "<!-- reasons: written by tools/generate_client_docs.py -->\n"
END: Final = "<!-- end of reasons -->\n"

# Raised by the Python client itself; no node sends them.
OWN_ERRORS: Final = frozenset(
    {
        errors.ClientClosedError,
        errors.DeserializationError,
        errors.MaxPollIntervalError,
        errors.NetworkError,
        errors.SchemaRegistryError,
        errors.SerializationError,
        errors.SslAuthenticationError,
        errors.UnknownServerError,
    }
)
_SPECIAL: Final[dict[type[StreamlogError], str]] = {
    errors.IllegalGenerationError: "join again",
    errors.InvalidTransactionStateError: "fatal to the producer",
    errors.OutOfOrderSequenceError: "fatal to the producer",
    errors.OutcomeUnknownError: "unknown",
    errors.ProducerFencedError: "fatal to the producer",
    errors.RequestTimedOutError: "unknown",
    errors.TransactionAbortableError: "abort",
    errors.TransactionCoordinatorFencedError: "fatal to the producer",
    errors.UnknownMemberIdError: "join again",
    errors.UnknownProducerIdError: "fatal to the producer",
}


def action(error: type[StreamlogError]) -> str:
    """What a client does, by the words that the page explains."""
    return _SPECIAL.get(error) or ("retry" if error.retriable else "fatal")


def table() -> Iterator[str]:
    yield "| Status | Reason | What to do |\n"
    yield "| --- | --- | --- |\n"
    sent = [error for error in all_errors().values() if error not in OWN_ERRORS]
    order = [*Status]
    for error in sorted(sent, key=lambda error: (order.index(grpc_status(error)), error.code)):
        yield f"| {grpc_status(error).name} | `{error.code}` | {action(error)} |\n"


def page() -> str:
    """The page with the table of today."""
    head, _, rest = PATH.read_text().partition(BEGIN)
    _, _, tail = rest.partition(END)
    return head + BEGIN + "\n" + "".join(table()) + "\n" + END + tail


def main() -> int:
    content = page()
    if PATH.read_text() == content:
        return 0
    if "--check" in sys.argv[1:]:
        print(f"{PATH.name} is out of date: run `make docs`")
        return 1
    PATH.write_text(content)
    print(f"{PATH.name} written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
