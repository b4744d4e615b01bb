"""Pairs of places that share six or more lines of one shape: the same lines but for names, strings and numbers.

usage: repeats.py [FOLDER ...]     below these folders (the checkout by default): a row per pair, the longest run first

A pair is two files, or one with itself, however many runs they share. Blank lines, comments, docstrings, imports and lines
of one word or less are no lines here. What stands in more than MOST_PLACES places is a form of the language (a guard, a row
of arguments), not a thing written twice. Every pair is a place to look: what is alike by shape only and means different
things stays two.
"""

import keyword
import re
import sys
from collections import defaultdict
from itertools import combinations
from pathlib import Path

RUN = 6  # lines
MOST_PLACES = 8
SUFFIXES = (".py", ".h", ".cpp", ".cu", ".sh", ".cmake")
KEYWORDS = {*keyword.kwlist, *"self auto bool case catch char class const constexpr default delete do double else enum explicit "
            "false float friend goto inline int long namespace new noexcept operator private protected public short sizeof static "
            "struct switch template this throw true typename union unsigned using virtual void".split()}  # fmt: skip
# What goes on over several lines: docstrings, strings that hold scripts (whose lines count), comments, imports.
APART = re.compile(r'''(^[ \t]*)?[rbf]?"""([\s\S]*?)"""|/\*[\s\S]*?\*/|^[ \t]*from [\w.]+ import \([^)]*\)''', re.M)
TOKEN = r"""[rbfu]{0,2}"(?:\\.|[^"\\])*"|[rbfu]{0,2}'(?:\\.|[^'\\])*'|\.?\d[\w.']*|[a-z_]\w*|"""
C_TOKEN, TOKEN = re.compile(TOKEN + "//.*|#.*", re.I), re.compile(TOKEN + "#.*", re.I)
IMPORT = re.compile(r"\s*(import\b|from\b.*\bimport\b|using\b)")


def shape(line, token=TOKEN):
    """The line with every string as S, every number as 0 and every name as n; empty where it has no two words."""

    def placeholder(match):
        word = match[0]
        if word[0] == "#" or word.startswith("//"):
            return ""
        if word[-1] in "\"'":
            return "S"
        return "0" if word[0] in ".0123456789" else word if word in KEYWORDS else "n"

    text = "" if IMPORT.match(line) else " ".join(token.sub(placeholder, line).split())
    return text if len(re.findall(r"\w+", text)) > 1 else ""


def lines_of(path):
    """(line number, shape) of each line of code."""

    def lines_only(match):
        return match[2] if match[2] and match[1] is None else "\n" * match[0].count("\n")

    text = APART.sub(lines_only, path.read_text(errors="replace"))
    token = C_TOKEN if path.suffix in (".h", ".cpp", ".cu") else TOKEN
    shapes = ((number, shape(line, token)) for number, line in enumerate(text.split("\n"), 1))
    return [(number, s) for number, s in shapes if s]


def pairs(paths):
    """{(file, file): [(lines, first, last, first, last)]}: the runs that they share and where these stand, the longest first."""
    codes = [lines_of(p) for p in paths]
    places = defaultdict(list)  # of each window of RUN lines
    for file, code in enumerate(codes):
        shapes = [s for _, s in code]
        for start in range(len(code) - RUN + 1):
            places[tuple(shapes[start : start + RUN])].append((file, start))
    starts = defaultdict(list)  # of shared windows, by the two files and how far the windows are apart
    for found in places.values():
        if 1 < len(found) <= MOST_PLACES:
            for (a, i), (b, j) in combinations(found, 2):
                if a != b or j - i >= RUN:
                    starts[a, b, j - i].append(i)
    runs = defaultdict(list)
    for (a, b, apart), windows in starts.items():
        windows.sort()
        first = 0
        for k, window in enumerate(windows):
            if windows[k + 1 : k + 2] != [window + 1]:  # the run ends here
                i, last = windows[first], window + RUN - 1
                last = min(last, i + apart - 1) if a == b else last  # the two places do not overlap
                where = codes[a][i][0], codes[a][last][0], codes[b][i + apart][0], codes[b][last + apart][0]
                runs[paths[a], paths[b]].append((last - i + 1, *where))
                first = k + 1
    return {pair: sorted(shared, reverse=True) for pair, shared in runs.items()}


def main(folders):
    from meter import ROOT, tracked_files

    below = [Path(f).resolve() for f in folders] or [ROOT]
    found = pairs([p for p in tracked_files(*SUFFIXES) if any(p.is_relative_to(f) for f in below)])
    for (a, b), runs in sorted(found.items(), key=lambda item: -item[1][0][0]):
        count, i, j, k, m = runs[0]
        more = f" (+{len(runs) - 1} runs)" if runs[1:] else ""
        print(f"{count:3} lines  {a.relative_to(ROOT)}:{i}-{j} ~ {b.relative_to(ROOT)}:{k}-{m}{more}")
    print(f"{len(found)} pairs")


if __name__ == "__main__":
    main(sys.argv[1:])
