"""Writes the documentation as HTML: the pages of docs/, and the operator reference that the generator wrote.

usage: docs.py BUILD OUT
"""

import re
import shutil
import sys
from pathlib import Path

import markdown

ROOT = Path(__file__).resolve().parent.parent

PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{title} - tapegrad</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 56rem; margin: 2rem auto; padding: 0 1rem; color: #222; }}
nav {{ border-bottom: 1px solid #ccc; padding-bottom: .5rem; }}
nav a {{ margin-right: 1rem; }}
pre {{ background: #f5f5f5; padding: .75rem; overflow-x: auto; }}
code {{ font-size: .9em; }}
table {{ border-collapse: collapse; }}
td, th {{ border: 1px solid #ccc; padding: .25rem .5rem; text-align: left; vertical-align: top; }}
</style>
<nav>{navigation}</nav>
{body}
</html>
"""


def title_of(text, path):
    heading = re.search(r"^#\s+(.+)$", text, re.MULTILINE)
    return heading.group(1) if heading else path.stem


def main(build, out):
    sources = {Path("index.md"): ROOT / "README.md"}
    for folder in (ROOT / "docs", build / "gen/docs"):
        sources.update({path.relative_to(folder): path for path in sorted(folder.rglob("*.md"))})
    sources = {name: path for name, path in sources.items() if path.exists()}
    titles = {name: title_of(path.read_text(), path) for name, path in sources.items()}

    shutil.rmtree(out, ignore_errors=True)
    for name, path in sources.items():
        up = "../" * (len(name.parts) - 1)
        pages = [n for n in sources if len(n.parts) == 1]
        navigation = " ".join(f'<a href="{up}{n.with_suffix(".html")}">{titles[n]}</a>' for n in pages)
        text = re.sub(r"\((?:docs/)?([\w./-]+)\.md(#[\w-]+)?\)", r"(\1.html\2)", path.read_text())
        body = markdown.markdown(text, extensions=["tables", "fenced_code", "toc"])
        target = out / name.with_suffix(".html")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(PAGE.format(title=titles[name], navigation=navigation, body=body))
    for picture in (ROOT / "docs").rglob("*.png"):
        target = out / picture.relative_to(ROOT / "docs")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(picture, target)
    print(f"{len(sources)} pages: {out / 'index.html'}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
