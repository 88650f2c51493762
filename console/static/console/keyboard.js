/* Keys: one handler for the page. Scripts register theirs by Keyboard.on("j", …) or, for two keys one after the other,
   Keyboard.on("g t", …). No key works while somebody types or a dialog is open. */
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
    // An address may name a dialog of the page: the palette's actions do.
    const named = /^#[\w-]+$/.test(location.hash) && document.querySelector(location.hash);
    if (named instanceof HTMLDialogElement) named.showModal();
  });

  return { on };
})();
