/* The editor of the SQL page: Ctrl+Enter runs; names of tables and columns, and SQL's own words, complete what is typed.
   Without this script the page runs queries all the same. */
"use strict";

document.addEventListener("DOMContentLoaded", () => {
  const text = document.getElementById("sql-text");
  const list = document.getElementById("sql-suggestions");
  if (!text || !list) return;
  const KEYWORDS = ["SELECT", "FROM", "WHERE", "GROUP BY", "ORDER BY", "HAVING", "LIMIT", "JOIN", "LEFT JOIN", "USING", "DESC", "BETWEEN",
    "DISTINCT", "WITH", "INTERVAL", "count(*)", "sum(", "avg(", "max(", "min(", "approx_count_distinct(", "quantile_cont(", "date_trunc(",
    "list_contains(", "current_date", "now()", "QUALIFY", "IS NULL", "IS NOT NULL", "CASE WHEN", "UNION ALL", "map_extract_value("];
  const SHOWN = 8;
  const names = [...new Set([...document.querySelectorAll("#sql-tables [data-word]")].map((each) => each.dataset.word))];
  let chosen = 0;

  const typed = () => /[\w.]*$/.exec(text.value.slice(0, text.selectionStart))[0];

  function fitting(word) {
    const wanted = word.toLowerCase();
    const whole = [...names, ...KEYWORDS].filter((each) => each.toLowerCase() !== wanted);
    const begins = whole.filter((each) => each.toLowerCase().startsWith(wanted));
    const holds = wanted.length < 3 ? [] : whole.filter((each) => each.toLowerCase().includes(wanted) && !begins.includes(each));
    return [...begins, ...holds].slice(0, SHOWN);
  }

  function hide() {
    list.hidden = true;
    text.removeAttribute("aria-activedescendant");
  }

  function mark(index) {
    chosen = (index + list.children.length) % list.children.length;
    [...list.children].forEach((each, at) => each.setAttribute("aria-selected", String(at === chosen)));
    text.setAttribute("aria-activedescendant", list.children[chosen].id);
  }

  function suggest() {
    const words = fitting(typed());
    if (!words.length) return hide();
    list.replaceChildren(...words.map((word, at) => {
      const item = document.createElement("li");
      item.id = `sql-suggestion-${at}`;
      item.setAttribute("role", "option");
      item.textContent = word;
      item.addEventListener("mousedown", (event) => {
        event.preventDefault();
        put(word);
      });
      return item;
    }));
    list.hidden = false;
    return mark(0);
  }

  /** Puts a word in place of what was typed of it, so that undo takes it back. */
  function put(word) {
    const end = text.selectionStart;
    text.focus();
    text.setRangeText(word, end - typed().length, end, "end");
    hide();
  }

  text.addEventListener("input", () => (typed().length > 1 ? suggest() : hide()));
  text.addEventListener("blur", hide);
  text.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      text.form.requestSubmit(text.form.querySelector("button[type=submit]"));
    } else if (event.key === " " && event.ctrlKey) {
      event.preventDefault();
      suggest();
    } else if (!list.hidden && event.key === "Tab") {
      event.preventDefault();
      put(list.children[chosen].textContent);
    } else if (!list.hidden && (event.key === "ArrowDown" || event.key === "ArrowUp")) {
      event.preventDefault();
      mark(chosen + (event.key === "ArrowDown" ? 1 : -1));
    } else if (!list.hidden && event.key === "Escape") {
      event.stopPropagation();
      hide();
    }
  });
  for (const button of document.querySelectorAll("#sql-tables button[data-word]")) {
    button.addEventListener("click", () => put(button.dataset.word));
  }
});
