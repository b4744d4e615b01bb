"""Tiers, reviewed deviations, the stored baseline, and the page docs/conformance.md."""

import fnmatch
import json
import re
from pathlib import Path

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    from pip._vendor import tomli as tomllib

HERE = Path(__file__).parent
BASELINE = HERE / "baseline.json"


def tiers() -> dict:
    """Tier of each operator; what no list names is in the third."""
    found = {}
    for tier, names in tomllib.loads((HERE / "tiers.toml").read_text()).items():
        for name in " ".join(names).split() if isinstance(names, list) else names.split():
            found[name] = int(tier.removeprefix("tier"))
    return found


def deviations() -> list[dict]:
    return tomllib.loads((HERE / "deviations.toml").read_text()).get("deviation", [])


def _matches(entry, result, check, message) -> bool:
    names = [entry["operator"]] if isinstance(entry["operator"], str) else entry["operator"]
    return (
        any(fnmatch.fnmatchcase(result.name, n) for n in names)
        and fnmatch.fnmatchcase(check, entry.get("check", "*"))
        and re.search(entry.get("message", ""), message) is not None
    )


def apply_deviations(results):
    """Moves the failures that the reviewed table explains out of each result's failures."""
    table = deviations()
    for result in results:
        result.deviations = []
        kept = []
        for check, message in result.failures:
            index = next((i for i, e in enumerate(table) if _matches(e, result, check, message)), None)
            if index is None:
                kept.append([check, message])
            else:
                result.deviations.append([check, message, index])
        result.failures = kept


def group_of(result, known) -> str:
    if result.kind != "operator":
        return result.kind + "s"
    return f"tier {known.get(result.name, 3)}"


GROUPS = ["tier 1", "tier 2", "tier 3", "modules", "optimizers"]


def totals(results) -> dict:
    known = tiers()
    table = {g: dict(have=0, missing=0, whole=0, passed=0, deviations=0, failed=0, crashes=0, total=0) for g in GROUPS}
    for r in results:
        row = table[group_of(r, known)]
        if r.missing:
            row["missing"] += 1
            continue
        row["have"] += 1
        row["whole"] += r.passed + len(r.deviations) == r.total
        row["passed"] += r.passed
        row["deviations"] += len(r.deviations)
        row["failed"] += len(r.failures)
        row["crashes"] += len(r.crashes)
        row["total"] += r.total
    return {g: row for g, row in table.items() if row["have"] or row["missing"]}


def share(row) -> str:
    """Passed among what is not a reviewed deviation, rounded down."""
    judged = row["total"] - row["deviations"]
    return f"{int(10000 * row['passed'] / judged) / 100:.2f} %" if judged else "-"


def text(results) -> str:
    lines = [f"{'':11}{'have':>6}{'missing':>8}{'whole':>7}{'passed':>9}{'total':>9}{'deviate':>8}{'failed':>8}{'crashes':>8}"]
    for group, row in totals(results).items():
        lines.append(
            f"{group:11}{row['have']:6}{row['missing']:8}{row['whole']:7}{row['passed']:9}{row['total']:9}"
            f"{row['deviations']:8}{row['failed']:8}{row['crashes']:8}  {share(row)}"
        )
    return "\n".join(lines)


def numbers(results) -> dict:
    return {f"{r.kind} {r.name}": [r.passed, r.total] for r in results if not r.missing}


def store_baseline(results):
    lines = ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in sorted(numbers(results).items()))
    BASELINE.write_text("{\n" + lines + "\n}\n")


def regressions(results) -> list[str]:
    """What is worse than the baseline: fewer checks passed, an operator gone, a crash."""
    now = {f"{r.kind} {r.name}": r for r in results}
    found = []
    for name, (passed, total) in json.loads(BASELINE.read_text()).items():
        r = now.get(name)
        if r is None or r.missing:
            found.append(f"{name}: gone ({r.missing if r else 'not in the database'})")
        elif r.passed < passed:
            first = "; ".join(f"{c}: {m}" for c, m in (r.crashes + r.failures)[:3])
            found.append(f"{name}: {r.passed} of {r.total} passed, {passed} of {total} stored: {first}")
    found.extend(f"{name}: {c}: {m}" for name, r in now.items() for c, m in r.crashes)
    return found


def page(results) -> str:
    """docs/conformance.md."""
    import torch

    known, table = tiers(), deviations()
    lines = [
        "# Conformance",
        "",
        f"Every sample of PyTorch {torch.__version__.split('+')[0]}'s own databases (`op_db`, `module_db`, `optim_db`) through both "
        "libraries, written by `make conformance`.",
        "A check is one sample in one dtype and one form: value, dtype and shape (of views also strides and shared memory), method, in-place, "
        "`out=` (as is, with gaps, empty, of other dtypes), non-contiguous inputs, gradient and second gradient in float64 and complex128, "
        "and error inputs, which must raise PyTorch's class of exception.",
        "",
        "| | have | missing | all checks pass | passed | checks | differ on purpose | fail | crashes | passed, without those on purpose |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for group, row in totals(results).items():
        lines.append(
            f"| {group} | {row['have']} | {row['missing']} | {row['whole']} | {row['passed']:,} | {row['total']:,} "
            f"| {row['deviations']:,} | {row['failed']:,} | {row['crashes']} | {share(row)} |"
        )
    lines += ["", "## Differences on purpose", "", "| what | checks | why |", "| --- | --- | --- |"]
    for index, entry in enumerate(table):
        users = [r for r in results if any(d[2] == index for d in r.deviations)]
        count = sum(d[2] == index for r in users for d in r.deviations)
        if count:
            names = [f"`{r.name}`" for r in users]
            shown = ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
            lines.append(f"| {shown}: {entry['what']} | {count} | {entry['why']} |")
    for group in GROUPS:
        mine = [r for r in results if group_of(r, known) == group]
        have, missing = [r for r in mine if not r.missing], [r.name for r in mine if r.missing]
        if not mine:
            continue
        lines += ["", f"## {group.capitalize()}", ""]
        worse = [r for r in have if r.failures or r.crashes]
        if worse:
            lines += ["| | passed / checks | first failure |", "| --- | --- | --- |"]
            for r in worse:
                check, message = (r.crashes + r.failures)[0]
                cell = f"{check}: {message}".replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")
                lines.append(f"| `{r.name}` | {r.passed} / {r.total} | {cell} |")
            lines.append("")
        whole = [f"`{r.name}` {r.passed}/{r.total}" for r in have if not r.failures and not r.crashes]
        lines += ["All that is not listed under differences passes: " + ", ".join(whole) + ".", ""]
        if missing:
            lines += ["Missing: " + ", ".join(f"`{n}`" for n in missing) + "."]
    return "\n".join(lines).rstrip() + "\n"
