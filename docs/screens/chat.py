"""Draws `chat-light.svg` and `chat-dark.svg`: a chat in a terminal of tmux, with a model that follows a script.

    cargo build -p superstep-cli && python3 docs/screens/chat.py target/debug/superstep
"""

import html
import http.server
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
import time
import unicodedata

COLUMNS, ROWS = 96, 33
CELL, LINE, MARGIN, SIZE = 8.4, 19, 16, 14

THEMES = {
    "light": {"back": "#ffffff", "text": "#24292f", "rim": "#d0d7de",
              31: "#b3261e", 32: "#1a7f37", 33: "#8a6100", 34: "#0550ae", 35: "#8250df", 36: "#0f6f80"},
    "dark": {"back": "#0d1117", "text": "#e6edf3", "rim": "#30363d",
             31: "#ff7b72", 32: "#56d364", 33: "#e3b341", 34: "#79c0ff", 35: "#d2a8ff", 36: "#56d4dd"},
}

RENT = """//! The rent of a flat.

/// Returns the rent of some months, in cents.
pub fn rent(monthly: u64, months: u64) -> u64 {
    monthly * months
}

/// Returns the deposit: three months, in cents.
pub fn deposit(monthly: u64) -> u64 {
    rent(monthly, 2)
}
"""

BEFORE = RENT[RENT.index("/// Returns the deposit"):]
AFTER = BEFORE.replace("deposit: three months,", "deposit of three months,").replace("(monthly, 2)", "(monthly, 3)")

ANSWERS = [
    {"call": ("read_file", {"path": "src/rent.rs"})},
    {"text": "The deposit is wrong: `deposit` in `src/rent.rs` takes **two** months, and its comment says three.\n\n"
             "| months | expected | got |\n|---|---|---|\n| 3 | 2400.00 | 1600.00 |\n\nI correct the number, and the comment with it.",
     "call": ("edit_file", {"path": "src/rent.rs", "old": BEFORE, "new": AFTER})},
]


class Model(http.server.BaseHTTPRequestHandler):
    """Streams the answers of the script, one for each request."""

    answers = iter(ANSWERS)

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        answer = next(Model.answers)
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        name, args = answer["call"]
        call = {"index": 0, "id": name, "function": {"name": name, "arguments": json.dumps(args)}}
        usage = {"prompt_tokens": 2140, "completion_tokens": 96}
        self.event({"choices": [{"delta": {"content": answer.get("text", "")}}]})
        self.event({"choices": [{"delta": {"tool_calls": [call]}, "finish_reason": "tool_calls"}]})
        self.event({"choices": [], "usage": usage})
        self.wfile.write(b"data: [DONE]\n\n")

    def event(self, value):
        self.wfile.write(f"data: {json.dumps(value)}\n\n".encode())

    def log_message(self, *_):
        pass


def captured(program):
    """Returns the screen at the question about the edit, with its escape sequences."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Model)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as root:
        flat = pathlib.Path(root, "flat")
        (flat / "src").mkdir(parents=True)
        (flat / "src/rent.rs").write_text(RENT)
        env = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL") if name in os.environ}
        env |= {"HOME": root, "LC_CTYPE": "C.UTF-8"}

        def tmux(*args):
            ran = subprocess.run(["tmux", "-L", "superstep-screen", "-f", "/dev/null", *args], env=env,
                                 stdout=subprocess.PIPE, text=True, check=True)
            return ran.stdout

        def sees(text):
            for _ in range(600):
                if text in tmux("capture-pane", "-p"):
                    return
                time.sleep(0.1)
            sys.exit(f"no {text!r} in {tmux('capture-pane', '-p')}")

        command = [program, "chat", "--thread", "rent", "--no-memory", "--model", "qwen3-coder",
                   "--base-url", f"http://127.0.0.1:{server.server_port}/v1"]
        tmux("new-session", "-d", "-x", str(COLUMNS), "-y", str(ROWS), "-c", str(flat), *command)
        try:
            sees("ready")
            tmux("send-keys", "-l", "Why does the test of the deposit fail?")
            tmux("send-keys", "Enter")
            sees("[a]lways")
            tmux("send-keys", "-l", "y")
            time.sleep(1)
            shown = tmux("capture-pane", "-p", "-e")
        finally:
            tmux("kill-server")
    # The folder of the picture is not that of a reader.
    return shown.replace(root, "~")


def spans(row):
    """Splits a row into texts with their styles: the colour, and the set of bold (1), dim (2), italic (3) and reversed (7)."""
    colour, marks = None, set()
    for sequence, text in re.findall(r"\x1b\[([\d;]*)m|([^\x1b]+)", row):
        if text:
            yield text, colour, set(marks)
            continue
        # The sixteen colours also come as entries of the palette.
        sequence = re.sub(r"38;5;([0-7])", lambda found: str(30 + int(found[1])), sequence)
        for code in [int(code or 0) for code in sequence.split(";")]:
            if code in (0, 39):
                colour = None
            if code == 0:
                marks.clear()
            elif 31 <= code <= 36:
                colour = code
            elif code in (1, 2, 3, 4, 7):
                marks.add(code)
            elif code in (22, 23, 24, 27):
                marks -= {1, 2} if code == 22 else {code - 20}


def columns(text):
    return sum(2 if unicodedata.east_asian_width(sign) in "WF" else 1 for sign in text)


def drawn(screen, theme):
    rows = screen.rstrip("\n").split("\n")
    width, height = COLUMNS * CELL + 2 * MARGIN, len(rows) * LINE + 2 * MARGIN
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" role="img" '
        f'aria-label="superstep chat asks about an edit" font-family="ui-monospace, \'DejaVu Sans Mono\', Menlo, Consolas, monospace" font-size="{SIZE}">',
        f'<rect x=".5" y=".5" width="{width - 1:g}" height="{height - 1:g}" rx="8" fill="{theme["back"]}" stroke="{theme["rim"]}"/>',
    ]
    for number, row in enumerate(rows):
        at, top = 0, MARGIN + number * LINE
        for text, colour, marks in spans(row):
            x, length = MARGIN + at * CELL, columns(text) * CELL
            at += columns(text)
            ink = theme.get(colour, theme["text"])
            if 7 in marks:
                out.append(f'<rect x="{x:g}" y="{top + 1}" width="{length:g}" height="{LINE - 1}" rx="2" fill="{ink}"/>')
                ink = theme["back"]
            if not text.strip():
                continue
            style = ' font-weight="bold"' * (1 in marks) + ' opacity=".62"' * (2 in marks) + ' font-style="italic"' * (3 in marks)
            out.append(f'<text x="{x:g}" y="{top + 14}" fill="{ink}"{style} textLength="{length:g}" '
                       f'lengthAdjust="spacingAndGlyphs" xml:space="preserve">{html.escape(text)}</text>')
    return "\n".join([*out, "</svg>", ""])


def main():
    screen = captured(str(pathlib.Path(sys.argv[1]).resolve()))
    for name, theme in THEMES.items():
        pathlib.Path(__file__).with_name(f"chat-{name}.svg").write_text(drawn(screen, theme))


if __name__ == "__main__":
    main()
