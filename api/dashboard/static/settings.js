// The settings page: keys and webhooks are made here, and a secret is shown this once.
import { call, show } from "/static/api.js";

const role = document.getElementById("key-role");
const permissions = document.getElementById("key-permissions");
role.addEventListener("change", () => { permissions.hidden = role.value !== ""; });

// A secret that cannot be seen again, with a button that copies it and one that has the page show what was made.
function reveal(place, what, secret) {
  const box = document.createElement("div");
  box.className = "secret";
  const value = document.createElement("code");
  value.textContent = secret;
  const copy = button("Copy", async () => { await navigator.clipboard.writeText(secret); copy.textContent = "Copied"; });
  const done = button("I have kept it", () => location.reload());
  box.append(`${what}. It is shown this once: `, value, " ", copy, " ", done);
  place.replaceChildren(box);
}

function button(text, act) {
  const made = document.createElement("button");
  made.type = "button";
  made.textContent = text;
  made.addEventListener("click", act);
  return made;
}

function onSubmit(name, path, bodyOf, what) {
  const form = document.getElementById(`${name}-form`);
  const place = document.getElementById(`${name}-result`);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const send = form.querySelector("button.primary");
    send.disabled = true;
    try {
      const made = await call("POST", path, bodyOf(new FormData(form)));
      form.reset();
      permissions.hidden = true;
      reveal(place, what(made), made.secret);
    } catch (error) {
      place.replaceChildren(show(error));
    } finally {
      send.disabled = false;
    }
  });
}

onSubmit("key", "/v1/keys", (form) => ({
  name: form.get("name"),
  ...(form.get("role") ? { role: form.get("role") } : { permissions: form.getAll("permissions") }),
  ...(form.get("expires_at") && { expires_at: form.get("expires_at") }),
}), (made) => `The key ${made.name}`);

onSubmit("webhook", "/v1/webhooks", (form) => {
  const events = form.get("events").split(",").map((event) => event.trim()).filter(Boolean);
  const body = { name: form.get("name"), url: form.get("url"), format: form.get("format") };
  return events.length ? { ...body, events } : body;
}, (made) => `The secret that signs messages to ${made.name}`);

document.addEventListener("webhook-tested", (event) => {
  const { state, tries } = event.detail;
  const last = tries.at(-1) ?? {};
  const place = document.getElementById("webhook-result");
  place.textContent = `Test: ${state}${last.status ? `, HTTP ${last.status}` : ""}${last.error ? `, ${last.error}` : ""}`;
  for (const one of document.querySelectorAll("button[data-then=webhook-tested]")) one.disabled = false;
});
