/* The message search, which continues step by step until it is stopped. */
"use strict";

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-stop-search]");
  if (!button) return;
  const row = button.closest(".scan");
  htmx.trigger(row, "htmx:abort");
  const goOn = row.querySelector("[data-go-on]");
  goOn.hidden = false;
  goOn.focus();
  button.remove();
});
