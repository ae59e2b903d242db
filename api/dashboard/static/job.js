// The job page, live: one stream for events, metrics and logs, resumed by cursor after a cut line or a closed lid.
import uPlot from "/static/vendor/uplot-1.6.32/uPlot.esm.js";
import { call, show } from "/static/api.js";

const facts = JSON.parse(document.getElementById("facts").textContent);
const cursors = { event: 0, metric: 0, log: facts.log_after };
const MAX_LOG_LINES = 5000;
const figure = (value) => (value == null ? "" : Math.abs(value) < 0.001 && value ? value.toExponential(1) : String(+value.toPrecision(4)));
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

class Chart {
  // names: metric name -> line colour; points are kept by step, so that a step done again replaces the old one.
  constructor(element, names) {
    this.names = Object.keys(names);
    this.rows = new Map();
    const axis = { stroke: css("--muted"), grid: { stroke: css("--line"), width: 1 }, ticks: { stroke: css("--line") } };
    this.plot = new uPlot({
      width: element.clientWidth || 400, height: 260, scales: { x: { time: false } },
      axes: [{ ...axis, label: "step" }, { ...axis, size: 64, values: (_, ticks) => ticks.map(figure) }],
      series: [{ label: "step" }, ...this.names.map((name) => ({
        label: name.replaceAll("_", " "), stroke: names[name], width: 2, value: (_, value) => figure(value) || "--", spanGaps: name !== "loss", points: { show: name === "eval_loss" },
      }))],
    }, [[], ...this.names.map(() => [])], element);
    element.plot = this.plot; // what the curve is drawn from, for a look from outside
    new ResizeObserver(() => this.plot.setSize({ width: element.clientWidth, height: 260 })).observe(element);
  }

  add(item) {
    const found = this.names.filter((name) => name in item.values);
    if (!found.length) return;
    const row = this.rows.get(item.step) ?? {};
    for (const name of found) row[name] = item.values[name]; // null for NaN and infinities: a gap
    this.rows.set(item.step, row);
    this.stale = true;
  }

  draw() {
    if (!this.stale) return;
    this.stale = false;
    const steps = [...this.rows.keys()].sort((a, b) => a - b);
    this.plot.setData([steps, ...this.names.map((name) => steps.map((step) => this.rows.get(step)[name]))]);
  }
}

const charts = [
  new Chart(document.getElementById("loss-chart"), { loss: css("--accent"), eval_loss: css("--bad") }),
  new Chart(document.getElementById("rate-chart"), { learning_rate: css("--good") }),
];

const log = document.getElementById("log");
const events = document.getElementById("events");
let waitingLines = [];
let headIsStale = false;

function takeLog(item) {
  const line = document.createElement("div");
  const rank = document.createElement("span");
  rank.className = "rank";
  rank.textContent = `${item.source} `;
  line.append(rank, item.text); // text, never markup
  waitingLines.push(line);
}

function takeEvent(item) {
  headIsStale = true;
  if (item.kind === "phase") return; // the head says it
  const row = document.createElement("li");
  row.className = item.level;
  row.textContent = `${new Date(item.at).toLocaleTimeString()}  ${item.message}`;
  events.prepend(row);
}

function takeMetric(item) {
  for (const chart of charts) chart.add(item);
  headIsStale = true;
}

function drawAll() {
  for (const chart of charts) chart.draw();
  if (waitingLines.length) {
    log.append(...waitingLines);
    waitingLines = [];
    while (log.childElementCount > MAX_LOG_LINES) log.firstChild.remove();
    if (document.getElementById("follow").checked) log.scrollTop = log.scrollHeight;
  }
}

const shown = {};

// Only what differs is put in place, so that focus and selection stay where nothing happened.
async function refresh(place) {
  const answer = await fetch(`/jobs/${facts.id}/${place}`).catch(() => null);
  if (!answer?.ok) { headIsStale = true; return; } // away: asked again at the next look
  const text = await answer.text(); // rendered and escaped by the server
  if (shown[place] !== text) document.getElementById(place).innerHTML = shown[place] = text;
}

// Screen readers hear the state when it changes, not every figure.
function isNewState() {
  const said = document.getElementById("said");
  const state = document.getElementById("state").textContent;
  const isNew = said.textContent !== state;
  if (isNew) said.textContent = state;
  return isNew;
}

async function refreshHead() {
  if (!headIsStale) return;
  headIsStale = false;
  for (const place of ["head", "checkpoints"]) await refresh(place);
  if (isNewState()) await refresh("rest");
}

// A run that ended before it said anything: no empty frames.
function sayWhatIsEmpty() {
  const empty = [...charts.filter((chart) => !chart.rows.size).map((chart) => [chart.plot.root.parentElement, "No figures were reported."])];
  if (!log.childElementCount) empty.push([log, "No line was written."]);
  for (const [place, text] of empty) {
    const said = document.createElement("p");
    said.className = "empty";
    said.textContent = text;
    place.replaceWith(said);
  }
}

function connect() {
  const query = new URLSearchParams(cursors);
  const source = new EventSource(`/jobs/${facts.id}/stream?${query}`);
  const takers = { event: takeEvent, metric: takeMetric, log: takeLog };
  for (const [kind, take] of Object.entries(takers)) {
    source.addEventListener(kind, (message) => {
      const item = JSON.parse(message.data);
      if (item.n <= cursors[kind]) return;
      cursors[kind] = item.n;
      take(item);
    });
  }
  source.addEventListener("end", () => { source.close(); headIsStale = true; drawAll(); sayWhatIsEmpty(); });
  source.onerror = () => { source.close(); setTimeout(connect, 1000); };
}

document.getElementById("head").addEventListener("click", async (click) => {
  if (click.target.dataset.action !== "cancel") return;
  click.target.disabled = true;
  try {
    await call("POST", `/v1/jobs/${facts.id}/cancel`);
  } catch (error) {
    click.target.disabled = false;
    document.getElementById("head").append(show(error));
    return;
  }
  headIsStale = true;
});

connect();
setInterval(drawAll, 250);
setInterval(refreshHead, 1000);
