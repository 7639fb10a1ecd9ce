"""The package of each language: how it is built into dist/stubs, and how a program of another folder uses it.

Each is the layout that the registry of its language takes:

    dist/stubs/python/    wheel and sdist
    dist/stubs/go/        a module proxy as GOPROXY=file:// reads it: .info, .mod, .zip
    dist/stubs/maven/     a Maven repository: pom, jar, sources
    dist/stubs/npm/       the tarball of npm pack
    dist/stubs/crates/    the .crate of cargo package
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import tarfile
import tomllib
import venv
import zipfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

from tools.stubs.work import DIST, FILES, HERE, RELEASE, ROOT, WORK, copy_protos, fresh, lay_out, layout, protoc, run

GO_MODULE: Final = "streamlog.org/api"
GO_PLUGINS: Final = (
    "google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.12",
    "google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.6.2",
)
CARGO_TARGET: Final = WORK / "target"
MAVEN_CACHE: Final = WORK / "m2"
"""Of the builds alone, so that a program finds the package in dist/stubs and nowhere else."""


class Language(NamedTuple):
    name: str
    tools: tuple[str, ...]
    build: Callable[[], list[Path]]
    """What a registry takes."""

    use: Callable[[str, str], str]
    """Runs its program with the address of a node and a topic; returns what it prints."""


def program(name: str) -> Path:
    """The sources of the program that uses a package, in a folder of their own."""
    return lay_out(HERE / "programs" / name, fresh(WORK / "programs" / name))


# -- Python


def build_python() -> list[Path]:
    """Imported as streamlog_proto: `streamlog` is the package of nodes and client."""
    source = layout("python")
    project = (source / "pyproject.toml").read_text().replace('version = "0"', f'version = "{RELEASE}"')
    used = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for requirement in [*used["dependencies"], *used["optional-dependencies"]["dev"]]:
        project = project.replace(f'"{requirement.partition(">=")[0]}"', f'"{requirement}"')
    (source / "pyproject.toml").write_text(project)
    made = fresh(WORK / "python-made")
    plugin = Path(sys.executable).parent / "protoc-gen-mypy"
    protoc(f"--plugin={plugin}", f"--python_out={made}", f"--grpc_python_out={made}", f"--mypy_out=quiet:{made}")
    package = fresh(source / "streamlog_proto" / "v1")
    for path in sorted((made / "streamlog" / "v1").iterdir()):
        text = path.read_text()
        text = re.sub(r"^from streamlog\.v1 import", "from streamlog_proto.v1 import", text, flags=re.MULTILINE)
        (package / path.name).write_text(text)
    for folder in (package, package.parent):
        (folder / "__init__.py").touch()
    (package.parent / "py.typed").touch()
    out = fresh(DIST / "python")
    run(sys.executable, "-m", "build", "--outdir", out, ".", cwd=source)
    return sorted(out.iterdir())


def use_python(server: str, topic: str) -> str:
    folder = program("python")
    venv.create(folder / "venv", with_pip=True)
    python = folder / "venv" / "bin" / "python"
    (wheel,) = (DIST / "python").glob("*.whl")
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wheel, cwd=folder)
    return run(python, "try.py", server, topic, cwd=folder)


# -- Go


def build_go() -> list[Path]:
    source = layout("go")
    plugins = WORK / "go-plugins"
    for plugin in GO_PLUGINS:
        run("go", "install", plugin, cwd=ROOT, GOBIN=str(plugins), GOTOOLCHAIN="local")
    protoc(
        f"--plugin={plugins / 'protoc-gen-go'}",
        f"--plugin={plugins / 'protoc-gen-go-grpc'}",
        f"--go_out={source}",
        f"--go_opt=module={GO_MODULE}",
        f"--go-grpc_out={source}",
        f"--go-grpc_opt=module={GO_MODULE}",
    )
    run("go", "mod", "tidy", cwd=source, GOTOOLCHAIN="local", GOFLAGS="-mod=mod")
    run("go", "vet", "./...", cwd=source, GOTOOLCHAIN="local")
    released = f"v{RELEASE}"
    out = fresh(DIST / "go" / GO_MODULE / "@v")
    (out / "list").write_text(f"{released}\n")
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    (out / f"{released}.info").write_text(json.dumps({"Version": released, "Time": now}))
    shutil.copy(source / "go.mod", out / f"{released}.mod")
    with zipfile.ZipFile(out / f"{released}.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(path for path in source.rglob("*") if path.is_file()):
            archive.write(path, f"{GO_MODULE}@{released}/{path.relative_to(source)}")
    return sorted(out.iterdir())


def use_go(server: str, topic: str) -> str:
    """With a module cache of its own for this module: the version is the same after each build."""
    folder = program("go")
    proxies = f"file://{DIST / 'go'},{run('go', 'env', 'GOPROXY', cwd=folder).strip()}"
    environment = {
        "GOTOOLCHAIN": "local",
        "GOFLAGS": "-mod=mod -modcacherw",
        "GOPROXY": proxies,
        "GONOSUMDB": GO_MODULE,
        "GOMODCACHE": str(WORK / "go-modules"),
    }
    for kept in (WORK / "go-modules" / "streamlog.org", WORK / "go-modules" / "cache" / "download" / "streamlog.org"):
        shutil.rmtree(kept, ignore_errors=True)
    run("go", "mod", "tidy", cwd=folder, **environment)
    run("go", "build", "-o", "try", ".", cwd=folder, **environment)
    return run(folder / "try", server, topic, cwd=folder)


# -- Maven


def build_maven() -> list[Path]:
    source = layout("maven")
    copy_protos(source / "proto")
    out = fresh(DIST / "maven")
    deploy = ["deploy", f"-DaltDeploymentRepository=stubs::file://{out}", "-Dmaven.install.skip=true"]
    run("mvn", "-q", "-B", f"-Dmaven.repo.local={MAVEN_CACHE}", *deploy, cwd=source)
    return sorted(path for path in out.rglob("*") if path.suffix in {".jar", ".pom"})


def use_maven(server: str, topic: str) -> str:
    folder = program("maven")
    shutil.rmtree(MAVEN_CACHE / "org" / "streamlog", ignore_errors=True)
    options = [f"-Dmaven.repo.local={MAVEN_CACHE}", f"-Dstubs=file://{DIST / 'maven'}"]
    run("mvn", "-q", "-B", *options, "process-classes", cwd=folder)
    return run("java", "-cp", "target/classes:target/lib/*", "Try", server, topic, cwd=folder)


# -- npm

TYPES: Final = "types"


def build_npm() -> list[Path]:
    """The proto files, loaded when the package is; types are generated from the same files, with the same options."""
    source = layout("npm")
    copy_protos(source / "proto")
    npm("install", folder=source)
    made = fresh(WORK / "npm-made")
    run(
        "npx", "--no-install", "proto-loader-gen-types", "--longs=Number", "--enums=String", "--bytes=Buffer",
        "--defaults", "--oneofs", "--grpcLib=@grpc/grpc-js", f"--includeDirs={source / 'proto'}",
        f"--outDir={made}", *FILES, cwd=source,
    )  # fmt: skip
    (source / TYPES).mkdir()
    names = [Path(file).stem for file in FILES]
    shutil.copytree(made, source / "made")
    (source / "made" / "package.json").write_text('{"type": "commonjs"}')
    run(
        "npx", "--no-install", "tsc", "--declaration", "--emitDeclarationOnly", "--module", "commonjs",
        "--moduleResolution", "node10", "--target", "es2022", "--types", "node", "--outDir", TYPES,
        "--rootDir", "made", *(str(path.relative_to(source)) for path in sorted((source / "made").rglob("*.ts"))),
        cwd=source,
    )  # fmt: skip
    shutil.rmtree(source / "made")
    (source / TYPES / "package.json").write_text('{"type": "commonjs"}\n')
    lines = [f"import type {{ ProtoGrpcType as {name} }} from './{TYPES}/{name}.js';" for name in names]
    every = " & ".join(f"{name}['streamlog']['v1']" for name in names)
    lines += ["", "/** The folder of the proto files, for other generators. */", "export declare const protos: string;"]
    lines += ["/** Services and messages of the package streamlog.v1. */", f"export declare const v1: {every};", ""]
    (source / "index.d.ts").write_text("\n".join(lines))
    out = fresh(DIST / "npm")
    run("npm", "pack", "--pack-destination", out, cwd=source)
    return sorted(out.iterdir())


def use_npm(server: str, topic: str) -> str:
    """A program in TypeScript: the types hold, and what it compiles to runs."""
    folder = program("npm")
    (package,) = (DIST / "npm").glob("*.tgz")
    npm("install", str(package), "typescript@^5.9.0", "@types/node@^20.0.0", folder=folder)
    run("npx", "--no-install", "tsc", cwd=folder)
    return run("node", "try.js", server, topic, cwd=folder)


def npm(*arguments: str, folder: Path) -> None:
    run("npm", *arguments, "--ignore-scripts", "--no-audit", "--no-fund", cwd=folder)


# -- crates


def build_crate() -> list[Path]:
    """The generated code is part of it: neither protoc nor a build script is needed."""
    source = layout("crate")
    generator = lay_out(HERE / "generator", WORK / "generator")
    copy_protos(WORK / "generator" / "proto")
    code = source / "src"
    code.mkdir()
    cargo("run", "--quiet", "--", "proto", str(code), *FILES, folder=generator)
    (code / "lib.rs").write_text(
        "//! Messages and gRPC clients of streamlog.\n\n"
        "/// The package streamlog.v1.\n"
        "#[allow(clippy::all, rustdoc::all)]\n"
        'pub mod v1 {\n    include!("streamlog.v1.rs");\n}\n'
    )
    with (source / "Cargo.toml").open("a") as manifest:
        manifest.write("\n[workspace]\n")
    cargo("package", "--quiet", "--allow-dirty", folder=source)
    out = fresh(DIST / "crates")
    shutil.copy(CARGO_TARGET / "package" / f"streamlog-proto-{RELEASE}.crate", out)
    return sorted(out.iterdir())


def use_crate(server: str, topic: str) -> str:
    folder = program("crate")
    with tarfile.open(DIST / "crates" / f"streamlog-proto-{RELEASE}.crate") as archive:
        archive.extractall(fresh(WORK / "programs" / f"streamlog-proto-{RELEASE}").parent, filter="data")
    return cargo("run", "--quiet", "--", server, topic, folder=folder)


def cargo(*arguments: str, folder: Path) -> str:
    return run("cargo", *arguments, cwd=folder, CARGO_TARGET_DIR=str(CARGO_TARGET))


LANGUAGES: Final = (
    Language("python", (), build_python, use_python),
    Language("go", ("go",), build_go, use_go),
    Language("maven", ("java", "mvn"), build_maven, use_maven),
    Language("npm", ("node", "npm"), build_npm, use_npm),
    Language("crate", ("cargo",), build_crate, use_crate),
)
