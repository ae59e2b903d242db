// Labels and notes of the job page: changed through the API, then shown as it answers.
import { call, show } from "/static/api.js";

export function editWords(jobId) {
  const result = document.getElementById("words-result");
  async function change(patch) {
    result.replaceChildren();
    try {
      await call("PATCH", `/v1/jobs/${jobId}`, patch);
      location.reload();
    } catch (error) {
      result.replaceChildren(show(error));
    }
  }
  document.getElementById("label-form").addEventListener("submit", (event) => {
    event.preventDefault();
    change({ labels: { [document.getElementById("label-key").value]: document.getElementById("label-value").value } });
  });
  document.getElementById("labels").addEventListener("click", (event) => {
    const key = event.target.dataset.unlabel;
    if (key !== undefined) change({ labels: { [key]: null } });
  });
  document.getElementById("notes-form").addEventListener("submit", (event) => {
    event.preventDefault();
    change({ notes: document.getElementById("notes-text").value || null });
  });
}
