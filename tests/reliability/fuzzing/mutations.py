"""Mutations that know a format, so that what they make gets past its checksums and into the reader."""

import copy
import gzip
import io
import json
import struct
import zipfile
import zlib

__all__ = ["by_bytes", "by_json", "by_safetensors", "by_tar", "by_zip", "plain"]

LONGEST = 1 << 16
NUMBERS = 0, 1, -1, 2, 3, 7, 0.5, -0.0, 1e300, float("nan"), float("inf"), 2**31, 2**32, 2**63, -(2**63), 2**64, 10**400
WORDS = "", "a", "0", "1e5", "float32", "F32", "BF16", "F8_E4M3", "../../x", "\x00", "\ud800", "lr"
NESTED = [], {}, [[]], [1, 2, 3], [0], ["a"], {"a": 1}, {"tensor": "a"}, [None]
VALUES = (None, True, False, *NUMBERS, *WORDS, *NESTED)


def plain(data, random):
    """A mutation of bytes, where no fuzzer brings its own."""
    content = bytearray(data)
    for _ in range(random.randrange(1, 4)):
        at, kind = random.randrange(len(content) + 1), random.randrange(5)
        if kind == 0 or not content:
            content[at:at] = random.randbytes(random.choice((1, 2, 4, 8)))
        elif kind == 1:
            del content[at : at + random.choice((1, 2, 4, 64))]
        elif kind == 2:
            content[at : at + 4] = struct.pack(random.choice("<>") + "I", random.choice((0, 1, 2**31, 2**32 - 1)))
        elif kind == 3:
            begin = random.randrange(len(content))
            content[at:at] = content[begin : begin + random.randrange(1, 64)]
        else:
            content[min(at, len(content) - 1)] = random.randrange(256)
    return bytes(content[:LONGEST])


def by_bytes(data, random, mutated):
    """Plain and packed files: what is packed is mutated inside."""
    if data[:2] == b"\x1f\x8b" and random.random() < 0.7:
        return _packed(mutated(_unpacked(data)))
    data = mutated(data)
    return _packed(data) if random.random() < 0.1 else data


def by_tar(data, random, mutated):
    """As by_bytes, with the checksums of headers made right again."""
    inside = bytearray(mutated(_unpacked(data)))
    if random.random() < 0.8:
        for at in range(0, len(inside) - 511, 512):
            if inside[at + 257 : at + 262] == b"ustar":
                inside[at + 148 : at + 156] = b" " * 8
                inside[at + 148 : at + 156] = b"%06o\0 " % sum(inside[at : at + 512])
    return _packed(inside) if random.random() < 0.3 else bytes(inside)


def by_json(data, random, mutated):
    """A value somewhere in the text is replaced, removed or repeated."""
    if random.random() < 0.2:
        return mutated(data)
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return mutated(data)
    for _ in range(random.randrange(1, 3)):
        value = _changed(value, random)
    made = json.dumps(value).encode()
    if random.random() < 0.02:
        depth = random.choice((200, 1000, 20000))
        made = made.replace(b"null", b"[" * depth + b"]" * depth, 1)
    return made[:LONGEST]


def by_safetensors(data, random, mutated):
    """The header is mutated as JSON, and its length made right."""
    if random.random() < 0.2 or len(data) < 8:
        return mutated(data)
    size = struct.unpack("<Q", data[:8])[0]
    header = by_json(data[8 : 8 + size], random, mutated)
    return struct.pack("<Q", len(header)) + header + data[8 + size :]


def by_zip(data, random, mutated):
    """A member is mutated, and the checksums made right."""
    if random.random() < 0.3:
        return mutated(data)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as file:
            members = [(one.filename, one.compress_type, file.read(one)) for one in file.infolist()]
    except Exception:  # whatever a reader of damaged archives may raise
        return mutated(data)
    made, chosen = io.BytesIO(), random.randrange(len(members)) if members else 0
    with zipfile.ZipFile(made, "w") as file:
        for number, (name, packing, content) in enumerate(members):
            content = mutated(content) if number == chosen else content
            if packing in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                file.writestr(zipfile.ZipInfo(name), content, packing)
    return made.getvalue()


def _changed(value, random):
    """The JSON value with a node of it replaced; the nodes are chosen evenly by depth."""
    if isinstance(value, dict | list) and value and random.random() < 0.85:
        key = random.choice(list(value)) if isinstance(value, dict) else random.randrange(len(value))
        kind = random.random()
        if kind < 0.08:
            del value[key]
        elif kind < 0.13 and isinstance(value, list):
            value.insert(key, value[key])
        elif kind < 0.13:
            value[random.choice(("", "a", "0", "tensor", key + key[:20]))] = value[key]
        else:
            value[key] = _changed(value[key], random)
        return value
    if isinstance(value, int | float) and random.random() < 0.3:
        return random.choice((-1, 1)) * value + random.choice((0, 1, -1))
    if isinstance(value, str) and random.random() < 0.3:
        return value[: random.randrange(len(value) + 1)] + random.choice(("", "a", "0", "."))
    return copy.deepcopy(random.choice(VALUES))  # for it may be changed in turn


def _unpacked(data):
    try:
        return zlib.decompressobj(31).decompress(data, LONGEST)
    except zlib.error:
        return data


def _packed(data):
    return gzip.compress(data, 1, mtime=0)
