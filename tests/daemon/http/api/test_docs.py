"""The OpenAPI document and the page that is made of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

from streamlog.daemon.http.api.docs_page import docs_page
from streamlog.daemon.http.api.methods import SERVED_METHODS
from streamlog.daemon.http.api.openapi import openapi_document
from streamlog.pytest_plugin.cluster import InProcessCluster
from tests.daemon.http.api.served_api import Client, served, text


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with InProcessCluster(tmp_path_factory.mktemp("nodes"), nodes=1) as cluster, served(cluster) as client:
        cluster.create_topic("orders")
        yield client


def references(document: Any) -> Iterator[str]:
    if isinstance(document, dict):
        if "$ref" in document:
            yield document["$ref"]
        for one in document.values():
            yield from references(one)
    elif isinstance(document, list):
        for one in document:
            yield from references(one)


def validator(name: str) -> Draft202012Validator:
    resource = Resource.from_contents(openapi_document(), default_specification=DRAFT202012)
    registry: Registry[Any] = Registry().with_resource("urn:openapi", resource)
    return Draft202012Validator({"$ref": f"urn:openapi#/components/schemas/{name}"}, registry=registry)


def test_every_served_method_is_in_it() -> None:
    document = openapi_document()
    assert document["openapi"] == "3.1.0"
    assert document["paths"].keys() == SERVED_METHODS.keys()
    for path, method in SERVED_METHODS.items():
        assert ("get" in document["paths"][path]) == method.is_stream
        assert document["paths"][path]["post"]["description"], f"{path} has a comment in its proto file"
    operations = [one["operationId"] for path in document["paths"].values() for one in path.values()]
    assert len(operations) == len(set(operations))


def test_every_reference_leads_somewhere_and_every_field_is_described() -> None:
    schemas = openapi_document()["components"]["schemas"]
    assert {one.removeprefix("#/components/schemas/") for one in references(openapi_document())} == schemas.keys()
    undescribed = [
        f"{name}.{field}"
        for name, schema in schemas.items()
        for field, one in schema["properties"].items()
        if not one.get("description") and name != "Error"
    ]
    assert undescribed == []


def test_requests_and_responses_are_as_their_schemas_say(api: Client) -> None:
    calls: list[tuple[str, Any]] = [
        ("Records/Publish", {"topic": "orders", "records": [{"value": text("tea"), "headers": [{"key": "a"}]}]}),
        ("Records/Subscribe", {"subscriptions": [{"topic": "orders", "start": {"offset": "0"}}]}),
        ("Admin/ListTopics", {}),
        ("Admin/DescribeTopics", {"topics": ["orders"]}),
        ("Cluster/Describe", {}),
    ]
    for method, request in calls:
        descriptor = SERVED_METHODS[f"/streamlog.v1.{method}"].descriptor
        validator(descriptor.input_type.full_name).validate(request)
        validator(descriptor.output_type.full_name).validate(api.call(method, request))
    refused = api.post("Records/Publish", {"topic": "nix", "records": [{}]})
    validator("Error").validate(refused.json)
    assert not validator("streamlog.v1.PublishRequest").is_valid({"nix": 1})


def test_they_are_served(api: Client) -> None:
    document = api.send("GET", "/openapi.json", {})
    assert (document.status, document.headers["content-type"]) == (200, "application/json")
    assert json.loads(document.body) == openapi_document()
    page = api.send("GET", "/docs", {})
    assert (page.status, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert page.headers["content-security-policy"].startswith("default-src 'none'")
    assert api.send("HEAD", "/docs", {}).body == b""
    assert api.send("POST", "/docs", {}).status == 405


def test_another_address_lists_the_pages_that_exist(api: Client) -> None:
    missing = api.send("GET", "/api", {})
    assert missing.status == 404
    names = missing.body.decode().partition(": ")[2].strip().split(", ")
    *pages, methods = names
    assert {page for page in pages if api.send("GET", page, {}).status == 200} == set(pages)
    assert {"/metrics", "/docs", "/openapi.json"} <= set(pages)
    assert methods.replace("SERVICE/METHOD", "Admin/ListTopics") in SERVED_METHODS


class Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.ids: set[str] = set()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.links |= {value for name, value in attrs if name in ("href", "src") and value is not None}
        if found.get("id"):
            self.ids.add(str(found["id"]))
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_whole_and_fetches_nothing() -> None:
    page = docs_page().decode()
    parsed = Links()
    parsed.feed(page)
    assert parsed.open == []
    assert {link.removeprefix("#") for link in parsed.links if link.startswith("#")} <= parsed.ids
    assert {link for link in parsed.links if not link.startswith("#")} == {"/openapi.json"}
    assert not re.search(r"<script|url\(|@import", page)
