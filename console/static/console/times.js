/* Times in one format, in the person's or the browser's zone: relative for less than a day, then
   2026-11-21 22:45:03. Keeps every <time data-age>, <time data-moment> and <time data-clock> of the page current. */
"use strict";

const Times = (() => {
  const DAY_S = 86400;
  const zone = document.documentElement.dataset.zone || Intl.DateTimeFormat().resolvedOptions().timeZone;
  const digits = { timeZone: zone, hourCycle: "h23", hour: "2-digit", minute: "2-digit", second: "2-digit" };
  // Swedish writes dates as ISO 8601 does.
  const stamp = new Intl.DateTimeFormat("sv-SE", { ...digits, year: "numeric", month: "2-digit", day: "2-digit" });
  const clockFormat = new Intl.DateTimeFormat("sv-SE", digits);

  const exact = (ms) => stamp.format(ms);
  const clock = (ms) => clockFormat.format(ms);
  const minute = (ms) => clock(ms).slice(0, 5);
  const date = (ms) => exact(ms).slice(0, 10);
  const dateAndMinute = (ms) => exact(ms).slice(5, 16);
  const dateAndSecond = (ms) => exact(ms).slice(5);
  /** Tick labels for an axis of this length: minutes within a day, with the date up to a week, only the date beyond; more
      where labels would repeat. */
  function ticks(times, spanMs) {
    const formats = spanMs <= DAY_S * 1000 ? [minute, clock, dateAndMinute, dateAndSecond]
      : spanMs <= 7 * DAY_S * 1000 ? [dateAndMinute, dateAndSecond] : [date, dateAndMinute, dateAndSecond];
    const labels = formats.map((format) => times.map(format));
    // Ticks within a second have one label.
    const once = (all) => all.map((each, at) => (each === all[at - 1] ? "" : each));
    return labels.find((each) => new Set(each).size === each.length) ?? once(labels[1]);
  }

  function span(seconds) {
    if (seconds < 90) return interpolate(gettext("%s s"), [Math.round(seconds)]);
    if (seconds < 5400) return interpolate(gettext("%s min"), [Math.round(seconds / 60)]);
    if (seconds < 129600) return interpolate(gettext("%s h"), [Math.round(seconds / 3600)]);
    return interpolate(gettext("%s d"), [Math.round(seconds / DAY_S)]);
  }
  function ago(ms, now = Date.now()) {
    const seconds = (now - ms) / 1000;
    if (Math.abs(seconds) >= DAY_S) return exact(ms);
    if (Math.abs(seconds) < 2) return gettext("just now");
    return interpolate(seconds > 0 ? gettext("%s ago") : gettext("in %s"), [span(Math.abs(seconds))]);
  }

  /** Convert a local time in the zone to an exact time, and back; null if it is invalid. */
  function fromInput(text) {
    const wanted = Date.parse(`${text}Z`);
    if (Number.isNaN(wanted)) return null;
    const shown = (ms) => Date.parse(`${exact(ms).replace(" ", "T")}Z`);
    // Twice: the first guess may be on the other side of a clock change.
    let ms = wanted;
    for (let turn = 0; turn < 2; turn += 1) ms += wanted - shown(ms);
    return ms;
  }
  const toInput = (ms) => exact(ms).replace(" ", "T");

  function refresh(scope = document) {
    const now = Date.now();
    for (const element of scope.querySelectorAll("time[data-age], time[data-moment]:not([data-shown])")) {
      const isAge = element.dataset.age !== undefined;
      const ms = Number(isAge ? element.dataset.age : element.dataset.moment);
      const text = isAge ? ago(ms, now) : exact(ms);
      if (element.textContent !== text) element.textContent = text;
      if (element.dataset.shown) continue;
      element.title = `${exact(ms)} ${zone}`;
      element.dataset.shown = "true";
    }
    for (const element of scope.querySelectorAll("time[data-clock]:not([data-shown])")) {
      const ms = Number(element.dataset.clock);
      element.textContent = minute(ms);
      element.title = `${exact(ms)} ${zone}`;
      element.dataset.shown = "true";
    }
    for (const element of scope.querySelectorAll("[data-since]:not([data-shown])")) {
      const words = element.title;
      element.title = interpolate(element.dataset.words, [minute(Number(element.dataset.since))]);
      // The label also has the trend.
      const picture = element.querySelector("[aria-label]");
      picture?.setAttribute("aria-label", picture.getAttribute("aria-label").replace(words, element.title));
      element.dataset.shown = "true";
    }
  }

  document.addEventListener("DOMContentLoaded", () => {
    refresh();
    setInterval(refresh, 1000);
    for (const element of document.querySelectorAll("[data-timezone]")) element.textContent = zone;
    for (const input of document.querySelectorAll("input[data-ms]")) input.value = toInput(Number(input.dataset.ms));
    // New items start in the person's zone, if it can be selected.
    for (const field of document.querySelectorAll("[data-own-zone]")) {
      const fits = field.options ? [...field.options].some((each) => each.value === zone) : !field.value;
      if (fits) field.value = zone;
    }
  });
  // A refresh also replaces parts outside its target; their texts mustn't change a second later.
  for (const swap of ["htmx:afterSwap", "htmx:oobAfterSwap"]) {
    document.addEventListener(swap, (event) => refresh(event.target));
  }

  return { zone, exact, clock, minute, ticks, span, ago, fromInput, toInput, refresh };
})();
