"""One wheel per platform for all Pythons from 3.11 on (the stable ABI)."""

from __future__ import annotations

import sys

from setuptools import Extension, setup


def extension(name: str) -> Extension:
    return Extension(
        name,
        [f"{name}.c"],
        define_macros=[("Py_LIMITED_API", "0x030B0000")],
        extra_compile_args=["-Werror=implicit-function-declaration"],
        py_limited_api=True,
    )


setup(
    ext_modules=[
        extension("streamlog_kernel"),
        extension("streamlog_batches"),
        *([extension("streamlog_syncs")] if sys.platform == "linux" else []),  # eventfd and syncfs are Linux's
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
