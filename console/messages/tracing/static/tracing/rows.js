/* The messages of the Live page: one row per message, whose stages are dots that fill in as events arrive.
   All message contents are set with textContent and never parsed as HTML. */
"use strict";

const LiveRows = (() => {
  const MESSAGES_MAX = 10000;
  const EVENTS_MAX = 200;
  const ROWS_MAX = 300;
  const GROUP_DOTS_MAX = 6;
  const COVERED_MAX = 2000;
  const SLOW_US = 100000;
  const ERRORS = ["refused", "given_back", "dead", "rolled_back", "expired"];
  const STATES = {
    stored: "accent", delivered: "info", acknowledged: "ok", given_back: "warn", retried: "warn", dead: "bad", refused: "bad",
    withheld: "warn", rolled_back: "bad", committed: "ok", deferred: "warn", expired: "bad", replayed: "accent",
  };
  const WORDS = {
    received: gettext("received"), validated: gettext("validated"), appended: gettext("appended"), dispatched: gettext("dispatched"),
    stored: gettext("stored"), delivered: gettext("delivered"), acknowledged: gettext("acknowledged"), given_back: gettext("returned for retry"),
    dead: gettext("dead letter"), refused: gettext("rejected"), retried: gettext("retry"), replayed: gettext("replayed"),
    withheld: gettext("withheld"), checked: gettext("checked"), committed: gettext("committed"), rolled_back: gettext("rolled back"),
    deferred: gettext("deferred"), flushed: gettext("flushed"), replicated: gettext("replicated"), woken: gettext("long poll answered"),
    filtered: gettext("filtered out"), expired: gettext("expired unread"),
  };
  // These stages only appear in the details.
  const QUIET = ["received", "validated", "appended", "dispatched", "flushed", "replicated", "woken"];
  const IN_PLACE = ["stored", "delivered", "acknowledged"];

  const messages = new Map();
  const queues = new Map();
  const groups = new Map();
  const changed = new Set();
  const fresh = [];
  let table, shows, onRender;
  let serial = 0;
  let frame = 0;
  let shown = 0;

  const sizeText = (bytes) => (bytes == null ? "" : bytes < 1024 ? `${bytes} B`
    : bytes < 1048576 ? `${(bytes / 1024).toFixed(1)} KiB` : `${(bytes / 1048576).toFixed(1)} MiB`);
  function latencyText(us) {
    if (us == null) return "";
    // The broker stores times in milliseconds.
    if (us < 1) return "< 1 ms";
    if (us < 1000) return `${us} µs`;
    if (us < 1000000) return `${(us / 1000).toFixed(us < 10000 ? 1 : 0)} ms`;
    if (us < 90000000) return `${(us / 1000000).toFixed(1)} s`;
    return Times.span(us / 1000000);
  }
  const timeText = (ms) => `${Times.clock(Number(ms))}.${String(Number(ms) % 1000).padStart(3, "0")}`;
  const wordOf = (stage) => WORDS[stage] || stage;
  const isError = (event) => ERRORS.includes(event.stage);
  // Stages whose time isn't a delay: a client's clock, a requested wait, an empty pull, an asynchronous
  // disk write.
  const NEVER_SLOW = ["stored", "deferred", "retried", "replayed", "woken", "flushed"];
  const isSlow = (event) => (event.latencyUs || 0) >= SLOW_US && !NEVER_SLOW.includes(event.stage);
  const isCopy = (topic) => /^%(RETRY|DLQ)%/.test(topic);

  /* The model. */
  function queueOf(event) {
    const key = `${event.brokerName || ""}/${event.topic}/${event.queueId}`;
    if (!queues.has(key)) queues.set(key, new Map());
    return queues.get(key);
  }
  /** The messages that an event belongs to; for several offsets, those that are here. */
  function messagesOf(event) {
    const first = event.acknowledgedFrom ?? event.fromOffset;
    if (first == null) {
      const known = event.queueOffset != null && event.queueId != null ? queueOf(event).get(event.queueOffset) : null;
      const id = event.messageId || event.uniqKey;
      return [messages.get(id) || known || made(id || `#${serial += 1}`, event)];
    }
    const [low, end] = [BigInt(first), BigInt(event.queueOffset)];
    const covered = [];
    const known = queueOf(event);
    if (end - low <= BigInt(COVERED_MAX)) {
      for (let at = low; at < end; at += 1n) if (known.has(String(at))) covered.push(known.get(String(at)));
    }
    return covered.length ? covered : [made(`#${serial += 1}`, event)];
  }
  function made(id, event) {
    const message = { id, at: Number(event.timeMs), first: event, events: [], row: null, slow: false, error: false, took: null };
    messages.set(id, message);
    fresh.push(message);
    Strip.count(message.at, "messages");
    while (messages.size > MESSAGES_MAX) forget(messages.values().next().value);
    return message;
  }
  function forget(message) {
    messages.delete(message.id);
    changed.delete(message);
    message.row?.remove();
    message.row = null;
    message.isGone = true;
    for (const event of message.events) if (event.queueId != null) queueOf(event).delete(event.queueOffset);
  }
  function take(events) {
    for (const event of events) {
      if (event.group && !isCopy(event.topic)) {
        if (!groups.has(event.topic)) groups.set(event.topic, new Set());
        groups.get(event.topic).add(event.group);
      }
      for (const message of messagesOf(event)) note(message, event);
    }
    draw();
  }
  function note(message, event) {
    if (message.events.length < EVENTS_MAX) message.events.push(event);
    if (event.acknowledgedFrom == null && event.fromOffset == null && event.queueOffset != null) queueOf(event).set(event.queueOffset, message);
    // Prefer the location where the message was stored first.
    if (event.stage === "stored" && !isCopy(event.topic) || isCopy(message.first.topic) && !isCopy(event.topic)) message.first = { ...message.first, ...event };
    message.producer ||= event.producerGroup;
    if (isError(event) && !message.error) { message.error = true; Strip.count(message.at, "errors"); }
    if (isSlow(event) && !message.slow) { message.slow = true; Strip.count(message.at, "slow"); }
    const since = Number(event.totalUs ?? (Number(event.timeMs) - message.at) * 1000);
    message.took = Math.max(message.took ?? 0, since, IN_PLACE.includes(event.stage) ? event.latencyUs || 0 : 0);
    changed.add(message);
  }
  /** A row for a gap; `kept` returns the URL where the missing events may be found. */
  function gap(text, kept = null) {
    const at = Date.now();
    const entry = { id: `#${serial += 1}`, at, gap: text, kept, events: [], row: null };
    messages.set(entry.id, entry);
    fresh.push(entry);
    draw();
    return entry;
  }
  function clear() {
    for (const message of messages.values()) message.isGone = true;
    for (const each of [messages, queues, groups, changed]) each.clear();
    fresh.length = 0;
    table.replaceChildren();
    shown = 0;
    onRender(shown);
  }

  /* The table. Draws only the rows that stay visible, once per frame. */
  function draw() {
    frame ||= requestAnimationFrame(() => {
      frame = 0;
      for (const message of changed) if (message.row) fill(message);
      const wanted = fresh.filter((message) => !message.isGone && (message.gap || !hides(message))).slice(-ROWS_MAX);
      for (const message of changed) if (message.isHidden && !hides(message)) wanted.push(message);
      changed.clear();
      fresh.length = 0;
      append(wanted);
    });
  }
  function hides(message) {
    message.isHidden = !shows(message);
    return message.isHidden;
  }
  function append(wanted) {
    if (!wanted.length) return;
    const fragment = document.createDocumentFragment();
    for (const message of wanted) if (!message.row) fragment.append(rowOf(message));
    table.append(fragment);
    while (table.childElementCount > ROWS_MAX) drop(table.firstElementChild);
    count();
  }
  function drop(row) {
    if (row.message) row.message.row = null;
    row.remove();
  }
  function count() {
    shown = table.childElementCount;
    onRender(shown);
  }
  /** Redraw everything after the filter, search or brush has changed. */
  function sift() {
    const wanted = [];
    for (const message of messages.values()) {
      if (message.row) { message.row.remove(); message.row = null; }
      if (message.gap || !hides(message)) wanted.push(message);
    }
    table.replaceChildren();
    fresh.length = 0;
    append(wanted.slice(-ROWS_MAX));
    count();
  }
  function cell(text, css) {
    const td = document.createElement("td");
    if (css) td.className = css;
    if (text) td.textContent = text;
    return td;
  }
  function span(text, css, title) {
    const made = document.createElement("span");
    if (css) made.className = css;
    if (text) made.textContent = text;
    if (title) made.title = title;
    return made;
  }
  function rowOf(message) {
    const row = document.createElement("tr");
    row.message = message;
    message.row = row;
    if (message.gap) {
      row.className = "river__gap";
      const td = cell("");
      td.colSpan = 7;
      row.append(td);
      fill(message);
      return row;
    }
    row.tabIndex = -1;
    for (const css of ["river__time", "river__what", "river__text", "num river__size", "river__text river__client", "river__stages", "river__latency"]) row.append(cell("", css));
    fill(message);
    return row;
  }
  function fill(message) {
    const { row, first } = message;
    if (message.gap) { row.firstElementChild.replaceChildren(message.gap, ...keptOf(message)); return; }
    const [time, what, marks, size, client, stages, latency] = row.cells;
    time.textContent = timeText(message.at);
    const address = familyOf(first);
    const place = document.createElement(address ? "a" : "span");
    if (address) { place.href = address; place.title = gettext("Message history"); }
    place.className = "river__place";
    place.textContent = placeText(first);
    what.replaceChildren(span(first.topic, "river__name"), place);
    marks.replaceChildren(...[first.tags && span(first.tags, "chip"), first.keys && span(first.keys, "river__keys")].filter(Boolean));
    marks.title = first.keys || "";
    size.textContent = sizeText(first.bodySize);
    const [who, from] = clientOf(message);
    client.replaceChildren(...[who && span(who, "river__group"), from && span(from, "river__address")].filter(Boolean));
    client.title = [who, from].filter(Boolean).join(" ");
    stages.replaceChildren(...dotsOf(message));
    const bar = span("", "river__bar");
    bar.style.setProperty("--share", String(share(message.took)));
    latency.replaceChildren(bar, span(message.took == null ? "" : latencyText(message.took), "river__took"));
    row.dataset.state = message.error ? "bad" : message.slow ? "warn" : "";
  }
  /* The bar is empty at 100 µs and full at 10 s. */
  const share = (us) => (us == null ? 0 : Math.min(1, Math.max(0.02, Math.log10(Math.max(us, 1) / 100) / 5)));
  function clientOf(message) {
    const { first } = message;
    return [message.producer || first.producerGroup || first.group || "", first.client || first.clientId || ""];
  }
  function keptOf(message) {
    if (!message.kept) return [];
    const link = document.createElement("a");
    link.textContent = gettext("From the flight recorders");
    link.href = message.kept();
    // The link is relative to now, so compute it on click.
    link.addEventListener("click", () => { link.href = message.kept(); });
    return [" ", link];
  }
  function placeText(event) {
    if (event.queueOffset == null && WAITS.includes(event.stage) && event.queueId != null) return `${event.queueId} · –`;
    if (event.stage === "refused" || event.queueOffset == null) return event.codeName || (event.code == null ? "" : String(event.code));
    const from = event.acknowledgedFrom ?? event.fromOffset;
    if (from == null) return `${event.queueId} · ${event.queueOffset}`;
    const last = BigInt(event.queueOffset) - 1n;
    if (BigInt(from) > last) return interpolate(gettext("%s · back to %s"), [event.queueId, event.queueOffset]);
    return from === String(last) ? `${event.queueId} · ${last}` : `${event.queueId} · ${from}–${last}`;
  }
  /* A pending message has no offset to link to, only an ID. */
  const WAITS = ["withheld", "checked", "rolled_back"];
  function familyOf(event) {
    if (WAITS.includes(event.stage) && event.queueOffset == null && event.uniqKey) {
      return `${table.closest("[data-find]").dataset.find}?${new URLSearchParams({ by: "id", topic: event.topic, text: event.uniqKey })}`;
    }
    if (!event.brokerName || event.queueOffset == null || event.queueId == null || event.acknowledgedFrom != null || event.fromOffset != null) return "";
    const base = table.closest("[data-families]").dataset.families;
    return `${base}${encodeURIComponent(event.brokerName)}/${event.queueId}/${event.queueOffset}/${encodeURIComponent(event.topic)}/`;
  }
  function dotsOf(message) {
    const by = new Map();
    for (const event of message.events) {
      if (!by.has(event.stage)) by.set(event.stage, []);
      by.get(event.stage).push(event);
    }
    const parts = [];
    if (by.has("stored") || by.has("delivered") || by.has("acknowledged")) {
      parts.push(dots("stored", by.has("stored") ? 1 : 0, 1, gettext("stored")));
      const known = groups.get(message.first.topic)?.size || 0;
      for (const [stage, text] of [["delivered", gettext("delivered")], ["acknowledged", gettext("acked")]]) {
        const had = new Set((by.get(stage) || []).map((event) => event.group || "")).size;
        const all = Math.max(known, had, 1);
        const title = (by.get(stage) || []).map((event) => `${event.group || ""} ${latencyText(event.latencyUs)}`).join("\n");
        parts.push(dots(stage, had, all, text, title));
      }
    }
    for (const [stage, events] of by) {
      if (IN_PLACE.includes(stage) || QUIET.includes(stage)) continue;
      const last = events.at(-1);
      const number = last.reconsumeTimes && ["retried", "given_back"].includes(stage) ? ` ${last.reconsumeTimes}${last.reconsumeMax ? `/${last.reconsumeMax}` : ""}` : "";
      const chip = span(`${wordOf(stage)}${number}`, "chip", last.remark ? `${last.codeName || last.code}: ${last.remark}` : last.group || "");
      chip.dataset.state = STATES[stage] || "off";
      parts.push(chip);
      if (last.remark) parts.push(span(last.remark, "river__why"));
    }
    return parts;
  }
  function dots(stage, had, all, text, title) {
    const made = span("", "river__dots", title ? `${text}\n${title}` : text);
    made.dataset.stage = stage;
    for (let at = 0; at < Math.min(all, GROUP_DOTS_MAX); at += 1) {
      const dot = span("", "river__dot");
      if (at < had) dot.dataset.state = STATES[stage];
      made.append(dot);
    }
    made.append(span(text, had ? "river__word" : "river__word faint"));
    if (all > 1) made.append(span(`${had}/${all}`, "river__ratio"));
    return made;
  }

  function start(body, isShown, rendered) { table = body; shows = isShown; onRender = rendered; }
  const all = () => [...messages.values()].filter((message) => !message.gap);
  function say(entry, text) {
    entry.gap = text;
    if (entry.row) fill(entry);
  }
  const newest = () => [...messages.values()].at(-1);
  return { start, take, gap, say, clear, sift, all, newest, timeText, latencyText, sizeText, placeText, familyOf, wordOf, STATES, ERRORS };
})();
