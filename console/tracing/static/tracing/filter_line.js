/* The filter line of the Live page: `topic:orders* group:billing latency:100 errors`, with completion.
   Fields have the names that the address has. */
"use strict";

const FilterLine = (() => {
  const NAMES = ["topic", "group", "tag", "key", "client", "stage", "property", "latency", "sample"];
  const HINTS = {
    topic: gettext("a name, or a pattern with * and ?"), group: gettext("of consumers or of producers"),
    tag: gettext("the tag, exactly"), key: gettext("a key, the unique key or an id"),
    client: gettext("id, address or host"), stage: gettext("one stage, or several with commas"),
    property: gettext("name=value"), latency: gettext("at least so many milliseconds"),
    sample: gettext("one of so many messages, all of its stages"), errors: gettext("what went wrong"),
  };
  const SHOWN_MAX = 12;
  const TOKEN = /([a-z]+):("[^"]*"?|\S*)|("[^"]*"?|\S+)/g;
  const bare = (text) => text.replace(/^"|"$/g, "");
  const quoted = (text) => (/\s/.test(text) ? `"${text}"` : text);

  /** The fields that a line asks for; `problem` is a sentence about the first word that is none. */
  function parse(line) {
    const fields = {};
    let problem = "";
    for (const [, name, value, word] of line.matchAll(TOKEN)) {
      if (word === "errors") fields.stage = "errors";
      else if (word) fields.key = bare(word);
      else if (!NAMES.includes(name)) problem ||= interpolate(gettext("There is no field %s."), [name]);
      else if (bare(value)) fields[name] = bare(value);
    }
    if (fields.latency) {
      const [, number, unit] = /^[>=]*(\d{1,9})(ms|s)?$/.exec(fields.latency) || [];
      if (number) fields.latency = String(Number(number) * (unit === "s" ? 1000 : 1));
      else { problem ||= gettext("A latency is a number of milliseconds."); delete fields.latency; }
    }
    if (fields.sample) {
      const [, number] = /^(?:1\/)?(\d{1,7})$/.exec(fields.sample) || [];
      if (Number(number) > 0) fields.sample = String(Number(number));
      else { problem ||= gettext("A sample is a number, as in 1/100."); delete fields.sample; }
    }
    return { fields, problem };
  }
  /** Whether the last word may become the name of a field: nobody means a key by it yet. */
  function isUnfinished(line) {
    const [, word] = /(?:^|\s)([a-z]+)$/.exec(line) || [];
    return Boolean(word) && [...NAMES, "errors"].some((name) => name.startsWith(word)) && word !== "errors";
  }
  function compose(fields) {
    return NAMES.filter((name) => fields[name]).map((name) => {
      if (name === "stage" && fields.stage === "errors") return "errors";
      return `${name}:${quoted(name === "sample" ? `1/${fields.sample}` : fields[name])}`;
    }).join(" ");
  }

  /** Offer names and values under a field; `pools` has the values by name. */
  function complete(input, list, pools) {
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
  return { NAMES, parse, isUnfinished, compose, complete };
})();
