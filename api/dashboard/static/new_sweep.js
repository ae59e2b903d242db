// Starts a sweep from its JSON; what is refused is said with its path.
import { call, show } from "/static/api.js";

const form = document.getElementById("sweep-form");
const said = document.getElementById("sweep-said");

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const button = form.querySelector("button");
  said.replaceChildren();
  button.disabled = true;
  try {
    const sweep = await call("POST", "/v1/sweeps", JSON.parse(document.getElementById("sweep-body").value));
    location.assign(`/sweeps/${sweep.id}`);
  } catch (error) {
    button.disabled = false;
    said.replaceChildren(show(error));
  }
});
