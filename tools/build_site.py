"""The documentation site: the repository's pages, and a reference of the Python client and of the gRPC API.

    python tools/build_site.py [--serve]

The pages are copied to build/site-pages in the layout of the repository, so that links between them work in both
places; the reference is generated beside them (mkdocstrings for Python, `proto_reference` for protos). mkdocs builds
build/site from them, and refuses links and anchors that lead nowhere.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Final

import yaml

ROOT: Final = Path(__file__).resolve().parent.parent
PAGES: Final = ROOT / "build" / "site-pages"
sys.path.insert(0, str(ROOT))

from streamlog import client  # noqa: E402  of this checkout
from tools import messages, proto_reference  # noqa: E402

COPIED: Final = ("*.md", "docs/**/*.md", "docs/images/*", "deploy/**/*", "examples/*", "kernel/README.md")
# The sources alone, not what their builds fetch and generate.
COPIED_EXAMPLES: Final = (
    "*/README.md",
    "go/client/*.go",
    "go/cmd/*/*.go",
    "java/src/**/*.java",
    "node/*.js",
    "node/client/*.js",
    "rust/src/**/*.rs",
)
# A folder that a page names is a page of the site.
FOLDERS: Final = {
    "docs/decisions/": "docs/decisions/README.md",
    "deploy/": "deploy/README.md",
    "examples/": "examples/README.md",
    "deploy/prometheus/": "deploy/README.md",
    "proto/streamlog/v1/": "reference/grpc/README.md",
}
TITLES: Final = {
    "producer": "Producer",
    "consumer": "Consumer",
    "groups": "Groups",
    "transactions": "Transactions",
    "admin": "Admin",
}
# Pages of single modules: title -> modules.
MODULES: Final = {
    "Values of Admin": ("client.admin.values", "client.admin.group_values", "client.admin.transaction_values"),
    "Errors": ("errors",),
    "Test fixture": ("pytest_plugin",),
}
_BLOCKING: Final = """\
The class without `Async` has the same methods, and blocks. Those that are listed as its attributes have the signature
and the description of the asynchronous ones.
"""
STYLE: Final = """\
.md-typeset table:not([class]) { font-size: .64rem; }
.md-typeset table:not([class]) th { min-width: 0; }
.md-typeset table:not([class]) td:first-child { min-width: 8rem; }
.md-grid { max-width: 74rem; }
.md-typeset pre > code { font-size: .66rem; }
.doc-contents { padding-left: .8rem; border-left: .05rem solid var(--md-default-fg-color--lightest); }
"""


def main(arguments: list[str]) -> int:
    shutil.rmtree(PAGES, ignore_errors=True)
    copy_pages()
    write_decisions()
    write_examples()
    write_grpc_reference()
    (PAGES / "reference" / "messages.md").write_text(messages.page())
    write_python_reference()
    (PAGES / "site.css").write_text(STYLE)
    config = ROOT / "build" / "mkdocs.yml"
    config.write_text(expanded_config())
    # Not --quiet: strict counts the warnings that are logged.
    what = ["serve"] if "--serve" in arguments else ["build", "--clean"]
    status = subprocess.run(
        [sys.executable, "-m", "mkdocs", *what, "--strict", "-f", str(config)], check=False
    ).returncode
    if status == 0:
        print("The site is in build/site: open build/site/index.html. All links and anchors lead somewhere.")
    return status


def copy_pages() -> None:
    for pattern in (*COPIED, *(f"examples/{one}" for one in COPIED_EXAMPLES)):
        for source in ROOT.glob(pattern):
            if source.is_file() and source.suffix != ".pyc":
                target = PAGES / source.relative_to(ROOT)
                target.parent.mkdir(parents=True, exist_ok=True)
                if source.suffix == ".md":
                    target.write_text(with_pages_for_folders(source))
                else:
                    shutil.copyfile(source, target)


def with_pages_for_folders(source: Path) -> str:
    above = "../" * (len(source.relative_to(ROOT).parts) - 1)

    def page(found: re.Match[str]) -> str:
        folder = FOLDERS.get(found[1].removeprefix(above))
        return found[0] if folder is None else f"]({above}{folder})"

    return re.sub(r"\]\(([^)#]+/)\)", page, source.read_text())


def title_of(page: Path) -> str:
    return next(line for line in page.read_text().splitlines() if line.startswith("# ")).removeprefix("# ")


def write_decisions() -> None:
    folder = PAGES / "docs" / "decisions"
    lines = [
        f"- {page.stem[:10]}: [{title_of(page)}]({page.name})" for page in sorted(folder.glob("2*.md"), reverse=True)
    ]
    text = "Why the code is as it is, newest first. A decision describes the code of its date.\n"
    (folder / "README.md").write_text("\n".join(["# Decisions\n", text, *lines, ""]))


def write_examples() -> None:
    page = PAGES / "examples" / "README.md"
    text = page.read_text()
    lines = [text]
    for name in re.findall(r"\((\w+\.py)\)", text):
        lines.append(f"## {name}\n\n```python\n{(ROOT / 'examples' / name).read_text()}```\n")
    page.write_text("\n".join(lines))


def write_grpc_reference() -> None:
    folder = PAGES / "reference" / "grpc"
    folder.mkdir(parents=True)
    files = proto_reference.descriptors()
    types = proto_reference.types_of(files)
    rows = ["# gRPC API\n", "Every node serves all of these services; `Records` needs no client library.\n"]
    rows.append("| file | services | |\n|---|---|---|")
    for file in files:
        name = proto_reference.page_name(file)
        (folder / name).write_text(proto_reference.FilePage(file, types).text())
        services = ", ".join(service.name for service in file.service)
        rows.append(f"| [{Path(file.name).name}]({name}) | {services} | {proto_reference.first_sentence(file)} |")
    (folder / "README.md").write_text("\n".join([*rows, ""]))


def write_python_reference() -> None:
    folder = PAGES / "reference" / "python"
    folder.mkdir(parents=True)
    rows = ["# Python client\n", "| page | |\n|---|---|"]
    by_part: dict[str, list[str]] = defaultdict(list)
    for name in client.__all__:
        by_part[home_of(name)].append(name)
    for part, title in TITLES.items():
        # Classes that users open come first, with the asynchronous one before its synchronous counterpart.
        names = sorted(by_part.pop(part))
        names.sort(key=lambda name: (name != f"Async{title}", name != title))
        blocks = [f"::: streamlog.client.{name}\n" for name in names]
        (folder / f"{part}.md").write_text(
            "\n".join([f"# {title}\n", *([_BLOCKING] if title in names else []), *blocks])
        )
        rows.append(f"| [{title}]({part}.md) | {', '.join(f'`{name}`' for name in names)} |")
    if by_part:
        raise RuntimeError(f"names of streamlog.client without a page: {dict(by_part)}")
    for title, modules in MODULES.items():
        page = f"{title.lower().replace(' ', '_')}.md"
        blocks = [f"::: streamlog.{module}\n    options: {{inherited_members: false}}\n" for module in modules]
        (folder / page).write_text("\n".join([f"# {title}\n", *blocks]))
        rows.append(f"| [{title}]({page}) | {', '.join(f'`streamlog.{module}`' for module in modules)} |")
    (folder / "README.md").write_text("\n".join([*rows, ""]))
    text = "- [Python client](python/README.md)\n- [gRPC API](grpc/README.md)\n- [Settings](../docs/configuration.md)\n"
    (folder.parent / "README.md").write_text(f"# Reference\n\n{text}")


def home_of(name: str) -> str:
    """The part of the client that a public name belongs to: AsyncProducer of client/producer/... to `producer`."""
    module = getattr(getattr(client, name), "__module__", None) or f"{client.__name__}.consumer"  # EARLIEST, LATEST
    return str(module.split(".")[2])


def expanded_config() -> str:
    """mkdocs.yml, with the pages of a folder in the place of `folder/`."""
    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    config["docs_dir"], config["site_dir"] = str(PAGES), str(ROOT / "build" / "site")
    for plugin in config["plugins"]:
        if isinstance(plugin, dict):
            plugin["mkdocstrings"]["handlers"]["python"]["paths"] = [str(ROOT)]
    config["nav"] = expanded_nav(config["nav"])
    return str(yaml.safe_dump(config, sort_keys=False))


def expanded_nav(item: object) -> object:
    if isinstance(item, list):
        return [expanded_nav(one) for one in item]
    if isinstance(item, dict):
        return {title: expanded_nav(one) for title, one in item.items()}
    if isinstance(item, str) and item.endswith("/"):
        pages = sorted(PAGES.glob(f"{item}*.md"), key=lambda page: (page.name != "README.md", page.name))
        return [str(page.relative_to(PAGES)) for page in pages]
    return item


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
