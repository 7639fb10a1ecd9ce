"""The page /docs: the OpenAPI document for people. Plain HTML without scripts, nothing is fetched from elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from html import escape
from typing import Final

from streamlog.daemon.http.api.openapi import Document, openapi_document

POLICY: Final = b"default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"
"""Content-Security-Policy of the page."""

_STYLE: Final = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
code { font-family: ui-monospace, monospace; font-size: 0.9em; overflow-wrap: anywhere; }
table { border-collapse: collapse; width: 100%; }
th, td { border-top: 1px solid #8886; padding: 0.3rem 0.6rem 0.3rem 0; text-align: left; vertical-align: top; }
td p { margin: 0; }
p { white-space: pre-line; }
"""
_REF: Final = "#/components/schemas/"


@cache
def docs_page() -> bytes:
    return "".join(_page(openapi_document())).encode()


def _page(document: Document) -> Iterator[str]:
    info = document["info"]
    yield '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width"><title>streamlog: API over HTTP</title>'
    yield f"<style>{_STYLE}</style></head><body><h1>streamlog {escape(info['version'])}</h1>"
    yield f'<p>{escape(info["description"])} <a href="/openapi.json">openapi.json</a></p>'
    for tag in document["tags"]:
        yield f"<h2>{escape(tag['name'])}</h2><table>"
        for path, operations in document["paths"].items():
            if operations["post"]["tags"] == [tag["name"]]:
                yield from _method(path, operations)
        yield "</table>"
    yield "<h2>Messages</h2>"
    for name, schema in document["components"]["schemas"].items():
        yield from _message(name, schema)
    yield "</body></html>\n"


def _method(path: str, operations: Document) -> Iterator[str]:
    post = operations["post"]
    request = post["requestBody"]["content"]["application/json"]["schema"]
    response = post["responses"]["200"]["content"]["application/json"]["schema"]
    verbs = ", ".join(operations).upper()
    yield f"<tr><td><code>{escape(verbs)} {escape(path)}</code><p>{escape(post['description'])}</p>"
    yield f"<p>{_type(request)} → {_type(response)}</p></td></tr>"


def _message(name: str, schema: Document) -> Iterator[str]:
    yield f'<h3 id="{escape(name)}"><code>{escape(name)}</code></h3>'
    yield f"<p>{escape(schema.get('description', ''))}</p><table>"
    for field, one in schema["properties"].items():
        yield f"<tr><td><code>{escape(field)}</code></td><td>{_type(one)}</td>"
        yield f"<td><p>{escape(one.get('description', ''))}</p></td></tr>"
    yield "</table>"


def _type(schema: Document) -> str:
    if "$ref" in schema:
        name = escape(schema["$ref"].removeprefix(_REF))
        return f'<a href="#{name}"><code>{name.rpartition(".")[2]}</code></a>'
    if schema.get("type") == "array":
        return f"list of {_type(schema['items'])}"
    if isinstance(schema.get("additionalProperties"), dict):
        return f"map to {_type(schema['additionalProperties'])}"
    kind = schema.get("format") or ("base64" if "contentEncoding" in schema else schema.get("type", ""))
    return "enum" if "enum" in schema else escape(str(kind))
