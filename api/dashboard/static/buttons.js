// Buttons and forms that call the API: data-call="METHOD /path", maybe data-confirm (asked first), data-next (where to go
// then; {id} is that of the answer) or data-then (an event for the page, instead of a reload).
import { call, show } from "/static/api.js";

async function act(element, button, body) {
  const { call: what, confirm: question, next, then } = element.dataset;
  if (question && !confirm(question)) return;
  const [method, path] = what.split(" ");
  button.disabled = true;
  document.querySelector(".cause.of-button")?.remove();
  try {
    const answer = await call(method, path, body);
    if (next) location.assign(next.replace("{id}", answer?.id ?? ""));
    else if (then) document.dispatchEvent(new CustomEvent(then, { detail: answer }));
    else location.reload();
  } catch (error) {
    button.disabled = false;
    const said = show(error);
    said.classList.add("of-button");
    (element.closest(".card, .heading, td") ?? element).after(said);
  }
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("button[data-call]");
  if (button) act(button, button);
});
document.addEventListener("submit", (event) => {
  const form = event.target.closest("form[data-call]");
  if (!form) return;
  event.preventDefault();
  const filled = [...new FormData(form)].filter(([, value]) => value !== "");
  act(form, form.querySelector("button"), Object.fromEntries(filled));
});
