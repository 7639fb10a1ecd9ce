"""Build the packages of generated stubs that other languages' registries take, and use each against a node.

    python -m tools.stubs [LANGUAGE...]

writes them to dist/stubs, starts a node, and runs a program in each language that imports its package, creates a topic,
writes records and reads them. A language whose toolchain is not installed is skipped by name, which is looked at before
anything is built; whatever fails afterwards is a failure.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from streamlog.client import Admin
from streamlog.daemon.local_cluster import LocalCluster
from tools.stubs.languages import LANGUAGES, Language
from tools.stubs.work import ROOT, Failed, Skipped

READ = "one two three"


@contextmanager
def node() -> Iterator[str]:
    """The address of a cluster of one node."""
    with tempfile.TemporaryDirectory() as folder:
        cluster = LocalCluster(Path(folder) / "cluster")
        cluster.create(1, 0, {})
        (made,) = cluster.nodes
        cluster.start(made)
        try:
            with Admin(bootstrap_servers=made.address) as admin:
                admin.describe_cluster()
            yield made.address
        finally:
            cluster.kill(made)


def build_and_use(language: Language, server: str) -> list[Path]:
    missing = [tool for tool in language.tools if shutil.which(tool) is None]
    if missing:
        raise Skipped(f"{' and '.join(missing)} not installed")
    built = language.build()
    read = language.use(server, f"stubs-{language.name}").strip()
    if read != READ:
        raise Failed(f"{language.name}: {READ!r} was written, this was read: {read!r}")
    return built


def main() -> None:
    names = [language.name for language in LANGUAGES]
    parser = argparse.ArgumentParser(description="Build the packages of generated stubs, and use each against a node.")
    parser.add_argument("languages", nargs="*", metavar="LANGUAGE", help=f"of {', '.join(names)}; default: all")
    wanted = parser.parse_args().languages
    unknown = [name for name in wanted if name not in names]
    if unknown:
        parser.error(f"unknown language {unknown[0]!r}: give some of {', '.join(names)}")
    with node() as server:
        for language in LANGUAGES:
            if wanted and language.name not in wanted:
                continue
            begin = time.monotonic()
            try:
                built = build_and_use(language, server)
            except Skipped as reason:
                print(f"{language.name:<8}skipped: {reason}", flush=True)
                continue
            except Failed as failure:
                raise SystemExit(str(failure)) from None
            print(f"{language.name:<8}built and used, {time.monotonic() - begin:.0f} s", flush=True)
            for path in built:
                print(f"        {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
