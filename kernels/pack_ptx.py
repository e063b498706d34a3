"""Packs the PTX of all kernels into the wheel, where MINIGRAD_BUILD_PTX=1 asks for it; a build compiles nothing else.

MINIGRAD_BUILD_PTX=1 python -m build            with what compiles, in an environment of its own
MINIGRAD_BUILD_PTX=1 pip wheel --no-build-isolation --no-deps .     with what is installed here

The examples that declare kernels run, so that the archive has theirs, too.
"""

import contextlib
import io
import os
import runpy
import sys
import tempfile
from pathlib import Path

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ASKED = os.environ.get("MINIGRAD_BUILD_PTX") == "1"


class PackPTX(BuildHookInterface):
    def dependencies(self):
        """What an isolated build installs."""
        core = self.metadata.core
        return [*core.dependencies, *core.optional_dependencies["compile"]] if ASKED else []

    def initialize(self, version, build_data):
        if ASKED and version == "standard":
            sys.path[:0] = [self.root, str(Path(self.root, "kernels"))]
            from minigrad_kernels.toolchain.cuda import KERNELS, cache
            from minigrad_kernels.toolchain.cuda.kernel import all_kernels

            kernels = all_kernels()
            for script in sorted(Path(self.root, "examples").rglob("*.py")):
                if "@kernel(" in script.read_text(encoding="utf-8"):
                    run(script)
                    kernels += [kernel for kernel in KERNELS.values() if kernel.function.__module__ == "__main__"]
            self.folder = tempfile.TemporaryDirectory()
            archive = Path(self.folder.name, "ptx.zip")
            cache.pack(archive, dict.fromkeys(kernels))
            build_data["force_include"][str(archive)] = cache.ARCHIVE


def run(script):
    """Run an example as if it were started in its folder; what it prints and draws is not kept."""
    os.environ["MPLBACKEND"] = "agg"
    sys.argv, sys.path = [str(script)], [str(script.parent), *sys.path]
    with contextlib.chdir(script.parent), contextlib.redirect_stdout(io.StringIO()):
        runpy.run_path(str(script), run_name="__main__")
