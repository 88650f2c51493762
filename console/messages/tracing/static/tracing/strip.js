/* The strip of the Live page: one bar per second for the last 60 s: messages, slow ones, errors. Brushing a part of it
   freezes the page on that part. */
"use strict";

const Strip = (() => {
  const SECONDS = 60;
  const KEPT_S = 300;
  const HEIGHT = 44;
  const NS = "http://www.w3.org/2000/svg";
  const counts = new Map();
  let svg, onBrush, label;
  let brush = null;
  let from = null;
  // While the page is frozen, so is the strip.
  let heldEnd = null;

  const nowSecond = () => Math.floor(Date.now() / 1000);
  const end = () => heldEnd ?? nowSecond();

  function count(ms, what, number = 1) {
    const second = Math.floor(ms / 1000);
    if (!counts.has(second)) counts.set(second, { messages: 0, slow: 0, errors: 0 });
    counts.get(second)[what] += number;
    if (counts.size > KEPT_S) for (const each of counts.keys()) { counts.delete(each); if (counts.size <= KEPT_S) break; }
  }
  function rect(x, y, width, height, name) {
    const made = document.createElementNS(NS, "rect");
    for (const [key, value] of Object.entries({ x: `${x}%`, y, width: `${width}%`, height })) made.setAttribute(key, value);
    made.setAttribute("class", name);
    return made;
  }
  function draw() {
    const last = end();
    const first = last - SECONDS + 1;
    const width = 100 / SECONDS;
    let most = 1;
    for (const [second, each] of counts) if (second >= first && second <= last) most = Math.max(most, each.messages);
    const parts = [];
    for (let second = first; second <= last; second += 1) {
      const each = counts.get(second);
      if (!each) continue;
      const x = (second - first) * width;
      const high = (number) => (number ? Math.max(2, (number / most) * (HEIGHT - 4)) : 0);
      const [all, slow, bad] = [high(each.messages), high(each.slow), high(each.errors)].map((value) => Math.min(value, HEIGHT));
      parts.push(rect(x + width * 0.1, HEIGHT - all, width * 0.8, all, "strip__all"));
      if (slow) parts.push(rect(x + width * 0.1, HEIGHT - slow, width * 0.8, slow, "strip__slow"));
      if (bad) parts.push(rect(x + width * 0.1, HEIGHT - bad, width * 0.8, bad, "strip__bad"));
    }
    if (brush) {
      const x = Math.max(0, (brush.from - first) * width);
      parts.push(rect(x, 0, Math.max(0, (brush.to + 1 - first) * width - x), HEIGHT, "strip__brush"));
    }
    svg.replaceChildren(...parts);
    const most60 = interpolate(gettext("up to %s messages/s"), [Trebuchet.grouped(counts.size ? most : 0)]);
    label.textContent = brush
      ? interpolate(gettext("%s to %s is frozen. Press Esc to release it."), [Times.clock(brush.from * 1000), Times.clock((brush.to + 1) * 1000)])
      : most60;
  }
  function set(next) {
    brush = next;
    heldEnd = brush ? heldEnd ?? nowSecond() : null;
    draw();
    onBrush(brush && { from: brush.from * 1000, to: (brush.to + 1) * 1000 });
  }
  function secondAt(event) {
    const box = svg.getBoundingClientRect();
    const at = Math.floor(((event.clientX - box.left) / box.width) * SECONDS);
    return end() - SECONDS + 1 + Math.min(SECONDS - 1, Math.max(0, at));
  }
  const between = (one, other) => ({ from: Math.min(one, other), to: Math.max(one, other) });

  function start(element, text, changed) {
    svg = element;
    label = text;
    onBrush = changed;
    svg.addEventListener("pointerdown", (event) => {
      heldEnd = end();
      from = secondAt(event);
      svg.setPointerCapture(event.pointerId);
      set({ from, to: from });
    });
    svg.addEventListener("pointermove", (event) => { if (from !== null) set(between(from, secondAt(event))); });
    svg.addEventListener("pointerup", () => { from = null; });
    svg.addEventListener("pointercancel", () => { from = null; });
    svg.addEventListener("keydown", (event) => {
      const way = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!way) return;
      event.preventDefault();
      const last = end();
      const { from: low, to: high } = brush ?? { from: last + 1, to: last + 1 };
      const next = event.shiftKey ? between(low, high + way) : between(low + way, low + way);
      heldEnd ??= last;
      set({ from: Math.max(last - SECONDS + 1, next.from), to: Math.min(last, next.to) });
    });
    setInterval(() => { if (!document.hidden) draw(); }, 1000);
    draw();
  }
  return { start, count, draw, clear: () => set(null), get brush() { return brush; } };
})();
