#!/usr/bin/env python3
"""Draws the stored results of `run.py` as SVG pictures.

usage: plots.py [RESULTS [FOLDER]]

Reads `.peers/results.jsonl` and writes `docs/plots/*.svg`, for light and dark pages. A picture without results is not
written. Standard library only.
"""

import json
import math
import sys
from html import escape
from pathlib import Path

TOP = Path(__file__).resolve().parents[4]
RESULTS = TOP / ".peers/results.jsonl"
FOLDER = TOP / "docs/plots"

STYLE = """
text { font: 12px system-ui, sans-serif; fill: #1f2328; }
.title { font-size: 14px; font-weight: 600; } .dim { fill: #59636e; } .end { text-anchor: end; } .mid { text-anchor: middle; }
.grid { stroke: #d1d9e0; } .one { stroke: #59636e; stroke-dasharray: 3 3; } .page { fill: #ffffff; }
.c0 { fill: #0969da; stroke: #0969da; } .c1 { fill: #1a7f37; stroke: #1a7f37; } .c2 { fill: #bc4c00; stroke: #bc4c00; }
.c3 { fill: #8250df; stroke: #8250df; } .c4 { fill: #bf3989; stroke: #bf3989; } .c5 { fill: #9a6700; stroke: #9a6700; }
.c6 { fill: #1b7c83; stroke: #1b7c83; } .c7 { fill: #6e7781; stroke: #6e7781; } .line { fill: none; stroke-width: 2; }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc; } .dim { fill: #9198a1; } .grid { stroke: #3d444d; } .one { stroke: #9198a1; } .page { fill: #0d1117; }
  .c0 { fill: #58a6ff; stroke: #58a6ff; } .c1 { fill: #3fb950; stroke: #3fb950; } .c2 { fill: #f0883e; stroke: #f0883e; }
  .c3 { fill: #bc8cff; stroke: #bc8cff; } .c4 { fill: #f778ba; stroke: #f778ba; } .c5 { fill: #d29922; stroke: #d29922; }
  .c6 { fill: #56d4dd; stroke: #56d4dd; } .c7 { fill: #8b949e; stroke: #8b949e; } .line { fill: none; }
}
"""

WIDTH, LEFT, RIGHT, HEAD = 860, 210, 40, 64


class Axis:
    """A logarithmic axis that covers all values, in whole powers of ten."""

    def __init__(self, values, first, last):
        self.low, self.high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
        self.high = max(self.high, self.low + 1)
        self.first, self.last = first, last

    def at(self, value):
        share = (math.log10(value) - self.low) / (self.high - self.low)
        return round(self.first + share * (self.last - self.first), 1)

    def ticks(self):
        return [10.0**power for power in range(self.low, self.high + 1)]


def short(value):
    for limit, unit in ((1e6, "M"), (1e3, "k")):
        if value >= limit:
            return f"{value / limit:.3g}{unit}"
    return f"{value:.3g}"


def text(x, y, words, style=""):
    return f'<text x="{x}" y="{y}" class="{style}">{escape(words)}</text>'


def legend(names):
    """The names in their colours, without versions, side by side under the title."""
    parts, x = [], 22
    for color, name in enumerate(name.split(" ")[0] for name in names):
        parts.append(f'<circle cx="{x}" cy="38" r="5" class="c{color}"/>' + text(x + 10, 42, name, "dim"))
        x += 28 + 7 * len(name)
    return parts


def picture(title, height, parts):
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">'
    page = f'<rect class="page" width="{WIDTH}" height="{height}"/>'
    named = f"<title>{escape(title)}</title>"
    return "\n".join([head, named, f"<style>{STYLE}</style>", page, text(16, 22, title, "title"), *parts, "</svg>", ""])


def scale(axis, bottom, unit, base=None):
    """Vertical lines with their values at the bottom; the one of `base` stands out."""
    parts = []
    for tick in axis.ticks():
        x = axis.at(tick)
        kind = "one" if tick == base else "grid"
        parts.append(f'<line x1="{x}" x2="{x}" y1="{HEAD - 8}" y2="{bottom}" class="{kind}"/>')
        parts.append(text(x, bottom + 18, short(tick) + unit, "dim mid"))
    return parts


def bars(title, rows, series, unit):
    """Bars from 1: a row for each work, a bar for each series that has a value."""
    values = [value for row in rows.values() for value in row.values()]
    axis = Axis([*values, 1], LEFT, WIDTH - RIGHT)
    parts, y = [], HEAD
    for name, row in rows.items():
        parts.append(text(LEFT - 12, y + 6 * len(row) + 4, name, "end"))
        for color, of in enumerate(series):
            if of not in row:
                continue
            first, last = sorted((axis.at(1), axis.at(row[of])))
            parts.append(f'<rect x="{first}" y="{y}" width="{max(last - first, 1):.1f}" height="10" class="c{color}"/>')
            parts.append(text(last + 4, y + 9, short(row[of]) + unit, "dim"))
            y += 12
        y += 10
    return picture(title, y + 30, [*legend(series), *scale(axis, y, unit, 1), *parts])


def dots(title, rows, series, unit):
    """A row for each work, with a dot for each series that has a value."""
    values = [value for row in rows.values() for value in row.values()]
    axis = Axis(values, LEFT, WIDTH - RIGHT)
    parts, y = [], HEAD + 8
    for name, row in rows.items():
        parts.append(text(LEFT - 12, y + 4, name, "end"))
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}" class="grid"/>')
        for color, of in reversed(list(enumerate(series))):
            if of in row:
                place = f'cx="{axis.at(row[of])}" cy="{y}" r="{7 if color == 0 else 5}" class="c{color}"'
                parts.append(f"<circle {place}><title>{escape(of)}: {short(row[of])}{unit}</title></circle>")
        y += 26
    return picture(title, y + 22, [*legend(series), *scale(axis, y - 8, unit), *parts])


def lines(title, points, unit):
    """A line for each series, through its points `(size, value)`."""
    sizes, values = zip(*(point for of in points.values() for point in of))
    height = 360
    across, up = Axis(sizes, LEFT // 2, WIDTH - RIGHT), Axis(values, height - 44, HEAD)
    parts = scale(across, height - 44, "")
    for tick in up.ticks():
        y = up.at(tick)
        parts.append(f'<line x1="{LEFT // 2}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}" class="grid"/>')
        parts.append(text(LEFT // 2 - 8, y + 4, short(tick) + unit, "dim end"))
    for color, of in enumerate(points.values()):
        path = " ".join(f"{across.at(size)},{up.at(value)}" for size, value in sorted(of))
        parts.append(f'<polyline points="{path}" class="c{color} line" style="fill:none"/>')
        parts += [f'<circle cx="{across.at(s)}" cy="{up.at(v)}" r="3.5" class="c{color}"/>' for s, v in of]
    return picture(title, height, [*legend(points), *parts])


def by_work(results, value):
    """`{work: {series: value}}` of the results for which `value` gives a series and a number."""
    rows = {}
    for result in results:
        for name, of, number in value(result):
            rows.setdefault(name, {})[of] = number
    return rows


def pictures(results):
    """The pictures by their names."""
    reference = {(r["workload"], r["saver"]): r for r in results if r["engine"] == "reference"}

    def ratio(result):
        theirs = reference.get((result["workload"], result["saver"]))
        if result["engine"] == "superstep" and theirs and "kept_bytes" not in result:
            yield result["workload"], result["saver"], theirs["cpu_us"] / result["cpu_us"]

    def peer(result):
        if "kept_bytes" in result and "history-of-one" not in result["workload"]:
            yield f"{result['workload']} / {result['saver']}", result["engine"], result["wall_us"]

    found = {}
    if rows := by_work(results, ratio):
        title = "CPU time of the Python reference, as a multiple of superstep's"
        found["reference"] = bars(title, rows, ["none", "memory", "sqlite"], "×")
    if rows := by_work(results, peer):
        engines = list(dict.fromkeys(of for row in rows.values() for of in row))
        engines.sort(key=lambda engine: engine != "superstep")
        title = "Time of a superstep (of the whole run for fanout) on each engine, in microseconds"
        found["peers"] = dots(title, rows, engines, "")
    for drawn, name, title, key, unit in GROWTH:
        points = {}
        for result in results:
            work, _, size = result["workload"].rpartition("_")
            if result["engine"] == "superstep" and work == name and key in result:
                points.setdefault(result["saver"], []).append((int(size.strip("x")), result[key]))
        if points:
            found[drawn] = lines(title, points, f" {unit}")
    return found


# Works that grow: the picture's name, the work's name before its size, the title, the drawn value, and its unit.
GROWTH = [
    ("runs-time", "runs", "Time of a superstep, by the number of runs at the same time", "step_us", "µs"),
    ("runs-memory", "runs", "Memory of a waiting run, by the number of runs at the same time", "run_kib", "KiB"),
    ("checkpoints", "thread", "Time of a superstep, by the number of checkpoints of the thread", "step_us", "µs"),
    ("levels", "levels", "Time of a level, by the depth of subgraphs", "step_us", "µs"),
    ("channels", "channels", "Time of a superstep, by the number of channels", "step_us", "µs"),
]


def main():
    stored = Path(sys.argv[1]) if len(sys.argv) > 1 else RESULTS
    folder = Path(sys.argv[2]) if len(sys.argv) > 2 else FOLDER
    results = [json.loads(line) for line in stored.read_text(encoding="utf-8").splitlines()]
    folder.mkdir(parents=True, exist_ok=True)
    for name, drawn in pictures(results).items():
        (folder / f"{name}.svg").write_text(drawn, encoding="utf-8")
        print(folder / f"{name}.svg", file=sys.stderr)


if __name__ == "__main__":
    main()
