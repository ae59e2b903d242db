// One chart: lines over steps or time, with a crosshair shared by its group. Zoom is the group's business.
import uPlot from "/static/vendor/uplot-1.6.32/uPlot.esm.js";
import { smoothed } from "/static/smoothing.js";

const HEIGHT = 220;
export const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
export const figure = (value) => {
  if (value == null) return "";
  const size = Math.abs(value);
  if (size >= 1e6) return `${+(value / 10 ** (3 * Math.floor(Math.log10(size) / 3))).toPrecision(4)}${["", "k", "M", "G", "T", "P"][Math.floor(Math.log10(size) / 3)] ?? ""}`;
  return size && size < 0.001 ? value.toExponential(2) : String(+value.toPrecision(4));
};

export class Chart {
  // lines: [{name, label, colour, isSmoothed, hasPoints}]; read(name) gives {step, at, value} of a line.
  constructor(host, lines, read, group) {
    Object.assign(this, { host, lines, read, group });
    host.tabIndex = 0;
    host.addEventListener("keydown", (event) => this.steer(event));
    new ResizeObserver(() => this.plot?.setSize({ width: host.clientWidth, height: HEIGHT })).observe(host);
    this.build();
  }

  build() {
    this.plot?.destroy();
    const { byTime, isLog, smoothing, key } = this.group;
    const axis = { stroke: css("--muted"), grid: { stroke: css("--line"), width: 1 }, ticks: { stroke: css("--line") } };
    const raw = this.lines.map((line) => ({
      label: line.label, stroke: line.colour, width: smoothing && line.isSmoothed ? 1 : 2, alpha: smoothing && line.isSmoothed ? 0.35 : 1,
      spanGaps: Boolean(line.hasPoints), points: { show: Boolean(line.hasPoints) }, value: (_, value) => figure(value) || "--",
    }));
    const smooth = smoothing ? this.lines.filter((line) => line.isSmoothed).map((line) => ({
      label: `${line.label}, smoothed`, stroke: line.colour, width: 2, spanGaps: true, points: { show: false }, value: (_, value) => figure(value) || "--",
    })) : [];
    this.plot = new uPlot({
      width: this.host.clientWidth || 400, height: HEIGHT,
      scales: { x: { time: byTime }, y: { distr: isLog ? 3 : 1 } },
      axes: [axis, { ...axis, size: 64, values: (_, ticks) => ticks.map(figure) }],
      series: [{ label: byTime ? "time" : "step" }, ...raw, ...smooth],
      cursor: { sync: { key, filters: { pub: (type) => type === "mousemove" || type === "mouseleave" } }, drag: { x: true, y: false, setScale: false }, bind: { dblclick: () => () => this.group.zoom(null) } },
      hooks: { setSelect: [(plot) => this.selected(plot)] },
    }, this.data(), this.host);
    this.host.plot = this.plot; // what the curve is drawn from, for a look from outside
    this.range();
  }

  data() {
    const { byTime, isLog, smoothing } = this.group;
    const tables = this.lines.map((line) => {
      const found = this.read(line.name);
      const value = isLog ? found.value.map((item) => (item > 0 ? item : null)) : found.value;
      return [byTime ? found.at.map((at) => at / 1000) : found.step, value];
    });
    // A gap is null; a step at which another line has a point and this one none is undefined, and is drawn over.
    const [xs, ...columns] = tables.length === 1 ? tables[0] : uPlot.join(tables);
    const smooth = smoothing ? this.lines.flatMap((line, index) => (line.isSmoothed ? [smoothed(columns[index], smoothing)] : [])) : [];
    return [xs, ...columns, ...smooth];
  }

  draw() {
    this.plot.setData(this.data(), !this.group.range);
    this.range();
  }

  range() {
    const [min, max] = this.group.range ?? [];
    if (this.group.range) this.plot.setScale("x", { min, max });
  }

  selected(plot) {
    const { left, width } = plot.select;
    if (width < 4) return;
    const range = [plot.posToVal(left, "x"), plot.posToVal(left + width, "x")];
    plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    this.group.zoom(range);
  }

  // Arrow keys move the crosshair, + looks closer around it, - and Escape go back.
  steer(event) {
    const xs = this.plot.data[0];
    const at = this.plot.cursor.idx ?? Math.floor(xs.length / 2);
    const moves = { ArrowLeft: -1, ArrowRight: 1 };
    if (event.key in moves) {
      const next = Math.min(xs.length - 1, Math.max(0, at + moves[event.key]));
      this.plot.setCursor({ left: this.plot.valToPos(xs[next], "x"), top: 10 });
    } else if (event.key === "+") {
      const quarter = (this.plot.scales.x.max - this.plot.scales.x.min) / 4;
      this.group.zoom([xs[at] - quarter, xs[at] + quarter]);
    } else if (event.key === "-" || event.key === "Escape") this.group.zoom(null);
    else return;
    event.preventDefault();
  }
}
