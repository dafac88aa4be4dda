"""What pyproject.toml cannot say of the build: the extension, ``conf/`` as ``pyes.conf``, a header, the README's links.

``PYES_DEBUG_BUILD=1`` builds without optimisation, with debug symbols and with warnings as errors.
"""

import os
import re
import sys
import sysconfig
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from setuptools import Extension, find_packages, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).parent
HEADER = "pyes_environment.h"  # for environments of users in C
FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))  # has no limited API: a wheel of its own

UNIX_FLAGS = [
    "-std=c11",
    "-ffp-contract=off",  # one rounding an operation, or levels and machines would disagree
    "-fno-math-errno",  # lets sqrtf be one instruction; values do not change
    "-fno-trapping-math",  # lets comparisons become selections; values do not change
    "-Wall",
    "-Wextra",
    "-Wno-unused-parameter",  # in what Cython writes
]
RELEASE_FLAGS = ["-O3"]
DEBUG_FLAGS = ["-O0", "-g3", "-Werror"]
MSVC_FLAGS = ["/std:c11", "/O2", "/fp:precise"]


def compile_flags() -> list[str]:
    """Compiler flags of this platform, for a release or a debug build."""
    if sys.platform == "win32":
        return MSVC_FLAGS
    return UNIX_FLAGS + (DEBUG_FLAGS if os.environ.get("PYES_DEBUG_BUILD") == "1" else RELEASE_FLAGS)


def kernel_sources() -> list[str]:
    """Every kernel and every environment in C, relative to the project's root."""
    folders = (ROOT / "csrc" / "kernels", ROOT / "csrc" / "environments")
    return sorted(path.relative_to(ROOT).as_posix() for folder in folders for path in folder.glob("*.c"))


def included_files() -> list[str]:
    """List what the sources include: a change of these must rebuild the extension, too."""
    files = (path for path in (ROOT / "csrc").rglob("*") if path.suffix in (".h", ".pxd", ".pxi"))
    relative = (path.relative_to(ROOT) for path in files)
    return sorted(path.as_posix() for path in relative if path.parts[1] != "tests")


def core_extension() -> Extension:
    """``pyes._core``: one abi3 module for Python 3.11 and later."""
    return Extension(
        "pyes._core",
        sources=["csrc/_core.pyx", *kernel_sources()],
        depends=included_files(),
        include_dirs=["csrc"],
        define_macros=[] if FREE_THREADED else [("Py_LIMITED_API", "0x030B0000")],
        extra_compile_args=compile_flags(),
        py_limited_api=not FREE_THREADED,
    )


class BuildSideBySide(build_ext):  # type: ignore[misc]
    """Compiles several sources at a time: one file after the other takes twice as long, even with two cores."""

    def build_extensions(self) -> None:
        compile_all = self.compiler.compile

        def compile_each(sources: list[str], **options: Any) -> list[str]:
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                made = pool.map(lambda source: compile_all([source], **options), sources)
                return [path for paths in made for path in paths]

        if self.compiler.compiler_type == "unix":
            self.compiler.compile = compile_each
        super().build_extensions()


def conf_packages() -> list[str]:
    """``pyes.conf`` and its groups: every folder of ``conf/`` that holds a configuration."""
    folders = {path.parent for path in (ROOT / "conf").rglob("*.yaml")} | {ROOT / "conf"}
    relative = (folder.relative_to(ROOT / "conf").parts for folder in folders)
    return sorted(".".join(("pyes", "conf", *parts)) for parts in relative)


def description() -> str:
    """Return the README with links to this version's files in the repository: relative ones lead nowhere on PyPI."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    repository, tag = project["urls"]["Homepage"], f"v{project['version']}"
    raw = repository.replace("https://github.com/", "https://raw.githubusercontent.com/")

    def absolute(link: re.Match[str]) -> str:
        path = link[1]
        return f"]({raw}/{tag}/{path})" if path.endswith((".png", ".gif")) else f"]({repository}/blob/{tag}/{path})"

    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    return re.sub(r"\]\((?![a-z]+:|#)([^)\s]+)\)", absolute, readme)


setup(
    long_description=description(),
    long_description_content_type="text/markdown",
    packages=[*find_packages(include=["pyes", "pyes.*"]), *conf_packages(), "pyes.include"],
    package_dir={"pyes.conf": "conf", "pyes.include": "csrc"},
    package_data={
        "pyes": ["py.typed", "*.pyi"],
        "pyes.include": [HEADER],
        "pyes.reports.explorer": ["static/*", "static/vendor/*"],
        **{name: ["*.yaml"] for name in conf_packages()},
    },
    include_package_data=False,  # no C or Cython source in a wheel, but for one header
    ext_modules=[core_extension()],
    cmdclass={"build_ext": BuildSideBySide},
    options={} if FREE_THREADED else {"bdist_wheel": {"py_limited_api": "cp311"}},
)
