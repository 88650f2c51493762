/* Offers the topics that exist once somebody is about to name one. */
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
  } catch { /* Typing a name works without the list. */ }
});
