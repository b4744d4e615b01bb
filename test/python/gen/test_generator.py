"""The generator: rows that are wrong are reported with file, line and what was expected; rows that are right give
the text under golden/; a change of one row changes few files."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import tapegrad

ROOT = Path(__file__).resolve().parents[3]
GOLDEN = Path(__file__).parent / "golden"
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

import new_row  # noqa: E402

from aten.gen.__main__ import outputs  # noqa: E402
from aten.gen.formulas import analyse  # noqa: E402
from aten.gen.model import RowError, load_table, parse_args  # noqa: E402

GOOD = '''
[[op]]
name = "lerp"
args = "Tensor input, Tensor end, Tensor|Scalar weight"
variants = ["method", "inplace", "out"]
kind = "pointwise"
grad.input = "grad * (1 - weight)"
grad.end = "grad * weight"
grad.weight = "grad * (end - input)"
doc = "Linear interpolation."
'''


def table(folder: Path, text: str, name: str = "demo.toml"):
    ops = folder / "aten" / "ops"
    ops.mkdir(parents=True, exist_ok=True)
    (ops / name).write_text(text)
    return load_table(ops)


WRONG = [
    ('name = "lerp"', 'nam = "lerp"', "demo.toml:2: ?: name is missing: expected"),
    ('kind = "pointwise"', 'kind = "pointless"', "demo.toml:6: lerp: kind 'pointless': expected one of pointwise, reduce"),
    ("Tensor end", "Tenzor end", "demo.toml:4: lerp: argument 'end': unknown type 'Tenzor': expected one of Tensor"),
    ("Tensor end,", "Tensor input,", "demo.toml:4: lerp: argument 'input' appears twice"),
    ('"out"]', '"outt"]', "lerp: unknown variant 'outt': expected one of method"),
    ("grad.end", "grad.start", "lerp: grad.start: not a tensor argument: expected one of end, input, weight"),
    ('grad.end = "grad * weight"\n', "", "lerp: no gradient for end: expected grad.NAME"),
    ('doc = "Linear interpolation."', "", "lerp: doc is missing: expected a sentence"),
    ('doc = "Linear', 'dtypes = ["fractional"]\ndoc = "Linear', "demo.toml:10: lerp: dtypes 'fractional': expected one of bool"),
    ('doc = "Linear', 'colour = "red"\ndoc = "Linear', "demo.toml:10: lerp: unknown key 'colour': expected one of alias"),
    ('doc = "Linear', 'differentiable = ["other"]\ndoc = "Linear', "lerp: differentiable 'other': not a result"),
    ('kind = "pointwise"', 'kind = "view"', "lerp: kind view needs the key 'view'"),
    ('kind = "pointwise"', 'kind = "overload"', "lerp: kind overload needs the key 'overloads'"),
    ("Tensor|Scalar weight", "Scalar a=1, Tensor weight", "lerp: argument 'weight' without default follows one with a default"),
    ('doc = "Linear', 'out_dtype = "wide"\ndoc = "Linear', "demo.toml:10: lerp: out_dtype 'wide': expected one of exact, cast, any"),
    ('doc = "Linear', 'apart = ["start"]\ndoc = "Linear', "demo.toml:10: lerp: apart 'start': expected a tensor argument"),
    ('doc = "Linear', 'number_first = "never"\ndoc = "Linear', "lerp: number_first 'never': expected true or 'with a tensor'"),
    ('kind = ', 'expand = { d = [1, 2], e = [3] }\nkind = ', "demo.toml:6: lerp: expand: expected lists of one length"),
    ('kind = ', 'flag.exact = "lurp"\nkind = ', "demo.toml:2: lerp: flag 'lurp' is not a row"),
    ("[[op]]", "[[op]\n", "demo.toml: not TOML:"),
]


@pytest.mark.parametrize("old, new, message", WRONG, ids=[m.split(": ", 1)[-1][:40] for _, _, m in WRONG])
def test_a_wrong_row_is_reported(tmp_path, old, new, message):
    assert old in GOOD
    with pytest.raises(RowError) as error:
        table(tmp_path, GOOD.replace(old, new))
    assert message in str(error.value)


def test_functions_are_named_after_the_row(tmp_path):
    def keys(name, kind, *more):
        row = table(tmp_path, "\n".join([GOOD.replace('"lerp"', f'"{name}"').replace("pointwise", kind), *more]))[0].row
        return {key: row[key] for key in ("impl", "module", "shape", "cpu", "cpu_once") if key in row}

    assert keys("_lerp", "kernel") == {"shape": "lerp_shape", "cpu": "lerp_cpu"}
    assert keys("_lerp", "random", 'cpu_once = "once"') == {"shape": "lerp_shape", "cpu_once": "once"}
    assert keys("lerp", "kernel", 'shape = "own"', 'cpu = "other"') == {"shape": "own", "cpu": "other"}
    assert keys("lerp", "kernel", "dynamic = true") == {"cpu": "lerp_cpu"}
    assert keys("_lerp", "composite") == {"impl": "lerp"} and keys("lerp", "composite", 'body = "input"') == {}
    assert keys("lerp", "pointwise") == keys("linalgebra_lerp", "pointwise") == {}
    assert keys("linalg_lerp", "pointwise") == {"module": ["linalg"]} and keys("fft_lerp", "pointwise", 'module = [""]') == {"module": [""]}


def test_defaults_of_a_file(tmp_path):
    text = '[defaults]\nkind = "pointwise"\ndtypes = ["floating"]\n' + GOOD.replace('kind = "pointwise"\n', "")
    first, second = table(tmp_path, text + GOOD.replace("lerp", "other").replace("doc", 'dtypes = ["bool"]\ndoc'))
    assert (first.kind, first.dtype_names, first.where) == ("pointwise", ["float32", "float64"], "demo.toml:5")
    assert second.dtype_names == ["bool_"]
    both = table(tmp_path, text + '[[op]]\nname = "either"\noverloads = ["lerp"]\ndoc = "lerp."\n')[1]
    assert both.kind == "overload"  # said by the key, whatever the file's default
    with pytest.raises(RowError, match="demo.toml:5: lerp: kind 'pointless': expected one of"):
        table(tmp_path, text.replace("pointwise", "pointless"))


def test_every_mistake_is_reported_at_once(tmp_path):
    text = GOOD.replace("lerp", "a").replace("Tensor end", "Tenzor end") + GOOD.replace("lerp", "b").replace('"out"]', '"oot"]')
    with pytest.raises(RowError) as error:
        table(tmp_path, text)
    assert ": a: " in str(error.value) and ": b: " in str(error.value)


def test_a_name_stands_once(tmp_path):
    with pytest.raises(RowError, match="lerp: already a row at demo.toml:2"):
        table(tmp_path, GOOD + GOOD)


def test_the_command_prints_the_mistake_and_fails(tmp_path):
    with pytest.raises(RowError):
        table(tmp_path, GOOD.replace("Tensor end", "Tenzor end"))
    run = subprocess.run([sys.executable, "-m", "aten.gen", "--ops", tmp_path / "aten" / "ops", "--out", tmp_path / "gen"],
                         cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 1
    assert "demo.toml:4: lerp: argument 'end'" in run.stderr
    assert not (tmp_path / "gen").exists()


def test_signatures():
    args = parse_args("Tensor input, int[2] stride=1, *, str mode=\"a, b\", float p=-inf, Tensor? out=None")
    assert [(a.name, a.default, a.keyword_only) for a in args] == [
        ("input", None, False), ("stride", "1", False), ("mode", '"a, b"', True), ("p", "-inf", True), ("out", "None", True)]


def test_a_node_saves_only_what_its_formulas_name(tmp_path):
    op = table(tmp_path, GOOD)[0]
    saved = {s.name: (s.kind, s.needed_by) for s in analyse(op)[1]}
    # weight is needed by the gradients of input and end, input and end by that of weight
    assert saved == {"weight": ("tensor", [0, 1]), "input": ("tensor", [2]), "end": ("tensor", [2])}


def test_a_question_about_the_shape_saves_the_shape(tmp_path):
    op = table(tmp_path, GOOD.replace("grad * (end - input)", "expand(grad, end.sizes()) * input"))[0]
    saved = {s.name: s.kind for s in analyse(op)[1]}
    assert saved["end"] == "meta" and saved["input"] == "tensor"


def test_a_change_of_one_row_changes_one_file(tmp_path):
    text = "".join(GOOD.replace("lerp", f"op{i}") for i in range(40))
    before = dict(outputs(table(tmp_path, text), tmp_path / "aten" / "ops"))
    changed = text.replace('name = "op7"', 'name = "op7"', 1).replace("grad * (1 - weight)", "grad - grad * weight", 1)
    after = dict(outputs(table(tmp_path, changed), tmp_path / "aten" / "ops"))
    different = {p for p in before if before[p] != after[p] and p.endswith((".cpp", ".h", ".inc"))}
    assert len(different) == 1 and different.pop().startswith("src/ops_demo_")


def test_generated_loops_include_the_functors_of_their_rows_alone(tmp_path):
    functors = tmp_path / "aten" / "functors"
    functors.mkdir(parents=True)
    (functors / "blend.h").write_text("template <class T>\nstruct lerp {\n")
    (functors / "round.h").write_text("#define TG_ROUND(name, function) struct name {};\nTG_ROUND(near, rint)\n")
    table(tmp_path, GOOD)
    ops = table(tmp_path, GOOD.replace('"lerp"', '"other"').replace("kind =", 'functor = "near"\nkind ='), "more.toml")
    texts = dict(outputs(ops, tmp_path / "aten" / "ops"))
    included = {path: re.findall(r"functors/(\w+\.h)", text) for path, text in texts.items() if path.startswith("src/pointwise_")}
    assert included == {f"src/pointwise_{name}{end}": [header] for name, header in (("demo_lerp", "blend.h"), ("more_other", "round.h"))
                        for end in ("_cpu.cpp", ".cu")}
    (functors / "round.h").write_text("")
    with pytest.raises(RowError, match="other: aten/functors has no struct near"):
        dict(outputs(load_table(tmp_path / "aten" / "ops"), tmp_path / "aten" / "ops"))


def test_rows_of_one_functor_are_compiled_in_one_file(tmp_path):
    rows = [GOOD.replace('"lerp"', f'"op{i}"') for i in range(20)]
    rows[2], rows[17] = (rows[i].replace("kind =", 'functor = "shared"\nkind =') for i in (2, 17))
    texts = dict(outputs(table(tmp_path, "".join(rows)), tmp_path / "aten" / "ops"))
    files = [text for path, text in texts.items() if re.match(r"src/pointwise_.*_cpu\.cpp", path)]
    assert len(files) > 1 and sum(f"void op{i}_pointwise" in text for text in files for i in range(20)) == 20
    assert [text.count("fn::shared<T>") for text in files if "fn::shared<T>" in text] == [2]


@pytest.mark.parametrize("at_end", [True, False])
def test_a_new_row_rewrites_few_files(at_end):
    changed = new_row.rewritten(at_end)
    assert len(changed) <= 6, sorted(changed)
    assert not any(re.match(r"src/(pointwise|reduce)_", path) for path in changed), sorted(changed)


def test_a_new_row_compiles_few_files_again():
    build = Path(tapegrad._C.__file__).absolute().parents[2]
    if not (build / ".ninja_deps").exists():
        pytest.skip("the library was not built here")
    again = new_row.compiled_again(build, new_row.rewritten())
    assert 0 < len(again) <= 60, sorted(again)
    assert not [target for target in again if re.search(r"_cpu\.cpp|\.cu\b", target)], sorted(again)


@pytest.mark.parametrize("kind", sorted(p.stem for p in GOLDEN.glob("*.toml")))
def test_golden_text(tmp_path, kind):
    """The generated C++ of one row per kind, reviewed as text. Rewrite with: python test/python/gen/test_generator.py"""
    got = golden_text(tmp_path, kind)
    assert got == (GOLDEN / f"{kind}.txt").read_text()


def golden_text(folder: Path, kind: str) -> str:
    ops = table(folder, (GOLDEN / f"{kind}.toml").read_text(), f"{kind}.toml")
    wanted = ("src/ops_", "bindings/py_", "src/pointwise", "src/reduce", "tapegrad/aten/kernels_", "tapegrad/aten/functions_")
    parts = []
    for path, text in outputs(ops, folder / "aten" / "ops"):
        if path.startswith(wanted):
            parts.append(f"==== {path}\n{text}")
    return "\n".join(parts).replace(str(folder), "TABLE")


if __name__ == "__main__":
    import tempfile

    for source in sorted(GOLDEN.glob("*.toml")):
        with tempfile.TemporaryDirectory() as folder:
            (GOLDEN / f"{source.stem}.txt").write_text(golden_text(Path(folder), source.stem))
            print("wrote", source.with_suffix(".txt"))
