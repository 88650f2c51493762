/* A new schedule is in the time zone of whoever makes it. */
"use strict";

document.addEventListener("DOMContentLoaded", () => {
  const select = document.querySelector("select[data-zone-of-browser]");
  if (!select) return;
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  if ([...select.options].some((option) => option.value === zone)) select.value = zone;
});
