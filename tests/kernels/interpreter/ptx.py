"""Kernels from a few lines of PTX written by hand."""

import numpy as np

from minigrad_kernels.interpreter import interpret

REGISTERS = (
    ".reg .pred %p<20>; .reg .b16 %rs<20>; .reg .b32 %r<60>; .reg .b64 %rd<60>; .reg .f32 %f<60>; .reg .f64 %fd<20>;"
)
# dtype -> type of loads and stores, type of registers
TYPES = {
    "uint8": ("u8", "b16"), "int8": ("s8", "b16"), "uint16": ("u16", "b16"), "int16": ("s16", "b16"),
    "float16": ("b16", "b16"), "uint32": ("u32", "b32"), "int32": ("s32", "b32"), "float32": ("f32", "f32"),
    "uint64": ("u64", "b64"), "int64": ("s64", "b64"), "float64": ("f64", "f64"),
}  # fmt: skip


def kernel(body, parameters="", outside="", attributes=""):
    """PTX of one kernel. parameters: types such as "u64 u32"; %rd0, %rd1, ... (or %r, %f) hold them at the start.

    outside: declarations before the kernel, attributes: directives such as .maxntid. What the body's first line is has
    number 1 in `line_of`.
    """
    kinds = parameters.split()
    declared = ",\n".join(f".param .{kind} k_param_{i}" for i, kind in enumerate(kinds))
    banks = {"u64": "rd", "u32": "r", "s32": "r", "f32": "f", "f64": "fd"}
    loads = " ".join(f"ld.param.{kind} %{banks[kind]}{i}, [k_param_{i}];" for i, kind in enumerate(kinds))
    return (
        f".version 8.0\n.target sm_80\n.address_size 64\n{outside}\n.visible .entry k(\n{declared}\n)\n{attributes}\n"
        f"{{\n{REGISTERS}\n{loads}\n{body}\nret;\n}}\n"
    )


def line_of(text, part):
    """The number of the line of PTX that has `part` in it."""
    (line,) = (number for number, line in enumerate(text.splitlines(), 1) if part in line)
    return line


def clean(report):
    """The report of a launch in which nothing is wrong."""
    assert not report.faults, [str(fault) for fault in report.faults]
    return report


def found(text, report, part, kind, message, *, alone=True):
    """The first fault is of this kind, at the line that has `part` in it, and says so; alone: there is no other."""
    assert [fault.kind for fault in report.faults][: None if alone else 1] == [kind], list(map(str, report.faults))
    fault = report.faults[0]
    assert fault.line.line == line_of(text, part) and message in fault.message, str(fault)
    assert str(fault).startswith(f"{kind}: ") and f"PTX:{fault.line.line}: {fault.line.text}" in str(fault)


def apply(code, *inputs, result):
    """What `code` makes of arrays, one thread for each element: %a, %b, ... are the elements, %z the result."""
    out = np.zeros(len(inputs[0]), result)
    arrays = [*inputs, out]
    lines, names = ["mov.u32 %r30, %tid.x;"], "abcdefgh"[: len(inputs)] + "z"
    for i, (array, name) in enumerate(zip(arrays, names, strict=True)):
        load, register = TYPES[array.dtype.name]
        lines.append(f".reg .{register} %{name};")
        lines.append(f"mad.wide.u32 %rd{30 + i}, %r30, {array.itemsize}, %rd{i};")
        if name != "z":
            lines.append(f"ld.global.{load} %{name}, [%rd{30 + i}];")
    lines += [code, f"st.global.{TYPES[out.dtype.name][0]} [%rd{29 + len(arrays)}], %z;"]
    clean(interpret(kernel("\n".join(lines), "u64 " * len(arrays)), (1,), (len(out),), arrays))
    return out
