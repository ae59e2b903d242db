// The submit form: fields -> job body, merged with free JSON; the service's complaints go beside the fields they name.
import { call, show, upload } from "/static/api.js";
import { checker } from "/static/check.js";
import { bodyOf, fill, showKind } from "/static/job_body.js";
import { chooseOptions } from "/static/options.js";
import { peekAt } from "/static/peek.js";
import { showSnippets } from "/static/snippets.js";

const facts = JSON.parse(document.getElementById("facts").textContent);
const form = document.getElementById("job");
const more = document.getElementById("more");
const dataset = document.getElementById("dataset");
const method = document.getElementById("method");
const file = document.getElementById("file");
const progress = document.getElementById("upload-progress");
const result = document.getElementById("upload-result");
let options = () => ({});
const look = peekAt(document.getElementById("peek"), document.getElementById("dataset.columns"), facts, () => preview());
const check = checker(document.getElementById("check"));
const snippet = showSnippets([...document.querySelectorAll('[role="tab"]')], document.getElementById("body"), document.getElementById("copy"), document.getElementById("copied"));

function place(message, path) {
  // The nearest field: adapter.r for adapter.r, training... for a nested key, else none.
  for (let key = path; key; key = key.slice(0, Math.max(key.lastIndexOf("."), 0))) {
    const spot = form.querySelector(`[data-fault="${CSS.escape(key)}"]`);
    if (spot) { spot.textContent = message; spot.parentElement.querySelector("input, select")?.setAttribute("aria-invalid", "true"); return; }
  }
}

function clear() {
  for (const spot of form.querySelectorAll("[data-fault]")) spot.textContent = "";
  for (const element of form.querySelectorAll("[aria-invalid]")) element.removeAttribute("aria-invalid");
  document.getElementById("faults").replaceChildren();
}

function preview() {
  try {
    const body = bodyOf(form, more, options());
    snippet(body);
    if (body.model && body.dataset?.train) check(body);
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
    dataset.add(new Option(`${found.name} (${found.n_rows} rows)`, found.id, true, true), 0);
    const notes = document.createElement("p");
    notes.textContent = [`${found.n_rows} rows, format ${found.format ?? "by columns"}`, ...(found.notes ?? [])].join("; ");
    result.replaceChildren(notes);
    look(dataset.value, method.value);
  } catch (error) {
    result.replaceChildren(show(error));
  } finally {
    progress.hidden = true;
    preview();
  }
});

for (const choice of [dataset, method]) choice.addEventListener("change", () => look(dataset.value, method.value));
form.addEventListener("input", preview);
form.addEventListener("submit", async (event) => {
  event.preventDefault();
  clear();
  let body;
  try { body = bodyOf(form, more, options()); } catch (error) { place(`not JSON: ${error.message}`, "more"); return; }
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

async function begin() {
  form.elements.adapter.addEventListener("change", () => showKind(form));
  showKind(form);
  const rest = facts.start ? fill(form, facts.start, Boolean(facts.start.model)) : {};
  const training = rest.training ?? {};
  options = await chooseOptions(training, preview);
  if (!Object.keys(training).length) delete rest.training;
  if (Object.keys(rest).length) more.value = JSON.stringify(rest, null, 2);
  if (facts.start?.training?.max_steps && !facts.start.training.num_train_epochs) form.elements["training.num_train_epochs"].value = "";
  look(dataset.value, method.value);
  preview();
}
begin();
