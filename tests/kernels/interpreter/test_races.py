"""Races that the interpreter finds, in random programs, against a list of all accesses and the rule itself."""

import numpy as np
import pytest

from minigrad_kernels.interpreter import interpret

from .ptx import kernel

THREADS, UNITS = 64, 3
CODE = {
    "read": "ld.{0}.u32 %r4, [{1}];",
    "write": "st.{0}.u32 [{1}], %r30;",
    "atomic": "red.{0}.add.u32 [{1}], 1;",
    "barrier": "bar.sync 0;",
    "warp barrier": "bar.warp.sync 0xffffffff;",
}
CLEAR = "".join(
    f"mov.u32 %r1, 0; setp.eq.u32 %p1, %r30, {unit}; @%p1 st.shared.u32 [%r31+{4 * unit}], %r1;"
    for unit in range(UNITS)
)


def random_program(rng, kinds):
    """A list of (kind, {thread: unit}): what one or two neighbours among the threads do in one instruction."""
    program = []
    for kind in rng.choice(kinds, rng.integers(2, 9)):
        first, unit, apart = int(rng.choice([0, 1, 2, 40])), int(rng.integers(2)), int(rng.integers(2))
        program.append((str(kind), {first + i: unit + i * apart for i in range(int(rng.integers(1, 3)))}))
    return program


def ptx_of(program, space, base, number, register="%r3"):
    lines = []
    for kind, places in program:
        if "barrier" in kind:
            lines.append(CODE[kind])
            continue
        first, count = min(places), len(places)
        unit, apart = places[first], max(places.values()) - min(places.values())
        lines.append(f"sub.u32 %r2, {number}, {first}; setp.lt.u32 %p1, %r2, {count};")
        step = "mad.lo.u32" if register == "%r3" else "mad.wide.u32"
        lines.append(
            f"{step} {register}, %r2, {4 * apart}, {base}; @%p1 {CODE[kind].format(space, f'{register}+{4 * unit}')}"
        )
    return "\n".join(lines)


def races(program, ordered):
    """Whether two threads touch a unit, not both reading nor both atomic, in an order that nothing makes."""
    seen, blocks, warps = [], 0, 0
    for kind, places in program:
        blocks += kind == "barrier"
        warps += kind == "warp barrier"
        for thread, unit in places.items() if "barrier" not in kind else ():
            for other, place, did, *when in seen:
                harmless = kind == did and kind in ("read", "atomic")
                if (
                    place == unit
                    and other != thread
                    and not harmless
                    and not ordered(thread, other, when, (blocks, warps))
                ):
                    return True
            seen.append((thread, unit, kind, blocks, warps))
    return False


def by_barriers(thread, other, then, now):
    return then[0] != now[0] or (thread // 32 == other // 32 and then[1] != now[1])


@pytest.mark.parametrize("seed", range(6))
def test_threads_of_a_block(seed):
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(50):
        program = random_program(rng, ["read"] * 3 + ["write"] * 2 + ["atomic", "barrier", "warp barrier"])
        body = "mov.u32 %r30, %tid.x; mov.u32 %r31, buffer;" + CLEAR + "bar.sync 0;"
        body += ptx_of(program, "shared", "%r31", "%r30")
        report = interpret(kernel(body, outside=".shared .align 4 .b8 buffer[64];"), (1,), (THREADS,), ())
        assert {fault.kind for fault in report.faults} <= {"shared race"}
        found.append(bool(report.faults))
        assert found[-1] == races(program, by_barriers), program
    assert 5 < sum(found) < 45


def test_an_atomic_after_a_write_of_the_same_thread_does_not_hide_the_write():
    program = [("write", {0: 0}), ("atomic", {0: 0}), ("atomic", {1: 0})]
    for order in (program, program[1:], program[:2]):
        body = "mov.u32 %r30, %tid.x; mov.u32 %r31, buffer;" + CLEAR + "bar.sync 0;"
        text = kernel(body + ptx_of(order, "shared", "%r31", "%r30"), outside=".shared .align 4 .b8 buffer[64];")
        report = interpret(text, (1,), (THREADS,), ())
        assert [fault.kind for fault in report.faults] == ["shared race"] * (order is program)


def test_blocks_of_a_launch():
    rng = np.random.default_rng(0)
    found = []
    for _ in range(100):
        program = random_program(rng, ["read"] * 3 + ["write", "atomic"])[:3]
        body = "mov.u32 %r30, %ctaid.x;" + ptx_of(program, "global", "%rd0", "%r30", "%rd3")
        report = interpret(kernel(body, "u64"), (THREADS,), (1,), (np.zeros(UNITS, np.uint32),))
        assert {fault.kind for fault in report.faults} <= {"global race"}
        found.append(bool(report.faults))
        assert found[-1] == races(program, lambda *_: False), program
    assert 10 < sum(found) < 90
