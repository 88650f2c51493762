/* Keeps the flow current: the server sends it over a WebSocket whenever it changes. The issues next to it come with the
   summary. An update keeps the focus, what is expanded, and the scroll position. */
"use strict";

document.addEventListener("DOMContentLoaded", () => {
  const box = document.getElementById("flow");
  if (!box) return;
  const RETRY_MS = 5000;
  let socket = null;

  /* A selector for the focused element, to restore the focus after an update. */
  function place(part) {
    const held = document.activeElement;
    if (!part.contains(held)) return null;
    const link = held.getAttribute("href");
    return link ? `[href="${CSS.escape(link)}"]` : held.localName;
  }

  /* What a person has changed in a part, as a function that restores it. */
  function state(part) {
    const held = place(part);
    const wasOpen = part.querySelector("details")?.open;
    const scrolled = part.querySelector(".board__list")?.scrollTop;
    return () => {
      const fold = part.querySelector("details");
      if (fold && wasOpen) fold.open = true;
      const column = part.querySelector(".board__list");
      if (column && scrolled) column.scrollTop = scrolled;
      if (held) part.querySelector(held)?.focus({ preventScroll: true });
      Times.refresh(part);
    };
  }

  function show(html) {
    const restore = state(box);
    box.innerHTML = html;
    restore();
  }

  const issues = document.getElementById("issues");
  let restoreIssues = null;
  document.addEventListener("htmx:oobBeforeSwap", (event) => {
    if (event.detail.target === issues) restoreIssues = state(issues);
  });
  document.addEventListener("htmx:oobAfterSwap", (event) => {
    if (event.detail.target === issues) restoreIssues?.();
  });

  function connect() {
    if (document.hidden || socket) return;
    const address = new URL(box.dataset.socket, location.href);
    address.protocol = address.protocol.replace("http", "ws");
    socket = new WebSocket(address);
    socket.addEventListener("message", (event) => {
      box.removeAttribute("data-stale");
      show(event.data);
    });
    socket.addEventListener("close", () => {
      socket = null;
      if (document.hidden) return;
      box.dataset.stale = "true";
      setTimeout(connect, RETRY_MS);
    });
  }

  document.addEventListener("visibilitychange", () => (document.hidden ? socket?.close() : connect()));
  connect();
});
