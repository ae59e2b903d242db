// What a body comes to, asked of the service while the form is filled in; nothing is made of it.
import { call } from "/static/api.js";

const WAIT_MS = 500;
const words = {
  planned_steps: "steps planned", steps_per_epoch: "steps an epoch", global_batch_size: "rows a step", n_train_rows: "rows to train on",
  n_eval_rows: "rows held out", format: "format of the rows", strategy: "strategy", learning_rate: "learning rate", metric_for_best: "judges the best",
};

export function checker(place) {
  let timer;
  let turn = 0;
  return function check(body) {
    clearTimeout(timer);
    const mine = ++turn;
    timer = setTimeout(async () => {
      try {
        const found = await call("POST", "/jobs/new/check", body);
        if (mine === turn) place.replaceChildren(...facts(found));
      } catch (error) {
        if (mine === turn) place.replaceChildren(...faults(error));
      }
    }, WAIT_MS);
  };
}

function facts(found) {
  const list = Object.assign(document.createElement("ul"), { className: "facts" });
  for (const [name, label] of Object.entries(words)) {
    if (found[name] == null) continue;
    const item = document.createElement("li");
    const value = document.createElement("b");
    value.textContent = found[name];
    item.append(value, ` ${label}`);
    list.append(item);
  }
  const notes = document.createElement("ul");
  notes.append(...found.notes.map((note) => Object.assign(document.createElement("li"), { textContent: note })));
  return found.notes.length ? [list, notes] : [list];
}

function faults(error) {
  const said = Object.assign(document.createElement("p"), { textContent: "Not yet ready to be sent:" });
  const list = document.createElement("ul");
  for (const detail of error.error?.details?.length ? error.error.details : [{ message: error.message }]) {
    list.append(Object.assign(document.createElement("li"), { textContent: [detail.param, detail.message].filter(Boolean).join(": ") }));
  }
  return [said, list];
}
