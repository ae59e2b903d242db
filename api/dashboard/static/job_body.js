// The submit form and the job body, one made from the other. What the form has no field for is JSON beside it.
const TEXT = ["name", "method", "model", "dataset.train", "parallel.strategy", "parallel.offload"];

// Text that is a number is sent as one; anything else as it is, so that the service can say what is wrong with it.
export const valueOf = (text) => (text.trim() !== "" && Number.isFinite(Number(text)) ? Number(text) : text);

export function put(body, path, value) {
  const parts = path.split(".");
  const last = parts.pop();
  let here = body;
  for (const part of parts) here = here[part] ??= {};
  here[last] = value;
}

export function merge(into, from) {
  for (const [key, value] of Object.entries(from)) {
    const both = [into[key], value].every((side) => side && typeof side === "object" && !Array.isArray(side));
    into[key] = both ? merge(into[key], value) : value;
  }
  return into;
}

export function columnsOf(text) {
  const pairs = text.split(",").map((pair) => pair.split("=").map((part) => part.trim()));
  return Object.fromEntries(pairs.filter(([name]) => name).map(([name, column]) => [name, column ?? ""]));
}

// Whether a field belongs to an adapter of this kind; "" is none. `data-for` names the kinds that have it.
export const isOf = (element, kind) => !element.dataset.for || element.dataset.for.split(" ").includes(kind);

// Shows the fields of the chosen kind of adapter alone.
export function showKind(form) {
  for (const element of form.querySelectorAll("[data-for]")) element.closest(".field").hidden = !isOf(element, form.elements.adapter.value);
}

// Raises SyntaxError when the JSON beside the fields is none.
export function bodyOf(form, more, options) {
  const body = { method: "sft" };
  const kind = form.elements.adapter.value;
  for (const element of form.querySelectorAll("[data-path]")) {
    const { path } = element.dataset;
    const text = element.value;
    if (path === "adapter" || text === "" || !isOf(element, kind)) continue;
    if (path === "dataset.columns") put(body, path, columnsOf(text));
    else put(body, path, TEXT.includes(path) ? text : valueOf(text));
  }
  if (kind) body.adapter = { type: kind, ...body.adapter };
  merge(body, { training: options });
  return more.value.trim() ? merge(body, JSON.parse(more.value)) : body;
}

// Fills the form from a body; `isWhole` empties what the body does not say. Answers what the form has no field for.
export function fill(form, body, isWhole) {
  const rest = structuredClone(body);
  if ("adapter" in body || isWhole) form.elements.adapter.value = body.adapter ? (body.adapter.type ?? "lora") : "";
  if (body.adapter) delete rest.adapter.type;
  if (!body.adapter) delete rest.adapter;
  for (const element of form.querySelectorAll("[data-path]")) {
    const { path } = element.dataset;
    if (path === "adapter") continue;
    const found = take(rest, path.split("."));
    if (found === undefined || found === null) {
      // What is not said is the service's default, not the form's; without an adapter its fields are not sent at all.
      if (isWhole && element.tagName === "INPUT" && (body.adapter || !path.startsWith("adapter."))) element.value = "";
    } else if (path === "dataset.columns") element.value = Object.entries(found).filter(([, column]) => column).map((pair) => pair.join("=")).join(", ");
    else {
      if (element.tagName === "SELECT" && ![...element.options].some((option) => option.value === String(found))) element.add(new Option(found, found));
      element.value = found;
    }
  }
  showKind(form);
  return rest;
}

// Takes the value at a path out of an object, and the objects that are left empty.
function take(from, [key, ...deeper]) {
  if (from === null || typeof from !== "object" || !(key in from)) return undefined;
  if (!deeper.length) { const found = from[key]; delete from[key]; return found; }
  const found = take(from[key], deeper);
  if (from[key] && typeof from[key] === "object" && !Object.keys(from[key]).length) delete from[key];
  return found;
}
