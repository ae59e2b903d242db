// A sweep's page: its charts drawn from what the page says, and the page brought up to date while the sweep is open.
import { draw } from "/static/sweep_charts.js";

const EVERY_MS = 3000;

function redraw() {
  draw(JSON.parse(document.getElementById("facts").textContent), document.getElementById("parallel"), document.getElementById("over"));
}

// A row that is pointed at, or whose link has the focus, shows its line; found anew since rows are replaced.
function mark(event, isOn) {
  const row = event.target.closest?.("tr[data-trial]");
  if (!row) return;
  for (const line of document.querySelectorAll(`svg [data-trial="${row.dataset.trial}"]`)) line.classList.toggle("is-shown", isOn);
}
for (const [name, isOn] of [["mouseover", true], ["mouseout", false], ["focusin", true], ["focusout", false]]) {
  document.addEventListener(name, (event) => mark(event, isOn));
}

async function refresh() {
  const live = document.getElementById("live");
  if (!("open" in live.dataset)) return;
  // Whoever reads or is on a button there is not disturbed; the next look will do.
  if (document.visibilityState === "visible" && !live.contains(document.activeElement)) {
    try {
      const answer = await fetch(location.href);
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("live");
      if (answer.ok && fresh) { live.replaceWith(fresh); redraw(); }
    } catch { /* away: tried again at the next look */ }
  }
  setTimeout(refresh, EVERY_MS);
}

redraw();
setTimeout(refresh, EVERY_MS);
