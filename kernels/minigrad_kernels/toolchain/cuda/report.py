"""What a compiled kernel is made of: registers, shared memory, spills, machine instructions, its innermost loops."""

import functools
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from pathlib import Path

from ...errors import StateError
from .compiler import INSTALL

INSTRUCTION = re.compile(r"^\s*/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)(.*)")
LABEL = re.compile(r"^\s*(\.L_x_\d+):")
BRANCH = re.compile(r"`\((\.L_x_\d+)\)")
LOCAL = ("LDL", "STL")  # memory of a thread: a register array was not kept in registers
MEMORY = ("LD", "LDG", "LDS", "LDSM", "LDGSTS", "ST", "STG", "STS")
WIDTHS = {"128": 16, "64": 8, "U16": 2, "S16": 2, "U8": 1, "S8": 1}  # bytes; of all other accesses 4
DOUBLE = ("DADD", "DFMA", "DMUL", "DSETP", "F2F.F64", "F2F.F32.F64", "I2F.F64")  # slow, and mostly there by mistake


@functools.cache
def _disassembler():
    """The path of nvdisasm."""
    try:
        from cuda.pathfinder import find_nvidia_binary_utility as find
    except ImportError:
        find = shutil.which
    found = find("nvdisasm") or shutil.which("nvdisasm")
    if not found:
        raise StateError(f"kernels: the program nvdisasm is not installed; {INSTALL}")
    return found


@functools.lru_cache(maxsize=256)
def _instructions(image):
    """[(address, opcode, target address or None)] of machine code, in order."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "kernel.cubin")
        file.write_bytes(image)
        done = subprocess.run([_disassembler(), "-c", str(file)], capture_output=True, text=True)
    if done.returncode:
        raise StateError(f"kernels: nvdisasm refuses the machine code: {done.stderr.strip()}")
    labels, waiting, found = {}, [], []
    for line in done.stdout.splitlines():
        if label := LABEL.match(line):
            waiting.append(label[1])
        elif instruction := INSTRUCTION.match(line):
            address = int(instruction[1], 16)
            labels |= dict.fromkeys(waiting, address)
            waiting.clear()
            branch = BRANCH.search(instruction[3]) if instruction[2].startswith("BRA") else None
            found.append((address, instruction[2], branch and branch[1]))
    return [(address, opcode, labels.get(target)) for address, opcode, target in found if opcode != "NOP"]


def code(kernel, architecture):
    """The opcodes of a kernel in the order of its machine code, a list; padding is left out.

    Errors  RuntimeError if there is no compiler or no disassembler
    """
    return [opcode for _, opcode, _ in _instructions(kernel.binary(architecture).image)]


def inner_loop(kernel, architecture):
    """The Counter of opcodes of the longest innermost loop; an empty one if there is no loop."""
    found = _instructions(kernel.binary(architecture).image)
    spans = {(target, address) for address, _, target in found if target is not None and target < address}
    inner = [
        (start, end)
        for start, end in spans
        if not any((start, end) != other and start <= other[0] and other[1] <= end for other in spans)
    ]
    loops = [Counter(word for address, word, _ in found if start <= address <= end) for start, end in sorted(inner)]
    return max(loops, key=Counter.total, default=Counter())


def bytes_moved(opcodes):
    """What one thread loads and stores, in bytes, by instructions of a Counter; bulk copies do not count."""
    moved = 0
    for opcode, number in opcodes.items():
        name, *rest = opcode.split(".")
        if name == "LDSM":
            moved += number * 4 * int(rest[-1])
        elif name in MEMORY:
            moved += number * next((WIDTHS[word] for word in rest if word in WIDTHS), 4)
    return moved


def problems(kernel, architecture):
    """What is wrong with a kernel's code on an architecture, a list of words; empty if it keeps its promises."""
    try:
        made, found = kernel.binary(architecture), Counter(code(kernel, architecture))
    except StateError as error:
        return [str(error)]
    wrong = [f"{made.spills} bytes of spills"] if made.spills else []
    wrong += [f"{made.stack} bytes of stack"] if made.stack else []
    wrong += [f"no {wanted}" for wanted in kernel.opcodes if not any(o.startswith(wanted) for o in found)]
    unwanted = LOCAL if any(kind.startswith("f64") for _, kind in kernel.parameters) else LOCAL + DOUBLE
    wrong += [f"{opcode} in the code" for opcode in sorted(found) if opcode.startswith(unwanted)]
    return wrong
