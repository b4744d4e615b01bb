"""How a file is changed."""

import io
import json
import pickletools
import random
import struct
import zipfile
import zlib

NUMBERS = (0, 1, -1, 2, 7, 8, 127, 128, 255, 256, 65535, 65536, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**40, 2**62, 2**63 - 1, 2**63, 2**64 - 1, 10**18)
VALUES = (*NUMBERS, -(2**63), 10**40, 1.5, 1e308, "", "a", "__class__", "$tensor", "\ud800", "F32", "BF16", None, True, [], {}, [1], {"$t": []}, [[[]]], {"$tensor": 0})
NAMES = (b"cos\nsystem\n", b"cbuiltins\neval\n", b"cbuiltins\ngetattr\n", b"ctorch\nSize\n", b"ctorch\nFloatStorage\n", b"ctorch\nTensor\n", b"ccollections\nOrderedDict\n",
         b"ctorch._utils\n_rebuild_tensor_v2\n", b"ctorch._utils\n_rebuild_parameter\n", b"ctorch._utils\n_rebuild_sparse_tensor\n", b"ctorch.nn\nLinear\n",
         b"ctorch._tensor\n_rebuild_from_type_v2\n", b"cnumpy\ndtype\n", b"cnumpy\nndarray\n", b"cnumpy.core.multiarray\n_reconstruct\n",
         b"cnumpy.core.multiarray\nscalar\n", b"c__builtin__\nset\n", b"c__builtin__\nxrange\n", b"ccollections\ndeque\n", b"ccollections\ndefaultdict\n", b"cdatetime\ndatetime\n",
         b"cpathlib\nPath\n", b"ccopy_reg\n_reconstructor\n", b"c__builtin__\nobject\n", b"cargparse\nNamespace\n", b"c_codecs\nencode\n", b"ctorch\nfloat16\n")
OPERATIONS = [bytes([c]) for c in b"(.0120FIJKLMNPQRSTUVXabcde}]ghijlopqrstu)\x80\x81\x85\x86\x87\x88\x89\x8a\x8b\x8c\x8d\x8e\x8f\x90\x91\x92\x93\x94\x95\x96\x97\x98BC"]


def some_bytes(data: bytes, rng: random.Random, other: bytes) -> bytes:
    """Changes anywhere, without knowing what the bytes are."""
    data = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4, 16))):
        if not data:
            return bytes(other)
        at = rng.randrange(len(data))
        kind = rng.randrange(9)
        if kind == 0:
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            data[at] = rng.randrange(256)
        elif kind == 2:
            del data[at:]
        elif kind == 3:
            del data[at:at + rng.randrange(1, 40)]
        elif kind == 4:
            end = rng.randrange(at, min(len(data), at + 200)) + 1
            data[at:at] = data[at:end] * rng.choice((1, 1, 2, 50))
        elif kind == 5:
            form = rng.choice("<B <H <I <Q >I >Q".split())
            number = struct.pack(form, rng.choice(NUMBERS) % (1 << 8 * struct.calcsize(form)))
            data[at:at + len(number)] = number
        elif kind == 6 and other:
            begin = rng.randrange(len(other))
            part = other[begin:begin + rng.randrange(1, 100)]
            data[at:at + (len(part) if rng.random() < 0.5 else 0)] = part
        elif kind == 7:
            data[at:at] = bytes(rng.randrange(256) for _ in range(rng.randrange(1, 9)))
        else:
            data[at:at + 1] = rng.choice(OPERATIONS)
    return bytes(data[:1 << 20])


# Streams of plain data.
def _operations(data: bytes) -> list[bytes]:
    at, parts = 0, []
    try:
        for _, _, position in pickletools.genops(data):
            if position > at:
                parts.append(data[at:position])
            at = position
    except Exception:  # noqa: S110, BLE001
        pass  # what follows is one part
    return [*parts, data[at:]]


def stream(data: bytes, rng: random.Random, other: bytes) -> bytes:
    """Operations taken out, doubled, exchanged, brought in from another stream."""
    if rng.random() < 0.2:
        return some_bytes(data, rng, other)
    parts, more = _operations(data), _operations(other)
    for _ in range(rng.choice((1, 1, 2, 3, 8))):
        at = rng.randrange(len(parts))
        kind = rng.randrange(8)
        if kind == 0 and len(parts) > 1:
            del parts[at]
        elif kind == 1:
            parts[at:at] = [parts[at]] * rng.choice((1, 2, 100, 5000))
        elif kind == 2:
            begin = rng.randrange(len(more))
            parts[at:at] = more[begin:begin + rng.randrange(1, 30)]
        elif kind == 3:
            to = rng.randrange(len(parts))
            parts[at], parts[to] = parts[to], parts[at]
        elif kind == 4:
            parts.insert(at, rng.choice(NAMES))
        elif kind == 5:
            for k, part in enumerate(parts):
                if part[:1] == b"c" and rng.random() < 0.3:
                    parts[k] = rng.choice(NAMES)
        elif kind == 6:
            number = rng.choice(NUMBERS)
            parts[at] = b"\x8a" + bytes([9]) + number.to_bytes(9, "little", signed=True)
        else:
            parts.insert(at, rng.choice(OPERATIONS))
    return b"".join(parts)[:1 << 20]


# Archives.
def archive(data: bytes, rng: random.Random, other: bytes) -> bytes:
    """Another content of an entry, with its checksum put right; entries doubled, left out, compressed."""
    if rng.random() < 0.3:
        return some_bytes(data, rng, other)
    try:
        entries = _entries(data)
        more = _entries(other) or entries
    except Exception:  # noqa: BLE001
        return some_bytes(data, rng, other)
    if not entries:
        return some_bytes(data, rng, other)
    names = list(entries)
    kind = rng.randrange(8)
    if kind < 4:
        key = next((n for n in names if n.endswith("data.pkl")), names[0])
        donor = next((v for n, v in more.items() if n.endswith("data.pkl")), b"N.")
        entries[key] = stream(entries[key], rng, donor)
    elif kind == 4:
        key = rng.choice(names)
        entries[key] = some_bytes(entries[key], rng, rng.choice(list(more.values())))
    elif kind == 5:
        del entries[rng.choice(names)]
    elif kind == 6:
        entries[rng.choice((*names, "constants.pkl", "archive/constants.pkl", "data.pkl", "archive/byteorder"))] = rng.choice((*more.values(), b"big", b""))
    buffer = io.BytesIO()
    compression = zipfile.ZIP_DEFLATED if kind == 7 else zipfile.ZIP_STORED
    with zipfile.ZipFile(buffer, "w", compression) as new:
        for name, value in entries.items():
            new.writestr(name, bytes(rng.choice((1 << 10, 1 << 20))) if kind == 7 and rng.random() < 0.2 else value)
    result = buffer.getvalue()
    return some_bytes(result, rng, other) if rng.random() < 0.1 else result


def _entries(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as old:
        return {e.filename: old.read(e) for e in old.infolist() if e.file_size < 1 << 20}


# Containers.
def container(data: bytes, rng: random.Random, other: bytes) -> bytes:
    """The header as JSON: values exchanged, keys left out or doubled; checksums put right again so that readers look further."""
    if rng.random() < 0.25:
        return some_bytes(data, rng, other)
    try:
        (n,) = struct.unpack("<Q", data[:8])
        header, body = json.loads(data[8:8 + n]), data[8 + n:]
    except Exception:  # noqa: BLE001
        return some_bytes(data, rng, other)
    metadata = header.get("__metadata__") if isinstance(header, dict) else None
    own = None
    if isinstance(metadata, dict) and "tapegrad" in metadata:
        try:
            own = json.loads(metadata["tapegrad"])
        except Exception:  # noqa: BLE001
            own = None
    for _ in range(rng.choice((1, 1, 2, 4))):
        if own is not None and rng.random() < 0.75:
            own = _change(own, rng)
        else:
            header = _change(header, rng)
    if isinstance(own, dict) and isinstance(header, dict):
        table = {k: v for k, v in header.items() if k != "__metadata__"}
        if rng.random() < 0.95:
            own["table_crc32"] = zlib.crc32(json.dumps(table, sort_keys=True, separators=(",", ":")).encode())
        if rng.random() < 0.5 and isinstance(own.get("crc32"), dict):
            _sum(own["crc32"], table, body)
        text = json.dumps(own)
        header["__metadata__"] = {"tapegrad": text, "tapegrad_crc32": f"{zlib.crc32(text.encode()):010}"}
    head = json.dumps(header).encode()
    if rng.random() < 0.05:
        body = some_bytes(body, rng, other)
    return struct.pack("<Q", len(head)) + head + body


def _sum(checks: dict, table: dict, body: bytes) -> None:
    for name, entry in table.items():
        try:
            begin, end = entry["data_offsets"]
            checks[name] = zlib.crc32(body[begin:end])
        except Exception:  # noqa: BLE001
            continue


def _change(value, rng: random.Random):
    """One change somewhere in nested data."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(list(value))
        kind = rng.randrange(10)
        if kind == 0:
            value = {k: v for k, v in value.items() if k != key}
        elif kind == 1:
            value[rng.choice(("a", "$tensor", "$object", "$function", "$array", "$np", "$od", "$d", "$size", "dtype", "shape", "order", "offset", "attributes", key + "x"))] = value[key]
        elif kind == 2:
            first = rng.choice(("$tensor", "$sparse", "$meta", "$array", "$np", "$d", "$s", "$fs", "$dd", "$deque", "$object", "$function", "$path", "$b", "$datetime"))
            value = {first: value[key], **value}
        else:
            value = {**value, key: _change(value[key], rng)}
        return value
    if isinstance(value, list) and value and rng.random() < 0.9:
        at = rng.randrange(len(value))
        kind = rng.randrange(8)
        if kind == 0:
            return value[:at] + value[at + 1:]
        if kind == 1:
            return value[:at] + [value[at]] * rng.choice((2, 3, 70)) + value[at:]
        return [*value[:at], _change(value[at], rng), *value[at + 1:]]
    if isinstance(value, str) and value and rng.random() < 0.5:
        return some_bytes(value.encode(errors="replace"), rng, b"$tensor").decode("latin1")
    return rng.choice(VALUES)
