// The job page, live: one stream for events, metrics and logs, resumed by cursor after a cut line or a closed lid.
import { Figures } from "/static/figures.js";
import { LogView } from "/static/log_view.js";
import { RunCharts } from "/static/run_charts.js";
import { editWords } from "/static/words.js";

const facts = JSON.parse(document.getElementById("facts").textContent);
const figures = new Figures(facts.id);
const charts = new RunCharts(figures);
const log = new LogView(facts.id, facts.levels);
const events = document.getElementById("events");
const cursors = { event: 0, metric: 0, log: facts.newest_log };
const MAX_EVENTS = 1000;
let areFiguresNew = false;
let headIsStale = false;
let isEnded = false;

function takeEvent(item) {
  headIsStale = true;
  if (item.kind === "phase") return; // the head says it
  const row = document.createElement("li");
  row.className = item.level;
  const attempt = item.attempt > 1 ? `attempt ${item.attempt}: ` : "";
  row.textContent = `${new Date(item.at).toLocaleTimeString()}  ${attempt}${item.message}`;
  events.prepend(row);
  if (events.childElementCount > MAX_EVENTS) events.lastChild.remove();
}

function takeMetric(item) {
  figures.add(item);
  areFiguresNew = true;
  headIsStale = true;
}

async function drawAll() {
  log.draw();
  if (figures.isStale) {
    figures.isStale = false;
    await figures.load().catch(() => { figures.isStale = true; });
    areFiguresNew = true;
  }
  if (areFiguresNew) charts.draw();
  areFiguresNew = false;
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
  if (isNewState()) for (const place of ["rest", "attempts"]) await refresh(place);
}

function connect() {
  const source = new EventSource(`/jobs/${facts.id}/stream?${new URLSearchParams(cursors)}`);
  const takers = { event: takeEvent, metric: takeMetric, log: (line) => log.take(line) };
  for (const [kind, take] of Object.entries(takers)) {
    source.addEventListener(kind, (message) => {
      const item = JSON.parse(message.data);
      if (item.n <= cursors[kind]) return;
      cursors[kind] = item.n;
      take(item);
    });
  }
  source.addEventListener("end", () => {
    source.close();
    isEnded = headIsStale = true;
    drawAll().then(() => { document.getElementById("no-figures").hidden = Object.keys(figures.lines).length > 0; });
  });
  source.onerror = () => { source.close(); setTimeout(connect, 1000); };
}

async function loadFigures() {
  while (true) {
    try {
      await figures.load();
      cursors.metric = figures.n;
      areFiguresNew = Object.keys(figures.lines).length > 0;
      return;
    } catch { await new Promise((again) => setTimeout(again, 1000)); } // away: asked again
  }
}

document.addEventListener("job-acted", async () => {
  headIsStale = true;
  await refreshHead();
  if (isEnded) { isEnded = false; connect(); }
});
editWords(facts.id);
log.toEnd();
loadFigures().then(connect);
setInterval(drawAll, 250);
setInterval(refreshHead, 1000);
