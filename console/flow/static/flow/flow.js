/* The flow follows the broker: the server sends it anew over a WebSocket whenever it has changed. */
"use strict";

document.addEventListener("DOMContentLoaded", () => {
  const box = document.getElementById("flow");
  if (!box) return;
  const RETRY_MS = 5000;
  let socket = null;

  function show(html) {
    // Whoever stands in it with the keyboard would lose the place.
    if (box.contains(document.activeElement)) return;
    box.innerHTML = html;
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
