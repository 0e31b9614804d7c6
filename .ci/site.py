#!/usr/bin/env python3
"""Builds the pages of the repository and the Rust documentation into target/site, by MkDocs.

    site.py RUSTDOC

RUSTDOC is the folder that `cargo doc` wrote. docs/SUMMARY.md is the table of contents. Pages that it does not list, but other pages link to,
are part of the site without an entry. Run by `./ci.sh site`, which installs MkDocs in an environment of its own.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
LINK = re.compile(r"(?<!\!)\[([^\]]*)\]\(([^()\s#]+)(#[^()\s]*)?\)")
IMAGE = re.compile(r"!\[[^\]]*\]\(([^()\s]+)\)")
ENTRY = re.compile(r"( *)- \[([^\]]*)\]\(([^)]*)\)")
RUST_PAGE = """# Rust documentation

Table: crates.

| crate | subject |
|---|---|
| [headwater](rust/headwater/index.html) | sessions over UDP multicast: the crate for programs |
| [headwater-proto](rust/headwater_proto/index.html) | every protocol machine |
| [headwater-wire](rust/headwater_wire/index.html) | packets |
| [headwater-fec](rust/headwater_fec/index.html) | erasure codes |
| [headwater-netsim](rust/headwater_netsim/index.html) | the packet simulator |
| [headwater-baselines](rust/headwater_baselines/index.html) | controls for comparison |
"""
CSS = """
.md-typeset table:not([class]) { font-size: 0.68rem; }
.md-typeset table:not([class]) code { word-break: normal; overflow-wrap: normal; }
.md-grid { max-width: 76rem; }
.md-typeset img[src$="path.svg"] { background: #fff; }
"""


def contents():
    """Navigation of MkDocs from docs/SUMMARY.md, and the pages in it."""
    navigation, pages, section, above = [], [], None, None
    for line in (ROOT / "docs/SUMMARY.md").read_text().splitlines():
        if found := re.fullmatch(r"\[([^\]]*)\]\(([^)]*)\)", line):
            page = os.path.normpath(os.path.join("docs", found[2]))
            navigation.append({found[1]: page})
            pages.append(page)
        elif line.startswith("# ") and line != "# Summary":
            section = []
            navigation.append({line[2:]: section})
        elif found := ENTRY.match(line):
            page = os.path.normpath(os.path.join("docs", found[3]))
            pages.append(page)
            if found[1]:
                # The first page below another makes a group of the two.
                if not isinstance(above[next(iter(above))], list):
                    title, target = next(iter(above.items()))
                    above[title] = [{title: target}]
                above[next(iter(above))].append({found[2]: page})
            else:
                above = {found[2]: page}
                section.append(above)
    navigation.append({"Rust documentation": "rust.md"})
    return navigation, pages


def adapted(text):
    """The page in MkDocs's dialect: an empty line before each list, and no backslash before a bar in a code span of a table."""
    lines, is_code = [], False
    for line in text.splitlines():
        is_code ^= line.lstrip().startswith("```")
        if line.startswith("|") and not is_code:
            line = re.sub(r"`[^`]*`", lambda span: span[0].replace("\\|", "|"), line)
        is_item = re.match(r"([-*]|\d+\.) ", line)
        if is_item and not is_code and lines and lines[-1].strip() and not re.match(r"([-*]|\d+\.) |  ", lines[-1]):
            lines.append("")
        lines.append(line)
    return "\n".join(lines) + "\n"


def stage(folder, pages):
    """Copies pages, and files that pages link to, under the same paths."""
    waiting, done = list(pages), set()
    while waiting:
        name = waiting.pop()
        if name in done:
            continue
        done.add(name)
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if not name.endswith(".md"):
            shutil.copy(ROOT / name, target)
            continue
        text = (ROOT / name).read_text()

        def follow(link):
            if "://" in link[2] or link[2].startswith("mailto:"):
                return link[0]
            file = os.path.normpath(os.path.join(os.path.dirname(name), link[2]))
            if (ROOT / file).is_dir():
                return link[1]
            waiting.append(file)
            return link[0]

        text = LINK.sub(follow, text)
        waiting += [os.path.normpath(os.path.join(os.path.dirname(name), image)) for image in IMAGE.findall(text) if "://" not in image]
        target.write_text(adapted(text))


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    work, site = ROOT / "target/site-source", ROOT / "target/site"
    shutil.rmtree(work, ignore_errors=True)
    pages = work / "pages"
    pages.mkdir(parents=True)
    navigation, listed = contents()
    stage(pages, listed)
    (pages / "rust.md").write_text(RUST_PAGE)
    (pages / "extra.css").write_text(CSS)
    shutil.copytree(sys.argv[1], pages / "rust", ignore=shutil.ignore_patterns(".lock", "*.md"))
    configuration = {
        "site_name": "Headwater",
        "docs_dir": str(pages),
        "site_dir": str(site),
        "use_directory_urls": False,
        "theme": {"name": "material", "font": False, "features": ["navigation.sections", "navigation.indexes", "toc.follow"],
                  "palette": {"primary": "blue grey"}},
        "extra_css": ["extra.css"],
        "plugins": ["search"],
        "markdown_extensions": ["tables", "fenced_code", "sane_lists", {"toc": {"permalink": True}}],
        "nav": navigation,
        "not_in_nav": "*",
    }
    # JSON is YAML.
    (work / "mkdocs.yml").write_text(json.dumps(configuration, indent=1))
    subprocess.run([sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--config-file", str(work / "mkdocs.yml")], check=True)
    print(f"site: {site}/index.html")


if __name__ == "__main__":
    main()
