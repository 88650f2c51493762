/* Marks refreshing parts that get no answer, so that old numbers of a hung broker don't look current. */
"use strict";

(() => {
  const PATIENCE_MS = 2500;
  const waiting = new WeakMap();
  const readAt = new WeakMap();

  const repeats = (element) => element?.getAttribute?.("hx-trigger")?.includes("every");

  function mark(element) {
    if (element.dataset.stale) return;
    element.dataset.stale = "true";
    const note = document.createElement("p");
    note.className = "stale-note";
    note.setAttribute("role", "status");
    const at = Times.clock(readAt.get(element) ?? performance.timeOrigin);
    note.textContent = interpolate(gettext("No response. This page shows data from before %s."), [at]);
    element.prepend(note);
  }

  function unmark(element) {
    delete element.dataset.stale;
    element.querySelector(":scope > .stale-note")?.remove();
    readAt.set(element, Date.now());
  }

  document.addEventListener("htmx:beforeRequest", (event) => {
    const element = event.detail.elt;
    if (repeats(element)) waiting.set(element, setTimeout(mark, PATIENCE_MS, element));
  });
  document.addEventListener("htmx:afterRequest", (event) => {
    const element = event.detail.elt;
    if (!repeats(element)) return;
    clearTimeout(waiting.get(element));
    // After an error or without an answer, the page keeps its content.
    if (event.detail.successful) unmark(element);
    else mark(element);
  });
})();
