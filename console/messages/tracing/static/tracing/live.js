/* The Live page: socket, filter, visible events and gaps. */
"use strict";

(() => {
  const RETRY_FIRST_MS = 500;
  const RETRY_MAX_MS = 8000;
  const TYPING_MS = 300;
  const PREVIEWED = 1000;
  // The broker's two clocks differ by less than this within one run.
  const OTHER_RUN_US = 2000000;
  const SIGNED_OUT = 4401;
  const TOO_MANY = 4429;
  const DETAILS = [
    ["topic", gettext("Topic")],
    ["brokerName", gettext("Broker")],
    ["queueId", gettext("Queue")],
    ["queueOffset", gettext("Queue offset")],
    ["commitLogOffset", gettext("CommitLog offset")],
    ["tags", gettext("Tag")],
    ["keys", gettext("Keys")],
    ["bodySize", gettext("Body")],
    ["storeSize", gettext("Record")],
    ["producerGroup", gettext("Producer group")],
    ["uniqKey", gettext("Message ID")],
    ["offsetMsgId", gettext("Offset message ID")],
    ["steps", gettext("Steps")],
  ];

  const $ = (id) => document.getElementById(id);
  let page, scroll, line, search;
  let socket = null;
  let retryMs = RETRY_FIRST_MS;
  let failures = 0;
  let paused = false;
  // The one message to show: {topic, queueId, queueOffset, uniqKey}.
  let only = null;
  let stick = true;
  let selected = null;
  let arrived = 0;
  let counters = { seen: 0, dropped: 0, brokerDropped: 0, waiting: 0, lost: {} };
  const came = new Map();
  let last = { seen: 0, arrived: 0, at: performance.now() };
  let framedAt = Date.now();
  let status = { problem: "", brokers: [] };
  let notice = "";
  let problem = "";
  let fields = {};
  // Frames sent before the last filter change have an older number; those that match the new filter are
  // shown. Frames from before the last clear, or from another socket, aren't.
  let round = 0;
  let cleared = 0;
  // When the connection was lost, and when watched brokers were lost, by name.
  let lostAt = null;
  const away = new Map();
  // With these, the console resumes after a lost socket.
  let token = "";
  let upTo = 0;
  const pools = { topic: new Set(), group: new Set(), tag: new Set(), client: new Set(), stage: new Set() };

  /* Visible events: the broker's rules, applied to events that are already here. */
  function isShown(message) {
    const held = Strip.brush;
    if (held && (message.at < held.from * 1000 || message.at >= (held.to + 1) * 1000)) return false;
    const text = search.value.trim().toLowerCase();
    if (text && !textOf(message).includes(text)) return false;
    // An acknowledgement of several messages belongs to each of them.
    if (only && !isOf(message.first, only)) return false;
    return message.events.some((event) => matches(event));
  }
  function textOf(message) {
    const texts = message.events.flatMap((event) => [event.topic, event.keys, event.tags, event.uniqKey, event.offsetMsgId, event.group,
      event.producerGroup, event.client, event.clientId, event.remark, event.codeName]);
    return texts.filter(Boolean).join("\n").toLowerCase();
  }
  function matches(event, asked = wanted()) {
    const { topic, group, tag, key, client, property, stages, errorsOnly, minLatencyMs, minLatencyUs, minTotalMs } = asked;
    // Events carry no properties, so assume that an event here matched the filter.
    if (property && event.asked !== property || topic && !fits(event.topic, topic) || tag && event.tags !== tag) return false;
    if (stages && !stages.includes(event.stage) || errorsOnly && !LiveRows.ERRORS.includes(event.stage)) return false;
    if (client && ![event.clientId, event.client, (event.client || "").replace(/:\d+$/, "")].includes(client)) return false;
    if (minLatencyMs && (event.latencyUs || 0) < minLatencyMs * 1000) return false;
    if (minTotalMs && (event.totalUs || 0) < minTotalMs * 1000 || minLatencyUs && !tookAsLong(event, minLatencyUs)) return false;
    if (group && group !== event.group && group !== event.producerGroup) return false;
    if (key && ![event.uniqKey, event.offsetMsgId, ...(event.keys || "").split(" ")].includes(key)) return false;
    return !only || isOf(event, only);
  }
  function tookAsLong(event, least) {
    if ((event.latencyUs || 0) >= (least[event.stage] ?? Infinity)) return true;
    const steps = Object.entries(event.steps || {});
    return steps.some(([step, us], at) => us - (at && steps[at - 1][1]) >= (least[step] ?? Infinity));
  }
  const expressions = new Map();
  function fits(name, pattern) {
    if (!expressions.has(pattern)) {
      const parts = pattern.replace(/\*+/g, "*").replace(/[^*?]/g, (c) => `\\u{${c.codePointAt(0).toString(16)}}`);
      expressions.set(pattern, new RegExp(`^${parts.replaceAll("*", ".*").replaceAll("?", ".")}$`, "su"));
    }
    return expressions.get(pattern).test(name);
  }
  function isOf(event, message) {
    if (message.uniqKey && event.uniqKey === message.uniqKey) return true;
    if (event.topic !== message.topic || event.queueId !== message.queueId) return false;
    const from = event.acknowledgedFrom ?? event.fromOffset;
    if (from == null) return event.queueOffset === message.queueOffset;
    const offset = BigInt(message.queueOffset);
    return BigInt(from) <= offset && offset < BigInt(event.queueOffset);
  }
  function wanted(of = fields) {
    const number = (name) => (/^\d{1,9}$/.test(of[name] || "") ? Number(of[name]) : null);
    const words = Object.fromEntries(["topic", "group", "tag", "key", "client", "property"].map((name) => [name, of[name] || null]));
    const stages = (of.stage || "").split(",").map((each) => each.trim()).filter(Boolean);
    const errorsOnly = stages.includes("errors");
    return {
      ...words, stages: stages.length && !errorsOnly ? stages : null, errorsOnly,
      minLatencyMs: number("latency"), minTotalMs: number("total"), minLatencyUs: FilterLine.leastOf(of.took), sample: number("sample"), rate: number("rate"), message: only,
    };
  }

  /* Gaps are shown where events are missing. */
  function noteDropped(count) {
    if (count <= 0) return;
    const newest = LiveRows.newest();
    const entry = newest?.dropped ? newest : LiveRows.gap("");
    entry.dropped = (entry.dropped || 0) + count;
    const since = entry.since ??= framedAt;
    entry.kept = () => keptSince(since);
    const sentence = fields.rate
      ? ngettext("%s event isn't shown because of the filter's rate limit", "%s events aren't shown because of the filter's rate limit", entry.dropped)
      : ngettext("%s event isn't shown because it arrived too fast", "%s events aren't shown because they arrived too fast", entry.dropped);
    const times = `${LiveRows.timeText(since)} – ${LiveRows.timeText(Date.now())}`;
    LiveRows.say(entry, `${interpolate(sentence, [Trebuchet.grouped(entry.dropped)])} · ${times}`);
  }
  function noteAbsence(name, since) {
    const times = [LiveRows.timeText(since), LiveRows.timeText(Date.now())];
    LiveRows.gap(name
      ? interpolate(gettext("%s wasn't traced from %s to %s, so messages from that time are missing"), [name, ...times])
      : interpolate(gettext("No connection from %s to %s; messages from that time are missing"), times), () => keptSince(since));
  }
  /** The flight recorder page for the events since then, with the same filter. */
  function keptSince(since) {
    const query = new URLSearchParams({ ask: "all", minutes: Math.ceil((Date.now() - since) / 60000) + 1 });
    for (const name of ["topic", "group", "tag", "key", "client"]) if (fields[name]) query.set(name, fields[name]);
    return `${page.dataset.recorded}?${query}`;
  }
  function noteBrokers(brokers) {
    for (const { name, state, resumed } of brokers) {
      if (state === "away") away.set(name, away.get(name) ?? Date.now());
      if (state !== "watching" || !away.has(name)) continue;
      if (!resumed) noteAbsence(name, away.get(name));
      away.delete(name);
    }
  }
  function toEnd() {
    stick = true;
    $("river-newest").hidden = true;
    scroll.scrollTop = scroll.scrollHeight;
  }

  /* Details. */
  function showDetails(row) {
    selected?.row?.setAttribute("aria-selected", "false");
    selected = row.message;
    row.setAttribute("aria-selected", "true");
    const { first, events } = selected;
    $("river-details-title").textContent = `${first.topic} ${LiveRows.placeText(first)}`;
    $("river-details-stages").replaceChildren(...events.map((event) => stageOf(event, events[0])));
    const known = new Set(DETAILS.map(([name]) => name));
    const skipped = new Set(["matched", "seq", "stage", "timeMs", "latencyUs", "group", "client", "clientId", "asked", "atUs", "totalUs"]);
    // Otherwise it is already shown.
    if ([first.uniqKey, first.offsetMsgId].includes(first.messageId)) skipped.add("messageId");
    const more = Object.keys(first).filter((name) => !known.has(name) && !skipped.has(name)).map((name) => [name, name]);
    const list = $("river-details-list");
    list.replaceChildren();
    for (const [name, label] of [...DETAILS, ...more]) {
      const value = first[name];
      if (value == null || value === "") continue;
      const term = document.createElement("dt");
      term.textContent = label;
      const text = document.createElement("dd");
      text.textContent = name === "bodySize" || name === "storeSize" ? `${Trebuchet.grouped(value)} B`
        : name === "steps" ? stepsText(value)
        : typeof value === "object" ? JSON.stringify(value) : String(value);
      list.append(term, text);
    }
    const address = LiveRows.familyOf(first);
    $("river-family").hidden = !address;
    if (address) $("river-family").href = address;
    // Acknowledgements without a visible delivery cover many messages or no message; refusals never cover a message.
    $("river-follow").hidden = Boolean(only) || first.acknowledgedFrom != null || first.fromOffset != null || first.queueOffset == null;
    $("river-details").hidden = false;
  }
  /** `received 0 µs · validated 54 µs …`, in the broker's order. */
  function stepsText(steps) {
    return Object.entries(steps).map(([stage, us]) => `${LiveRows.wordOf(stage)} ${us < 1 ? "0 µs" : LiveRows.latencyText(us)}`).join(" · ");
  }
  function stageOf(event, began) {
    const item = document.createElement("li");
    const dot = document.createElement("span");
    dot.className = "dot";
    dot.dataset.state = LiveRows.STATES[event.stage] || "off";
    const name = document.createElement("b");
    name.textContent = LiveRows.wordOf(event.stage);
    const who = document.createElement("span");
    who.className = "river__who";
    who.textContent = [event.group, event.clientId || event.client, event.remark].filter(Boolean).join(" · ");
    const when = document.createElement("span");
    when.className = "river__when";
    const passed = usBetween(began, event);
    when.textContent = passed > 0 ? `+${LiveRows.latencyText(passed)}` : LiveRows.timeText(event.timeMs);
    const took = document.createElement("span");
    took.className = "river__took";
    took.textContent = LiveRows.latencyText(event.latencyUs);
    item.append(dot, name, who, when, took);
    return item;
  }
  /** Time between two events, by the broker's monotonic clock if both are from the same run. */
  function usBetween(one, other) {
    const us = (Number(other.timeMs) - Number(one.timeMs)) * 1000;
    const exact = Number(other.atUs) - Number(one.atUs);
    return one.brokerName === other.brokerName && Math.abs(exact - us) < OTHER_RUN_US ? exact : us;
  }
  function closeDetails() {
    selected?.row?.setAttribute("aria-selected", "false");
    selected = null;
    $("river-details").hidden = true;
  }

  /* Meter. */
  function showCounters() {
    const dropped = counters.dropped + counters.brokerDropped;
    $("river-seen").textContent = Trebuchet.grouped(counters.seen);
    $("river-dropped").textContent = Trebuchet.grouped(dropped);
    const share = (100 * dropped) / Math.max(1, counters.seen + counters.brokerDropped);
    $("river-share").textContent = dropped ? `${share < 1 ? "< 1" : Math.round(share)} %` : "";
    $("river-dropped-box").dataset.state = dropped ? "warn" : "off";
    $("river-sample-box").hidden = !fields.sample;
    $("river-sample").textContent = `1/${fields.sample}`;
    $("river-waiting-box").hidden = !paused || !counters.waiting;
    $("river-waiting").textContent = Trebuchet.grouped(counters.waiting);
    showStages();
  }
  /** Received and dropped events by stage; for some, the stage is reported late or never. */
  function showStages() {
    if (!$("river-by-stage").open) return;
    const { lost } = counters;
    const rows = [...new Set([...came.keys(), ...Object.keys(lost)])].map((stage) => [stage, LiveRows.wordOf(stage), came.get(stage) || 0, lost[stage] || 0]);
    const unknown = counters.dropped + counters.brokerDropped - Object.values(lost).reduce((sum, each) => sum + each, 0);
    if (unknown > 0) rows.push(["", gettext("unknown"), 0, unknown]);
    $("river-stages").replaceChildren(...rows.map(([stage, word, count, dropped]) => {
      const row = document.createElement("tr");
      row.dataset.stage = stage;
      for (const [text, css] of [[word, ""], [Trebuchet.grouped(count), "num"], [Trebuchet.grouped(dropped), "num"]]) {
        const cell = row.insertCell();
        cell.className = css;
        cell.textContent = text;
      }
      return row;
    }));
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
    counters = { seen: 0, dropped: 0, brokerDropped: 0, waiting: 0, lost: {} };
    arrived = 0;
    came.clear();
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
      text = failures ? gettext("The console isn't responding. Retrying.") : gettext("Connecting");
    } else if (paused) {
      [state, text] = ["warn", gettext("Paused")];
    } else if (gone.length && !watching.length) {
      [state, text] = ["bad", gettext("The broker isn't responding. Retrying.")];
    } else if (gone.length) {
      const sentence = ngettext("Live, %s of %s broker not responding", "Live, %s of %s brokers not responding", status.brokers.length);
      [state, text] = ["warn", interpolate(sentence, [gone.length, status.brokers.length])];
    } else if (watching.length) {
      const several = interpolate(ngettext("Live, %s broker", "Live, %s brokers", watching.length), [watching.length]);
      [state, text] = ["ok", status.brokers.length > 1 ? several : gettext("Live")];
    } else if (status.problem) {
      [state, text] = ["bad", gettext("No broker. Retrying.")];
    }
    chip.dataset.state = state;
    chip.textContent = text;
    const sentences = [problem, notice, status.problem, ...gone.map((broker) => `${broker.name} (${broker.address}): ${broker.message}`)].filter(Boolean);
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
    $("river-empty-title").textContent = paused ? gettext("Paused") : Strip.brush || search.value.trim() ? gettext("No matches on this page") : waiting;
  }

  /* The filter and the URL. */
  function readAddress() {
    const query = new URLSearchParams(location.search);
    fields = Object.fromEntries(FilterLine.NAMES.map((name) => [name, (query.get(name) || "").trim()]).filter(([, text]) => text));
    line.value = FilterLine.compose(fields);
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
    if (only) line.value = "";
    showOnly();
    applyFilter(true);
    if (selected?.row) showDetails(selected.row);
  }
  /** How many of the newest events here a filter line matches: a preview while typing. */
  function preview() {
    const { fields: typed, problem: wrong } = FilterLine.parse(line.value);
    // Events don't contain these fields.
    const isKnown = !wrong && !FilterLine.isUnfinished(line.value) && !typed.property && !typed.sample;
    const events = [];
    if (isKnown && line.value.trim()) {
      for (const message of LiveRows.all().reverse()) {
        for (const event of message.events) if (events.length < PREVIEWED) events.push(event);
        if (events.length >= PREVIEWED) break;
      }
    }
    const asked = wanted(typed);
    const count = events.filter((event) => matches(event, asked)).length;
    const sentence = ngettext("%s of the last %s event here matches", "%s of the last %s events here match", events.length);
    $("river-preview").textContent = events.length ? interpolate(sentence, [Trebuchet.grouped(count), Trebuchet.grouped(events.length)]) : "";
  }
  function applyFilter(always = false) {
    const parsed = FilterLine.parse(line.value);
    problem = parsed.problem;
    if (!always && JSON.stringify(parsed.fields) === JSON.stringify(fields)) { showState(); return; }
    fields = parsed.fields;
    const query = new URLSearchParams();
    for (const name of FilterLine.NAMES) if (fields[name]) query.set(name, fields[name]);
    if (only) query.set("message", `${only.topic}/${only.queueId}/${only.queueOffset}`);
    if (only?.uniqKey) query.set("id", only.uniqKey);
    history.replaceState(null, "", query.size ? `?${query}` : location.pathname);
    notice = "";
    round += 1;
    send({ type: "filter", round, ...wanted() });
    LiveRows.sift();
    resetCounters();
    showState();
  }

  /* Socket. */
  function send(content) {
    if (socket?.readyState === WebSocket.OPEN) socket.send(JSON.stringify(content));
  }
  function connect() {
    const scheme = location.protocol === "https:" ? "wss:" : "ws:";
    socket = new WebSocket(`${scheme}//${location.host}/live/stream/`);
    socket.onopen = () => {
      retryMs = RETRY_FIRST_MS;
      failures = 0;
      notice = "";
      // The console keeps queued events for this page for a while.
      if (token) send({ type: "resume_viewer", token, upTo });
      else begin();
      showState();
    };
    socket.onmessage = (message) => receive(JSON.parse(message.data));
    socket.onclose = (closed) => {
      failures += 1;
      lostAt ??= Date.now();
      status = { problem: "", brokers: [] };
      if (closed.code === SIGNED_OUT) notice = gettext("Your session has expired. Reload the page to sign in again.");
      else if (closed.code === TOO_MANY) notice ||= gettext("You have live tracing open in too many windows. Close one, then reload.");
      else {
        if (failures >= 4) notice = gettext("The console rejected this page's connection. Reload the page to sign in again.");
        setTimeout(connect, retryMs);
        retryMs = Math.min(retryMs * 2, RETRY_MAX_MS);
      }
      showState();
    };
  }
  function begin() {
    resetCounters();
    away.clear();
    upTo = 0;
    cleared = round += 1;
    send({ type: "filter", round, ...wanted() });
    if (paused) send({ type: "pause" });
  }
  function receive(frame) {
    if (frame.type === "events") receiveEvents(frame);
    else if (frame.type === "viewer") {
      // If the console kept nothing for this page, it sends another token.
      const isNew = frame.token !== token;
      if (isNew && token) begin();
      token = frame.token;
      if (isNew && lostAt !== null && LiveRows.newest()) noteAbsence("", lostAt);
      lostAt = null;
      showState();
    } else if (frame.type === "status") {
      status = frame;
      noteBrokers(frame.brokers);
      showState();
    } else if (frame.type === "problem") {
      notice = frame.message;
      showState();
    }
  }
  function receiveEvents(frame) {
    upTo = Math.max(upTo, frame.upTo || 0);
    if (frame.round < cleared) return;
    if (frame.round === round) {
      noteDropped(frame.dropped + frame.brokerDropped - counters.dropped - counters.brokerDropped);
      framedAt = Date.now();
      counters = frame;
    }
    if (frame.round === round && fields.property) for (const event of frame.events) event.asked = fields.property;
    const events = frame.round === round ? frame.events : frame.events.filter((event) => matches(event));
    arrived += events.length;
    LiveRows.take(events);
    for (const event of events) {
      came.set(event.stage, (came.get(event.stage) || 0) + 1);
      learn(event);
    }
    showCounters();
  }
  function learn(event) {
    for (const [name, value] of [["topic", event.topic], ["group", event.group], ["group", event.producerGroup], ["tag", event.tags],
      ["client", event.clientId], ["stage", event.stage]]) if (value && pools[name].size < 5000) pools[name].add(value);
  }
  function setPaused(value) {
    paused = value;
    if (!value) { stopPlaying?.(); stopPlaying = null; }
    const button = $("river-pause");
    button.setAttribute("aria-pressed", String(paused));
    button.querySelector("span").textContent = paused ? gettext("Resume") : gettext("Pause");
    send({ type: paused ? "pause" : "resume" });
    showCounters();
    showState();
  }
  function clear() {
    cleared = round += 1;
    send({ type: "clear", round });
    LiveRows.clear();
    closeDetails();
    toEnd();
    resetCounters();
  }
  /* Recordings: during playback, live events wait. */
  let stopPlaying = null;
  async function playRecording(file) {
    stopPlaying?.();
    let read;
    try { read = await Recording.read(file); } catch (error) { notice = error.message; showState(); return; }
    setPaused(true);
    clear();
    notice = read.bad ? interpolate(ngettext("%s line of the file isn't an event", "%s lines of the file aren't events", read.bad), [read.bad]) : "";
    LiveRows.gap(interpolate(gettext("Recording %s: %s events"), [file.name, Trebuchet.grouped(read.events.length)]));
    stopPlaying = Recording.play(read.events, Number($("river-speed").value), (events) => LiveRows.take(events), () => {
      stopPlaying = null;
      LiveRows.gap(gettext("End of recording. Resume shows live messages."));
    });
    showState();
  }
  function saveRecording(form) {
    const messages = LiveRows.all();
    if (form === "otlp") Recording.save("trace", Recording.otlp(messages), "application/json");
    else Recording.save("trace", Recording.lines(messages), "application/x-ndjson");
  }
  async function offerNames() {
    for (const stage of [...page.dataset.stages.split(" "), "errors"]) pools.stage.add(stage);
    try {
      const answer = await fetch(page.dataset.topics);
      if (!answer.ok) return;
      const { topics, groups } = await answer.json();
      for (const name of topics) pools.topic.add(name);
      for (const name of groups || []) pools.group.add(name);
    } catch { /* Names can be typed without the list. */ }
  }
  function onKey(event) {
    if (event.target.closest("input, select, textarea")) return;
    if (event.key === "Escape") {
      if (Strip.brush) Strip.clear();
      else closeDetails();
    }
    if (!["ArrowUp", "ArrowDown", "j", "k"].includes(event.key) || event.target.closest(".strip")) return;
    const up = event.key === "ArrowUp" || event.key === "k";
    const rows = $("river-rows");
    let next = selected?.row ? selected.row[up ? "previousElementSibling" : "nextElementSibling"] : up ? rows.lastElementChild : rows.firstElementChild;
    while (next && next.message?.gap) next = next[up ? "previousElementSibling" : "nextElementSibling"];
    if (!next || (event.key.startsWith("Arrow") && !selected)) return;
    event.preventDefault();
    showDetails(next);
    next.scrollIntoView({ block: "nearest" });
  }

  document.addEventListener("DOMContentLoaded", () => {
    page = $("river");
    scroll = $("river-scroll");
    line = $("river-line");
    search = $("river-search");
    Strip.start($("river-strip"), $("river-strip-label"), () => { LiveRows.sift(); showState(); if (!Strip.brush) toEnd(); });
    LiveRows.start($("river-rows"), isShown, (shown) => {
      $("river-empty").hidden = shown > 0;
      if (selected && !selected.row) closeDetails();
      else if (selected) showDetails(selected.row);
      if (!shown) showState();
      if (stick && !Strip.brush) scroll.scrollTop = scroll.scrollHeight;
    });
    let typing = 0;
    line.addEventListener("input", () => {
      clearTimeout(typing);
      if (!FilterLine.isUnfinished(line.value)) typing = setTimeout(applyFilter, TYPING_MS);
      preview();
    });
    line.addEventListener("blur", () => { $("river-preview").textContent = ""; });
    line.addEventListener("change", () => { clearTimeout(typing); applyFilter(); });
    $("river-filter").addEventListener("submit", (event) => { event.preventDefault(); clearTimeout(typing); applyFilter(); });
    FilterLine.complete(line, $("river-offers"), pools);
    search.addEventListener("input", () => { LiveRows.sift(); showState(); });
    $("river-pause").addEventListener("click", () => setPaused(!paused));
    $("river-clear").addEventListener("click", clear);
    $("river-by-stage").addEventListener("toggle", showStages);
    for (const button of page.querySelectorAll("[data-save]")) button.addEventListener("click", () => saveRecording(button.dataset.save));
    $("river-recording").addEventListener("change", (event) => {
      if (event.target.files[0]) playRecording(event.target.files[0]);
      event.target.value = "";
    });
    $("river-newest").addEventListener("click", toEnd);
    $("river-details-close").addEventListener("click", closeDetails);
    $("river-follow").addEventListener("click", () => {
      const { topic, queueId, queueOffset, uniqKey } = selected.first;
      setOnly({ topic, queueId, queueOffset, uniqKey: uniqKey || null });
    });
    $("river-only").addEventListener("click", () => setOnly(null));
    scroll.addEventListener("scroll", () => {
      stick = scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight < 40;
      $("river-newest").hidden = stick;
    }, { passive: true });
    $("river-rows").addEventListener("click", (event) => {
      const row = event.target.closest("tr");
      if (row?.message && !row.message.gap && !event.target.closest("a")) showDetails(row);
    });
    document.addEventListener("keydown", onKey);
    setInterval(showSpeed, 1000);
    readAddress();
    offerNames();
    connect();
  });
})();
