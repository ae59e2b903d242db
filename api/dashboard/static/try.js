// Sends the prompt to both models and shows their replies as they are written. Text only: a reply is never markup.

const form = document.querySelector("#ask");
const field = (id) => document.getElementById(id);
const WAITS = { queued: "waiting for a free engine", starting: "loading the model", ready: "waiting for its turn" };
let running = null;

if (form) {
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    ask();
  });
  field("prompt").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      form.requestSubmit();
    }
  });
  document.addEventListener("keydown", (event) => event.key === "Escape" && running?.abort());
  field("halt").addEventListener("click", () => running?.abort());
}

async function ask() {
  if (running) return;
  running = new AbortController();
  busy(true);
  const wanted = [...document.querySelectorAll("[data-variant]")]
    .filter((place) => place.dataset.variant !== "base" || field("with-base")?.checked);
  // One engine answers both, one after the other, in this order.
  await Promise.all(wanted.map((place) => answer(place, running.signal)));
  running = null;
  busy(false);
}

function busy(is) {
  field("send").disabled = is;
  field("halt").disabled = !is;
}

function body(variant) {
  const messages = [{ role: "user", content: field("prompt").value }];
  if (field("system").value) messages.unshift({ role: "system", content: field("system").value });
  const made = { model: form.dataset.model, variant, messages };
  const point = field("checkpoint")?.value;
  if (point) made.checkpoint = /^\d+$/.test(point) ? Number(point) : point;
  for (const name of ["max_tokens", "temperature", "top_p", "seed"]) {
    if (field(name).value !== "") made[name] = Number(field(name).value);
  }
  if (field("stop").value) made.stop = [field("stop").value];
  return made;
}

async function answer(place, signal) {
  const reply = place.querySelector("[data-reply]");
  const status = place.querySelector("[data-status]");
  reply.textContent = "";
  status.classList.remove("fault");
  const fault = (message) => {
    status.textContent = message;
    status.classList.add("fault");
  };
  try {
    const answered = await fetch("/v1/generations", {
      method: "POST", signal, body: JSON.stringify(body(place.dataset.variant)),
      headers: { "Content-Type": "application/json", Accept: "text/event-stream" },
    });
    if (!answered.ok) {
      const value = await answered.json().catch(() => null);
      return fault(value?.error?.message ?? `HTTP ${answered.status}`);
    }
    for await (const { name, data } of events(answered.body)) {
      if (name === "engine") status.textContent = WAITS[data.state] ?? data.state;
      else if (name === "piece") {
        status.textContent = "writing";
        reply.append(data.text);
      } else if (name === "error") fault(data.message);
      else status.textContent = summary(data);
    }
  } catch (error) {
    if (error.name === "AbortError") status.textContent = "stopped";
    else fault("the service does not answer; try again");
  }
}

function summary(data) {
  const ended = { stop: "complete", length: "cut at the longest reply", cancelled: "stopped" };
  return `${ended[data.finish_reason] ?? data.finish_reason}: ${data.completion_tokens} tokens`;
}

async function* events(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    text += value;
    for (let at = text.indexOf("\n\n"); at >= 0; at = text.indexOf("\n\n")) {
      const lines = text.slice(0, at).split("\n");
      text = text.slice(at + 2);
      const found = (prefix) => lines.find((line) => line.startsWith(prefix))?.slice(prefix.length);
      if (found("data: ")) yield { name: found("event: "), data: JSON.parse(found("data: ")) };
    }
  }
}
