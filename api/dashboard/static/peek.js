// The picked dataset: its first rows, how long rows are, and a choice of column for every field of a format.
import { columnsOf } from "/static/job_body.js";

const node = (tag, text, className = "") => Object.assign(document.createElement(tag), { textContent: text, className });

export function peekAt(place, columns, facts, onChange) {
  let turn = 0;
  return async function look(id, method) {
    const mine = ++turn;
    place.hidden = true;
    if (!id.startsWith("ds_")) return; // a name out of an earlier body
    const [dataset, rows, lengths] = await Promise.all([`/v1/datasets/${id}`, `/v1/datasets/${id}/rows?limit=3`, `/datasets/${id}/lengths`].map(read));
    if (mine !== turn || !dataset || !rows) return;
    place.replaceChildren(title(dataset), mapping(dataset, method), table(rows.data, Object.keys(dataset.columns)));
    if (lengths) place.append(bars(lengths));
    place.hidden = false;
  };

  async function read(address) {
    const answer = await fetch(address).catch(() => null);
    return answer?.ok ? answer.json() : null;
  }

  function title(dataset) {
    const line = node("p", "", "status");
    const link = Object.assign(node("a", dataset.name), { href: `/datasets/${dataset.id}` });
    line.append(link, node("span", `${dataset.n_rows} rows`), node("span", `format ${dataset.format ?? "by columns"}`), ...dataset.notes.map((note) => node("span", note, "muted")));
    return line;
  }

  // Only what the method can read; a field that is left as it is keeps the format's own name.
  function mapping(dataset, method) {
    const box = document.createElement("details");
    box.open = !dataset.format || columns.value !== "";
    box.append(node("summary", "Columns"));
    const fields = [...new Set((facts.formats[method] ?? []).flatMap((format) => facts.fields[format].all))];
    const list = node("div", "", "fields");
    for (const name of fields) {
      const field = node("div", "", "field");
      const label = Object.assign(node("label", name), { htmlFor: `column-${name}` });
      const choice = Object.assign(document.createElement("select"), { id: `column-${name}` });
      choice.add(new Option(name in dataset.columns ? `${name} (its own)` : "none", ""));
      for (const column of Object.keys(dataset.columns)) choice.add(new Option(column, column));
      choice.value = columnsOf(columns.value)[name] ?? "";
      choice.addEventListener("change", () => {
        const all = { ...columnsOf(columns.value), [name]: choice.value };
        columns.value = Object.entries(all).filter(([, column]) => column).map((pair) => pair.join("=")).join(", ");
        onChange();
      });
      field.append(label, choice);
      list.append(field);
    }
    box.append(list);
    return box;
  }

  function table(rows, names) {
    const box = Object.assign(node("div", "", "scroll flat"), { tabIndex: 0, role: "region", ariaLabel: "First rows" });
    const made = document.createElement("table");
    const head = made.createTHead().insertRow();
    for (const name of names) head.append(Object.assign(node("th", name), { scope: "col" }));
    const body = made.createTBody();
    for (const { row } of rows) {
      const line = body.insertRow();
      for (const name of names) line.insertCell().textContent = shorten(row[name]);
    }
    box.append(made);
    return box;
  }

  function bars({ counts, edges, longest, mean, n_read }) {
    const figure = document.createElement("figure");
    const space = "http://www.w3.org/2000/svg";
    const svg = document.createElementNS(space, "svg");
    svg.setAttribute("viewBox", "0 0 240 60");
    svg.setAttribute("class", "bars");
    svg.setAttribute("role", "img");
    const said = `Characters a row, 0 to ${edges.at(-1)}, in ${n_read} rows: ${Math.round(mean)} on average, ${longest} at most`;
    svg.setAttribute("aria-label", said);
    const highest = Math.max(...counts, 1);
    counts.forEach((count, index) => {
      const bar = document.createElementNS(space, "rect");
      const height = (60 * count) / highest;
      for (const [name, value] of Object.entries({ x: index * (240 / counts.length), y: 60 - height, width: 240 / counts.length - 1, height })) bar.setAttribute(name, value);
      svg.append(bar);
    });
    figure.append(svg, node("figcaption", `${said}: about ${Math.round(mean / 4)} and ${Math.round(longest / 4)} tokens at four characters each. The job's preflight counts them exactly.`));
    return figure;
  }
}

function shorten(value) {
  const text = typeof value === "string" ? value : value === undefined ? "" : JSON.stringify(value);
  return text.length > 200 ? `${text.slice(0, 200)}…` : text;
}
