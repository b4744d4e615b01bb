"""What the meter counts as two places of one shape (tools/repeats.py)."""

import importlib.util
from pathlib import Path

import pytest

spec = importlib.util.spec_from_file_location("repeats", Path(__file__).resolve().parents[2] / "tools/repeats.py")
repeats = importlib.util.module_from_spec(spec)
spec.loader.exec_module(repeats)

LINES = ["first = read(path, 'r')", "for part in first.split(3):", "    if part > limit[0]:", "        return total * part",
         "    total += part.size", "print(total, file=out)"]


def renamed(lines, mark):
    return [line.replace("first", f"one_{mark}").replace("total", f"sum_{mark}").replace("3", "17").replace("'r'", '"wb"') for line in lines]


@pytest.fixture
def found(tmp_path):
    """found(texts): the pairs among files of these lines, by number: {(0, 1): runs}."""

    def of(*texts, suffix=".py"):
        paths = []
        for i, lines in enumerate(texts):
            paths.append(tmp_path / f"f{i}{suffix}")
            paths[-1].write_text("\n".join(lines) + "\n")
        return {(paths.index(a), paths.index(b)): runs for (a, b), runs in repeats.pairs(paths).items()}

    return of


def test_names_strings_and_numbers_do_not_matter(found):
    other = ["start()", "", *renamed(LINES, "b")]
    assert found(LINES, other) == {(0, 1): [(6, 1, 6, 3, 8)]}


def test_five_lines_are_too_few_and_a_keyword_makes_another_line(found):
    assert found(LINES[:5], LINES) == {}
    other = [line.replace("if part", "while part") for line in LINES]
    assert found(LINES, other) == {}


def test_what_is_no_line_of_code_neither_counts_nor_parts_a_run(found):
    between = [LINES[0], "", "# a word", "import a, b", "from a import (", "    b as c, d as e,", ")", '"""A text', 'of two lines."""', "else:", *LINES[1:], ")"]
    assert found(LINES, between) == {(0, 1): [(6, 1, 6, 1, 15)]}
    words = ["# a comment of words", "import a", "name,", "}", "", "else:"]
    assert found(words, words) == {}


def test_a_comment_is_what_its_language_says(found):
    halves = ["a = b // c + d", *LINES[1:]]
    assert found(halves, ["a = b", *LINES[1:]]) == {}
    code = [f"int a{i} = f(b{i}, {i});" for i in range(6)]
    assert found(code, [line + "  // why" for line in code], suffix=".cpp") == {(0, 1): [(6, 1, 6, 1, 6)]}


def test_lines_of_scripts_in_strings_count(found):
    assert found(['PROGRAM = """', *LINES, '"""'], LINES) == {(0, 1): [(6, 2, 7, 1, 6)]}


def test_a_run_is_as_long_as_it_is_alike_and_a_pair_is_two_files(found):
    more = ["x = [y for y in z]", "w = not x", "v, u = w"]
    gap = ["if a is b: raise c", "del d, e"]
    assert found([*LINES, *more, *gap, *LINES], [*LINES, *more]) == {(0, 1): [(9, 1, 9, 1, 9), (6, 12, 17, 1, 6)], (0, 0): [(6, 1, 6, 12, 17)]}


def test_repetitions_of_one_line_do_not_overlap(found):
    assert found(["a = b + 1"] * 12) == {(0, 0): [(6, 1, 6, 7, 12)]}
    assert found(["a = b + 1"] * 11) == {}
    assert found(["a = b + 1", "f(x)"] * 7) == {(0, 0): [(6, 1, 6, 9, 14), (6, 1, 6, 7, 12)]}


def test_what_stands_in_many_places_is_a_form_of_the_language(found):
    assert len(found(*[LINES] * repeats.MOST_PLACES)) == 28
    assert found(*[LINES] * (repeats.MOST_PLACES + 1)) == {}
