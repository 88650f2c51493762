/* Tables: on a phone each row is a card whose facts are labelled with their column names; j and k move between rows. */
"use strict";

(() => {
  /** Column names for tables whose templates don't set them. */
  function label(scope = document) {
    for (const table of scope.querySelectorAll("table.table")) {
      // Text for screen readers only needs no space.
      const heads = [...table.querySelectorAll("thead th")].map((head) =>
        head.querySelector(".visually-hidden") ? "" : head.textContent.replace(/\s+/g, " ").trim());
      for (const row of table.querySelectorAll("tbody tr")) {
        if (row.cells.length !== heads.length) continue;
        [...row.cells].forEach((cell, index) => {
          if (cell.dataset.label === undefined) cell.dataset.label = index ? heads[index] : "";
        });
      }
    }
  }

  const links = () => [...document.querySelectorAll(".table tbody tr:not([hidden])")]
    .map((row) => row.querySelector("a[href]") ?? (row.tabIndex >= 0 ? row : null))
    .filter((target) => target && target.offsetParent !== null);

  function walk(step) {
    const all = links();
    if (!all.length) return;
    const now = all.findIndex((target) => target.closest("tr") === document.activeElement?.closest("tr"));
    const next = all[Math.min(all.length - 1, Math.max(0, now + step))];
    next.focus();
    next.scrollIntoView({ block: "nearest" });
  }

  Keyboard.on("j", () => walk(1));
  Keyboard.on("k", () => walk(-1));
  document.addEventListener("DOMContentLoaded", () => label());
  document.addEventListener("htmx:afterSwap", (event) => label(event.target));
})();
