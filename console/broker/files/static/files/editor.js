/* The editor of a configuration file: completes keys and values from the schema, and shows problems
   while people type. Without this script, the form shows them after it is submitted. */
"use strict";

document.addEventListener("DOMContentLoaded", () => {
  const form = document.getElementById("file-form");
  if (!form) return;
  const text = document.getElementById("file-text");
  const problems = document.getElementById("file-problems");
  const frame = document.getElementById("file-problems-frame");
  const schema = JSON.parse(document.getElementById("file-schema").textContent);
  const words = JSON.parse(document.getElementById("file-words").textContent);
  const PAUSE_MS = 500, SHOWN = 8;
  const table = Object.values(schema.properties)[0].additionalProperties;
  // Filters are nested below their topics.
  const entry = table.properties?.groupFilterData?.additionalProperties ?? table;
  const keys = entry.properties ?? {};
  let timer = 0, asked = 0;

  /** The possible values of a key, as written in the file. */
  function valuesOf(key) {
    const known = keys[key];
    if (!known) return [];
    if (known.type === "boolean") return ["true", "false"];
    if (known.enum) return known.enum.map((each) => JSON.stringify(each));
    return known.default === undefined ? [] : [String(known.default)];
  }

  function fitting(word, before) {
    const key = /"(\w+)"\s*:\s*[\w"]*$/.exec(before);
    const from = key ? valuesOf(key[1]) : [...Object.keys(keys).map((each) => `"${each}":`), ...words];
    const wanted = word.toLowerCase();
    return from.filter((each) => each.toLowerCase().includes(wanted.replace(/^"/, "")) && each !== word).slice(0, SHOWN);
  }

  Completion.on(text, document.getElementById("file-suggestions"), (before) => /"?[\w%|-]*$/.exec(before)[0], fitting);

  function show(found) {
    problems.replaceChildren(...found.map(([line, said]) => {
      const item = document.createElement("li");
      if (line) {
        const button = document.createElement("button");
        Object.assign(button, { type: "button", className: "button button--small", textContent: `${problems.dataset.line} ${line}` });
        button.dataset.line = line;
        item.append(button);
      }
      const words = document.createElement("span");
      Object.assign(words, { className: "field__error", textContent: said });
      item.append(words);
      return item;
    }));
    frame.hidden = !found.length;
  }

  async function check() {
    const mine = (asked += 1);
    const answer = await Trebuchet.post(form.action || location.href, { check: "on", text: text.value }).catch(() => null);
    if (mine !== asked || !answer?.ok) return;
    show((await answer.json()).problems);
  }

  text.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(check, PAUSE_MS);
  });
  problems.addEventListener("click", (event) => {
    const line = Number(event.target.closest("[data-line]")?.dataset.line);
    if (!line) return;
    const lines = text.value.split("\n");
    const start = lines.slice(0, line - 1).join("\n").length + (line > 1 ? 1 : 0);
    text.focus();
    text.setSelectionRange(start, start + lines[line - 1].length);
    text.scrollTop = (line - 4) * (text.scrollHeight / lines.length);
  });
});
