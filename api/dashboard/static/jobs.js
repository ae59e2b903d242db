// The list of jobs: told when something changed while somebody looks, and what is done with several jobs at once.
import { choose } from "/static/chosen.js";
import { saveViews } from "/static/saved_views.js";

const table = document.getElementById("jobs");
let source = null;
let isStale = false;

function refresh() {
  if (document.visibilityState === "visible") htmx.trigger(table, "jobs-changed");
  else isStale = true;
}

// A page that nobody sees holds no connection; when it is seen again it is brought up to date at once.
function connect() {
  if (document.visibilityState !== "visible" || source) return;
  if (isStale) refresh();
  isStale = false;
  source = new EventSource("/jobs/changes");
  let isFirst = true;
  source.addEventListener("changed", () => { if (!isFirst) refresh(); isFirst = false; });
  source.onopen = () => { if (!isFirst) refresh(); };
}

document.addEventListener("visibilitychange", () => {
  if (document.visibilityState === "visible") { connect(); return; }
  source?.close();
  source = null;
  isStale = true;
});
setInterval(refresh, 30_000); // ages, and places in the queue
choose(table);
saveViews();
connect();
