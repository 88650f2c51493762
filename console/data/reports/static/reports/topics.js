/* Loads the topic names when a topic field gets the focus. */
"use strict";

document.addEventListener("focusin", async (event) => {
  const list = event.target instanceof HTMLInputElement ? event.target.list : null;
  if (!list?.dataset.topics) return;
  const address = list.dataset.topics;
  delete list.dataset.topics;
  try {
    const answer = await fetch(address);
    if (!answer.ok) return;
    const { topics } = await answer.json();
    list.replaceChildren(...topics.map((name) => {
      const option = document.createElement("option");
      option.value = name;
      return option;
    }));
  } catch { /* Names can be typed without the list. */ }
});
