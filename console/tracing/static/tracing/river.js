/* The river: events of the broker's live trace as rows, newest at the end.
   Everything a message carries is set with textContent; nothing of it is ever parsed as HTML. */
"use strict";

(() => {
  const ROWS_MAX = 1000;
  const RETRY_FIRST_MS = 500;
  const RETRY_MAX_MS = 8000;
  const SIGNED_OUT = 4401;
  const TOO_MANY = 4429;
  const STAGE_STATE = { stored: "accent", delivered: "info", acknowledged: "ok" };
  const DETAILS = [
    ["timeMs", "Time"], ["stage", "Stage"], ["topic", "Topic"], ["brokerName", "Broker"], ["queueId", "Queue"], ["queueOffset", "Queue offset"],
    ["commitLogOffset", "CommitLog offset"], ["tags", "Tag"], ["keys", "Keys"], ["bodySize", "Body"], ["storeSize", "Record"],
    ["producerGroup", "Producer group"], ["group", "Consumer group"], ["client", "Client"], ["clientId", "Client id"], ["latencyUs", "Latency"],
    ["uniqKey", "Message id"], ["offsetMsgId", "Offset id"], ["seq", "Number in this watch"],
  ];

  const $ = (id) => document.getElementById(id);
  let page, rows, scroll, form;
  let socket = null;
  let retryMs = RETRY_FIRST_MS;
  let failures = 0;
  let paused = false;
  let stick = true;
  let selected = null;
  let arrived = 0;
  let counters = { seen: 0, dropped: 0, brokerDropped: 0, waiting: 0 };
  let last = { seen: 0, arrived: 0, at: performance.now() };
  let status = { problem: "", brokers: [] };
  let notice = "";
  // Frames that left before the last filter or clearing carry an older number, and are not shown.
  let round = 0;

  const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
  function timeText(ms) {
    const value = Number(ms);
    return `${clock.format(value)}.${String(value % 1000).padStart(3, "0")}`;
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
    return Trebuchet.spanText(us / 1000000);
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
    chip.textContent = event.stage;
    stage.append(chip);
    const topic = document.createElement("td");
    const name = document.createElement("span");
    name.className = "river__name";
    name.textContent = event.topic;
    const place = document.createElement("span");
    place.className = "river__place";
    place.textContent = `${event.queueId} · ${event.queueOffset}`;
    topic.append(name, place);
    row.append(
      cell(timeText(event.timeMs)), stage, topic, cell(event.tags || "", "river__text"), cell(event.keys || "", "river__text river__keys"),
      cell(sizeText(event.bodySize), "num river__size"), cell(clientOf(event), "river__text river__client"), cell(latencyText(event.latencyUs), "num river__latency"),
    );
    return row;
  }
  function clientOf(event) {
    const who = event.group || event.producerGroup || "";
    const from = event.client || event.clientId || "";
    return who && from ? `${who} ${from}` : who || from;
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
    $("river-details-title").textContent = `${event.topic} ${event.queueId} · ${event.queueOffset}`;
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
    $("river-follow").hidden = !(event.uniqKey || event.keys);
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
    const away = status.brokers.filter((broker) => broker.state === "away");
    const watching = status.brokers.filter((broker) => broker.state === "watching");
    let state = "info";
    let text = "Connecting";
    if (!socket || socket.readyState !== WebSocket.OPEN) {
      state = failures ? "bad" : "info";
      text = failures ? "Console does not answer, trying again" : "Connecting";
    } else if (paused) {
      [state, text] = ["warn", "Paused"];
    } else if (away.length && !watching.length) {
      [state, text] = ["bad", "Broker away, trying again"];
    } else if (away.length) {
      [state, text] = ["warn", `Live, ${away.length} of ${status.brokers.length} brokers away`];
    } else if (watching.length) {
      [state, text] = ["ok", status.brokers.length > 1 ? `Live, ${watching.length} brokers` : "Live"];
    } else if (status.problem) {
      [state, text] = ["bad", "No broker, trying again"];
    }
    chip.dataset.state = state;
    chip.textContent = text;
    const sentences = [notice, status.problem, ...away.map((broker) => `${broker.name} (${broker.address}): ${broker.message}`)].filter(Boolean);
    $("river-problems").replaceChildren(...sentences.map((sentence) => {
      const banner = document.createElement("div");
      banner.className = "banner";
      banner.dataset.state = "warn";
      const strong = document.createElement("strong");
      strong.textContent = sentence;
      banner.append(strong);
      return banner;
    }));
    $("river-empty-title").textContent = paused ? "Paused" : watching.length ? "Waiting for messages" : "Waiting for a broker";
  }

  /* Socket. */
  function send(content) {
    if (socket?.readyState === WebSocket.OPEN) socket.send(JSON.stringify(content));
  }
  function wanted() {
    const fields = form.elements;
    const text = (name) => fields[name].value.trim() || null;
    const stage = text("stage");
    return { topic: text("topic"), tag: text("tag"), key: text("key"), stages: stage ? [stage] : null };
  }
  function applyFilter() {
    const { stages, ...words } = wanted();
    const query = new URLSearchParams();
    for (const [name, value] of Object.entries({ ...words, stage: stages?.[0] })) if (value) query.set(name, value);
    history.replaceState(null, "", query.size ? `?${query}` : location.pathname);
    notice = "";
    round += 1;
    send({ type: "filter", round, ...wanted() });
    empty();
    resetCounters();
    showState();
  }
  function connect() {
    const scheme = location.protocol === "https:" ? "wss:" : "ws:";
    socket = new WebSocket(`${scheme}//${location.host}/live/stream/`);
    socket.onopen = () => {
      retryMs = RETRY_FIRST_MS;
      failures = 0;
      notice = "";
      resetCounters();
      round += 1;
      send({ type: "filter", round, ...wanted() });
      if (paused) send({ type: "pause" });
      showState();
    };
    socket.onmessage = (message) => receive(JSON.parse(message.data));
    socket.onclose = (closed) => {
      failures += 1;
      status = { problem: "", brokers: [] };
      if (closed.code === SIGNED_OUT) notice = "Your session has ended; reload the page to sign in again.";
      else if (closed.code === TOO_MANY) notice ||= "You watch in too many windows; close one, then reload.";
      else {
        if (failures >= 4) notice = "The console does not take this page's connection; if it runs, reload the page to sign in again.";
        setTimeout(connect, retryMs);
        retryMs = Math.min(retryMs * 2, RETRY_MAX_MS);
      }
      showState();
    };
  }
  function receive(frame) {
    if (frame.type === "events") {
      if (frame.round !== round) return;
      counters = frame;
      append(frame.events);
      showCounters();
    } else if (frame.type === "status") {
      status = frame;
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
    button.querySelector("span").textContent = paused ? "Resume" : "Pause";
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
    $("river-clear").addEventListener("click", () => { round += 1; send({ type: "clear", round }); empty(); resetCounters(); });
    $("river-newest").addEventListener("click", toEnd);
    $("river-details-close").addEventListener("click", closeDetails);
    $("river-follow").addEventListener("click", () => {
      const event = selected?.traced;
      if (!event) return;
      form.elements.key.value = event.uniqKey || event.keys.split(" ")[0];
      form.elements.tag.value = form.elements.stage.value = "";
      applyFilter();
    });
    scroll.addEventListener("scroll", () => {
      stick = scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight < 40;
      $("river-newest").hidden = stick;
    }, { passive: true });
    rows.addEventListener("click", (event) => {
      const row = event.target.closest("tr");
      if (row) showDetails(row);
    });
    document.addEventListener("keydown", (event) => {
      if (event.key === "Escape") closeDetails();
      if (!selected || (event.key !== "ArrowUp" && event.key !== "ArrowDown") || event.target.closest("input, select")) return;
      const next = event.key === "ArrowUp" ? selected.previousElementSibling : selected.nextElementSibling;
      if (next) { event.preventDefault(); showDetails(next); next.scrollIntoView({ block: "nearest" }); }
    });
    setInterval(showSpeed, 1000);
    offerTopics();
    connect();
  });
})();
