/* The river: events of the broker's live trace as rows, newest at the end.
   Everything a message carries is set with textContent; nothing of it is ever parsed as HTML. */
"use strict";

(() => {
  const ROWS_MAX = 1000;
  const RETRY_FIRST_MS = 500;
  const RETRY_MAX_MS = 8000;
  const SIGNED_OUT = 4401;
  const TOO_MANY = 4429;
  const STAGE_STATE = { stored: "accent", delivered: "info", acknowledged: "ok", given_back: "warn", dead: "bad", refused: "bad" };
  const STAGES = {
    stored: gettext("stored"), delivered: gettext("delivered"), acknowledged: gettext("acknowledged"),
    given_back: gettext("given back"), dead: gettext("dead letter"), refused: gettext("refused"),
  };
  const NAMES = ["topic", "group", "tag", "key", "stage", "client", "property", "latency", "sample"];
  const ERRORS = ["given_back", "dead", "refused"];
  const DETAILS = [
    ["timeMs", gettext("Time")],
    ["stage", gettext("Stage")],
    ["topic", gettext("Topic")],
    ["brokerName", gettext("Broker")],
    ["queueId", gettext("Queue")],
    ["queueOffset", gettext("Queue offset")],
    ["acknowledgedFrom", gettext("Acknowledged from")],
    ["reconsumeTimes", gettext("Retries so far")],
    ["request", gettext("Request")],
    ["code", gettext("Code of the answer")],
    ["codeName", gettext("Answer")],
    ["remark", gettext("Why")],
    ["commitLogOffset", gettext("CommitLog offset")],
    ["tags", gettext("Tag")],
    ["keys", gettext("Keys")],
    ["bodySize", gettext("Body")],
    ["storeSize", gettext("Record")],
    ["producerGroup", gettext("Producer group")],
    ["group", gettext("Consumer group")],
    ["client", gettext("Client")],
    ["clientId", gettext("Client id")],
    ["latencyUs", gettext("Latency")],
    ["uniqKey", gettext("Message id")],
    ["offsetMsgId", gettext("Offset id")],
    ["seq", gettext("Number in this watch")],
  ];

  const $ = (id) => document.getElementById(id);
  let page, rows, scroll, form;
  let socket = null;
  let retryMs = RETRY_FIRST_MS;
  let failures = 0;
  let paused = false;
  // The one message to show: {topic, queueId, queueOffset, uniqKey}.
  let only = null;
  let stick = true;
  let selected = null;
  let arrived = 0;
  let counters = { seen: 0, dropped: 0, brokerDropped: 0, waiting: 0 };
  let last = { seen: 0, arrived: 0, at: performance.now() };
  let status = { problem: "", brokers: [] };
  let notice = "";
  // Frames that left before the last filter carry an older number: of them, what it matches is
  // shown. Those from before the last clearing, or of another socket, are not.
  let round = 0;
  // Since when there is no connection, and since when brokers are away that were watched, by name.
  let lostAt = null;
  const away = new Map();
  let cleared = 0;

  function timeText(ms) {
    const value = Number(ms);
    return `${Times.clock(value)}.${String(value % 1000).padStart(3, "0")}`;
  }
  function sizeText(bytes) {
    if (bytes == null) return "";
    if (bytes < 1024) return `${bytes} B`;
    if (bytes < 1048576) return `${(bytes / 1024).toFixed(1)} KiB`;
    return `${(bytes / 1048576).toFixed(1)} MiB`;
  }
  function latencyText(us) {
    if (us == null) return "";
    // The broker knows store times to the millisecond.
    if (us === 0) return "< 1 ms";
    if (us < 1000) return `${us} µs`;
    if (us < 1000000) return `${(us / 1000).toFixed(us < 10000 ? 1 : 0)} ms`;
    if (us < 90000000) return `${(us / 1000000).toFixed(1)} s`;
    return Times.span(us / 1000000);
  }

  /* Rows. */
  function cell(text, css) {
    const td = document.createElement("td");
    if (css) td.className = css;
    if (text) { td.textContent = text; if (css?.includes("river__text")) td.title = text; }
    return td;
  }
  function rowOf(event) {
    const row = document.createElement("tr");
    row.traced = event;
    const stage = document.createElement("td");
    const chip = document.createElement("span");
    chip.className = "chip";
    chip.dataset.state = STAGE_STATE[event.stage] || "off";
    chip.textContent = STAGES[event.stage] || event.stage;
    if (event.remark) chip.title = `${event.codeName || event.code}: ${event.remark}`;
    stage.append(chip);
    const topic = document.createElement("td");
    const name = document.createElement("span");
    name.className = "river__name";
    name.textContent = event.topic;
    const place = document.createElement("span");
    place.className = "river__place";
    place.textContent = placeText(event);
    topic.append(name, place);
    row.append(
      cell(timeText(event.timeMs)), stage, topic, cell(event.tags || "", "river__text"), cell(event.keys || "", "river__text river__keys"),
      cell(sizeText(event.bodySize), "num river__size"), cell(clientOf(event), "river__text river__client"), cell(latencyText(event.latencyUs), "num river__latency"),
    );
    return row;
  }
  function placeText(event) {
    if (event.stage === "refused") return event.codeName || String(event.code);
    if (event.acknowledgedFrom == null) return `${event.queueId} · ${event.queueOffset}`;
    const last = BigInt(event.queueOffset) - 1n;
    if (BigInt(event.acknowledgedFrom) > last) return interpolate(gettext("%s · back to %s"), [event.queueId, event.queueOffset]);
    return event.acknowledgedFrom === String(last) ? `${event.queueId} · ${last}` : `${event.queueId} · ${event.acknowledgedFrom}–${last}`;
  }
  function clientOf(event) {
    const who = event.group || event.producerGroup || "";
    const from = event.client || event.clientId || "";
    return who && from ? `${who} ${from}` : who || from;
  }
  /* The same rules as the broker's, for the rows that are here already. */
  function isShown(event) {
    const { topic, group, tag, key, client, property, stages, errorsOnly, minLatencyMs } = wanted();
    // Events carry no properties, so of what is here nothing is known to have this one.
    if (property || topic && !fits(event.topic, topic) || tag && event.tags !== tag) return false;
    if (stages && !stages.includes(event.stage) || errorsOnly && !ERRORS.includes(event.stage)) return false;
    if (client && ![event.clientId, event.client, (event.client || "").replace(/:\d+$/, "")].includes(client)) return false;
    if (minLatencyMs && (event.latencyUs || 0) < minLatencyMs * 1000) return false;
    if (group && group !== event.group && group !== event.producerGroup) return false;
    if (key && ![event.uniqKey, event.offsetMsgId, ...(event.keys || "").split(" ")].includes(key)) return false;
    return !only || isOf(event, only);
  }
  function fits(name, pattern) {
    const parts = pattern.replace(/\*+/g, "*").replace(/[^*?]/g, (c) => `\\u{${c.codePointAt(0).toString(16)}}`);
    return new RegExp(`^${parts.replaceAll("*", ".*").replaceAll("?", ".")}$`, "su").test(name);
  }
  function isOf(event, message) {
    if (message.uniqKey && event.uniqKey === message.uniqKey) return true;
    if (event.topic !== message.topic || event.queueId !== message.queueId) return false;
    if (event.acknowledgedFrom == null) return event.queueOffset === message.queueOffset;
    const offset = BigInt(message.queueOffset);
    return BigInt(event.acknowledgedFrom) <= offset && offset < BigInt(event.queueOffset);
  }
  function messageOf(event) {
    return { topic: event.topic, queueId: event.queueId, queueOffset: event.queueOffset, uniqKey: event.uniqKey || null };
  }
  function append(events) {
    if (!events.length) return;
    const fragment = document.createDocumentFragment();
    for (const event of events.slice(-ROWS_MAX)) fragment.append(rowOf(event));
    rows.append(fragment);
    while (rows.childElementCount > ROWS_MAX) rows.firstElementChild.remove();
    arrived += events.length;
    $("river-empty").hidden = true;
    if (stick) toEnd();
  }
  /* What is missing stands where it is missing. */
  function appendGap(text) {
    const row = document.createElement("tr");
    row.className = "river__gap";
    const td = cell(text);
    td.colSpan = 8;
    row.append(td);
    rows.append(row);
    if (stick) toEnd();
    return row;
  }
  function noteDropped(count) {
    if (count <= 0) return;
    const newest = rows.lastElementChild;
    const row = newest?.dropped ? newest : appendGap("");
    row.dropped = (row.dropped || 0) + count;
    const sentence = ngettext("%s event is missing here: it came faster than it could be read", "%s events are missing here: they came faster than they could be read", row.dropped);
    row.firstElementChild.textContent = interpolate(sentence, [Trebuchet.grouped(row.dropped)]);
  }
  function noteAbsence(name, since) {
    const times = [timeText(since), timeText(Date.now())];
    appendGap(name
      ? interpolate(gettext("%s was not watched from %s to %s: what passed is missing here"), [name, ...times])
      : interpolate(gettext("No connection from %s to %s: what passed is missing here"), times));
  }
  function noteBrokers(brokers) {
    for (const { name, state } of brokers) {
      if (state === "away") away.set(name, away.get(name) ?? Date.now());
      if (state !== "watching" || !away.has(name)) continue;
      noteAbsence(name, away.get(name));
      away.delete(name);
    }
  }
  function toEnd() {
    stick = true;
    $("river-newest").hidden = true;
    scroll.scrollTop = scroll.scrollHeight;
  }
  function empty() {
    rows.replaceChildren();
    closeDetails();
    $("river-empty").hidden = false;
    toEnd();
    scroll.scrollTop = 0;
  }

  /* Details. */
  function showDetails(row) {
    selected?.setAttribute("aria-selected", "false");
    selected = row;
    row.setAttribute("aria-selected", "true");
    const event = row.traced;
    $("river-details-title").textContent = `${event.topic} ${placeText(event)}`;
    const list = $("river-details-list");
    list.replaceChildren();
    const known = new Set(DETAILS.map(([name]) => name));
    const more = Object.keys(event).filter((name) => !known.has(name)).map((name) => [name, name]);
    for (const [name, label] of [...DETAILS, ...more]) {
      const value = event[name];
      if (value == null || value === "") continue;
      const term = document.createElement("dt");
      term.textContent = label;
      const text = document.createElement("dd");
      text.textContent = detailText(name, value);
      list.append(term, text);
    }
    // Acknowledgements of what nobody saw delivered cover many messages, or none; refusals none.
    $("river-follow").hidden = Boolean(only) || event.acknowledgedFrom != null || event.queueOffset == null;
    $("river-details").hidden = false;
  }
  function detailText(name, value) {
    if (name === "timeMs") return `${timeText(value)} (${new Date(Number(value)).toISOString()})`;
    if (name === "bodySize" || name === "storeSize") return `${Trebuchet.grouped(value)} B`;
    if (name === "latencyUs") return `${latencyText(value)} (${Trebuchet.grouped(value)} µs)`;
    return String(value);
  }
  function closeDetails() {
    selected?.setAttribute("aria-selected", "false");
    selected = null;
    $("river-details").hidden = true;
  }

  /* Meter. */
  function showCounters() {
    const dropped = counters.dropped + counters.brokerDropped;
    $("river-seen").textContent = Trebuchet.grouped(counters.seen);
    $("river-dropped").textContent = Trebuchet.grouped(dropped);
    $("river-dropped-box").dataset.state = dropped ? "warn" : "off";
    $("river-waiting-box").hidden = !paused || !counters.waiting;
    $("river-waiting").textContent = Trebuchet.grouped(counters.waiting);
  }
  function showSpeed() {
    const now = performance.now();
    const seconds = (now - last.at) / 1000;
    const seen = Math.max(0, counters.seen - last.seen);
    $("river-in").textContent = Trebuchet.rateText(seen / seconds);
    $("river-shown").textContent = Trebuchet.rateText(Math.max(0, arrived - last.arrived) / seconds);
    last = { seen: counters.seen, arrived, at: now };
  }
  function resetCounters() {
    counters = { seen: 0, dropped: 0, brokerDropped: 0, waiting: 0 };
    arrived = 0;
    last = { seen: 0, arrived: 0, at: performance.now() };
    showCounters();
  }

  /* State. */
  function showState() {
    const chip = $("river-state");
    const gone = status.brokers.filter((broker) => broker.state === "away");
    const watching = status.brokers.filter((broker) => broker.state === "watching");
    let state = "info";
    let text = gettext("Connecting");
    if (!socket || socket.readyState !== WebSocket.OPEN) {
      state = failures ? "bad" : "info";
      text = failures ? gettext("The console does not answer, trying again") : gettext("Connecting");
    } else if (paused) {
      [state, text] = ["warn", gettext("Paused")];
    } else if (gone.length && !watching.length) {
      [state, text] = ["bad", gettext("The broker is away, trying again")];
    } else if (gone.length) {
      const sentence = ngettext("Live, %s of %s broker away", "Live, %s of %s brokers away", status.brokers.length);
      [state, text] = ["warn", interpolate(sentence, [gone.length, status.brokers.length])];
    } else if (watching.length) {
      const several = interpolate(ngettext("Live, %s broker", "Live, %s brokers", watching.length), [watching.length]);
      [state, text] = ["ok", status.brokers.length > 1 ? several : gettext("Live")];
    } else if (status.problem) {
      [state, text] = ["bad", gettext("No broker, trying again")];
    }
    chip.dataset.state = state;
    chip.textContent = text;
    const sentences = [notice, status.problem, ...gone.map((broker) => `${broker.name} (${broker.address}): ${broker.message}`)].filter(Boolean);
    $("river-problems").replaceChildren(...sentences.map((sentence) => {
      const banner = document.createElement("div");
      banner.className = "banner";
      banner.dataset.state = "warn";
      const strong = document.createElement("strong");
      strong.textContent = sentence;
      banner.append(strong);
      return banner;
    }));
    const waiting = watching.length ? gettext("Waiting for messages") : gettext("Waiting for a broker");
    $("river-empty-title").textContent = paused ? gettext("Paused") : waiting;
  }

  /* Socket. */
  function send(content) {
    if (socket?.readyState === WebSocket.OPEN) socket.send(JSON.stringify(content));
  }
  function wanted() {
    const fields = form.elements;
    const text = (name) => fields[name].value.trim() || null;
    const stage = text("stage");
    const number = (name) => /^\d{1,9}$/.test(text(name) || "") ? Number(text(name)) : null;
    const words = Object.fromEntries(["topic", "group", "tag", "key", "client", "property"].map((name) => [name, text(name)]));
    return {
      ...words, stages: stage && stage !== "errors" ? [stage] : null, errorsOnly: stage === "errors",
      minLatencyMs: number("latency"), sample: number("sample"), message: only,
    };
  }
  function readOnly() {
    const query = new URLSearchParams(location.search);
    const [, topic, queueId, queueOffset] = /^([^/]+)\/(\d{1,9})\/(\d{1,19})$/.exec(query.get("message") || "") || [];
    only = topic ? { topic, queueId: Number(queueId), queueOffset, uniqKey: query.get("id") || null } : null;
    showOnly();
  }
  function showOnly() {
    $("river-only").hidden = !only;
    if (only) $("river-only-name").textContent = `${only.topic} ${only.queueId} · ${only.queueOffset}`;
  }
  function setOnly(message) {
    only = message;
    // Its copies are in other topics, and its other stages have no tag.
    if (only) for (const name of NAMES) form.elements[name].value = "";
    showOnly();
    if (selected) showDetails(selected);
    applyFilter();
  }
  function applyFilter() {
    const { message } = wanted();
    const query = new URLSearchParams();
    for (const name of NAMES) if (form.elements[name].value.trim()) query.set(name, form.elements[name].value.trim());
    if (message) query.set("message", `${message.topic}/${message.queueId}/${message.queueOffset}`);
    if (message?.uniqKey) query.set("id", message.uniqKey);
    history.replaceState(null, "", query.size ? `?${query}` : location.pathname);
    notice = "";
    round += 1;
    send({ type: "filter", round, ...wanted() });
    sift();
    resetCounters();
    showState();
  }
  /* What is here and still wanted stays. */
  function sift() {
    let shown = 0;
    for (const row of rows.children) {
      row.hidden = Boolean(row.traced) && !isShown(row.traced);
      shown += !row.hidden;
    }
    if (selected?.hidden) closeDetails();
    $("river-empty").hidden = shown > 0;
    toEnd();
  }
  function connect() {
    const scheme = location.protocol === "https:" ? "wss:" : "ws:";
    socket = new WebSocket(`${scheme}//${location.host}/live/stream/`);
    socket.onopen = () => {
      retryMs = RETRY_FIRST_MS;
      failures = 0;
      notice = "";
      if (lostAt !== null && rows.childElementCount) noteAbsence("", lostAt);
      lostAt = null;
      resetCounters();
      cleared = round += 1;
      send({ type: "filter", round, ...wanted() });
      if (paused) send({ type: "pause" });
      showState();
    };
    socket.onmessage = (message) => receive(JSON.parse(message.data));
    socket.onclose = (closed) => {
      failures += 1;
      lostAt ??= Date.now();
      away.clear();
      status = { problem: "", brokers: [] };
      if (closed.code === SIGNED_OUT) notice = gettext("Your session has ended; reload the page to sign in again.");
      else if (closed.code === TOO_MANY) notice ||= gettext("You watch in too many windows; close one, then reload.");
      else {
        if (failures >= 4) notice = gettext("The console refuses this page's connection; reload the page to sign in again.");
        setTimeout(connect, retryMs);
        retryMs = Math.min(retryMs * 2, RETRY_MAX_MS);
      }
      showState();
    };
  }
  function receive(frame) {
    if (frame.type === "events") {
      if (frame.round < cleared) return;
      if (frame.round === round) {
        noteDropped(frame.dropped + frame.brokerDropped - counters.dropped - counters.brokerDropped);
        counters = frame;
      }
      append(frame.round === round ? frame.events : frame.events.filter(isShown));
      showCounters();
    } else if (frame.type === "status") {
      status = frame;
      noteBrokers(frame.brokers);
      showState();
    } else if (frame.type === "problem") {
      notice = frame.message;
      showState();
    }
  }

  function setPaused(value) {
    paused = value;
    const button = $("river-pause");
    button.setAttribute("aria-pressed", String(paused));
    button.querySelector("span").textContent = paused ? gettext("Resume") : gettext("Pause");
    send({ type: paused ? "pause" : "resume" });
    showCounters();
    showState();
  }

  async function offerTopics() {
    try {
      const answer = await fetch(page.dataset.topics);
      if (!answer.ok) return;
      const { topics } = await answer.json();
      $("river-topics").replaceChildren(...topics.map((name) => {
        const option = document.createElement("option");
        option.value = name;
        return option;
      }));
    } catch { /* Typing a name works without the list. */ }
  }

  document.addEventListener("DOMContentLoaded", () => {
    page = $("river");
    rows = $("river-rows");
    scroll = $("river-scroll");
    form = $("river-filter");
    let typing = 0;
    form.addEventListener("input", () => { clearTimeout(typing); typing = setTimeout(applyFilter, 250); });
    form.addEventListener("submit", (event) => { event.preventDefault(); clearTimeout(typing); applyFilter(); });
    $("river-pause").addEventListener("click", () => setPaused(!paused));
    $("river-clear").addEventListener("click", () => { cleared = round += 1; send({ type: "clear", round }); empty(); resetCounters(); });
    $("river-newest").addEventListener("click", toEnd);
    $("river-details-close").addEventListener("click", closeDetails);
    $("river-follow").addEventListener("click", () => {
      if (selected) setOnly(messageOf(selected.traced));
    });
    $("river-only").addEventListener("click", () => setOnly(null));
    scroll.addEventListener("scroll", () => {
      stick = scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight < 40;
      $("river-newest").hidden = stick;
    }, { passive: true });
    rows.addEventListener("click", (event) => {
      const row = event.target.closest("tr");
      if (row?.traced) showDetails(row);
    });
    document.addEventListener("keydown", (event) => {
      if (event.key === "Escape") closeDetails();
      if (!selected || (event.key !== "ArrowUp" && event.key !== "ArrowDown") || event.target.closest("input, select")) return;
      const way = event.key === "ArrowUp" ? "previousElementSibling" : "nextElementSibling";
      let next = selected[way];
      while (next && (next.hidden || !next.traced)) next = next[way];
      if (next) { event.preventDefault(); showDetails(next); next.scrollIntoView({ block: "nearest" }); }
    });
    setInterval(showSpeed, 1000);
    readOnly();
    offerTopics();
    connect();
  });
})();
