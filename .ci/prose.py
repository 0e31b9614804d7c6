#!/usr/bin/env python3
"""Measures the language of comments in production code, and fails above the bounds in prose.toml.

    prose.py [--list MEASURE] [--under FOLDER]

The measures are those of CONTRIBUTING.md, "Language". --list prints each finding of one measure with file and line. Bounds only fall: who lowers a
measure lowers its bound. Comments of unit tests, benches and examples are left out.
"""

import argparse
import pathlib
import re
import subprocess
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
BOUNDS = pathlib.Path(__file__).resolve().with_name("prose.toml")
COLUMNS_MAX = 110
# First words that make a reader wait for the subject. "Whether" may begin the comment of a `bool`.
WAITING = {"what", "who", "whose", "that", "how", "where", "those"}
# Pronouns whose noun stands elsewhere.
PRONOUNS = {"it", "its", "itself", "they", "them", "their", "those", "others", "one", "ones", "such", "none", "what", "who", "whom", "whose",
            "whatever", "whoever"}
COMMENT = re.compile(r"^\s*(//[/!]?)(.*)$")
WORD = re.compile(r"[A-Za-z][A-Za-z'-]*")
CLAUSE_END = re.compile(r"(?<=[.;:!?])\s+")
CODE = re.compile(r"`[^`]*`|\[[^\]]*\]\([^)]*\)|\[`?|`?\]|https?://\S+")
PAGE = re.compile(r"[\w./-]+\.md\b")


def sources():
    """Production files: Rust below crates/ and lab/ without tests, benches and examples."""
    listed = subprocess.run(["git", "ls-files", "crates/*.rs", "lab/*.rs"], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    for name in listed.splitlines():
        parts = pathlib.PurePath(name).parts
        if {"tests", "benches", "examples"} & set(parts) or re.search(r"(^|_)tests?\.rs$", parts[-1]) or parts[-1] == "build.rs":
            continue
        if (ROOT / name).exists():
            yield name


def comments(name):
    """Blocks of comment lines that follow each other, in production code: (line number, kind, [text])."""
    block = None
    lines = (ROOT / name).read_text().splitlines()
    for number, line in enumerate(lines, 1):
        # Unit tests stand at the end of a file, unless they have a file of their own.
        if re.match(r"\s*#\[cfg\(test\)\]", line) and any(re.match(r"\s*mod \w+ \{", next) for next in lines[number:number + 3]):
            break
        found = COMMENT.match(line)
        if found and (block is None or block[1] == found[1]):
            block = block or (number, found[1], [])
            block[2].append(found[2].strip())
            continue
        if block:
            yield block
        block = (number, found[1], [found[2].strip()]) if found else None
    if block:
        yield block


def paragraphs(lines):
    """Texts of a comment without code blocks, headings and tables."""
    text, is_code = [], False
    for line in [*lines, ""]:
        if line.startswith("```"):
            is_code = not is_code
        elif is_code:
            continue
        elif not line or line.startswith(("#", "|", "-", "*")):
            if text:
                yield " ".join(text)
            text = [line.lstrip("-* ")] if line.startswith(("-", "*")) else []
        else:
            text.append(line)


def measure(folder):
    """Findings of each measure, as (file:line, text), and the numbers that shares are of."""
    findings = {name: [] for name in ("waiting_docs", "waiting_clauses", "pronouns", "wide_lines", "missing_pages")}
    totals = {"docs": 0, "clauses": 0, "words": 0}
    for name in sources():
        if not name.startswith(folder):
            continue
        for number, line in enumerate((ROOT / name).read_text().splitlines(), 1):
            if len(line) > COLUMNS_MAX and COMMENT.match(line):
                findings["wide_lines"].append((f"{name}:{number}", f"{len(line)} columns"))
        for number, kind, lines in comments(name):
            place = f"{name}:{number}"
            for page in PAGE.findall(" ".join(lines)):
                if not exists(page):
                    findings["missing_pages"].append((place, page))
            texts = list(paragraphs(lines))
            if kind != "//" and texts:
                totals["docs"] += 1
                if first_word(texts[0]) in WAITING:
                    findings["waiting_docs"].append((place, texts[0]))
            for text in texts:
                for clause in CLAUSE_END.split(text):
                    totals["clauses"] += 1
                    if first_word(clause) in WAITING:
                        findings["waiting_clauses"].append((place, clause))
                words = [word.lower() for word in WORD.findall(CODE.sub(" ", text))]
                totals["words"] += len(words)
                findings["pronouns"] += [(place, f"{word}: {text}") for word in words if word in PRONOUNS]
    return findings, totals


def first_word(text):
    found = WORD.match(text.lstrip("(*_\"' "))
    return found[0].lower() if found else ""


def exists(page):
    """Whether the repository has a page at the path by which it is cited."""
    return (ROOT / page).is_file()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--list", metavar="MEASURE", help="print each finding of a measure")
    parser.add_argument("--under", default="", metavar="FOLDER", help="look at this folder alone, without judging")
    arguments = parser.parse_args()
    findings, totals = measure(arguments.under)
    if arguments.list:
        if arguments.list not in findings:
            sys.exit(f"prose.py: no measure '{arguments.list}'; there are {', '.join(findings)}")
        for place, text in findings[arguments.list]:
            print(f"{place}: {text}")
        return
    percent = lambda name, total: 100 * len(findings[name]) / max(1, totals[total])
    measured = {
        "waiting_docs_percent": percent("waiting_docs", "docs"),
        "waiting_clauses_percent": percent("waiting_clauses", "clauses"),
        "pronouns_percent": percent("pronouns", "words"),
        "wide_lines": len(findings["wide_lines"]),
        "missing_pages": len(findings["missing_pages"]),
    }
    bounds = tomllib.loads(BOUNDS.read_text())
    failed = False
    for name, value in measured.items():
        bound, goal = bounds[name]["bound"], bounds[name]["goal"]
        # To the decimal that is shown.
        is_above = not arguments.under and round(value, 1) > bound
        failed |= is_above
        print(f"prose: {name} {value:.1f}, bound {bound}, goal {goal}{': ABOVE THE BOUND' if is_above else ''}")
    if failed:
        sys.exit("prose: 'python3 .ci/prose.py --list MEASURE' names each place; CONTRIBUTING.md, Language, has the rules")


if __name__ == "__main__":
    main()
