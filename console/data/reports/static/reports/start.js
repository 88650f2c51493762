/* Selects the report in the dialog that a button of the list opens. */
"use strict";

document.addEventListener("click", (event) => {
  const button = event.target instanceof Element && event.target.closest("[data-start-report]");
  const select = button && document.querySelector("#start-report select[name=report]");
  if (!select) return;
  select.value = button.dataset.startReport;
  select.dispatchEvent(new Event("change", { bubbles: true }));
});
