// A chart as a picture or a table to keep.
import { css } from "/static/chart.js";

function save(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

const fileName = (title, kind) => `${title.toLowerCase().replace(/[^a-z0-9]+/g, "-")}.${kind}`;

export function savePng(plot, title) {
  const picture = document.createElement("canvas");
  Object.assign(picture, { width: plot.ctx.canvas.width, height: plot.ctx.canvas.height });
  const pen = picture.getContext("2d");
  pen.fillStyle = css("--card");
  pen.fillRect(0, 0, picture.width, picture.height);
  pen.drawImage(plot.ctx.canvas, 0, 0);
  picture.toBlob((blob) => save(blob, fileName(title, "png")));
}

// From the service: every point, nothing thinned.
export function csvLink(address, title) {
  const link = document.createElement("a");
  Object.assign(link, { href: address, download: "", textContent: "CSV", ariaLabel: `Save ${title} as CSV`, className: "button quiet" });
  return link;
}

// What the chart shows.
export function saveCsv(chart, title) {
  const button = document.createElement("button");
  Object.assign(button, { className: "quiet", textContent: "CSV", ariaLabel: `Save ${title} as CSV` });
  const cell = (text) => `"${String(text).replaceAll('"', '""')}"`;
  button.addEventListener("click", () => {
    const [xs, ...columns] = chart.plot.data;
    const head = chart.plot.series.map((series) => cell(series.label)).join(",");
    const rows = xs.map((x, at) => [x, ...columns.map((column) => column[at] ?? "")].join(","));
    save(new Blob([[head, ...rows, ""].join("\n")], { type: "text/csv" }), fileName(title, "csv"));
  });
  return button;
}
