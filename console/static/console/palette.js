/* The palette (Ctrl K): searches on the server and displays the results. */
"use strict";

document.addEventListener("DOMContentLoaded", () => {
  const dialog = document.getElementById("palette");
  if (!dialog) return;
  const input = document.getElementById("palette-input");
  const list = document.getElementById("palette-list");
  const none = document.getElementById("palette-none");
  let asked = 0;
  let timer = 0;

  function element(name, css, text) {
    const made = document.createElement(name);
    made.className = css;
    if (text) made.textContent = text;
    return made;
  }

  function icon(name) {
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    const use = document.createElementNS("http://www.w3.org/2000/svg", "use");
    svg.setAttribute("class", "icon");
    svg.setAttribute("aria-hidden", "true");
    use.setAttribute("href", `${dialog.dataset.sprite}#${name}`);
    svg.append(use);
    return svg;
  }

  function choose(index) {
    const options = [...list.children];
    options.forEach((option, at) => option.setAttribute("aria-selected", String(at === index)));
    const chosen = options[index];
    chosen?.scrollIntoView({ block: "nearest" });
    if (chosen) input.setAttribute("aria-activedescendant", chosen.id);
    else input.removeAttribute("aria-activedescendant");
  }

  function show(entries) {
    list.replaceChildren(...entries.map((entry, index) => {
      const option = element("li", "palette__entry");
      option.id = `palette-${index}`;
      option.setAttribute("role", "option");
      option.dataset.url = entry.url;
      option.append(icon(entry.icon), element("span", "palette__label", entry.label), element("small", "faint", entry.hint));
      return option;
    }));
    none.hidden = entries.length > 0;
    choose(entries.length ? 0 : -1);
  }

  async function find() {
    const mine = ++asked;
    try {
      const answer = await fetch(`${dialog.dataset.entries}?q=${encodeURIComponent(input.value)}`);
      if (answer.redirected || !answer.ok) throw new Error(interpolate(gettext("status %s"), [answer.status]));
      const { entries } = await answer.json();
      // Responses can arrive out of order.
      if (mine === asked) show(entries);
    } catch (error) {
      if (mine === asked) Trebuchet.toast(interpolate(gettext("The console isn't responding: %s."), [error.message]), "bad");
    }
  }

  function go(option) {
    if (!option) return;
    dialog.close();
    const here = location.pathname + location.search;
    location.assign(option.dataset.url);
    // If only the hash differs, the page doesn't reload, so open its dialog here.
    if (option.dataset.url.split("#")[0] === here) document.querySelector(`dialog${location.hash}`)?.showModal();
  }

  function open() {
    if (dialog.open) return;
    input.value = "";
    list.replaceChildren();
    none.hidden = true;
    dialog.showModal();
    find();
  }

  document.addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
      event.preventDefault();
      open();
    }
  });
  for (const button of document.querySelectorAll("[data-open-palette]")) button.addEventListener("click", open);
  input.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(find, 120);
  });
  input.addEventListener("keydown", (event) => {
    const options = [...list.children];
    const now = options.findIndex((option) => option.getAttribute("aria-selected") === "true");
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && options.length) {
      event.preventDefault();
      choose((now + step + options.length) % options.length);
    }
    if (event.key === "Enter") {
      event.preventDefault();
      go(options[now]);
    }
  });
  list.addEventListener("click", (event) => go(event.target.closest("[role=option]")));
});
