#!/usr/bin/env python3
"""Checks the pages: links, limits of length, functions and line counts that pages name, captions of tables, the site's table of contents.

    docs.py

Needs no network: links to other sites are not followed.
"""

import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Most lines of a page at the root.
LINES_MAX = {"README.md": 120, "ARCHITECTURE.md": 160}
# Most words of docs/, without pages that a test generates.
WORDS_MAX = 60_000
GENERATED = "<!-- Generated: "
# A line count in CONTRIBUTING.md is rounded; files may grow or shrink by this share before the count is wrong.
COUNT_TOLERANCE = 0.15
# Folders whose tables carry captions.
CAPTIONED = ("docs/guide/", "docs/reference/", "docs/design/", "docs/evidence.md", "README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")
LINK = re.compile(r"\]\(([^()\s]+(?:\([^()\s]*\))?)\)")
FENCE = re.compile(r"^ *```")
FUNCTION = re.compile(r"`((?:crates|lab)/[\w/]+\.rs)::(\w+)`")
FILE = re.compile(r"`((?:crates|lab|tests)/[\w./-]+)(?:::\w+)?`")
COUNT = re.compile(r"^\| \d+ \| \[[^\]]*\]\(([^)#]+)[^)]*\) \| (\d+) \|")


def pages():
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "*.md"], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    return sorted(name for name in set(listed.splitlines()) if (ROOT / name).exists())


def prose(text):
    """Lines outside of fenced code, with their numbers."""
    is_code = False
    for number, line in enumerate(text.splitlines(), 1):
        if FENCE.match(line):
            is_code = not is_code
        elif not is_code:
            yield number, line


def anchors(text):
    """Fragments of a page's headings, as GitHub and mdBook make them."""
    found = {}
    for _, line in prose(text):
        if line.startswith("#"):
            heading = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", line.lstrip("#").strip())
            slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
            count = found.setdefault(slug, 0)
            found[slug] += 1
            yield slug if count == 0 else f"{slug}-{count}"


def broken_links(name, text):
    for number, line in prose(text):
        for target in LINK.findall(re.sub(r"`[^`]*`", "", line)):
            if "://" in target or target.startswith("mailto:"):
                continue
            path, _, fragment = target.partition("#")
            file = ROOT / name if not path else ROOT / os.path.normpath(pathlib.Path(name).parent / path)
            if not file.exists():
                yield f"{name}:{number}: no such file: {target}"
            elif fragment and file.suffix == ".md" and fragment not in set(anchors(file.read_text())):
                yield f"{name}:{number}: no such heading: {target}"


def bare_tables(name, text):
    """Tables without a caption: a paragraph directly above that begins with "Table: "."""
    last, is_table = "", False
    for number, line in prose(text):
        if line.startswith("|") and not is_table and not last.startswith("Table: "):
            yield f"{name}:{number}: a table without a caption ('Table: ...' above the table)"
        is_table = line.startswith("|")
        if line.strip():
            # A caption may take several lines.
            is_continued = last.startswith("Table: ") and not line.startswith(("|", "#", "-")) and previous.strip()
            last = last if is_continued else line
        previous = line


def missing_files(name, text):
    """Paths in code spans that the repository lacks. Logs of the notebook and the changelog tell of older trees."""
    for number, line in prose(text):
        for path in FILE.findall(line):
            if not (ROOT / path).exists():
                yield f"{name}:{number}: no such file: {path}"


def missing_functions(name, text):
    for path, function in FUNCTION.findall(text):
        file = ROOT / path
        if not file.exists() or not re.search(rf"\bfn {function}\b", file.read_text()):
            yield f"{name}: no function {path}::{function}"


def wrong_counts(name, text):
    for number, line in prose(text):
        if (found := COUNT.match(line)) and (ROOT / found[1]).exists():
            lines = len((ROOT / found[1]).read_text().splitlines())
            if abs(lines - int(found[2])) > max(5, COUNT_TOLERANCE * lines):
                yield f"{name}:{number}: {found[1]} has {lines} lines, not {found[2]}"


def main():
    problems, words = [], 0
    summary = (ROOT / "docs/SUMMARY.md").read_text()
    for name in pages():
        text = (ROOT / name).read_text()
        problems += broken_links(name, text)
        problems += missing_functions(name, text)
        if len(text.splitlines()) > LINES_MAX.get(name, sys.maxsize):
            problems.append(f"{name}: {len(text.splitlines())} lines, at most {LINES_MAX[name]}")
        if name.startswith(CAPTIONED):
            problems += bare_tables(name, text)
            problems += missing_files(name, text)
        if name == "CONTRIBUTING.md":
            problems += wrong_counts(name, text)
        if name.startswith("docs/"):
            if GENERATED not in text:
                words += len(text.split())
            if name != "docs/SUMMARY.md" and f"({name.removeprefix('docs/')})" not in summary:
                problems.append(f"{name}: not in docs/SUMMARY.md")
    if words > WORDS_MAX:
        problems.append(f"docs/: {words} words, at most {WORDS_MAX}")
    for problem in problems:
        print(f"docs: {problem}")
    if problems:
        sys.exit(1)
    print(f"docs: links, functions, counts and captions hold; {words} words, at most {WORDS_MAX}")


if __name__ == "__main__":
    main()
