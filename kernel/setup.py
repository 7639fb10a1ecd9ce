"""One wheel per platform for all Pythons from 3.11 on (the stable ABI)."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import tempfile
from pathlib import Path

from setuptools import Extension, setup
from setuptools.dist import Distribution
from setuptools.errors import CompileError, LinkError

# Of distutils, which setuptools brings along, and has to be imported after it.
from distutils.ccompiler import new_compiler  # isort: skip
from distutils.command.build_scripts import build_scripts  # isort: skip
from distutils.sysconfig import customize_compiler  # isort: skip

WARNINGS = ["-Werror=implicit-function-declaration"]


def extension(name: str) -> Extension:
    return Extension(
        name,
        [f"{name}.c"],
        define_macros=[("Py_LIMITED_API", "0x030B0000")],
        extra_compile_args=WARNINGS,
        py_limited_api=True,
    )


class BuildPrograms(build_scripts):
    """Compiles programs, which are packed as scripts: setuptools builds only modules from C. One that cannot be built
    is left out: what it makes faster works without it, as do the modules.
    """

    distribution: Distribution

    def run(self) -> None:
        compiler = new_compiler()
        customize_compiler(compiler)
        options = shlex.split(f"{os.environ.get('CFLAGS', '')} {os.environ.get('LDFLAGS', '')}")
        shutil.rmtree(self.build_dir, ignore_errors=True)  # what an earlier build has left
        Path(self.build_dir).mkdir(parents=True)
        for source in self.scripts:
            name = Path(source).stem.replace("_", "-")
            with tempfile.TemporaryDirectory() as folder:
                try:
                    objects = compiler.compile([source], output_dir=folder, extra_postargs=WARNINGS)
                    compiler.link_executable(objects, name, output_dir=self.build_dir, extra_postargs=options)
                except (CompileError, LinkError) as error:
                    print(f"warning: {name} is left out: {error}", file=sys.stderr)


# eventfd, syncfs and pidfd are Linux's
OF_LINUX = sys.platform == "linux"

setup(
    ext_modules=[
        extension("streamlog_kernel"),
        extension("streamlog_batches"),
        *([extension("streamlog_syncs")] if OF_LINUX else []),
    ],
    scripts=["streamlog_spark_native.c"] if OF_LINUX else [],
    cmdclass={"build_scripts": BuildPrograms},
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
