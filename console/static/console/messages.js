/* The message searches, which continue step by step. */
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

/* The rows of a further step join the earlier ones, newest first. */
document.addEventListener("htmx:afterSettle", () => {
  for (const body of document.querySelectorAll("[data-newest-first]")) {
    const rows = [...body.querySelectorAll("tr[data-stored]")];
    rows.sort((one, other) => Number(other.dataset.stored) - Number(one.dataset.stored));
    body.prepend(...rows);
  }
});
