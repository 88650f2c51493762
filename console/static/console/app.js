/* The script of every page: theme, navigation, dialogs, notifications, charts. No inline handlers anywhere.
   Texts come from Django's catalogue for the page's language, through gettext, ngettext and interpolate. */
"use strict";

const Trebuchet = (() => {
  const root = document.documentElement;

  /** Resolve a colour variable for a canvas in the current theme; `share` is the opacity. */
  function colour(name, share = 1) {
    const probe = document.createElement("span");
    probe.style.color = `color-mix(in srgb, var(${name}) ${share * 100}%, transparent)`;
    probe.hidden = false;
    probe.style.position = "absolute";
    document.body.append(probe);
    const value = getComputedStyle(probe).color;
    probe.remove();
    return value;
  }

  function toast(text, state = "info") {
    const box = document.createElement("div");
    box.className = "toast";
    box.dataset.state = state;
    const line = document.createElement("p");
    line.textContent = text;
    box.append(line);
    document.getElementById("toasts")?.append(box);
    fade(box);
  }

  function fade(box) {
    if (box.dataset.state !== "bad" && !box.querySelector("form")) setTimeout(() => box.remove(), 7000);
  }

  /** Submit a form's fields in the background. */
  function post(address, fields) {
    const token = document.querySelector("[name=csrfmiddlewaretoken]")?.value ?? "";
    return fetch(address, { method: "POST", headers: { "X-CSRFToken": token }, body: new URLSearchParams(fields) });
  }

  /** Show a confirmation page as a dialog over this page, or navigate to it if that fails. */
  async function ask(address) {
    try {
      const answer = await fetch(address);
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const dialog = document.createElement("dialog");
      dialog.className = "dialog";
      dialog.append(document.adoptNode(page.querySelector("form.danger")));
      dialog.setAttribute("aria-label", dialog.querySelector("h2").textContent);
      dialog.addEventListener("close", () => dialog.remove());
      dialog.querySelector("[data-must-equal], .dialog__foot a").autofocus = true;
      document.body.append(dialog);
      checkNames(dialog);
      dialog.showModal();
    } catch {
      location.href = address;
    }
  }

  /* Theme: stored on the server, so that it renders the right one without a flash. */
  function setTheme(theme) {
    root.dataset.theme = theme;
    document.dispatchEvent(new CustomEvent("trebuchet:theme"));
    post(document.querySelector("[data-theme-switch]").dataset.themeSwitch, { theme });
  }

  function grouped(value) {
    return String(value).replace(/\B(?=(\d{3})+(?!\d))/g, "\u202f");
  }
  function rateText(value) {
    if (value >= 100 || value === 0) return grouped(Math.round(value));
    return value >= 0.1 ? value.toFixed(1) : "< 0.1";
  }

  /* Repeat while the page is visible, without overlapping calls. */
  function poll(seconds, work) {
    let busy = false;
    async function turn() {
      if (busy || document.hidden) return;
      busy = true;
      try { await work(); } finally { busy = false; }
    }
    turn();
    const timer = setInterval(turn, seconds * 1000);
    document.addEventListener("visibilitychange", turn);
    return () => clearInterval(timer);
  }

  /* The navigation's collapsed sections, in a cookie, so that the server renders them without a flash. */
  const SECTIONS_COOKIE = "trebuchet_navigation";
  function rememberSection(name, isCollapsed) {
    const kept = document.cookie.split("; ").find((each) => each.startsWith(`${SECTIONS_COOKIE}=`))?.split("=")[1] ?? "";
    const names = new Set(kept.split(".").filter(Boolean));
    if (isCollapsed) names.add(name);
    else names.delete(name);
    const secure = location.protocol === "https:" ? "; Secure" : "";
    document.cookie = `${SECTIONS_COOKIE}=${[...names].join(".")}; Path=/; Max-Age=31536000; SameSite=Lax${secure}`;
  }

  function setNavigation(open) {
    const frame = document.querySelector(".frame");
    if (!frame) return;
    frame.dataset.navigation = open ? "open" : "closed";
    document.querySelector("[data-toggle-navigation]")?.setAttribute("aria-expanded", String(open));
  }

  document.addEventListener("click", (event) => {
    const target = event.target instanceof Element ? event.target : null;
    if (!target) return;
    if (target.closest("[data-toggle-navigation]")) {
      event.preventDefault();
      setNavigation(document.querySelector(".frame").dataset.navigation !== "open");
    }
    if (target.closest("[data-close-navigation]")) {
      event.preventDefault();
      setNavigation(false);
    }
    const section = target.closest(".navigation__head")?.parentElement;
    // The click comes before the change.
    if (section) rememberSection(section.dataset.section, section.open);
    const opener = target.closest("[data-open-dialog]");
    if (opener) document.getElementById(opener.dataset.openDialog)?.showModal();
    const danger = target.closest("a[data-danger]");
    if (danger && !event.ctrlKey && !event.metaKey) {
      event.preventDefault();
      ask(danger.href);
    }
    const dialog = (target.closest("[data-close-dialog]") || target.matches("dialog")) && target.closest("dialog");
    if (dialog) {
      event.preventDefault();
      dialog.close();
    }
    if (target.closest("[data-dismiss]")) target.closest(".toast")?.remove();
    const copy = target.closest("[data-copy]");
    if (copy) {
      const text = document.getElementById(copy.dataset.copy)?.textContent ?? copy.dataset.copyText ?? "";
      const copied = copy.dataset.copied || gettext("Copied");
      const refused = gettext("The browser didn't allow copying");
      navigator.clipboard?.writeText(text.trim()).then(() => toast(copied, "ok"), () => toast(refused, "warn"));
    }
    for (const menu of document.querySelectorAll("details.menu[open]")) {
      if (!menu.contains(target)) menu.open = false;
    }
  });

  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      setNavigation(false);
      for (const menu of document.querySelectorAll("details.menu[open]")) menu.open = false;
    }
  });

  document.addEventListener("change", (event) => {
    const target = event.target;
    if (target instanceof HTMLInputElement && target.closest("[data-theme-switch]")) setTheme(target.value);
    if (target instanceof Element && target.closest("[data-submit-on-change]")) target.closest("form")?.requestSubmit();
    showMatching();
  });

  /* A local time, followed by the exact time it represents. */
  document.addEventListener("input", (event) => {
    const into = event.target instanceof HTMLInputElement && event.target.dataset.timestampInto;
    if (!into) return;
    const field = event.target.form?.elements[into];
    const ms = Times.fromInput(event.target.value);
    if (field) field.value = ms == null ? "" : String(ms);
  });

  /* Show progress for slow forms, and prevent a second submit. */
  document.addEventListener("submit", (event) => {
    const button = event.target.querySelector("[data-busy]");
    if (!button) return;
    button.textContent = button.dataset.busy;
    button.disabled = true;
  });
  /* A page from the back/forward cache is still in its submitted state. */
  window.addEventListener("pageshow", (event) => {
    if (event.persisted && document.querySelector("[data-busy]:disabled")) location.reload();
  });

  /* A button that stays disabled until the name is typed. */
  document.addEventListener("input", (event) => {
    const input = event.target;
    if (input instanceof HTMLInputElement && input.dataset.mustEqual !== undefined) {
      const button = input.form?.querySelector("[data-needs-name]");
      if (button) button.disabled = input.value !== input.dataset.mustEqual;
    }
  });

  function checkNames(scope) {
    for (const input of scope.querySelectorAll("[data-must-equal]")) input.dispatchEvent(new Event("input", { bubbles: true }));
  }

  /* Fields that belong to one choice: data-show-for="name=value|value". */
  function showMatching() {
    for (const element of document.querySelectorAll("[data-show-for]")) {
      const [name, values] = element.dataset.showFor.split("=");
      const chosen = element.closest("form")?.elements[name]?.value;
      element.hidden = !values.split("|").includes(chosen);
    }
  }

  /* Before the first paint, which waits for this script, so that nothing moves afterwards. */
  showMatching();
  document.addEventListener("DOMContentLoaded", () => {
    for (const box of document.querySelectorAll(".toasts .toast")) fade(box);
    checkNames(document);
  });
  document.addEventListener("htmx:afterSwap", showMatching);

  return { colour, toast, poll, post, rateText, grouped };
})();
