// Training options, searched by name and help; each one chosen becomes a field. Their table comes from the service.
import { valueOf } from "/static/job_body.js";

const SHOWN = 40;

export async function chooseOptions(given, onChange) {
  const search = document.getElementById("option-search");
  const list = document.getElementById("option-list");
  const place = document.getElementById("chosen-options");
  const taken = new Set([...document.querySelectorAll('[data-path^="training."]')].map((field) => field.dataset.path.slice(9)));
  const chosen = new Map(); // name -> its field
  const answer = await fetch("/jobs/new/options");
  const options = answer.ok ? await answer.json() : [];

  function draw() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = options.filter((option) => !taken.has(option.name) && !chosen.has(option.name)
      && words.every((word) => `${option.name} ${option.help}`.toLowerCase().includes(word)));
    list.replaceChildren(...found.slice(0, SHOWN).map(entry));
    if (found.length > SHOWN) list.append(Object.assign(document.createElement("li"), { textContent: `and ${found.length - SHOWN} more`, className: "muted" }));
    if (!found.length) list.append(Object.assign(document.createElement("li"), { textContent: "No option is called so.", className: "muted" }));
  }

  function entry(option) {
    const item = document.createElement("li");
    const button = Object.assign(document.createElement("button"), { type: "button", textContent: option.name, className: "quiet" });
    button.addEventListener("click", () => { add(option).focus(); draw(); onChange(); });
    item.append(button, ` ${option.help}`);
    return item;
  }

  function add(option, value) {
    const box = document.createElement("div");
    box.className = "field";
    const id = `option-${option.name}`;
    const label = Object.assign(document.createElement("label"), { htmlFor: id, textContent: option.name });
    const field = fieldOf(option, value);
    field.id = id;
    const help = Object.assign(document.createElement("small"), { textContent: option.help });
    const fault = Object.assign(document.createElement("p"), { className: "fault" });
    fault.dataset.fault = `training.${option.name}`;
    const drop = Object.assign(document.createElement("button"), { type: "button", className: "quiet", textContent: "Leave out", ariaLabel: `Leave out ${option.name}` });
    drop.addEventListener("click", () => { chosen.delete(option.name); box.remove(); draw(); onChange(); search.focus(); });
    box.append(label, field, help, fault, drop);
    place.append(box);
    chosen.set(option.name, field);
    return field;
  }

  for (const option of options) if (option.name in given) { add(option, given[option.name]); delete given[option.name]; }
  if (chosen.size) document.getElementById("advanced").open = true;
  search.addEventListener("input", (event) => { event.stopPropagation(); draw(); });
  draw();
  return () => Object.fromEntries([...chosen].filter(([, field]) => field.value !== "").map(([name, field]) => [name, read(field)]));
}

function fieldOf(option, value) {
  const choices = option.kind === "bool" ? ["true", "false"] : option.choices;
  const field = document.createElement(choices.length ? "select" : "input");
  for (const choice of choices) field.add(new Option(choice, choice));
  field.dataset.kind = option.kind;
  const start = value ?? option.default ?? (choices[0] || "");
  field.value = typeof start === "object" ? JSON.stringify(start) : String(start);
  return field;
}

function read(field) {
  if (field.dataset.kind === "bool") return field.value === "true";
  if (field.dataset.kind === "choice") return field.value;
  if (field.dataset.kind === "object") { try { return JSON.parse(field.value); } catch { return field.value; } } // the service says what is wrong
  return field.dataset.kind === "text" ? field.value : valueOf(field.value);
}
