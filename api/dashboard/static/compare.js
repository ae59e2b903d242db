// Several runs over each other: loss and evaluation loss, a colour for each run.
import { ChartGroup } from "/static/chart_group.js";
import { Figures } from "/static/figures.js";

const jobs = JSON.parse(document.getElementById("facts").textContent);
const isDark = matchMedia("(prefers-color-scheme: dark)").matches;
const colour = (index) => `hsl(${Math.round((index * 137.5) % 360)} 70% ${isDark ? 65 : 40}%)`;

for (const mark of document.querySelectorAll("[data-swatch]")) mark.style.background = colour(Number(mark.dataset.swatch));

async function main() {
  const runs = await Promise.all(jobs.map(async (job) => {
    const figures = new Figures(job.id);
    await figures.load();
    return figures;
  }));
  const group = new ChartGroup(document.getElementById("charts"), async (range) => {
    await Promise.all(runs.map((run) => run.zoom(range, group.byTime))).catch(() => {}); // away: the thinned curves stay
    group.draw();
  });
  for (const [name, title] of [["loss", "Loss"], ["eval_loss", "Evaluation loss"]]) {
    const having = runs.map((run, index) => [run, index]).filter(([run]) => run.line(name).step.length);
    if (!having.length) continue;
    const lines = having.map(([, index]) => ({ name: String(index), label: jobs[index].name, colour: colour(index), isSmoothed: name === "loss", hasPoints: name !== "loss" }));
    group.add(`${name}-chart`, title, lines, (index) => since(runs[index], name, group.byTime));
  }
  if (!group.charts.length) document.getElementById("charts").textContent = "No figures were reported.";
}

// By time every run begins at nought, or runs of different days would lie side by side.
function since(run, name, byTime) {
  const line = run.line(name);
  if (!byTime) return line;
  const first = Math.min(...Object.values(run.lines).map((other) => other.at[0] ?? Infinity));
  return { ...line, at: line.at.map((at) => at - first) };
}

if (jobs.length) main();
