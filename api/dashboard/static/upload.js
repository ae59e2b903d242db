// The datasets page: upload with progress; problems are shown by line.
import { show, upload } from "/static/api.js";

const form = document.getElementById("upload");
const result = document.getElementById("upload-result");
const progress = document.getElementById("upload-progress");

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const button = form.querySelector("button");
  button.disabled = true;
  progress.hidden = false;
  result.replaceChildren();
  try {
    await upload(form.elements.file.files[0], (share) => { progress.value = share; });
    location.reload();
  } catch (error) {
    result.replaceChildren(show(error));
  } finally {
    button.disabled = false;
    progress.hidden = true;
  }
});
