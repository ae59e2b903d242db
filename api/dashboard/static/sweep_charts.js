// Parallel coordinates and the objective over trials, as SVG. The table below them says the same in text.
const SVG = "http://www.w3.org/2000/svg";
const HEIGHT = 260;
const TOP = 34;
const BOTTOM = 26;
const GAP = 170;
const SIDE = 70;

function make(name, attributes, text) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

const shown = (value) => (typeof value === "number" ? String(Number(value.toPrecision(4))) : typeof value === "string" ? value : JSON.stringify(value));
const cut = (text) => (text.length > 24 ? `…${text.slice(-23)}` : text);
const scoreOf = (trial) => trial.value ?? trial.latest;

// Where values lie between 0 (below) and 1: numbers by size or magnitude, anything else in the order it came.
function scale(values, isLog) {
  if (values.every((value) => typeof value === "number")) {
    const by = isLog && values.every((value) => value > 0) ? Math.log : (value) => value;
    const [low, high] = [Math.min(...values), Math.max(...values)];
    const span = by(high) - by(low);
    return { at: (value) => (span ? (by(value) - by(low)) / span : 0.5), marks: low === high ? [low] : [low, high] };
  }
  const kinds = [...new Map(values.map((value) => [JSON.stringify(value), value])).values()];
  const places = new Map(kinds.map((value, index) => [JSON.stringify(value), kinds.length > 1 ? index / (kinds.length - 1) : 0.5]));
  return { at: (value) => places.get(JSON.stringify(value)), marks: kinds.slice(0, 12) };
}

const y = (share) => TOP + (1 - share) * (HEIGHT - TOP - BOTTOM);

function canvas(width, label) {
  const svg = make("svg", { class: "sweep-chart", role: "img", "aria-label": label, viewBox: `0 0 ${width} ${HEIGHT}`, width, height: HEIGHT });
  return svg;
}

function axis(svg, x, title, marks, at) {
  svg.append(make("line", { x1: x, x2: x, y1: TOP, y2: HEIGHT - BOTTOM, class: "axis" }), make("text", { x, y: 16, "text-anchor": "middle" }, cut(title)));
  for (const mark of marks) svg.append(make("text", { x: x + 5, y: y(at(mark)) + 4, class: "tick" }, cut(shown(mark))));
}

function parallel(facts, trials) {
  const columns = [...facts.paths.map((path) => ({ title: path, of: (trial) => trial.values[path], isLog: facts.isLog[path] })), { title: facts.metric, of: scoreOf, isLog: false }];
  const best = trials.find((trial) => trial.is_best);
  const summary = `Parallel coordinates of ${trials.length} trials` + (best ? `; the best is trial ${best.number} with ${facts.metric} ${shown(best.value)}` : "");
  const svg = canvas(SIDE * 2 + GAP * (columns.length - 1), summary);
  const scales = columns.map((column) => scale(trials.map(column.of), column.isLog));
  for (const trial of [...trials].sort((one, other) => Number(one.is_best) - Number(other.is_best))) {
    const points = columns.map((column, index) => `${SIDE + GAP * index},${y(scales[index].at(column.of(trial)))}`).join(" ");
    const line = make("polyline", { points, "data-trial": trial.number, class: trial.is_best ? "trial is-best" : `trial ${trial.state}` });
    line.append(make("title", {}, `Trial ${trial.number}: ${facts.metric} ${shown(scoreOf(trial))}`));
    svg.append(line);
  }
  columns.forEach((column, index) => axis(svg, SIDE + GAP * index, column.title, scales[index].marks, scales[index].at));
  return svg;
}

function over(facts, trials) {
  const width = 720;
  const last = Math.max(...trials.map((trial) => trial.number), 1);
  const svg = canvas(width, `${facts.metric} of each trial in the order they were made, with the best so far as a line`);
  const { at, marks } = scale(trials.map(scoreOf), false);
  const x = (trial) => SIDE + (trial.number / last) * (width - 2 * SIDE);
  let best = null;
  const steps = [];
  for (const trial of trials) {
    const score = scoreOf(trial);
    if (trial.state === "succeeded" && (best === null || (facts.greaterIsBetter ? score > best : score < best))) best = score;
    if (best !== null) steps.push(`${x(trial)},${y(at(best))}`);
  }
  svg.append(make("polyline", { points: steps.join(" "), class: "best-so-far" }));
  for (const trial of trials) {
    const dot = make("circle", { cx: x(trial), cy: y(at(scoreOf(trial))), r: trial.is_best ? 7 : 4, "data-trial": trial.number, class: trial.is_best ? "dot is-best" : `dot ${trial.state}` });
    dot.append(make("title", {}, `Trial ${trial.number}, ${trial.state}: ${shown(scoreOf(trial))}`));
    svg.append(dot);
  }
  axis(svg, SIDE - 20, facts.metric, marks, at);
  svg.append(make("text", { x: width - SIDE, y: HEIGHT - 6, "text-anchor": "end" }, `trial 0 to ${last}`));
  return svg;
}

export function draw(facts, parallelPlace, overPlace) {
  const trials = facts.trials.filter((trial) => typeof scoreOf(trial) === "number");
  if (!trials.length) {
    for (const place of [parallelPlace, overPlace]) place.textContent = `No trial has logged ${facts.metric} yet.`;
    return;
  }
  parallelPlace.replaceChildren(parallel(facts, trials));
  overPlace.replaceChildren(over(facts, trials));
}
