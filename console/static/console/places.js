/* Favourites: the star next to a page's title saves the page with its filters, columns and order. */
"use strict";

document.addEventListener("DOMContentLoaded", () => {
  const star = document.querySelector("[data-star]");
  const places = document.getElementById("places");
  if (!star || !places) return;
  const here = () => location.pathname + location.search;
  const kept = () => [...places.querySelectorAll("a")].find((link) => link.getAttribute("href") === here());

  function refresh() {
    star.setAttribute("aria-pressed", String(Boolean(kept())));
    places.hidden = !places.querySelector("a");
  }

  function title() {
    const own = [...new URLSearchParams(location.search)].filter(([name, value]) => value && !["sort", "columns", "page"].includes(name));
    return [document.querySelector("h1").textContent.trim(), ...own.map(([, value]) => value)].join(" · ").slice(0, 120);
  }

  async function turn() {
    const link = kept();
    const label = title();
    const answer = await Trebuchet.post(places.dataset.url, { address: here(), label, keep: link ? "off" : "on" });
    const said = await answer.json().catch(() => ({}));
    if (!answer.ok) {
      Trebuchet.toast(said.problem || interpolate(gettext("status %s"), [answer.status]), "bad");
      return;
    }
    if (link) link.remove();
    else {
      const made = document.createElement("a");
      made.className = "navigation__link";
      made.href = here();
      const text = document.createElement("span");
      text.className = "truncate";
      text.textContent = label;
      made.append(star.querySelector("svg").cloneNode(true), text);
      places.append(made);
    }
    refresh();
  }

  star.addEventListener("click", turn);
  Keyboard.on("s", turn);
  document.addEventListener("htmx:pushedIntoHistory", refresh);
  refresh();
});
