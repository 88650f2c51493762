/* A new maintenance window begins with the zone of the browser. */
"use strict";

document.addEventListener("DOMContentLoaded", () => {
  const input = document.querySelector("input[data-zone]");
  if (input && !input.value) input.value = Intl.DateTimeFormat().resolvedOptions().timeZone;
});
