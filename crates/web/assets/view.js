"use strict";
(() => {
  const SECONDS = 60;
  const ENDED = ["completed", "complete", "interrupted", "failed", "incomplete", "gone", "nothing-received", "nothing-trusted",
    "verification-failed", "store-failed", "control-refused", "nothing-opened"];
  const $ = (id) => document.getElementById(id);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  // Lines of ends: distinct for all kinds of colour vision on the bands, and by their dashes.
  const LINES = { light: ["#c2410c", "#3b1c8c", "#14532d", "#a21c6b", "#5b4a00", "#7f1d1d", "#1e3a8a", "#3f3f46"],
    dark: ["#ffb26b", "#cbb8ff", "#9be7a8", "#ff9fd6", "#ffe07a", "#ff9c9c", "#a8c8ff", "#e4e4e7"] };
  const DASHES = [[], [7, 4], [2, 3], [9, 3, 2, 3]];
  let state = {}, frames = [], start = null, chosen = null, dirty = true, paused = false, cursor = null, samples = 0;
  let connection = "connecting", sort = { key: "done", up: true };

  // ---- state ---------------------------------------------------------------------------------------------

  const apply = (target, changes, depth) => {
    for (const [key, value] of Object.entries(changes)) {
      if (value === null) delete target[key];
      else if (depth > 0 && isObject(value) && isObject(target[key])) apply(target[key], value, depth - 1);
      else target[key] = value;
    }
  };
  const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
  /** The ends, a sender or relay first. */
  const ends = () => Object.entries(state.ends || {}).sort(([, a], [, b]) => (a.role === "receiver") - (b.role === "receiver"));
  const receivers = () => ends().filter(([, end]) => end.role === "receiver");

  const onSample = (changes) => {
    apply(state, changes, 2);
    const frame = { at: state.at, ends: {} };
    for (const [name, end] of ends()) {
      frame.ends[name] = { rate: end.rate, fair: end.fair_rate, ceiling: end.ceiling_rate, bands: end.channel_rates,
        lost: end.lost + end.kernel_drops, marked: end.marked, duplicates: end.duplicates, joins: end.joins, leaves: end.leaves, over: ENDED.includes(end.state) };
    }
    frames.push(frame);
    while (frames.length > 2 && frames[1].at < state.at - SECONDS * 1000) frames.shift();
    samples += 1;
    document.body.dataset.samples = samples;
    dirty = true;
  };

  const connect = () => {
    const source = new EventSource("/events");
    source.addEventListener("open", () => { connection = "live"; dirty = true; });
    source.addEventListener("error", () => { connection = "lost"; dirty = true; });
    source.addEventListener("state", (event) => {
      const opening = JSON.parse(event.data);
      if (start !== null && start !== opening.start) chosen = null;
      start = opening.start;
      state = isObject(opening.state) ? opening.state : {};
      frames = [];
    });
    source.addEventListener("message", (event) => onSample(JSON.parse(event.data)));
  };

  // ---- words ---------------------------------------------------------------------------------------------

  const digits = (value) => value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2);
  const scaled = (value, units, step) => {
    let index = 0;
    while (value >= step && index < units.length - 1) { value /= step; index += 1; }
    return index === 0 ? [String(Math.round(value)), units[0]] : [digits(value), units[index]];
  };
  const rateParts = (bits) => scaled(bits || 0, ["bit/s", "kbit/s", "Mbit/s", "Gbit/s"], 1000);
  const rate = (bits) => rateParts(bits).join(" ");
  const bytes = (count) => scaled(count || 0, ["B", "kB", "MB", "GB", "TB"], 1000).join(" ");
  const percent = (share) => `${(100 * share).toFixed(share > 0 && share < 0.1 ? 2 : 1)} %`;
  const time = (millis) => {
    const s = Math.round(millis / 1000);
    return s < 60 ? `${s} s` : s < 3600 ? `${Math.floor(s / 60)} min ${s % 60} s` : `${Math.floor(s / 3600)} h ${Math.floor(s / 60) % 60} min`;
  };
  const done = (end) => end.symbols_total > 0 ? Math.min(1, end.symbols / end.symbols_total) : 0;
  const loss = (end) => end.packets + end.lost > 0 ? end.lost / (end.packets + end.lost) : 0;
  const shown = (name, end) => name === "end" ? end.role : name;
  const count = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;

  const make = (tag, text, properties) => {
    const element = document.createElement(tag);
    if (text !== undefined) element.textContent = text;
    return Object.assign(element, properties || {});
  };
  /** Sets an element's text, or its children, if they differ: focus and selections stay. */
  const setText = (element, text) => { if (element.textContent !== text) element.textContent = text; };
  const note = (id, text) => { $(`no-${id}`).hidden = !text; setText($(`no-${id}`), text || ""); if ($(id).tagName === "CANVAS") $(id).hidden = !!text; };

  // ---- drawing -------------------------------------------------------------------------------------------

  const theme = () => {
    const style = getComputedStyle(document.documentElement);
    const of = (name) => style.getPropertyValue(`--${name}`).trim();
    return { ink: of("ink"), soft: of("soft"), grid: of("grid"), line: of("line"), panel: of("panel"), accent: of("accent"), warn: of("warn"), track: of("track"),
      lines: dark.matches ? LINES.dark : LINES.light };
  };
  let colours = theme();
  const band = (channel, channels) => {
    const share = channels > 1 ? channel / (channels - 1) : 0;
    const wobble = channel % 2 ? 3 : 0;
    return dark.matches ? `hsl(${204 - 14 * share} 62% ${50 - 28 * share + wobble}%)` : `hsl(${206 - 16 * share} 58% ${44 + 40 * share + wobble}%)`;
  };
  const lineOf = (name) => {
    const index = receivers().findIndex(([other]) => other === name);
    if (index < 0) return { colour: colours.ink, dash: [] };
    return { colour: colours.lines[index % colours.lines.length], dash: DASHES[Math.floor(index / 2) % 2 * 2 + index % 2] };
  };
  const swatch = (draw) => {
    const canvas = make("canvas", undefined, { className: "swatch", width: 36, height: 16 });
    canvas.setAttribute("aria-hidden", "true");
    const pen = canvas.getContext("2d");
    pen.scale(2, 2);
    draw(pen);
    return canvas;
  };
  const lineSwatch = ({ colour, dash }) => swatch((pen) => { pen.strokeStyle = colour; pen.lineWidth = 2.5; pen.setLineDash(dash); stroke(pen, [[0, 4], [18, 4]]); });
  const stroke = (pen, points) => { pen.beginPath(); points.forEach(([x, y], index) => index ? pen.lineTo(x, y) : pen.moveTo(x, y)); pen.stroke(); };

  /** Prepares a canvas for its size on the screen. Returns the pen, the width and the height. */
  const prepare = (canvas) => {
    const ratio = Math.max(1, devicePixelRatio || 1), width = canvas.clientWidth, height = canvas.clientHeight;
    const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
    if (canvas.width !== w || canvas.height !== h) { canvas.width = w; canvas.height = h; }
    const pen = canvas.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, height);
    pen.font = "12px system-ui, sans-serif";
    pen.lineJoin = "round";
    return [pen, width, height];
  };
  const nice = (value) => { const power = 10 ** Math.floor(Math.log10(value)); return [1, 1.5, 2, 3, 4, 5, 6, 8, 10].map((step) => step * power).find((step) => step >= value) || value; };
  /** Seconds that the charts show: the time so far, from 20 to 60 s. */
  const span = () => frames.length ? Math.min(SECONDS, Math.max(20, Math.ceil((now() - frames[0].at) / 1000))) : SECONDS;
  const now = () => frames.length ? frames[frames.length - 1].at : 0;

  const timeAxis = (pen, left, right, y) => {
    pen.fillStyle = colours.soft;
    pen.textBaseline = "top";
    const seconds = span(), step = right - left < 420 ? (seconds > 45 ? 20 : 10) : seconds > 30 ? 10 : 5;
    for (let ago = 0; ago <= seconds; ago += step) {
      const x = right - ago / seconds * (right - left), isLast = ago + step > seconds;
      pen.textAlign = ago === 0 ? "right" : isLast && x < left + 24 ? "left" : "center";
      pen.fillText(isLast ? `${ago} s ago` : ago ? `${ago}` : "now", x, y + 5);
    }
  };

  const drawWaves = () => {
    const canvas = $("waves"), [pen, width, height] = prepare(canvas);
    const [left, right, top, bottom] = [46, width - 8, 20, height - 22];
    const bandEnd = chosen || (ends().find(([, end]) => end.role === "sender" || end.role === "relay") || [])[0];
    const lines = chosen ? [chosen] : receivers().map(([name]) => name).slice(0, 8);
    let most = 1e4;
    for (const { ends: all } of frames) {
      for (const [name, end] of Object.entries(all)) {
        if (name === bandEnd || lines.includes(name)) most = Math.max(most, end.rate || 0, end.ceiling || 0, chosen ? Math.min(end.fair || 0, 3 * (end.rate || 0)) : 0);
      }
    }
    most = nice(most * 1.06);
    const x = (at) => right - (now() - at) / (span() * 1000) * (right - left);
    const y = (bits) => bottom - bits / most * (bottom - top);
    const [, unit] = rateParts(most), scale = { "bit/s": 1, "kbit/s": 1e3, "Mbit/s": 1e6, "Gbit/s": 1e9 }[unit];
    pen.fillStyle = colours.soft;
    pen.textAlign = "left"; pen.textBaseline = "top";
    pen.fillText(unit, 2, 0);
    pen.textAlign = "right"; pen.textBaseline = "middle";
    for (let step = 0; step <= 4; step += 1) {
      const bits = most * step / 4;
      pen.strokeStyle = colours.grid; pen.lineWidth = 1;
      stroke(pen, [[left, Math.round(y(bits)) + 0.5], [right, Math.round(y(bits)) + 0.5]]);
      pen.fillText(String(Number((bits / scale).toPrecision(3))), left - 6, y(bits));
    }
    timeAxis(pen, left, right, bottom);
    pen.save();
    pen.beginPath(); pen.rect(left, 0, right - left + 8, bottom + 1); pen.clip();
    drawBands(pen, bandEnd, x, y);
    const ceiling = frames.filter((frame) => frame.ends[bandEnd] && frame.ends[bandEnd].ceiling > 0);
    if (ceiling.length > 1) {
      pen.strokeStyle = colours.ink; pen.globalAlpha = 0.75; pen.lineWidth = 1.5; pen.setLineDash([2, 3]);
      stroke(pen, ceiling.map((frame) => [x(frame.at), y(frame.ends[bandEnd].ceiling)]));
      pen.setLineDash([]); pen.globalAlpha = 1;
    }
    lines.forEach((name) => drawLine(pen, name, x, y));
    label(pen, lines, right, y, top, bottom);
    if (cursor !== null) {
      pen.strokeStyle = colours.ink; pen.lineWidth = 1;
      const at = Math.max(left, Math.min(right, cursor * width));
      stroke(pen, [[at, top], [at, bottom]]);
    }
    pen.restore();
    readOut(lines, bandEnd, (px) => now() - (right - px) / (right - left) * span() * 1000, width);
  };

  /** Draws the stacked rates of the channels of an end. */
  const drawBands = (pen, name, x, y) => {
    const present = frames.filter((frame) => frame.ends[name]);
    const channels = Math.max(0, ...present.map((frame) => frame.ends[name].bands.length));
    const bases = present.map(() => 0);
    for (let channel = 0; channel < channels; channel += 1) {
      const lower = present.map((frame, index) => [x(frame.at), y(bases[index])]);
      present.forEach((frame, index) => { bases[index] += 1000 * (frame.ends[name].bands[channel] || 0); });
      const upper = present.map((frame, index) => [x(frame.at), y(bases[index])]);
      pen.fillStyle = band(channel, Math.max(channels, 12));
      pen.beginPath();
      upper.concat(lower.reverse()).forEach(([px, py], index) => index ? pen.lineTo(px, py) : pen.moveTo(px, py));
      pen.fill();
    }
  };

  const drawLine = (pen, name, x, y) => {
    const present = frames.filter((frame) => frame.ends[name] && !frame.ends[name].over);
    const points = present.map((frame) => [x(frame.at), y(frame.ends[name].rate || 0)]);
    const { colour, dash } = lineOf(name);
    const both = (list, width, style) => {
      pen.setLineDash(style);
      pen.strokeStyle = colours.panel; pen.globalAlpha = 0.8; pen.lineWidth = width + 3; pen.setLineDash([]); stroke(pen, list);
      pen.strokeStyle = colour; pen.globalAlpha = 1; pen.lineWidth = width; pen.setLineDash(style); stroke(pen, list);
      pen.setLineDash([]);
    };
    const fair = present.filter((frame) => frame.ends[name].fair > 0);
    if (chosen && fair.length > 1) both(fair.map((frame) => [x(frame.at), y(frame.ends[name].fair)]), 1.5, [8, 5]);
    if (points.length > 1) both(points, 2.5, chosen ? [] : dash);
    if (points.length && frames[frames.length - 1].ends[name].over) {
      const [px, py] = points[points.length - 1], word = `${chosen ? "" : `${name} `}${state.ends[name].state}`;
      pen.fillStyle = colour; pen.beginPath(); pen.arc(px, py, 4, 0, 7); pen.fill();
      pen.textAlign = px > 300 ? "right" : "left"; pen.textBaseline = "alphabetic"; pen.font = "600 12px system-ui, sans-serif";
      pen.strokeStyle = colours.panel; pen.lineWidth = 4; pen.strokeText(word, px, py - 10); pen.fillText(word, px, py - 10);
    }
    present.forEach((frame, index) => {
      const before = index ? present[index - 1].ends[name] : frame.ends[name], at = x(frame.at), end = frame.ends[name];
      const mark = (up, py) => { pen.fillStyle = colour; pen.strokeStyle = colours.panel; pen.lineWidth = 1; pen.beginPath(); pen.moveTo(at - 4, py); pen.lineTo(at + 4, py); pen.lineTo(at, py + (up ? -7 : 7)); pen.closePath(); pen.stroke(); pen.fill(); };
      if (chosen && end.joins > before.joins) mark(true, y(end.rate || 0) - 5);
      if (chosen && end.leaves > before.leaves) mark(false, y(end.rate || 0) + 5);
    });
  };

  /** Names the lines at their right ends, without overlaps. */
  const label = (pen, lines, right, y, top, bottom) => {
    if (chosen || !frames.length) return;
    const last = frames[frames.length - 1].ends;
    const places = lines.filter((name) => last[name] && !last[name].over).map((name) => ({ name, at: y(last[name].rate || 0) - 10 })).sort((a, b) => a.at - b.at);
    places.forEach((place, index) => { place.at = Math.max(place.at, index ? places[index - 1].at + 16 : top + 6); });
    let below = bottom - 8;
    for (const place of places.slice().reverse()) { place.at = Math.min(place.at, below); below = place.at - 16; }
    pen.textAlign = "right"; pen.textBaseline = "middle"; pen.font = "600 12px system-ui, sans-serif";
    for (const { name, at } of places) {
      pen.strokeStyle = colours.panel; pen.lineWidth = 4; pen.strokeText(name, right - 6, at);
      pen.fillStyle = lineOf(name).colour; pen.fillText(name, right - 6, at);
    }
  };

  const readOut = (lines, bandEnd, timeAt, width) => {
    const last = frames[frames.length - 1];
    let text = "Bands are channels, by number. Arrow keys or the pointer read values.";
    const at = cursor === null ? null : timeAt(Math.max(46, Math.min(width - 8, cursor * width)));
    const frame = at === null ? last : frames.reduce((best, other) => Math.abs(other.at - at) < Math.abs(best.at - at) ? other : best, last);
    if (frame) {
      const parts = [...new Set([bandEnd, ...lines])].filter((name) => name && frame.ends[name]).map((name) => {
        const end = frame.ends[name], fair = end.fair > 0 ? `, fair ${rate(end.fair)}` : "", ceiling = end.ceiling > 0 ? `, ceiling ${rate(end.ceiling)}` : "";
        return `${shown(name, (state.ends || {})[name] || { role: name })} ${rate(end.rate)}${fair}${ceiling}`;
      });
      const words = `${((last.at - frame.at) / 1000).toFixed(1)} s ago: ${parts.join("; ")}`;
      if (at !== null) text = words;
      $("waves").setAttribute("aria-label", `Rates of the last ${span()} s. ${words}`);
    }
    setText($("at-waves"), text);
  };

  const drawLoss = () => {
    const list = chosen ? [chosen] : receivers().map(([name]) => name);
    const known = list.filter((name) => state.ends[name].role === "receiver");
    note("loss", known.length ? "" : receivers().length ? "A sender counts no losses. Choose a receiver." : "Receivers count losses, and no receiver is on this page: the table of ends has the losses that receivers report.");
    if (!known.length) return;
    const [pen, width, height] = prepare($("loss")), [left, right, bottom] = [46, width - 8, height - 22];
    const bins = { lost: [], marked: [], duplicates: [] }, words = { lost: "lost", marked: "marked (ECN)", duplicates: "duplicate or surplus symbols" };
    frames.forEach((frame, index) => {
      const before = frames[index - 1];
      if (!before) return;
      const bin = Math.floor(frame.at / 1000);
      for (const key of Object.keys(bins)) for (const name of known) {
        const [end, past] = [frame.ends[name], before.ends[name]];
        if (end && past && end[key] > past[key]) bins[key][bin] = (bins[key][bin] || 0) + end[key] - past[key];
      }
    });
    const lane = (bottom - 2) / 3, shades = { lost: colours.warn, marked: colours.lines[1], duplicates: colours.accent };
    const summary = [];
    Object.entries(bins).forEach(([key, counts], index) => {
      const base = lane * (index + 1), entries = Object.entries(counts), sum = entries.reduce((total, [, value]) => total + value, 0);
      const top = nice(Math.max(4, ...entries.map(([, value]) => value)));
      pen.strokeStyle = colours.line; pen.lineWidth = 1;
      stroke(pen, [[left, Math.round(base) + 0.5], [right, Math.round(base) + 0.5]]);
      pen.strokeStyle = colours.grid;
      stroke(pen, [[left, Math.round(base - lane + 20) + 0.5], [right, Math.round(base - lane + 20) + 0.5]]);
      pen.fillStyle = colours.soft; pen.textAlign = "right"; pen.textBaseline = "middle";
      pen.fillText("0", left - 6, base - 4); pen.fillText(String(top), left - 6, base - lane + 21);
      pen.fillStyle = shades[key];
      for (const [bin, value] of entries) {
        const end = right - (now() / 1000 - Number(bin) - 1) / span() * (right - left), slot = (right - left) / span();
        const from = Math.max(left, end - slot + 1), to = Math.min(right, end - 0.5), tall = Math.max(2, value / top * (lane - 20));
        if (to > from) pen.fillRect(from, base - tall, to - from, tall);
      }
      pen.textAlign = "left"; pen.textBaseline = "alphabetic"; pen.fillStyle = colours.ink;
      const words_ = `${words[key]}: ${sum ? `${sum} in ${span()} s` : "none"}`;
      pen.fillText(words_, left + 2, base - lane + 14);
      summary.push(words_);
    });
    timeAxis(pen, left, right, bottom);
    $("loss").setAttribute("aria-label", `${chosen ? shown(chosen, state.ends[chosen]) : "all receivers"}: ${summary.join("; ")}`);
  };

  const drawBlocks = () => {
    const canvas = $("blocks");
    const list = (chosen ? [chosen] : receivers().map(([name]) => name)).filter((name) => state.ends[name].cells.length).sort((a, b) => done(state.ends[a]) - done(state.ends[b])).slice(0, 4);
    const sender = chosen && state.ends[chosen].role !== "receiver";
    note("blocks", list.length ? "" : sender ? `A sender has every block. ${receivers().length ? "Choose a receiver." : "The table of ends shows how much receivers have."}` : "No block is known yet: the session's description has not arrived.");
    if (list.length) {
      const width = canvas.clientWidth || 300, gap = list.length > 1 ? 20 : 18;
      const plans = list.map((name) => {
        const cells = state.ends[name].cells.length, size = Math.max(9, Math.min(30, Math.floor(Math.sqrt(width * 96 / cells))));
        const columns = Math.max(1, Math.min(cells, Math.floor(width / size))), wide = cells <= columns ? Math.min(width / cells, 160) : width / columns;
        return { name, size, columns, wide, rows: Math.ceil(cells / columns) };
      });
      const tall = plans.reduce((sum, plan) => sum + gap + plan.rows * plan.size + 6, 0);
      if (canvas.style.height !== `${tall}px`) canvas.style.height = `${tall}px`;
      const [pen] = prepare(canvas);
      let top = 0;
      for (const { name, size, columns, wide, rows } of plans) {
        const end = state.ends[name], [all, whole] = end.blocks || [0, 0];
        pen.fillStyle = colours.ink; pen.textAlign = "left"; pen.textBaseline = "top";
        pen.fillText(`${shown(name, end)}: ${whole} of ${count(all, "block")} whole`, 0, top + 2);
        end.cells.forEach((share, cell) => {
          const [cx, cy] = [cell % columns * wide, top + gap + Math.floor(cell / columns) * size], [w, h] = [wide - 2, size - 2];
          pen.fillStyle = colours.track; pen.fillRect(cx, cy, w, h);
          pen.fillStyle = band(share === 100 ? 1 : 7, 12); pen.fillRect(cx, cy + h * (1 - share / 100), w, h * share / 100);
          if (share === 100 && w > 14 && h > 10) { pen.strokeStyle = colours.panel; pen.lineWidth = 2; stroke(pen, [[cx + w / 2 - 4, cy + h / 2], [cx + w / 2 - 1, cy + h / 2 + 3], [cx + w / 2 + 4, cy + h / 2 - 3]]); }
        });
        top += gap + rows * size + 6;
      }
      canvas.setAttribute("aria-label", list.map((name) => `${shown(name, state.ends[name])}: ${(state.ends[name].blocks || [0, 0])[1]} of ${(state.ends[name].blocks || [0, 0])[0]} blocks whole`).join("; "));
      const per = Math.max(...list.map((name) => Math.ceil((state.ends[name].blocks || [0])[0] / state.ends[name].cells.length)));
      setText($("blocks-unit"), per > 1 ? `a cell is up to ${per} blocks, filled as far as they have arrived` : "a cell is a block, filled as far as it has arrived");
    }
    drawFiles(list[0]);
  };

  const drawFiles = (name) => {
    const end = name && state.ends[name], files = end ? end.files : [];
    const rows = files.slice(0, 6).map((file) => [file.name || "(unnamed)", bytes(file.bytes), file.done]);
    const more = end ? end.files_total - rows.length : 0, members = end && end.members ? `, ${count(end.members, "member")} of bundles` : "";
    replace($("files"), JSON.stringify([rows, more, members]), () => {
      const items = rows.map(([title, size, share]) => {
        const item = make("li"), bar = make("progress", undefined, { max: 100, value: share });
        bar.setAttribute("aria-label", title);
        item.append(make("span", title, { title }), make("span", size, { className: "number" }), bar, make("span", `${share} %`, { className: "number" }));
        return item;
      });
      if (more > 0) items.push(make("li", `and ${count(more, "more file")}${members}`));
      return items;
    });
  };
  /** Replaces children if the key of their content has changed. */
  const replace = (element, key, build) => { if (element.dataset.key !== key) { element.dataset.key = key; element.replaceChildren(...build()); } };

  // ---- texts ---------------------------------------------------------------------------------------------

  const COLUMNS = [["name", "end"], ["done", "received"], ["rate", "rate"], ["fair", "fair rate"], ["lost", "lost"], ["channels", "channels"], ["left", "time left"], ["state", "state"]];
  const tableRows = () => {
    const of = ends().map(([name, end]) => ({ key: name, name: shown(name, end), line: end.role === "receiver" ? name : null, state: end.state, role: end.role,
      done: end.role === "receiver" ? done(end) : null, rate: end.rate, fair: end.fair_rate ?? null, lost: end.role === "receiver" ? loss(end) : null, channels: end.channels ?? null, left: end.time_left ?? null }));
    const names = new Set(of.map((row) => row.name));
    const reported = Object.entries(state.rows || {}).filter(([, row]) => !names.has(row.name)).map(([key, row]) => ({ key, name: row.name || row.address, line: null, state: row.state, role: "receiver",
      done: row.done, rate: row.rate, fair: row.fair_rate ?? null, lost: row.lost, channels: null, left: null }));
    const order = (a, b) => {
      if ((a.role === "receiver") !== (b.role === "receiver")) return a.role === "receiver" ? 1 : -1;
      const [x, y] = [a[sort.key], b[sort.key]];
      if (x === null || y === null) return (x === null) - (y === null);
      return (x < y ? -1 : x > y ? 1 : a.rate - b.rate) * (sort.up ? 1 : -1);
    };
    return of.concat(reported).sort(order);
  };
  const drawTable = () => {
    const rows = tableRows(), counted = rows.filter((row) => row.role === "receiver").length;
    const hasSender = rows.some((row) => row.role === "sender");
    note("ends", counted || !hasSender ? "" : "No receiver has reported yet: a receiver reports within seconds of its first packet, unless the session is unsigned and the receiver has no --name, or --no-roster, --no-reports or a one-way network keeps reports away.");
    setText($("ends-unit"), counted > 1 ? `${count(counted, "receiver")}, ${sort.key === "done" && sort.up ? "the slowest first" : "sorted"}` : "");
    const cells = rows.slice(0, 500).map((row) => [row.key, row.line, row.name, row.state, row.done, row.rate || !ENDED.includes(row.state) ? rate(row.rate) : "", row.fair === null ? "" : rate(row.fair), row.lost === null ? "" : percent(row.lost), !row.channels ? "" : String(row.channels), row.left === null ? "" : time(row.left)]);
    replace($("ends"), JSON.stringify([cells, dark.matches]), () => cells.map(([key, line, name, word, share, ...rest]) => {
      const tr = make("tr"), first = make("td", undefined, { title: name });
      if (line !== null) first.append(lineSwatch(lineOf(line)));
      first.append(name);
      const received = make("td", undefined, { className: "done" });
      if (share !== null) received.append(make("progress", undefined, { max: 1, value: share, ariaLabel: `${name} received` }), percent(share));
      tr.append(first, received, ...rest.map((text) => make("td", text)), make("td", word, { className: /fail|incomplete|silent|gone|left|unreach/.test(word) ? "bad" : "" }));
      return tr;
    }));
    replace($("columns"), JSON.stringify(sort), () => COLUMNS.map(([key, title]) => {
      const th = make("th"), button = make("button", title, { type: "button" });
      th.scope = "col";
      if (sort.key === key) th.setAttribute("aria-sort", sort.up ? "ascending" : "descending");
      button.addEventListener("click", () => { sort = { key, up: sort.key === key ? !sort.up : true }; drawTable(); [...$("columns").children].find((other) => other.textContent === title).firstChild.focus(); });
      th.append(button);
      return th;
    }));
  };

  const drawTiles = () => {
    const all = receivers(), sender = ends().find(([, end]) => end.role === "sender" || end.role === "relay");
    const tiles = [];
    if (chosen) {
      const end = state.ends[chosen], isReceiver = end.role === "receiver";
      tiles.push([isReceiver ? "Rate" : "Sending", ...rateParts(end.rate)]);
      if (isReceiver) {
        if (end.fair_rate) tiles.push(["Fair rate", ...rateParts(end.fair_rate)]);
        tiles.push(["Channels", String(end.channels ?? 0), ""], ["Lost", ...percent(loss(end)).split(" ")], ["Received", ...percent(done(end)).split(" ")]);
        tiles.push(["Time left", end.time_left ? time(end.time_left) : "\u2013", ""]);
      } else {
        tiles.push(["Sent", ...bytes(end.bytes).split(" ")], ["Packets", end.packets.toLocaleString("en"), ""], ["Reports", String(end.reports), ""]);
        if (end.ceiling_rate) tiles.push(["Ceiling", ...rateParts(end.ceiling_rate)]);
      }
    } else {
      const rates = all.map(([, end]) => end.rate).filter((value) => value > 0), total = all.reduce((sum, [, end]) => [sum[0] + end.lost, sum[1] + end.packets + end.lost], [0, 0]);
      if (sender) tiles.push(["Sending", ...rateParts(sender[1].rate)], ["Sent once, for all", ...bytes(sender[1].bytes).split(" ")]);
      tiles.push(["Receivers", String(all.length), `, ${all.filter(([, end]) => done(end) === 1).length} complete`]);
      const [low, high] = [rateParts(Math.min(...rates)), rateParts(Math.max(...rates))];
      tiles.push(["Slowest to fastest", rates.length ? `${low[0]}${low[1] === high[1] ? "" : ` ${low[1]}`} \u2013 ${high[0]}` : "\u2013", rates.length ? high[1] : ""]);
      tiles.push(["Lost, all receivers", ...percent(total[1] ? total[0] / total[1] : 0).split(" ")]);
    }
    replace($("tiles"), JSON.stringify(tiles), () => tiles.map(([term, value, unit]) => {
      const box = make("div"), dd = make("dd", value);
      dd.append(make("small", unit && unit[0] !== "," ? ` ${unit}` : unit));
      box.append(make("dt", term), dd);
      return box;
    }));
  };

  const drawChoice = () => {
    const names = ends().map(([name, end]) => [name, shown(name, end), end.role === "receiver"]);
    if (names.length === 1) chosen = names[0][0];
    else if (chosen && !names.some(([name]) => name === chosen)) chosen = null;
    $("choice").hidden = names.length < 2;
    replace($("choice"), JSON.stringify([names, chosen, dark.matches]), () => [[null, "All ends", false], ...names].map(([name, title, hasLine]) => {
      const button = make("button", undefined, { type: "button" });
      if (hasLine) button.append(lineSwatch(lineOf(name)));
      button.append(title);
      button.setAttribute("aria-pressed", String(name === chosen));
      button.addEventListener("click", () => { chosen = name; draw(); [...$("choice").children].find((other) => other.textContent === title).focus(); });
      return button;
    }));
    const sample = (draw_) => swatch(draw_), items = [];
    const bands = sample((pen) => [0, 4, 8].forEach((channel, index) => { pen.fillStyle = band(channel, 12); pen.fillRect(index * 6, 0, 6, 8); }));
    const of = chosen ? shown(chosen, state.ends[chosen]) : ((ends().find(([, end]) => end.role === "sender" || end.role === "relay") || [])[1] || {}).role;
    if (of) items.push([`channels of ${of}`, bands]);
    const ceiling = (chosen ? [state.ends[chosen]] : ends().map(([, end]) => end)).some((end) => end && end.ceiling_rate);
    if (ceiling) items.push(["ceiling: most that is sent", lineSwatch({ colour: colours.ink, dash: [2, 3] })]);
    if (chosen) {
      items.push(["rate", lineSwatch({ colour: lineOf(chosen).colour, dash: [] })]);
      if (state.ends[chosen].fair_rate) items.push(["fair rate", lineSwatch({ colour: lineOf(chosen).colour, dash: [8, 5] })], ["\u25B2 join \u25BC leave", null]);
    } else items.push(...names.filter(([, , isReceiver]) => isReceiver).slice(0, 8).map(([name, title]) => [title, lineSwatch(lineOf(name))]));
    replace($("legend"), JSON.stringify([items.map(([title]) => title), dark.matches, chosen]), () => items.map(([title, mark]) => {
      const item = make("li");
      if (mark) item.append(mark);
      item.append(title);
      return item;
    }));
  };

  const drawStatus = () => {
    const list = ends().map(([, end]) => end), first = list.find((end) => end.group) || {};
    const session = [first.tsi ? `session ${first.tsi}` : "", first.group ? `on ${first.group}` : "", (list.find((end) => end.control && end.control !== "unknown") || {}).control || ""].filter(Boolean).join(", ");
    setText($("session"), session || "waiting for a session");
    const over = list.length > 0 && list.every((end) => ENDED.includes(end.state));
    const words = [...new Set(list.map((end) => end.state))].join(", ");
    const [text, kind] = connection === "lost" ? [over ? `ended: ${words}` : "connection lost, trying again", over ? "" : "lost"]
      : connection === "connecting" ? ["connecting", ""] : paused ? ["paused", ""] : over ? [`ended: ${words}`, ""] : list.some((end) => end.packets > 0) ? ["live", "live"] : ["waiting", ""];
    setText($("status"), text);
    $("status").className = `pill ${kind}`;
    document.title = list.length === 1 && list[0].symbols_total && list[0].role === "receiver" ? `${percent(done(list[0]))} Headwater` : "Headwater";
  };

  const draw = () => {
    drawChoice();
    drawStatus();
    const known = ends().length > 0, heard = ends().some(([, end]) => end.packets > 0);
    const selected = chosen ? state.ends[chosen] : null;
    note("waves", !known ? "Nothing has started yet. Rates appear here with the first packet."
      : heard ? "" : `No packet has ${selected && selected.role === "receiver" ? "arrived" : "been sent"} yet. If this lasts, headwater doctor looks for the reason.`);
    $("at-waves").hidden = !heard;
    drawTiles();
    if (heard) drawWaves();
    if (known) { drawLoss(); drawBlocks(); } else { note("loss", "Nothing has started yet."); note("blocks", "Nothing has started yet."); }
    drawTable();
  };

  // ---- input ---------------------------------------------------------------------------------------------

  const tick = () => {
    if (dirty && !document.hidden) {
      dirty = false;
      if (paused) drawStatus(); else draw();
    }
    // Four times a second: a browser on the machine of a session should leave the session its processors.
    setTimeout(() => requestAnimationFrame(tick), 240);
  };
  const togglePause = () => { paused = !paused; $("pause").setAttribute("aria-pressed", String(paused)); setText($("pause"), paused ? "Go on" : "Pause"); dirty = true; if (!paused) draw(); };
  $("pause").addEventListener("click", togglePause);
  addEventListener("keydown", (event) => { if (event.key === "p" && !event.ctrlKey && !event.metaKey && !event.altKey) togglePause(); });
  const waves = $("waves");
  const move = (place) => { cursor = place; if (frames.length) drawWaves(); };
  waves.addEventListener("pointermove", (event) => move(event.offsetX / waves.clientWidth));
  waves.addEventListener("pointerleave", () => move(null));
  waves.addEventListener("blur", () => move(null));
  waves.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (step) { move(Math.max(0, Math.min(1, (cursor ?? 1) + step * (event.shiftKey ? 0.1 : 0.015)))); event.preventDefault(); }
    else if (event.key === "Escape") move(null);
  });
  const restyle = () => { colours = theme(); for (const id of ["choice", "legend", "ends"]) delete $(id).dataset.key; if (!paused || frames.length) draw(); };
  dark.addEventListener("change", restyle);
  addEventListener("resize", () => { dirty = true; });
  addEventListener("visibilitychange", () => { dirty = true; });
  draw();
  tick();
  connect();
})();
