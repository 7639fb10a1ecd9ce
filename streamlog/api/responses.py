"""Responses of other nodes. Like requests they come from outside: at a node's address there may be another program."""

from __future__ import annotations

from typing import Final, TypeVar

from google.protobuf.message import DecodeError, Message

from streamlog.api.bounds import check_bounds
from streamlog.errors import BrokerNotAvailableError, InvalidRequestError

ENTRIES_MAX: Final = 1_000_000
"""Of lists with unsigned numbers. A node asks others for thousands of replicas at a time."""

Response = TypeVar("Response", bound=Message)


def parse_response(message_type: type[Response], data: bytes, sender: str, *, bytes_max: int | None = None) -> Response:
    """BrokerNotAvailableError where it is none, or has a number out of bounds. `bytes_max`: None: the network's."""
    name = message_type.DESCRIPTOR.full_name
    if bytes_max is not None and len(data) > bytes_max:
        raise unusable(name, sender, f"it has {len(data)} bytes, and at most {bytes_max} are accepted")
    message = message_type()
    try:
        message.ParseFromString(data)
        check_bounds(message, entries_max=ENTRIES_MAX)
    except DecodeError:
        raise unusable(name, sender, "it cannot be parsed") from None
    except InvalidRequestError as error:
        raise unusable(name, sender, error.message) from None
    return message


def unusable(name: str, sender: str, reason: str) -> BrokerNotAvailableError:
    return BrokerNotAvailableError(
        f"{sender} did not answer with a valid {name}, it may not be a streamlog node: {reason}"
    )
