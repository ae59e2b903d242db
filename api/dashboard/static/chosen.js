// Jobs that are ticked in the list stay so while the table is fetched again; what is done is done to each through the API.
import { call, show } from "/static/api.js";

export function choose(table) {
  const chosen = new Set();
  const at = (id) => document.getElementById(id);
  const boxes = () => [...table.querySelectorAll("[data-choose]")];

  function draw() {
    at("chosen").hidden = chosen.size === 0;
    at("n-chosen").textContent = `${chosen.size} job${chosen.size === 1 ? "" : "s"} chosen`;
    for (const box of boxes()) box.checked = chosen.has(box.value);
    const all = at("choose-all");
    if (all) all.checked = boxes().length > 0 && boxes().every((box) => box.checked);
  }

  async function each(method, path, body) {
    at("chosen-result").replaceChildren();
    for (const id of chosen) {
      try {
        await call(method, path(id), body);
      } catch (error) {
        error.message = `${id}: ${error.message}`;
        at("chosen-result").append(show(error));
      }
    }
    htmx.trigger(table, "jobs-changed");
  }

  table.addEventListener("change", (event) => {
    const ticked = event.target.id === "choose-all" ? boxes() : [event.target];
    for (const box of ticked) event.target.checked ? chosen.add(box.value) : chosen.delete(box.value);
    draw();
  });
  table.addEventListener("htmx:afterSwap", draw);
  at("chosen-none").addEventListener("click", () => { chosen.clear(); draw(); });
  at("chosen-compare").addEventListener("click", () => location.assign(`/compare?jobs=${[...chosen].join(",")}`));
  at("chosen-label").addEventListener("click", () => { at("label-form").hidden = false; at("label-key").focus(); });
  at("chosen-cancel").addEventListener("click", () => {
    if (confirm(`Cancel ${chosen.size} job${chosen.size === 1 ? "" : "s"}?`)) each("POST", (id) => `/v1/jobs/${id}/cancel`);
  });
  at("label-form").addEventListener("submit", (event) => {
    event.preventDefault();
    each("PATCH", (id) => `/v1/jobs/${id}`, { labels: { [at("label-key").value]: at("label-value").value || null } });
  });
}
