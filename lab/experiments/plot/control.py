#!/usr/bin/env python3
"""Draws the load that a session offers to its bottleneck over time, for each set of rules: one SVG, without a library.

    control.py RESULTS --out FILE.svg     RESULTS of lab/experiments/control/return
"""

import argparse
import json
import pathlib

WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 720, 300, 60, 45, 20
COLOURS = {"published": "#c0392b", "default": "#2471a3"}
# Bytes of a packet on the wire.
PACKET = 1490


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    lines = [json.loads(line) for line in arguments.results.read_text().splitlines()]
    curves = {}
    for line in lines:
        rules = line["cell"]["flow.m2c.rules"]
        if line["cell"]["topology.bottleneck.rate"] == "10M" and line["cell"]["topology.bottleneck.loss"]["p"] == 0:
            curves.setdefault(rules, offered(line))
    arguments.out.write_text(draw(curves))


def offered(line):
    """Mbit/s in each second: what came, and what was dropped."""
    flow = next(flow for flow in line["series"]["flows"] if flow["name"] == "m2c")
    return [(came + dropped * PACKET * 8) / 1e6 for came, dropped in zip(flow["throughput"], flow["dropped"])]


def draw(curves):
    most = 12.0
    seconds = max(len(values) for values in curves.values())
    x = lambda second: LEFT + (WIDTH - LEFT - 10) * second / seconds
    y = lambda rate: HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * min(rate, most) / most
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
             f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>']
    for rate in range(0, 13, 2):
        parts.append(f'<path d="M{LEFT} {y(rate):.1f}H{WIDTH - 10}" stroke="#ddd"/><text x="{LEFT - 8}" y="{y(rate) + 4:.1f}" text-anchor="end">{rate}</text>')
    for second in range(0, seconds + 1, 10):
        parts.append(f'<text x="{x(second):.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{second}</text>')
    capacity = [(0, 10), (40, 10), (40, 1), (70, 1), (70, 10), (seconds, 10)]
    parts.append(path([(x(second), y(rate)) for second, rate in capacity], "#555", ' stroke-dasharray="4 3"'))
    for number, (rules, values) in enumerate(sorted(curves.items())):
        parts.append(path([(x(second + 0.5), y(rate)) for second, rate in enumerate(values)], COLOURS[rules], ""))
        parts.append(f'<text x="{LEFT + 20}" y="{HEIGHT - BOTTOM - 40 + 16 * number}" fill="{COLOURS[rules]}">{rules} rules</text>')
    parts.append(f'<text x="{WIDTH / 2}" y="{HEIGHT - 8}" text-anchor="middle">time (s)</text>')
    parts.append(f'<text transform="translate(16 {HEIGHT / 2}) rotate(-90)" text-anchor="middle">load offered (Mbit/s)</text></svg>\n')
    return "\n".join(parts)


def path(points, colour, more):
    line = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    return f'<path d="M{line}" fill="none" stroke="{colour}" stroke-width="1.5"{more}/>'


main()
