/* Completion in text areas: matching words appear in a list below; Tab inserts one, Ctrl+Space opens the list.
   Completion.on(text, list, typed, fitting) → put(word): `typed` finds the word before the caret, `fitting` its completions. */
"use strict";

const Completion = {
  on(text, list, typed, fitting) {
    let chosen = 0;
    const before = () => text.value.slice(0, text.selectionStart);

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
      const words = fitting(typed(before()), before());
      if (!words.length) return hide();
      list.replaceChildren(...words.map((word, at) => {
        const item = document.createElement("li");
        item.id = `${list.id}-${at}`;
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

    /** Replaces the typed part of a word with the word, so that undo works. */
    function put(word) {
      const end = text.selectionStart;
      text.focus();
      text.setRangeText(word, end - typed(before()).length, end, "end");
      hide();
    }

    text.addEventListener("input", () => (typed(before()).length > 1 ? suggest() : hide()));
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
    return put;
  },
};
