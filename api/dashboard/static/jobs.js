// The jobs table is fetched again only while somebody looks at it.
document.body.addEventListener("htmx:beforeRequest", (event) => {
  if (document.visibilityState !== "visible") event.preventDefault();
});
