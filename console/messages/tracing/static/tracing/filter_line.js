/* The filter line of the Live page: `topic:orders* group:billing latency:100 errors`, with completion.
   Fields are named as in the URL. */
"use strict";

const FilterLine = (() => {
  const NAMES = ["topic", "group", "tag", "key", "client", "stage", "property", "latency", "total", "took", "sample", "rate"];
  const HINTS = {
    topic: gettext("a name, or a pattern with * and ?"), group: gettext("consumer or producer group"),
    tag: gettext("exact tag"), key: gettext("a key, unique key or ID"),
    client: gettext("client ID, address or host"), stage: gettext("one stage, or several separated by commas"),
    property: gettext("name=value"), latency: gettext("minimum latency in milliseconds"),
    total: gettext("minimum time since it was stored, in milliseconds"), took: gettext("minimum stage duration: delivered>5ms,flushed>800us"),
    sample: gettext("one in N messages, with all stages"), rate: gettext("maximum events per second, for example 100/s"), errors: gettext("only errors"),
  };
  const SHOWN_MAX = 12;
  // Possible values by field name; set when completion starts.
  let pools = null;
  const TOKEN = /([a-z]+):("[^"]*"?|\S*)|("[^"]*"?|\S+)/g;
  const bare = (text) => text.replace(/^"|"$/g, "");
  const quoted = (text) => (/\s/.test(text) ? `"${text}"` : text);

  /** The fields of a line; `problem` is a sentence about the first invalid word. */
  function parse(line) {
    const fields = {};
    let problem = "";
    for (const [, name, value, word] of line.matchAll(TOKEN)) {
      if (word === "errors") fields.stage = "errors";
      else if (word) fields.key = bare(word);
      else if (!NAMES.includes(name)) problem ||= interpolate(gettext("Unknown field %s."), [name]);
      else if (bare(value)) fields[name] = bare(value);
    }
    for (const name of ["latency", "total"]) {
      if (!fields[name]) continue;
      const [, number, unit] = /^[>=]*(\d{1,9})(ms|s)?$/.exec(fields[name]) || [];
      if (number) fields[name] = String(Number(number) * (unit === "s" ? 1000 : 1));
      else { problem ||= gettext("Enter the latency as a number of milliseconds."); delete fields[name]; }
    }
    if (fields.took && !leastOf(fields.took)) {
      problem ||= gettext("Enter stages with their minimum duration: delivered>5ms,flushed>800us.");
      delete fields.took;
    }
    if (fields.sample) {
      const [, number] = /^(?:1\/)?(\d{1,7})$/.exec(fields.sample) || [];
      if (Number(number) > 0) fields.sample = String(Number(number));
      else { problem ||= gettext("Enter the sample as a number, for example 1/100."); delete fields.sample; }
    }
    if (fields.rate) {
      const [, number] = /^[<=]*(\d{1,6})(?:\/s)?$/.exec(fields.rate) || [];
      if (Number(number) > 0) fields.rate = String(Number(number));
      else { problem ||= gettext("Enter the rate as events per second, for example 100/s."); delete fields.rate; }
    }
    return { fields, problem };
  }
  /** Minimum microseconds by stage, from `delivered>5ms,flushed>800us`; null if invalid. */
  function leastOf(text) {
    const least = {};
    for (const part of (text || "").split(",")) {
      const [, stage, number, unit] = /^([a-z_]+)>=?(\d{1,9})(us|ms|s)?$/.exec(part.trim()) || [];
      if (!stage || pools && !pools.stage.has(stage) || stage === "errors") return null;
      least[stage] = Number(number) * { us: 1, ms: 1000, s: 1000000 }[unit || "ms"];
    }
    return least;
  }
  /** Whether the last word could still become a field name; until then it isn't treated as a key. */
  function isUnfinished(line) {
    const [, word] = /(?:^|\s)([a-z]+)$/.exec(line) || [];
    return Boolean(word) && [...NAMES, "errors"].some((name) => name.startsWith(word)) && word !== "errors";
  }
  function compose(fields) {
    return NAMES.filter((name) => fields[name]).map((name) => {
      if (name === "stage" && fields.stage === "errors") return "errors";
      const text = name === "sample" ? `1/${fields.sample}` : name === "rate" ? `${fields.rate}/s` : fields[name];
      return `${name}:${quoted(text)}`;
    }).join(" ");
  }

  /** Suggest names and values under a field; `values` has the values by name. */
  function complete(input, list, values) {
    pools = values;
    let chosen = -1;
    let offers = [];
    function token() {
      const before = input.value.slice(0, input.selectionStart);
      const start = before.search(/(?:[a-z]+:)?(?:"[^"]*|\S*)$/);
      return { start, text: before.slice(start) };
    }
    function refresh() {
      const { text } = token();
      const [, name, value] = /^([a-z]+):"?(.*)$/.exec(text) || [];
      if (name && pools[name]) {
        const typed = value.toLowerCase();
        offers = [...pools[name]].filter((each) => each.toLowerCase().includes(typed) && each !== value)
          .sort((one, other) => other.toLowerCase().startsWith(typed) - one.toLowerCase().startsWith(typed))
          .map((each) => ({ text: `${name}:${quoted(each)} `, label: each, hint: name }));
      } else if (name === "took") {
        // Complete one stage after the other, each with its own time.
        const [, before, typed] = /^(.*,)?(.*)$/.exec(value);
        offers = [...pools.stage].filter((each) => each.startsWith(typed) && each !== "errors")
          .map((each) => ({ text: `took:${before || ""}${each}>`, label: `${each}>`, hint: HINTS.took }));
      } else if (name) offers = [];
      else {
        offers = [...NAMES.map((each) => ({ text: `${each}:`, label: `${each}:`, hint: HINTS[each] })),
          { text: "errors ", label: "errors", hint: HINTS.errors }].filter((each) => each.label.startsWith(text));
      }
      offers = offers.slice(0, SHOWN_MAX);
      chosen = -1;
      show();
    }
    function show() {
      list.replaceChildren(...offers.map((offer, at) => {
        const item = document.createElement("li");
        item.id = `${list.id}-${at}`;
        item.setAttribute("role", "option");
        item.setAttribute("aria-selected", String(at === chosen));
        const label = document.createElement("span");
        label.textContent = offer.label;
        const hint = document.createElement("small");
        hint.textContent = offer.hint;
        item.append(label, hint);
        item.addEventListener("pointerdown", (event) => { event.preventDefault(); take(at); });
        return item;
      }));
      list.hidden = !offers.length;
      input.setAttribute("aria-expanded", String(!list.hidden));
      if (chosen >= 0) input.setAttribute("aria-activedescendant", `${list.id}-${chosen}`);
      else input.removeAttribute("aria-activedescendant");
    }
    function hide() { offers = []; chosen = -1; show(); }
    function take(at) {
      const { start } = token();
      const rest = input.value.slice(input.selectionStart);
      input.value = input.value.slice(0, start) + offers[at].text + rest.trimStart();
      const caret = start + offers[at].text.length;
      input.setSelectionRange(caret, caret);
      input.focus();
      input.dispatchEvent(new Event("input", { bubbles: true }));
    }
    input.addEventListener("input", refresh);
    input.addEventListener("focus", refresh);
    input.addEventListener("blur", hide);
    input.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && !list.hidden) { event.stopPropagation(); hide(); }
      else if ((event.key === "ArrowDown" || event.key === "ArrowUp") && offers.length) {
        event.preventDefault();
        chosen = (chosen + (event.key === "ArrowDown" ? 1 : offers.length)) % offers.length;
        if (chosen < 0) chosen = offers.length - 1;
        show();
      } else if ((event.key === "Enter" || event.key === "Tab") && chosen >= 0) { event.preventDefault(); take(chosen); }
    });
  }
  return { NAMES, parse, isUnfinished, leastOf, compose, complete };
})();
