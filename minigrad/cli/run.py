"""The folder of a run.

config.json     the settings, the versions, the machine and the command
history.jsonl   figures of each epoch, as JSON, one a line
last/, best/    checkpoints: after the latest epoch or update, after the epoch with the best test accuracy
result.json     the final figures
report.html     all of it as one page, with the learning curves
"""

import json
import os
import platform
import shlex
import time
from dataclasses import asdict
from pathlib import Path

from minigrad_kernels.toolchain import threads

from .. import checkpoint
from .settings import Settings, UsageError

CONFIG, RESULT = "config.json", "result.json"


def machine():
    """{what: text} of the system and its processor."""
    processor = f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores"
    return {"system": platform.platform(), "processor": processor, "threads": threads()}


class Run:
    """The files in the folder of a run, by default one named after the job of a launcher or the time."""

    def __init__(self, folder, name=""):
        job = os.environ.get("MINIGRAD_JOB") or time.strftime("%Y%m%d-%H%M%S")
        self.folder = Path(folder or f"runs/{job}-{name}")
        self.argument = shlex.quote(str(self.folder))  # as it is typed at a shell

    def check_new(self):
        """Refuse a folder that holds a run already."""
        if (self.folder / CONFIG).exists() or checkpoint.exists(self.folder / "last"):
            hint = f"go on with it by --resume {self.argument}, remove it, or give another --out"
            raise UsageError(f"{self.folder} holds a run already; {hint}")

    @classmethod
    def of(cls, folder, name="last"):
        """(run, settings) of a folder. Errors: UsageError if it holds no such checkpoint."""
        run = cls(folder)
        if not checkpoint.exists(run.folder / name):
            hint = "it is not the folder of a run" if run.folder.is_dir() else "there is no such folder"
            raise UsageError(f"{run.folder} holds no checkpoint {name!r}: {hint}")
        try:
            return run, Settings(**run.read(CONFIG)["settings"])
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise UsageError(f"{run.folder / CONFIG} cannot be used: {checkpoint.reason(error)}") from error

    def write(self, name, value):
        """Write a file of the folder in one step: text, or a value as JSON."""
        content = value if isinstance(value, str) else json.dumps(value, indent=1) + "\n"
        checkpoint.write_atomic(self.folder / name, content.encode())

    def read(self, name):
        """The value in a JSON file of the folder; {} where it is absent."""
        path = self.folder / name
        return json.loads(path.read_bytes()) if path.exists() else {}

    def begin(self, settings, command, source, ranks):
        """Make the folder and write its configuration."""
        self.folder.mkdir(parents=True, exist_ok=True)
        begun = {"command": shlex.join(["minigrad", *command]), "folder": str(self.folder.resolve())}
        begun |= {"created": time.strftime("%Y-%m-%dT%H:%M:%S%z"), "ranks": ranks, "source": source}
        parts = {"run": begun, "settings": asdict(settings), "machine": machine()}
        self.write(CONFIG, parts | {"versions": checkpoint.versions()})
