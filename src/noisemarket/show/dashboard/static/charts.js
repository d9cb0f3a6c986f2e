// Charts: uPlot in the page's colours, with a description and a table of the numbers for screen readers.

import uPlot from "/static/vendor/uplot/uPlot.esm.js";
import { colour, h, short } from "/static/dom.js";

const known = new Set();
new MutationObserver(() => known.forEach((chart) => chart.redraw()))
  .observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });

// series: [{label, colour (CSS variable), x, y, low, high, dash, dots, steps, line, text}]
// whole: x has no fractions; money: x begins at 0; zero: y does; ends: y is that of the curves' ends. With fewer than two points there is a sentence instead.
export class Chart {
  constructor({ title, why, x, y, height = 270, whole = false, money = false, zero = false, ends = false }) {
    this.options = { title, x, y, height, whole, money, zero, ends };
    this.few = h("p", { class: "few" });
    this.holder = h("div", { role: "img", "aria-label": title });
    this.why = h("p", { class: "why" }, why ?? "");
    this.key = h("ul", { class: "key", "aria-hidden": "true" });
    this.data = h("details", { class: "data" }, h("summary", {}, "The numbers"));
    this.data.addEventListener("toggle", () => this.fillData());
    this.node = h("figure", { class: "chart" }, h("figcaption", {}, title),
      this.why, this.few, this.holder, this.key, this.data);
    this.series = [];
    this.watcher = new ResizeObserver(() => this.resize());
    this.watcher.observe(this.holder);
    known.add(this);
  }

  explain(words) { this.why.textContent = words; }

  update(series, sentence) {
    this.series = series.filter((one) => one && one.x.length);
    this.sentence = sentence;
    this.redraw();
  }

  // Whether there is something to draw: two points side by side, or two that stand alone, not all of them 0.
  drawable() {
    const points = this.series.flatMap((one) => one.x.map((x, i) => ({ x, y: one.y[i], alone: one.line === false }))).filter((one) => Number.isFinite(one.y));
    return points.some((one) => one.y !== 0) && (new Set(points.map((one) => one.x)).size > 1 || points.filter((one) => one.alone).length > 1);
  }

  resize() {
    const width = Math.floor(this.holder.clientWidth);
    if (this.plot && width && width !== this.plot.width) this.plot.setSize({ width, height: this.options.height });
    else if (!this.plot) this.redraw();
  }

  redraw() {
    if (!this.node.isConnected && this.plot) { this.destroy(); return; }
    const drawable = this.drawable();
    this.few.hidden = drawable;
    this.holder.hidden = this.key.hidden = this.data.hidden = !drawable;
    if (!drawable) {
      this.few.textContent = this.sentence ?? this.words();
      this.plot?.destroy();
      this.plot = null;
      return;
    }
    const width = Math.floor(this.holder.clientWidth);
    if (!width) return;
    this.plot?.destroy();
    this.plot = null;
    const ink = colour("--dim"), grid = colour("--grid");
    const axis = (label, size) => ({
      stroke: ink, label, labelSize: 18, labelFont: "12px system-ui, sans-serif", font: "12px system-ui, sans-serif",
      grid: { stroke: grid, width: 1 }, ticks: { stroke: grid, width: 1 }, size, labelGap: 2, values: (_, ticks) => ticks.map((one) => short(one, 4)),
    });
    const tables = [], lines = [{}], bands = [];
    for (const one of this.series) {
      const stroke = colour(one.colour) || one.colour;
      if (one.low && one.draws > 1) {
        const edge = { stroke: "transparent", width: 0, points: { show: false } };
        const first = lines.length;
        lines.push({ ...edge }, { ...edge });
        tables.push([one.x, one.high], [one.x, one.low]);
        bands.push({ series: [first, first + 1], fill: `${stroke}33` });
      }
      lines.push({
        label: one.label, stroke, width: one.line === false ? 0 : 2.25,
        dash: one.dash ? [7, 5] : undefined,
        paths: one.steps ? uPlot.paths.stepped({ align: 1 }) : undefined,
        points: { show: Boolean(one.dots), size: one.dots || 7, fill: stroke, stroke },
      });
      tables.push([one.x, one.y]);
    }
    const joined = uPlot.join(tables.map((one) => [...one]));
    const most = Math.max(...joined[0]);
    this.plot = new uPlot({
      width, height: this.options.height, series: lines, bands, legend: { show: false },
      padding: [10, 30, 0, 0],
      cursor: { drag: { x: false, y: false }, points: { size: 8 } },
      scales: { x: { time: false, ...(this.options.money ? { range: [0, most ? 1.04 * most : 1] } : {}) }, y: { range: this.range(joined) } },
      hooks: { draw: [(plot) => this.write(plot)] },
      axes: [{ ...axis(this.options.x, 34), ...(this.options.whole ? { incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000] } : {}) }, axis(this.options.y, 58)],
    }, joined, this.holder);
    this.legend();
    this.holder.setAttribute("aria-label", `${this.options.title}. ${this.words()}`);
    if (this.data.open) this.fillData();
  }

  // Names beside single points, where there is room: all of them are in the key.
  write(plot) {
    const pen = plot.ctx, scale = devicePixelRatio, room = plot.bbox, tall = 15 * scale, gap = 11 * scale;
    pen.save();
    pen.font = `${12 * scale}px system-ui, sans-serif`;
    pen.fillStyle = colour("--ink");
    pen.textBaseline = "middle";
    pen.textAlign = "left";
    const named = this.series.filter((one) => one.text).map((one) => ({ text: one.text, x: plot.valToPos(one.x[0], "x", true), y: plot.valToPos(one.y[0], "y", true) }));
    const taken = named.map(({ x, y }) => [x - 0.8 * gap, y - 0.8 * gap, x + 0.8 * gap, y + 0.8 * gap]);
    const free = ([left, top, right, bottom]) => left >= room.left && right <= room.left + room.width + 28 * scale
      && top >= room.top && bottom <= room.top + room.height
      && !taken.some((box) => left < box[2] && box[0] < right && top < box[3] && box[1] < bottom);
    for (const { text, x, y } of named) {
      const wide = pen.measureText(text).width;
      const places = [[x + gap, y], [x - gap - wide, y]];
      for (const step of [1.25, -1.25, 2.3, -2.3]) places.push([x - wide / 2, y + step * tall], [x + gap, y + step * tall], [x - gap - wide, y + step * tall]);
      const box = places.map(([left, middle]) => [left, middle - tall / 2, left + wide, middle + tall / 2]).find(free);
      if (!box) continue;
      taken.push(box);
      pen.fillText(text, box[0], (box[1] + box[3]) / 2);
    }
    pen.restore();
  }

  range(joined) {
    const values = joined.slice(1).flat().filter((one) => one !== null && one !== undefined);
    if (!values.length) return [0, 1];
    const low = Math.min(...values), high = Math.max(...values), room = (high - low || Math.abs(high) || 1) * 0.08;
    if (low === 0 && high === 0) return [0, 1];
    const ends = this.options.ends ? this.series.map((one) => one.y.at(-1)).filter(Number.isFinite) : [];
    if (ends.length > 1) {
      const apart = Math.max(...ends) - Math.min(...ends) || high - low;
      return [Math.max(low - room, Math.min(...ends) - 2.5 * apart), Math.min(high + room, Math.max(...ends) + 0.5 * apart)];
    }
    return [low >= 0 && (this.options.zero || low < (high - low) * 0.6) ? 0 : low - room, high + room];
  }

  legend() {
    this.key.replaceChildren(...this.series.filter((one) => one.label).map((one) => {
      const stroke = colour(one.colour) || one.colour;
      const last = one.y[one.y.length - 1];
      return h("li", {}, h("i", {
        class: one.line === false ? "dot" : one.dash ? "dash" : "",
        style: one.line === false ? `background:${stroke}` : `border-color:${stroke}`,
      }), one.show === false ? one.label : `${one.label}: ${short(last, 4)}`);
    }));
  }

  words() {
    const known = this.series.map((one) => ({ ...one, ...finite(one) })).filter((one) => one.label && one.y.length);
    return known.map((one) => {
      const last = one.y.length - 1;
      if (last && one.y.every((value) => value === one.y[0])) return `${one.label}: ${short(one.y[0], 4)} throughout.`;
      return last && one.line !== false
        ? `${one.label}: from ${short(one.y[0], 4)} to ${short(one.y[last], 4)}.`
        : `${one.label}: ${short(one.y[last], 4)} at ${this.options.x} ${short(one.x[last], 4)}.`;
    }).join(" ") || "There is nothing to draw yet.";
  }

  fillData() {
    if (!this.data.open) return;
    const named = this.series.filter((one) => one.label);
    const rows = named.flatMap((one) => one.x.map((x, i) => [one.label, x, one.y[i]]));
    const step = Math.max(1, Math.ceil(rows.length / 200));
    const some = rows.filter((_, i) => i % step === 0);
    this.data.replaceChildren(this.data.firstElementChild, h("div", { class: "scroll", tabindex: "0" }, h("table", {},
      h("caption", {}, this.options.title),
      h("thead", {}, h("tr", {}, ["curve", this.options.x, this.options.y].map((name, i) =>
        h("th", { scope: "col", class: i ? "num" : "" }, name)))),
      h("tbody", {}, some.map((row) => h("tr", {}, h("th", { scope: "row" }, row[0]),
        h("td", { class: "num" }, short(row[1], 5)), h("td", { class: "num" }, short(row[2], 5))))))));
  }

  destroy() {
    known.delete(this);
    this.watcher.disconnect();
    this.plot?.destroy();
    this.plot = null;
  }
}

// The points of a curve that have a value.
function finite({ x, y }) {
  const there = y.map((_, i) => i).filter((i) => Number.isFinite(y[i]));
  return { x: there.map((i) => x[i]), y: there.map((i) => y[i]) };
}

// Horizontal bars of one figure, a bar per row.
export function bars(title, rows, write) {
  const most = Math.max(...rows.map((row) => row.value ?? 0), 1e-12);
  const width = (value) => Math.min(100, (100 * Math.abs(value ?? 0)) / most);
  return h("figure", { class: "chart" }, h("figcaption", {}, title),
    h("div", { class: "bars", role: "list" }, rows.map((row) => h("div", { role: "listitem" },
      h("span", {}, row.label),
      h("span", { "aria-hidden": "true" }, row.value !== null && row.value !== undefined && h("i", { class: row.value < 0 ? "below" : "", style: `width:${width(row.value)}%;background:var(${row.colour})` })),
      h("b", {}, row.value === null || row.value === undefined ? "–" : write(row.value))))));
}
