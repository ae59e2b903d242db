// A job body as JSON, YAML, curl and Python that do the same.
const isPlain = (text) => /^[A-Za-z_][\w .\/-]*$/.test(text) && text === text.trim() && !/^(true|false|null|yes|no|on|off|y|n|nan|inf)$/i.test(text);

function yamlScalar(value) {
  if (typeof value === "string") return isPlain(value) ? value : JSON.stringify(value);
  return JSON.stringify(value);
}

export function yaml(value, indent = "") {
  return Object.entries(value).map(([key, item]) => {
    const name = `${indent}${isPlain(key) ? key : JSON.stringify(key)}:`;
    if (Array.isArray(item)) return `${name} ${JSON.stringify(item)}\n`;
    if (item && typeof item === "object") return Object.keys(item).length ? `${name}\n${yaml(item, `${indent}  `)}` : `${name} {}\n`;
    return `${name} ${yamlScalar(item)}\n`;
  }).join("");
}

export function python(value, indent = "") {
  if (value === null) return "None";
  if (value === true) return "True";
  if (value === false) return "False";
  if (Array.isArray(value)) return `[${value.map((item) => python(item, indent)).join(", ")}]`;
  if (typeof value !== "object") return JSON.stringify(value);
  const deeper = `${indent}    `;
  const items = Object.entries(value).map(([key, item]) => `${deeper}${JSON.stringify(key)}: ${python(item, deeper)},\n`);
  return items.length ? `{\n${items.join("")}${indent}}` : "{}";
}

export const SNIPPETS = {
  json: (body) => JSON.stringify(body, null, 2),
  yaml: (body) => `# trainyard submit job.yaml\n${yaml(body)}`,
  // A single quote ends a shell's text, so each is written as '\''.
  curl: (body) => `curl -sS ${location.origin}/v1/jobs \\\n  -H "Authorization: Bearer $TRAINYARD_API_KEY" -H "Content-Type: application/json" \\\n  -d '${JSON.stringify(body, null, 2).replaceAll("'", "'\\''")}'`,
  python: (body) => `from trainyard import Client\n\nwith Client(${JSON.stringify(location.origin)}) as client:\n    job = client.submit(${python(body, "    ")})\n    print(job["id"])`,
};

export function showSnippets(tabs, place, copy, said) {
  let kind = "json";
  let body = {};
  const draw = () => { place.textContent = SNIPPETS[kind](body); };
  function pick(tab) {
    kind = tab.dataset.kind;
    for (const other of tabs) { other.ariaSelected = String(other === tab); other.tabIndex = other === tab ? 0 : -1; }
    place.setAttribute("aria-labelledby", tab.id);
    draw();
  }
  for (const [index, tab] of tabs.entries()) {
    tab.addEventListener("click", () => pick(tab));
    tab.addEventListener("keydown", (event) => {
      const move = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!move) return;
      const next = tabs[(index + move + tabs.length) % tabs.length];
      next.focus();
      pick(next);
    });
  }
  copy.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(place.textContent);
      said.textContent = "Copied.";
    } catch { // not on a secure origin: let the person copy it
      getSelection().selectAllChildren(place);
      said.textContent = "Selected; press Ctrl+C.";
    }
  });
  return (made) => { body = made; draw(); };
}
