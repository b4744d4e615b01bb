"""A program as an SVG picture: operators from top to bottom, with the sizes and bytes of their results."""

from __future__ import annotations

import html

_WIDTH, _HEIGHT, _GAP_X, _GAP_Y = 236, 34, 28, 26
_COLOURS = {"placeholder": "#d6e9d5", "call_function": "#dbe6f4", "output": "#f2dcc9"}


class Picture:
    """An SVG; `str` is its text, `save` writes it, notebooks show it."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __str__(self) -> str:
        return self.text

    def _repr_svg_(self) -> str:
        return self.text

    def save(self, path) -> None:
        """Writes the text to a file."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.text)


def _size(nbytes: int) -> str:
    for unit in ("B", "KB", "MB"):
        if nbytes < 1000:
            return f"{nbytes:.3g} {unit}"
        nbytes /= 1000
    return f"{nbytes:.3g} GB"


def _lines(node, weights: list[str]) -> tuple[str, str]:
    if node.op == "output":
        return "results", ", ".join(n.name for n in node.all_input_nodes)
    shape, dtype = node.meta.get("shape"), node.meta.get("dtype")
    title = node.name if node.op == "placeholder" else f"{node.target}({', '.join(weights)})" if weights else node.target
    if shape is None:
        return title, node.name
    return title, f"{node.name}: {str(dtype).rpartition('.')[2]}{list(shape)}  {_size(shape.numel() * dtype.itemsize)}"


def draw(graph) -> Picture:
    """The picture of a graph. Each operator stands below those whose results it takes; weights are named in the operator that takes them."""
    nodes = [n for n in graph.nodes if n.op != "get_attr"]
    level: dict = {}
    rows: list[list] = []
    for node in nodes:
        before = [level[n] for n in node.all_input_nodes if n in level]
        level[node] = max(before, default=-1) + 1 if node.op != "placeholder" else 0
        while len(rows) <= level[node]:
            rows.append([])
        rows[level[node]].append(node)
    place = {}
    for y, row in enumerate(rows):
        # Each below the middle of what it takes, as far as the row is wide enough.
        row.sort(key=lambda n: sum(xs) / len(xs) if (xs := [place[m][0] for m in n.all_input_nodes if m in place]) else 0)
        for x, node in enumerate(row):
            place[node] = (20 + x * (_WIDTH + _GAP_X), 20 + y * (_HEIGHT + _GAP_Y))
    width = 40 + max(map(len, rows)) * (_WIDTH + _GAP_X)
    height = 40 + len(rows) * (_HEIGHT + _GAP_Y)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" font-family="sans-serif">',
           f'<rect width="{width}" height="{height}" fill="white"/>']
    for node in nodes:
        x, y = place[node]
        for used in node.all_input_nodes:
            if used in place:
                x0, y0 = place[used]
                if x == x0 and y - y0 > _HEIGHT + _GAP_Y:  # beside the boxes between them
                    side = x + _WIDTH
                    out.append(f'<path d="M{side} {y0 + _HEIGHT / 2} C{side + 24} {y0 + _HEIGHT / 2} {side + 24} {y + _HEIGHT / 2} {side} {y + _HEIGHT / 2}" '
                               'fill="none" stroke="#8a8a8a"/>')
                    continue
                out.append(f'<path d="M{x0 + _WIDTH / 2} {y0 + _HEIGHT} C{x0 + _WIDTH / 2} {y0 + _HEIGHT + _GAP_Y} {x + _WIDTH / 2} {y - _GAP_Y} '
                           f'{x + _WIDTH / 2} {y}" fill="none" stroke="#8a8a8a"/>')
    for node in nodes:
        x, y = place[node]
        title, below = _lines(node, [n.name for n in node.all_input_nodes if n.op == "get_attr"])
        tip = html.escape(f"{title}\n{below}\n{node.meta.get('line', '')}".strip())
        out.append(f'<g><title>{tip}</title><rect x="{x}" y="{y}" width="{_WIDTH}" height="{_HEIGHT}" rx="5" fill="{_COLOURS[node.op]}" stroke="#6b7785"/>')
        for text, dy, size in ((title, 14, 12), (below, 28, 10)):
            text = text if len(text) * size * 0.55 < _WIDTH - 10 else text[:int((_WIDTH - 22) / (size * 0.55))] + "…"
            out.append(f'<text x="{x + _WIDTH / 2}" y="{y + dy}" font-size="{size}" text-anchor="middle">{html.escape(text)}</text>')
        out.append("</g>")
    return Picture("\n".join([*out, "</svg>"]))
