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


def is_found(program, shared):
    """Whether threads of a block, or blocks of one thread, race."""
    space, step, register, base = ("shared", "lo", "%r3", "%r31") if shared else ("global", "wide", "%rd3", "%rd0")
    lines = [
        "mov.u32 %r30, %tid.x; mov.u32 %r31, buffer;" + CLEAR + "bar.sync 0;" if shared else "mov.u32 %r30, %ctaid.x;"
    ]
    for kind, places in program:
        if "barrier" in kind:
            lines.append(CODE[kind])
            continue
        first, unit = min(places), places[min(places)]
        lines.append(f"sub.u32 %r2, %r30, {first}; setp.lt.u32 %p1, %r2, {len(places)};")
        lines.append(f"mad.{step}.u32 {register}, %r2, {4 * (max(places.values()) - unit)}, {base};")
        lines.append(f"@%p1 {CODE[kind].format(space, f'{register}+{4 * unit}')}")
    text = kernel("\n".join(lines), "" if shared else "u64", ".shared .align 4 .b8 buffer[64];")
    sizes = ((1,), (THREADS,), ()) if shared else ((THREADS,), (1,), (np.zeros(UNITS, np.uint32),))
    kinds = [fault.kind for fault in interpret(text, *sizes).faults]
    assert set(kinds) <= {f"{space} race"}
    return bool(kinds)


def races(program, shared):
    """Whether two threads touch a unit, not both reading nor both atomic, in an order that no barrier makes."""
    seen, blocks, warps = [], 0, 0
    for kind, places in program:
        blocks += kind == "barrier"
        warps += kind == "warp barrier"
        for thread, unit in places.items() if "barrier" not in kind else ():
            for other, place, did, block, warp in seen:
                harmless = place != unit or other == thread or (kind == did and kind in ("read", "atomic"))
                ordered = shared and (block != blocks or (thread // 32 == other // 32 and warp != warps))
                if not harmless and not ordered:
                    return True
            seen.append((thread, unit, kind, blocks, warps))
    return False


@pytest.mark.parametrize("shared, kinds, longest", [
    (True, ["read"] * 3 + ["write"] * 2 + ["atomic", "barrier", "warp barrier"], 9),
    (False, ["read"] * 3 + ["write", "atomic"], 3),
])  # fmt: skip
def test_races_of_random_programs(shared, kinds, longest):
    rng, found = np.random.default_rng(0), []
    for _ in range(150):
        program = random_program(rng, kinds)[:longest]
        found.append(is_found(program, shared))
        assert found[-1] == races(program, shared), program
    assert 15 < sum(found) < 135
