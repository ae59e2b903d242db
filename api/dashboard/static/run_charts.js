// The charts of one run, made as their figures appear.
import { css } from "/static/chart.js";
import { ChartGroup } from "/static/chart_group.js";

const KNOWN = [
  ["loss-chart", "Loss", [["loss", "--accent", true], ["eval_loss", "--bad", false]]],
  ["rate-chart", "Learning rate", [["learning_rate", "--good"]]],
  ["norm-chart", "Gradient norm", [["grad_norm", "--wait", true]]],
  ["speed-chart", "Tokens a second", [["tokens_per_second", "--busy", true]]],
  ["memory-chart", "Memory", [["memory_bytes", "--accent"], ["device_memory_bytes", "--good"]]],
];

export class RunCharts {
  constructor(figures) {
    this.figures = figures;
    this.made = new Map();
    this.group = new ChartGroup(document.getElementById("charts"), async (range) => {
      await figures.zoom(range, this.group.byTime).catch(() => {}); // away: the thinned curve stays
      this.group.draw();
    });
  }

  draw() {
    const names = Object.keys(this.figures.lines);
    for (const [id, title, lines] of KNOWN) this.make(id, title, lines, names);
    const known = new Set(KNOWN.flatMap(([, , lines]) => lines.map(([name]) => name)));
    for (const name of names) {
      if (!known.has(name) && name.startsWith("eval_") && !/runtime|per_second/.test(name)) {
        this.make(`${name.replace(/\W/g, "-")}-chart`, words(name), [[name, "--bad", false]], names);
      }
    }
    this.group.draw();
    return names.length;
  }

  // A chart holds the lines that have figures; one that comes later is put in.
  make(id, title, lines, names) {
    const present = lines.filter(([name]) => names.includes(name)).map(([name, colour, isSmoothed]) => ({
      name, label: words(name), colour: css(colour), isSmoothed, hasPoints: name.startsWith("eval_"),
    }));
    const made = this.made.get(id);
    if (made?.lines.length === present.length || !present.length) return;
    if (made) { made.lines = present; made.build(); return; }
    const csv = `/jobs/${this.figures.jobId}/figures.csv?names=${lines.map(([name]) => name).join(",")}`;
    this.made.set(id, this.group.add(id, title, present, (name) => this.figures.line(name), csv));
  }
}

const words = (name) => { const text = name.replaceAll("_", " "); return text[0].toUpperCase() + text.slice(1); };
