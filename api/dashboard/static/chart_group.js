// Charts that are looked at together: one x axis, one zoom, one crosshair, and the tools above them.
import { Chart } from "/static/chart.js";
import { csvLink, saveCsv, savePng } from "/static/chart_files.js";

export class ChartGroup {
  constructor(place, onZoom = () => {}) {
    Object.assign(this, { place, onZoom, charts: [], range: null, key: "run", byTime: false, isLog: false, smoothing: 0 });
    this.reset = document.getElementById("chart-reset");
    this.reset.addEventListener("click", () => this.zoom(null));
    this.tools();
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.rebuild());
  }

  // The tools' state is in the address, so that a view can be sent on.
  tools() {
    const tools = { x: document.getElementById("chart-x"), log: document.getElementById("chart-log"), smooth: document.getElementById("chart-smooth") };
    const asked = new URLSearchParams(location.search);
    if (asked.get("x") === "time") tools.x.value = "time";
    tools.log.checked = asked.get("log") === "1";
    tools.smooth.value = asked.get("smooth") ?? 0;
    const read = () => {
      this.byTime = tools.x.value === "time";
      this.isLog = tools.log.checked;
      this.smoothing = Number(tools.smooth.value);
      document.getElementById("smooth-shown").textContent = tools.smooth.value;
    };
    read();
    for (const [name, tool] of Object.entries(tools)) {
      tool.addEventListener("input", () => {
        const wasByTime = this.byTime;
        read();
        if (wasByTime !== this.byTime) this.zoom(null);
        this.keep({ x: this.byTime ? "time" : "", log: this.isLog ? "1" : "", smooth: this.smoothing ? tools.smooth.value : "" });
        if (name === "smooth" && this.charts.every((chart) => chart.lines.every((line) => !line.isSmoothed))) return;
        this.rebuild();
      });
    }
  }

  keep(changes) {
    const address = new URL(location);
    for (const [name, value] of Object.entries(changes)) value ? address.searchParams.set(name, value) : address.searchParams.delete(name);
    history.replaceState(null, "", address);
  }

  add(id, title, lines, read, csv) {
    const box = document.createElement("figure");
    box.className = "chart-box";
    const caption = document.createElement("figcaption");
    const host = document.createElement("div");
    Object.assign(host, { id, className: "chart", role: "group", ariaLabel: `${title}. Arrow keys read it, plus looks closer.` });
    const png = document.createElement("button");
    Object.assign(png, { className: "quiet", textContent: "PNG", ariaLabel: `Save ${title} as PNG` });
    caption.append(title, png);
    box.append(caption, host);
    this.place.append(box);
    const chart = new Chart(host, lines, read, this);
    png.addEventListener("click", () => savePng(chart.plot, title));
    caption.append(csv ? csvLink(csv, title) : saveCsv(chart, title));
    this.charts.push(chart);
    return chart;
  }

  zoom(range) {
    this.range = range;
    this.reset.disabled = !range;
    if (range) for (const chart of this.charts) chart.range();
    else this.draw();
    this.onZoom(range);
  }

  draw() { for (const chart of this.charts) chart.draw(); }
  rebuild() { for (const chart of this.charts) chart.build(); }
}
