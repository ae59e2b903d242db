// The submit form: fields -> job body, merged with free JSON; the service's complaints go beside the fields they name.
import { call, show, upload } from "/static/api.js";

const form = document.getElementById("job");
const more = document.getElementById("more");
const dataset = document.getElementById("dataset");
const file = document.getElementById("file");
const progress = document.getElementById("upload-progress");
const result = document.getElementById("upload-result");

// Text that is a number is sent as one; anything else as it is, so that the service can say what is wrong with it.
const valueOf = (text) => (text.trim() !== "" && Number.isFinite(Number(text)) ? Number(text) : text);
const isTextField = (path) => ["name", "model", "dataset.train", "parallel.strategy", "parallel.offload"].includes(path);

function put(body, path, value) {
  const parts = path.split(".");
  const last = parts.pop();
  let here = body;
  for (const part of parts) here = here[part] ??= {};
  here[last] = value;
}

function merge(into, from) {
  for (const [key, value] of Object.entries(from)) {
    const both = [into[key], value].every((side) => side && typeof side === "object" && !Array.isArray(side));
    into[key] = both ? merge(into[key], value) : value;
  }
  return into;
}

function columnsOf(text) {
  const pairs = text.split(",").map((pair) => pair.split("=").map((part) => part.trim()));
  return Object.fromEntries(pairs.filter(([name]) => name).map(([name, column]) => [name, column ?? ""]));
}

function bodyOf() {
  const body = { method: "sft" };
  const isLora = form.elements.adapter.value === "lora";
  for (const element of form.querySelectorAll("[data-path]")) {
    const { path } = element.dataset;
    const text = element.value;
    if (path === "adapter" || text === "" || (path.startsWith("adapter.") && !isLora)) continue;
    if (path === "dataset.columns") put(body, path, columnsOf(text));
    else put(body, path, isTextField(path) ? text : valueOf(text));
  }
  if (isLora) body.adapter = { type: "lora", ...body.adapter };
  return more.value.trim() ? merge(body, JSON.parse(more.value)) : body;
}

function place(message, path) {
  // The nearest field: adapter.r for adapter.r, training... for a nested key, else none.
  for (let key = path; key; key = key.slice(0, Math.max(key.lastIndexOf("."), 0))) {
    const spot = form.querySelector(`[data-fault="${CSS.escape(key)}"]`);
    if (spot) { spot.textContent = message; spot.parentElement.querySelector("[data-path]")?.setAttribute("aria-invalid", "true"); return; }
  }
}

function clear() {
  for (const spot of form.querySelectorAll("[data-fault]")) spot.textContent = "";
  for (const element of form.querySelectorAll("[aria-invalid]")) element.removeAttribute("aria-invalid");
  document.getElementById("faults").replaceChildren();
}

function preview() {
  try {
    document.getElementById("body").textContent = JSON.stringify(bodyOf(), null, 2);
    form.querySelector('[data-fault="more"]').textContent = "";
  } catch (error) {
    form.querySelector('[data-fault="more"]').textContent = `not JSON: ${error.message}`;
  }
}

file.addEventListener("change", async () => {
  if (!file.files.length) return;
  progress.hidden = false;
  result.replaceChildren();
  try {
    const found = await upload(file.files[0], (share) => { progress.value = share; });
    const option = new Option(`${found.name} (${found.n_rows} rows)`, found.id, true, true);
    dataset.add(option, 0);
    const notes = document.createElement("p");
    notes.textContent = [`${found.n_rows} rows, format ${found.format ?? "by columns"}`, ...(found.notes ?? [])].join("; ");
    result.replaceChildren(notes);
  } catch (error) {
    result.replaceChildren(show(error));
  } finally {
    progress.hidden = true;
    preview();
  }
});

form.addEventListener("input", preview);
form.addEventListener("submit", async (event) => {
  event.preventDefault();
  clear();
  let body;
  try { body = bodyOf(); } catch (error) { place(`not JSON: ${error.message}`, "more"); return; }
  const button = document.getElementById("submit");
  button.disabled = true;
  try {
    const job = await call("POST", "/v1/jobs", body);
    location.assign(`/jobs/${job.id}`);
  } catch (error) {
    document.getElementById("faults").replaceChildren(show(error));
    for (const detail of error.error?.details ?? []) place(detail.message, detail.param ?? "");
    button.disabled = false;
  }
});
preview();
