#!/usr/bin/env python3
"""How many bytes of memory each kernel of libtapegrad_cuda.so can have on their way at a time, by a small model, and which
kernels have fewer than a card needs. Without a card: it reads what the compiler made.

    tools/cuda_occupancy.py build-cuda/lib/libtapegrad_cuda.so [--block 256] [--only REGEX] [--all]

A multiprocessor reaches the card's rate when (Little's law) rate x latency / multiprocessors bytes are on their way from
memory. What a kernel has on its way is

    threads that are resident  x  bytes that a thread has asked for before it uses the first of them

Threads follow from registers and shared memory (cuobjdump --dump-resource-usage) for blocks of --block threads. Bytes follow
from the machine code (cuobjdump -sass): loads from global memory in the order of the code, until an instruction reads a
register that one of them writes; a jump back and the end of a path begin anew. The most of a kernel counts, so a path for
whole vectors is found beside the one for what is left over. Not seen: dynamic shared memory, loads that another iteration of
a loop has asked for, caches.

cuobjdump and nvdisasm are in CUDA's toolkit and on PyPI (nvidia-cuda-cuobjdump, nvidia-cuda-nvdisasm)."""

import argparse
import collections
import re
import shutil
import subprocess
import sys

# What NVIDIA's CCCL wants to have on its way in one multiprocessor (arch_to_min_bytes_in_flight in
# cub/device/dispatch/tuning/tuning_transform.cuh).
NEEDED = {"H100": 32 << 10, "H200": 48 << 10}
REGISTERS, THREADS, BLOCKS, SHARED, SHARED_OF_BLOCK = 65536, 2048, 32, 228 << 10, 1 << 10  # of one with sm_90

INSTRUCTION = re.compile(r"\s+/\*([0-9a-f]{4,})\*/\s+(?:@(!?U?P\w+)\s+)?([A-Z][\w.]*)\s*([^;]*);")
REGISTER = re.compile(r"\bR(\d+)(\.64)?")
SIZES = {".128": 16, ".64": 8, ".U16": 2, ".S16": 2, ".U8": 1, ".S8": 1}


def bytes_of(name):
    """Of a load from global memory by one thread; 0 for other instructions."""
    parts = name.split(".")
    if parts[0] not in ("LDG", "LD", "LDGSTS"):
        return 0
    return next((n for part, n in SIZES.items() if part[1:] in parts), 4)


def in_flight(instructions):
    """The most bytes that a thread waits for at a time, and how many loads these are."""
    most, loads_then = 0, 0
    waiting = {}  # register: the load that writes it
    asked = {}  # load: bytes
    for place, (address, predicate, name, operands) in enumerate(instructions):
        size = bytes_of(name)
        first, _, rest = operands.partition(",")
        stores = name.startswith(("ST", "RED", "ATOM", "BAR", "BRA", "EXIT", "CALL", "RET"))
        read = operands if stores else rest
        used = set()
        for number, wide in REGISTER.findall(read):
            used.update(range(int(number), int(number) + (2 if wide else 1)))
        if not stores and not size:  # an instruction that writes what a load writes waits for it, too
            used.update(int(n) for n, _ in REGISTER.findall(first))
        needed = {waiting[r] for r in used if r in waiting}
        if needed:  # loads come back in order, nearly: those that were asked for before have come
            last = max(needed)
            asked = {load: n for load, n in asked.items() if load > last}
            waiting = {r: load for r, load in waiting.items() if load > last}
        if size:
            asked[place] = size
            target = REGISTER.search(first)
            if target:
                for r in range(int(target[1]), int(target[1]) + max(1, size // 4)):
                    waiting[r] = place
            if sum(asked.values()) > most:
                most, loads_then = sum(asked.values()), len(asked)
        back = name.startswith("BRA") and (m := re.search(r"0x([0-9a-f]+)", operands)) and int(m[1], 16) <= address
        if back or (name in ("EXIT", "BRA", "RET") and predicate is None):
            waiting, asked = {}, {}
    return most, loads_then


def resident_threads(registers, shared, block):
    warps = -(-block // 32)
    by_registers = REGISTERS // (-(-registers * 32 // 256) * 256 * warps) if registers else BLOCKS
    return block * min(BLOCKS, THREADS // block, by_registers, SHARED // (shared + SHARED_OF_BLOCK))


def lines_of(command, path):
    tool = shutil.which("cuobjdump")
    if tool is None or shutil.which("nvdisasm") is None:
        sys.exit("cuobjdump and nvdisasm are not in PATH (PyPI: nvidia-cuda-cuobjdump, nvidia-cuda-nvdisasm)")
    with subprocess.Popen([tool, command, path], stdout=subprocess.PIPE, text=True, errors="replace") as process:
        yield from process.stdout
    if process.returncode:
        sys.exit(f"cuobjdump {command} failed: {process.returncode}")


def resources_of(lines):
    found, name = {}, None
    for line in lines:
        if m := re.match(r"\s*Function (\S+):", line):
            name = m[1]
        elif name and (m := re.search(r"REG:(\d+).*SHARED:(\d+)", line)):
            found[name] = (int(m[1]), int(m[2]))
            name = None
    return found


def code_of(lines):
    """(kernel, its instructions), one after the other."""
    name, instructions = None, []
    for line in lines:
        if "Function : " in line:
            if name:
                yield name, instructions
            name, instructions = line.split("Function : ")[1].strip(), []
        elif m := INSTRUCTION.match(line):
            instructions.append((int(m[1], 16), m[2], m[3], m[4]))
    if name:
        yield name, instructions


def readable(names):
    done = subprocess.run(["c++filt", "-p"], input="\n".join(names), capture_output=True, text=True, check=True)
    return dict(zip(names, done.stdout.splitlines()))


def group_of(name, text):
    """The file and the name of a kernel, and of what it runs for each element or line, without their types."""
    file = re.search(r"_GLOBAL__N__[0-9a-f]+_\d+_(\w+?)_cu_", name)
    words = re.sub(r"\(anonymous namespace\)::|(?<!std::)\b[a-z_]\w*::(?!\()|^void ", "", text)
    kernel, _, types = words.partition("<")
    group = re.match(r"(Warp|Block|Thread)Group, ", types)
    packs = re.search(r"\bPacks<(\d+), ", types)
    body = re.search(r"\b([A-Z]\w+)", types.replace(group[0] if group else "", "").replace("Packs<", ""))
    if kernel not in ("elements_kernel", "lines_kernel") or not body:
        return file[1] if file else "", kernel
    return file[1] if file else "", body[1] + (f" by {group[1].lower()}s" if group else "") + (" in packs" if packs and packs[1] != "1" else "")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", help="not read where --resources and --code are given")
    parser.add_argument("--block", type=int, default=256)
    parser.add_argument("--only", default="", help="kernels in whose file and name, with its types, this is found")
    parser.add_argument("--all", action="store_true", help="those that have enough, too")
    parser.add_argument("--resources", help="what cuobjdump --dump-resource-usage wrote")
    parser.add_argument("--code", help="what cuobjdump -sass wrote")
    args = parser.parse_args()
    resources = resources_of(open(args.resources) if args.resources else lines_of("--dump-resource-usage", args.library))
    rows = []
    for name, instructions in code_of(open(args.code) if args.code else lines_of("-sass", args.library)):
        most, loads = in_flight(instructions)
        if name in resources and most:
            registers, shared = resources[name]
            threads = resident_threads(registers, shared, args.block)
            rows.append((name, registers, threads, most, loads, threads * most))
    texts = readable([row[0] for row in rows])
    groups = collections.defaultdict(list)
    for row in rows:
        group = group_of(row[0], texts[row[0]])
        if re.search(args.only, f"{group[0]} {texts[row[0]]}"):
            groups[group].append(row)
    below = {card: sum(min(r[5] for r in g) < need for g in groups.values()) for card, need in NEEDED.items()}
    print(f"{sum(map(len, groups.values()))} kernels, {len(groups)} of different names; names with one below the need: "
          + ", ".join(f"{n} for an {card} ({NEEDED[card] >> 10} KB)" for card, n in below.items()))
    print("\n| file | kernel | how many | registers | threads | bytes of a thread | KB on their way | |\n| --- | --- | --- | --- | --- | --- | --- | --- |")

    def span(values):
        return str(values[0]) if values[0] == values[-1] else f"{values[0]} to {values[-1]}"

    for (file, kernel), group in sorted(groups.items(), key=lambda item: min(r[5] for r in item[1])):
        least = min(r[5] for r in group)
        short = [card for card, need in NEEDED.items() if least < need]
        if short or args.all:
            columns = [span(sorted(r[i] for r in group)) for i in (1, 2, 3)]
            print(f"| {file} | {kernel} | {len(group)} | {' | '.join(columns)} | {span(sorted(r[5] >> 10 for r in group))} | {'fewer than an ' + ' and an '.join(short) + ' needs' if short else ''} |")


if __name__ == "__main__":
    main()
