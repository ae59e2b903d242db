// Views that somebody saved, as links, kept in this browser under a name of their own.
const KEY = "trainyard-views";

export function saveViews() {
  const place = document.getElementById("saved-views");
  const read = () => { try { return JSON.parse(localStorage.getItem(KEY)) ?? []; } catch { return []; } };
  function write(views) {
    localStorage.setItem(KEY, JSON.stringify(views));
    draw();
  }
  function draw() {
    place.replaceChildren(...read().map(({ name, query }) => {
      const view = document.createElement("span");
      const link = document.createElement("a");
      Object.assign(link, { textContent: name, href: `/jobs${query}` });
      const drop = document.createElement("button");
      Object.assign(drop, { textContent: "×", className: "quiet", ariaLabel: `Forget the view ${name}` });
      drop.addEventListener("click", () => write(read().filter((other) => other.name !== name)));
      view.append(link, drop);
      return view;
    }));
  }
  document.getElementById("save-view").addEventListener("click", () => {
    const name = prompt("Name of this view");
    if (name) write([...read().filter((other) => other.name !== name), { name, query: location.search }]);
  });
  draw();
}
