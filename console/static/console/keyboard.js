/* Keyboard shortcuts, with one handler per page. Scripts register theirs with Keyboard.on("j", …) or, for two keys in
   sequence, Keyboard.on("g t", …). They are inactive while a text field has the focus or a dialog is open. */
"use strict";

const Keyboard = (() => {
  const SECOND_KEY_MS = 1500;
  const actions = new Map();
  let first = "";
  let firstAt = 0;

  const on = (keys, action) => actions.set(keys, action);
  const isTyping = (target) => target instanceof Element && target.closest("input, textarea, select, [contenteditable]") !== null;

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target) || document.querySelector("dialog[open]")) return;
    const both = performance.now() - firstAt < SECOND_KEY_MS ? `${first} ${event.key}` : "";
    const action = actions.get(both) ?? actions.get(event.key);
    [first, firstAt] = actions.has(both) ? ["", 0] : [event.key, performance.now()];
    if (!action) return;
    event.preventDefault();
    action();
  });

  on("/", () => {
    const search = document.querySelector("input[type=search]");
    search?.focus();
    search?.select();
  });
  on("?", () => document.getElementById("keys")?.showModal());
  document.addEventListener("DOMContentLoaded", () => {
    for (const link of document.querySelectorAll("a[data-key]")) on(`g ${link.dataset.key}`, () => link.click());
    // A URL can name a dialog to open, as the palette's actions do.
    const named = /^#[\w-]+$/.test(location.hash) && document.querySelector(location.hash);
    if (named instanceof HTMLDialogElement) named.showModal();
  });

  return { on };
})();
