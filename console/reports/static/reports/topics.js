/* Loads the names of topics when a field that takes one gets the focus. */
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
  } catch { /* Without the list the name can still be typed. */ }
});
