"""The one thing that pyproject.toml cannot say: the native kernel, which may fail to build.

Without a compiler the installation goes on and the pure path makes the pixels, unless
KIMI_SERVE_REQUIRE_KERNEL is set, as it is where wheels are built.
"""

from __future__ import annotations

import os
import sysconfig

from setuptools import Extension, setup

FOLDER = "preprocess/native"
SOURCES = ("module.c", "pipeline.c", "filter.c", "png.c", "plain.c", "avx2.c", "avx512.c", "neon.c")
# The stable ABI: one wheel for every Python from 3.11 on. Free-threaded builds have none yet.
IS_STABLE = not sysconfig.get_config_var("Py_GIL_DISABLED")

setup(
    ext_modules=[
        Extension(
            "kimi_serve.preprocess.native._kernel",
            sources=[f"{FOLDER}/{name}" for name in SOURCES],
            depends=[f"{FOLDER}/kernel.h"],
            # Contraction into fused multiply-adds would change coefficients.
            extra_compile_args=["-std=c11", "-O3", "-ffp-contract=off", "-fvisibility=hidden"],
            define_macros=[("Py_LIMITED_API", "0x030B0000")] if IS_STABLE else [],
            py_limited_api=IS_STABLE,
            optional=not os.environ.get("KIMI_SERVE_REQUIRE_KERNEL"),
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if IS_STABLE else {},
)
