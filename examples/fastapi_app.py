"""A web service that writes to a topic and reads from it.

    python examples/fastapi_app.py --bootstrap-server 127.0.0.1:9092 --port 8000
    curl http://127.0.0.1:8000/events --json '{"user": "anna", "action": "login"}'
    curl http://127.0.0.1:8000/events/0/0

One producer serves all requests: it is opened when the application starts, and closed, with everything sent, when it
stops.
"""

from __future__ import annotations

import argparse
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn
from fastapi import FastAPI, HTTPException
from pydantic import BaseModel

from streamlog.client import AsyncAdmin, AsyncConsumer, AsyncProducer
from streamlog.errors import (
    OffsetOutOfRangeError,
    StreamlogError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)

READ_TIMEOUT_S = 5.0


class Event(BaseModel):
    user: str
    action: str


class Written(BaseModel):
    partition: int
    offset: int


def make_app(bootstrap_server: str, topic: str) -> FastAPI:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncAdmin(bootstrap_servers=bootstrap_server) as admin:
            try:
                await admin.create_topic(topic, partitions=3)
            except TopicAlreadyExistsError:
                pass
        async with AsyncProducer(bootstrap_servers=bootstrap_server) as producer:
            app.state.producer = producer
            yield

    app = FastAPI(lifespan=lifespan)

    @app.post("/events")
    async def write(event: Event) -> Written:
        producer: AsyncProducer = app.state.producer
        try:
            # Requests that arrive together share batches. The response waits for the acknowledgement.
            accepted = await producer.enqueue(topic, event.model_dump_json().encode(), key=event.user.encode())
            sent = await accepted
        except StreamlogError as error:
            raise HTTPException(503 if error.retriable else 500, error.message) from error
        return Written(partition=sent.partition, offset=sent.offset)

    @app.get("/events/{partition}/{offset}")
    async def read(partition: int, offset: int) -> Event:
        # Without a reset: an offset that is not there is an error, and another record is not taken for it.
        async with AsyncConsumer(bootstrap_servers=bootstrap_server, auto_offset_reset="none") as consumer:
            try:
                await consumer.assign({(topic, partition): offset})
                records = await consumer.poll(1, timeout_s=READ_TIMEOUT_S)
            except (OffsetOutOfRangeError, UnknownTopicOrPartitionError) as error:
                raise HTTPException(404, error.message) from error
            except StreamlogError as error:
                raise HTTPException(503 if error.retriable else 500, error.message) from error
        if not records or records[0].offset != offset:  # not written yet, or compacted away
            raise HTTPException(404, f"{topic}-{partition} has no record at offset {offset}")
        return Event.model_validate_json(records[0].value or b"")

    return app


def main() -> None:
    parser = argparse.ArgumentParser(description="A web service that writes to a topic and reads from it.")
    parser.add_argument("--bootstrap-server", default="127.0.0.1:9092", help="host:port of any node")
    parser.add_argument("--topic", default="events")
    parser.add_argument("--port", type=int, default=8000, help="of HTTP, on 127.0.0.1")
    arguments = parser.parse_args()
    uvicorn.run(make_app(arguments.bootstrap_server, arguments.topic), host="127.0.0.1", port=arguments.port)


if __name__ == "__main__":
    main()
