/* Keeps the flow and the verdicts next to it current: the server sends them over a WebSocket whenever they change. */
"use strict";

document.addEventListener("DOMContentLoaded", () => {
  const box = document.getElementById("flow");
  if (!box) return;
  const RETRY_MS = 5000;
  let socket = null;

  /* A selector for the focused element, to restore the focus after an update. */
  function place() {
    const held = document.activeElement;
    if (!box.contains(held)) return null;
    const link = held.getAttribute("href");
    return link ? `[href="${CSS.escape(link)}"]` : held.localName;
  }

  function show(html) {
    const held = place();
    const wasOpen = box.querySelector("details")?.open;
    const scrolled = box.querySelector(".board__list")?.scrollTop;
    box.innerHTML = html;
    const fold = box.querySelector("details");
    if (fold && wasOpen) fold.open = true;
    const column = box.querySelector(".board__list");
    if (column && scrolled) column.scrollTop = scrolled;
    if (held) box.querySelector(held)?.focus({ preventScroll: true });
    Times.refresh(box);
  }

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
