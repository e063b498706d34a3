"""What an interpreted launch tells: the arrays that it wrote, what it cost, and its faults."""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import PurePath

import numpy as np

SECTOR = 32  # bytes that global memory moves at least


@dataclass(frozen=True)
class Location:
    """A line of source. inlined_at: where the function that it stands in was called from, if it is not the kernel."""

    file: str
    line: int
    text: str
    inlined_at: "Location | None" = None

    def __str__(self):
        place = f"{PurePath(self.file).name}:{self.line}"
        if self.inlined_at:
            place += f", called in line {self.inlined_at.line}"
        return f"{place}: {self.text}" if self.text else place


@dataclass(frozen=True)
class Fault:
    """Something that the kernel must not do; kind and instruction are reported once, for the first launch of it."""

    kind: str
    line: Location
    message: str

    def __str__(self):
        return f"{self.kind}: {self.message}\n    at {self.line}"


@dataclass
class Counts:
    """What a launch cost.

    instructions          how often a warp executed each opcode with at least one lane active
    global_*_sectors      32-byte sectors that the requests of the warps touched; ideal: the least for as many bytes
    bytes_*               bytes that threads asked for, by array; sector_bytes_*: the same in whole sectors of warps
    shared_wavefronts     passes through shared memory, of 32 banks of 4 bytes each; ideal: without bank conflicts
    barriers              how often a block passed a barrier

    Atomic operations on global memory count as stores.
    """

    instructions: Counter[str] = field(default_factory=Counter)
    global_load_sectors: int = 0
    global_load_sectors_ideal: int = 0
    global_store_sectors: int = 0
    global_store_sectors_ideal: int = 0
    bytes_loaded: Counter[str] = field(default_factory=Counter)
    bytes_stored: Counter[str] = field(default_factory=Counter)
    sector_bytes_loaded: Counter[str] = field(default_factory=Counter)
    sector_bytes_stored: Counter[str] = field(default_factory=Counter)
    shared_wavefronts: int = 0
    shared_wavefronts_ideal: int = 0
    barriers: int = 0

    def transfer(self, loads, touched, least, by_array):
        """Add an access to global memory. by_array: (name, bytes asked for, their sectors) for each array."""
        if loads:
            self.global_load_sectors += touched
            self.global_load_sectors_ideal += least
            asked, moved = self.bytes_loaded, self.sector_bytes_loaded
        else:
            self.global_store_sectors += touched
            self.global_store_sectors_ideal += least
            asked, moved = self.bytes_stored, self.sector_bytes_stored
        for name, bytes_, sectors in by_array:
            asked[name] += bytes_
            moved[name] += sectors * SECTOR

    @property
    def global_sectors(self):
        return self.global_load_sectors + self.global_store_sectors

    def __str__(self):
        rows = [
            ("instructions of warps", sum(self.instructions.values()), ""),
            ("sectors loaded", self.global_load_sectors, f"ideal {self.global_load_sectors_ideal}"),
            ("sectors stored", self.global_store_sectors, f"ideal {self.global_store_sectors_ideal}"),
            ("shared wavefronts", self.shared_wavefronts, f"ideal {self.shared_wavefronts_ideal}"),
            ("barriers", self.barriers, ""),
        ]
        for verb, asked, moved in (
            ("loaded from", self.bytes_loaded, self.sector_bytes_loaded),
            ("stored to", self.bytes_stored, self.sector_bytes_stored),
        ):
            rows += [(f"bytes {verb} {name}", asked[name], f"in sectors {moved[name]}") for name in sorted(asked)]
        rows += [(opcode, number, "") for opcode, number in self.instructions.most_common(10)]
        wide = max(len(name) for name, _, _ in rows)
        return "\n".join(f"{name:<{wide}} {number:>12,} {note}".rstrip() for name, number, note in rows)


@dataclass
class Report:
    """outputs: the arrays that the kernel wrote, by parameter, the very ones that were passed."""

    outputs: dict[str, np.ndarray]
    counts: Counts
    faults: list[Fault]
