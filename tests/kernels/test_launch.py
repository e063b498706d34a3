"""How kernels are started on a GPU, on a stand-in for CuPy whose driver only notes what it is asked for."""

import contextlib
import struct
import sys
import threading
import types

import pytest

from minigrad_kernels.errors import KindError, ShapeError, StateError
from minigrad_kernels.toolchain.cuda import KERNELS, Kernel, cache, compiler, kernel
from tests.standin import LAUNCH, installed


@pytest.fixture
def gpu():
    """Installs the stand-in with these options and gives its Machine."""
    with contextlib.ExitStack() as stack:
        yield lambda **options: stack.enter_context(installed(execute=False, **options))


@pytest.fixture
def k(monkeypatch):
    """A kernel with a parameter of each type, whose machine code need not be compiled."""

    @kernel("f32* x, f32 a, f64 b, i32 i, u32 u, i64 l, u16 h, u8* out", threads=256, lowest="sm_80")
    def launched(x, a, b, i, u, l, h, out):
        pass

    monkeypatch.setattr(Kernel, "kept", "the text")
    monkeypatch.setattr(cache, "load_code", lambda _, sm, ptx: compiler.Binary(f"code of {sm}".encode(), 8, 0, 0, 0))
    yield launched
    del KERNELS[launched.name]


class Array:
    """Stands for a cupy.ndarray at an address of our choice."""

    def __init__(self, address):
        self.data = types.SimpleNamespace(ptr=address)


ARGUMENTS = (Array(0x7F0000001000), 1.5, -2.5, -3, 4_000_000_000, -(1 << 40), 65535, 0x1234)


def test_arguments_are_packed_as_the_driver_reads_them(gpu, k):
    machine = gpu()
    import cupy

    with cupy.cuda.Stream(non_blocking=True) as stream:
        k((5,), (32, 4), ARGUMENTS, shared=99)
    (launch,) = machine.launches
    words = launch.words
    assert (launch.name, launch.grid, launch.block) == (k.name, (5, 1, 1), (32, 4, 1))
    assert (launch.shared, launch.stream) == (99, stream.ptr)
    assert (words[0], words[7]) == (0x7F0000001000, 0x1234)
    assert struct.pack("<Q", words[1])[:4] == struct.pack("<f", 1.5)
    assert struct.pack("<Q", words[2]) == struct.pack("<d", -2.5)
    assert words[3] == 2**32 - 3 and words[4] == 4_000_000_000
    assert words[5] == 2**64 - 2**40 and words[6] == 65535


def test_each_thread_has_parameters_of_its_own(gpu, k):
    machine = gpu()
    barrier = threading.Barrier(2)

    def start(number):
        for _ in range(50):
            barrier.wait()
            k((number,), (1,), (*ARGUMENTS[:3], number, *ARGUMENTS[4:]))

    threads = [threading.Thread(target=start, args=(number,)) for number in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(machine.launches) == 100
    assert all(launch.grid[0] == launch.words[3] for launch in machine.launches)
    assert machine.made_current == [0, 0], "the driver wants a device to be current in each thread"


def test_code_is_loaded_once_for_each_device_and_may_use_all_shared_memory(gpu, k):
    machine = gpu(devices=2)
    for machine.device in (0, 1, 0, 1):
        k((1,), (1,), ARGUMENTS)
    assert machine.images == [b"code of sm_90"] * 2
    first, second, *again = (launch.function for launch in machine.launches)
    assert again == [first, second] and first != second
    assert machine.attributes == {(first, 8): 232448 - 1024, (second, 8): 232448 - 1024}


def test_the_newest_code_of_the_generation_is_taken(gpu, k, monkeypatch):
    """Of a GPU: what the driver gets; a newer generation gets PTX. Or what is said."""
    monkeypatch.setattr(Kernel, "ptx", lambda self: "the text")
    newest = {"80": "sm_80", "87": "sm_86", "89": "sm_89", "103": "sm_100", "121": "sm_120", "130": None}
    for capability, sm in newest.items():
        loaded = f"code of {sm}".encode() if sm else b"the text\0"
        with installed(execute=False, capability=capability) as machine:
            k((1,), (1,), ARGUMENTS)
        assert machine.images == [loaded]
    with installed(execute=False, capability="75"):
        with pytest.raises(StateError, match="wants a GPU of sm_80 or newer, device 0 is sm_75; ask for a lower rung"):
            k((1,), (1,), ARGUMENTS)
    monkeypatch.setattr(k, "architectures", ("sm_90a",))  # one that is for this architecture alone
    for capability in ("89", "100"):
        with installed(execute=False, capability=capability):
            with pytest.raises(StateError, match=f"wants a GPU of sm_90a and no other, device 0 is sm_{capability}"):
                k((1,), (1,), ARGUMENTS)
    with installed(execute=False, capability="90") as machine:
        k((1,), (1,), ARGUMENTS)
    assert machine.images == [b"code of sm_90a"]


def test_without_a_compiler_a_driver_or_cupy(gpu, k, monkeypatch):
    """The driver gets PTX; or the error says what to install."""
    with monkeypatch.context() as patch, installed(execute=False) as machine:
        patch.setattr(cache, "load_code", lambda *_: None)
        patch.setattr(compiler, "missing", lambda: "the package numba-cuda is not installed")
        patch.setattr(Kernel, "ptx", lambda self: "the text")
        k((1,), (1,), ARGUMENTS)
        assert machine.images == [b"the text\0"]
    gpu(error=35)
    message = "no NVIDIA GPU can be used here: cudaErrorInsufficientDriver: .*; install a driver"
    with pytest.raises(StateError, match=message):
        k((1,), (1,), ARGUMENTS)
    monkeypatch.setitem(sys.modules, "cupy", None)
    monkeypatch.delitem(sys.modules, LAUNCH, raising=False)
    with pytest.raises(StateError, match=r'CuPy is not installed; pip install -e "\.\[cuda13\]"'):
        k((1,), (1,), ARGUMENTS)


def test_refuses_arguments_and_blocks_that_are_too_large(gpu, k):
    machine = gpu()
    for position, value, message in (
        (0, [1.0], r"got list, 1.5, .* wants <kernel .*\(f32\* x, f32 a, .*: 'list' object has no attribute 'data'"),
        (1, 1e39, r"got Array, 1e\+39, "),
        (3, 1 << 31, "got .*, 2147483648, .*"),
        (4, -1, "got .*, -1, "),
        (7, None, "got .*, NoneType; wants"),
    ):
        arguments = [*ARGUMENTS[:position], value, *ARGUMENTS[position + 1 :]]
        with pytest.raises(KindError, match="kernels_launched: " + message):
            k((1,), (1,), arguments)
    with pytest.raises(KindError, match="kernels_launched: got Array, .*, 65535; wants"):
        k((1,), (1,), ARGUMENTS[:7])
    with pytest.raises(ShapeError, match=r"kernels_launched: block \(32, 16\) has more than 256 threads"):
        k((1,), (32, 16), ARGUMENTS)
    assert not machine.launches
