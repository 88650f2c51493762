/* Recordings of the Live page: export as JSON lines or OTLP JSON, and playback of an exported file. */
"use strict";

const Recording = (() => {
  const BYTES_MAX = 64 * 1024 * 1024;
  const STEP_MS = 100;
  const [INTERNAL, CLIENT, PRODUCER] = [1, 3, 4];
  const OPERATIONS = {
    stored: ["create", "create", PRODUCER], delivered: ["receive", "receive", CLIENT],
    acknowledged: ["ack", "settle", CLIENT], given_back: ["nack", "settle", CLIENT],
  };

  const OF_TRANSACTIONS = ["withheld", "checked", "committed", "rolled_back"];

  function save(name, text, type) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type }));
    link.download = `${name}-${new Date().toISOString().slice(0, 19).replaceAll(":", "")}`;
    link.download += type === "application/json" ? ".json" : ".jsonl";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60000);
  }
  function eventsOf(messages) {
    const seen = new Set(messages.flatMap((message) => message.events));
    return [...seen].sort((one, other) => Number(one.timeMs) - Number(other.timeMs) || Number(one.atUs || 0) - Number(other.atUs || 0));
  }
  const lines = (messages) => eventsOf(messages).map((event) => `${JSON.stringify(event)}\n`).join("");

  const hex = (bytes) => Array.from(crypto.getRandomValues(new Uint8Array(bytes)), (each) => each.toString(16).padStart(2, "0")).join("");
  const TRACEPARENT = /^(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-[0-9a-f]{2}(?:-.*)?$/;
  /** A unique key is as long as a trace ID, and so is an offset message ID. */
  function traceId(event) {
    const own = [event.messageId, event.uniqKey, event.offsetMsgId].find((each) => /^(?!0{32})[0-9a-f]{32}$/i.test(each || ""));
    return own ? own.toLowerCase() : hex(16);
  }
  function attributes(values) {
    return Object.entries(values).filter(([, value]) => value != null && value !== "").map(([key, value]) => ({
      key, value: Array.isArray(value) ? { arrayValue: { values: value.map((each) => ({ stringValue: each })) } }
        : typeof value === "number" ? { intValue: String(value) } : { stringValue: String(value) },
    }));
  }
  function spansOf(message) {
    const { first, events } = message;
    // Continue a trace that the sender began.
    const given = events.map((event) => TRACEPARENT.exec(event.traceparent || "")).find(Boolean);
    const trace = given ? given[1] : traceId(first);
    const parent = hex(8);
    // Only stages of one message type: a message sent back for retry is also deferred.
    const messageType = events.some((each) => OF_TRANSACTIONS.includes(each.stage)) ? "transaction"
      : events.some((each) => each.stage === "deferred" && !each.group) ? "delay" : null;
    return events.map((event) => {
      const [name, type, kind] = OPERATIONS[event.stage] || [event.stage, "", INTERNAL];
      const isFirst = event.stage === "stored" && event === events.find((each) => each.stage === "stored");
      const end = BigInt(event.timeMs) * 1000000n;
      const span = {
        traceId: trace, spanId: isFirst ? parent : hex(8), name: `${name} ${event.topic}`, kind,
        startTimeUnixNano: String(end - BigInt(event.latencyUs || 0) * 1000n), endTimeUnixNano: String(end),
        attributes: attributes({
          "messaging.system": "rocketmq", "messaging.operation.name": name, "messaging.operation.type": type,
          "messaging.destination.name": event.topic,
          "messaging.destination.partition.id": event.queueId == null ? null : `${event.brokerName || ""}:${event.queueId}`,
          "messaging.consumer.group.name": kind === CLIENT ? event.group : null, "messaging.client.id": event.clientId || event.client,
          "messaging.rocketmq.namespace": /^(?:%(?:RETRY|DLQ)%)?([^%]+)%/.exec(event.topic)?.[1],
          "messaging.message.id": event.messageId || event.uniqKey || event.offsetMsgId, "messaging.message.body.size": event.bodySize,
          "messaging.rocketmq.message.type": messageType,
          "messaging.rocketmq.message.tag": event.tags, "messaging.rocketmq.message.keys": event.keys ? event.keys.split(" ") : null,
          "error.type": LiveRows.ERRORS.includes(event.stage) ? event.codeName || event.stage : null,
        }),
      };
      if (!isFirst && events.some((each) => each.stage === "stored")) span.parentSpanId = parent;
      else if (given) span.parentSpanId = given[2];
      if (kind === CLIENT) span.links = [{ traceId: trace, spanId: parent }];
      if (LiveRows.ERRORS.includes(event.stage)) span.status = { code: 2, message: event.remark || "" };
      return span;
    });
  }
  function otlp(messages) {
    const scope = { scope: { name: "trebuchet" }, spans: messages.flatMap(spansOf) };
    const resource = { attributes: attributes({ "service.name": "trebuchet" }) };
    return JSON.stringify({ resourceSpans: [{ resource, scopeSpans: [scope] }] });
  }

  /** The events of a file, sorted by time; `bad` counts the invalid lines. */
  async function read(file) {
    if (file.size > BYTES_MAX) throw new Error(gettext("The file is larger than 64 MiB."));
    const events = [];
    let bad = 0;
    for (const line of (await file.text()).split("\n")) {
      if (!line.trim()) continue;
      let event = null;
      try { event = JSON.parse(line); } catch { /* Counted below. */ }
      const isEvent = event && typeof event.stage === "string" && typeof event.topic === "string" && /^\d{1,16}$/.test(event.timeMs)
        && [event.queueOffset, event.acknowledgedFrom, event.fromOffset].every((each) => each == null || /^\d{1,19}$/.test(each));
      if (isEvent) events.push(event);
      else bad += 1;
    }
    events.sort((one, other) => Number(one.timeMs) - Number(other.timeMs));
    return { events, bad };
  }
  /** Play events with their original timing, `speed` times as fast; 0 is all at once. Returns a function that stops it. */
  function play(events, speed, take, done) {
    if (!speed) { take(events); done(); return () => {}; }
    const began = performance.now();
    const first = Number(events[0]?.timeMs || 0);
    let next = 0;
    const timer = setInterval(() => {
      const until = first + (performance.now() - began) * speed;
      const from = next;
      while (next < events.length && Number(events[next].timeMs) <= until) next += 1;
      if (next > from) take(events.slice(from, next));
      if (next >= events.length) { clearInterval(timer); done(); }
    }, STEP_MS);
    return () => clearInterval(timer);
  }
  return { save, lines, otlp, read, play };
})();
