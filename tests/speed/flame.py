"""Flame graphs of recordings of perf: each box is a function, as wide as its part of the samples, above its caller.

usage: flame.py RECORDING.data ...; writes RECORDING.svg beside each
"""

import re
import subprocess
import sys
import zlib
from html import escape
from pathlib import Path

WIDTH, ROW, FONT = 1200, 17, 11
# Boxes that are narrower, in pixels, are left out.
NARROW = 0.5
# Functions of a stack that are drawn, from the thread's name on.
DEEP = 60
KERNEL = re.compile(r"\[k\]|kernel\.kallsyms|vmlinux|\[(?!unknown)\w+\]$")


class Frame:
    """A function under its callers, and its samples."""

    def __init__(self):
        self.samples, self.under = 0, {}

    def add(self, stack):
        self.samples += 1
        if stack:
            self.under.setdefault(stack[0], Frame()).add(stack[1:])

    def depth(self):
        return 1 + max((frame.depth() for frame in self.under.values()), default=0)


def stacks(recording):
    """The stacks of the samples, each from the thread's name on, as pairs of a function and whether the kernel has it."""
    words = ["perf", "script", "-i", recording, "-F", "comm,ip,sym,dso"]
    script = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=True).stdout
    for sample in script.split("\n\n"):
        head, *lines = [line.strip() for line in sample.splitlines() if line.strip()] or [""]
        if not lines:
            continue
        calls = [re.match(r"[0-9a-f]+ (.*) \((.*)\)$", line) for line in lines]
        frames = [(re.sub(r"(::h[0-9a-f]{16}|\+0x[0-9a-f]+)$", "", call[1]), bool(KERNEL.search(call[2]))) for call in calls if call]
        yield [(head, False), *reversed(frames)][:DEEP]


def colour(function, is_kernel):
    """Kernel blue, programs from red to yellow, the same for the same function in each picture."""
    shade = zlib.crc32(function.encode()) % 60
    return f"rgb({90 + shade},{140 + shade},230)" if is_kernel else f"rgb(235,{100 + 2 * shade},{60 + shade // 2})"


def boxes(frame, left, row, height, scale, total):
    """SVG of what a frame calls."""
    for (function, is_kernel), under in sorted(frame.under.items()):
        width = under.samples * scale
        if width >= NARROW:
            y = height - (row + 1) * ROW
            part = f"{function}: {100 * under.samples / total:.1f} %"
            shown = function[: max(0, int(width / FONT * 1.7))]
            yield (
                f'<g><title>{escape(part)}</title><rect x="{left:.1f}" y="{y}" width="{width:.1f}" height="{ROW - 1}" '
                f'fill="{colour(function, is_kernel)}"/>'
                f'<text x="{left + 2:.1f}" y="{y + ROW - 5}">{escape(shown if len(shown) > 2 else "")}</text></g>'
            )
            yield from boxes(under, left, row + 1, height, scale, total)
        left += width


def picture(recording):
    root = Frame()
    for stack in stacks(recording):
        root.add(stack)
    if not root.samples:
        sys.exit(f"flame: {recording} has no samples")
    height = (root.depth() + 1) * ROW
    body = "\n".join(boxes(root, 0.0, 0, height, WIDTH / root.samples, root.samples))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" font-family="sans-serif" font-size="{FONT}">\n'
        f'<rect width="100%" height="100%" fill="#fff"/><text x="4" y="{ROW - 4}">{escape(recording.stem)}: {root.samples} samples</text>\n'
        f"{body}\n</svg>\n"
    )


def draw(recording):
    """Writes the picture of a recording, and returns its path."""
    path = recording.with_suffix(".svg")
    path.write_text(picture(recording))
    return path


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    for name in sys.argv[1:]:
        print(draw(Path(name)))
