/* The overview's chart: rates of the last minutes, polled every two seconds. */
"use strict";

document.addEventListener("DOMContentLoaded", () => {
  const box = document.getElementById("rates");
  if (!box) return;
  const state = document.getElementById("rates-state");
  const chart = Trebuchet.timeChart(box, [
    { label: box.dataset.put, colour: "--chart-1", fill: true },
    { label: box.dataset.get, colour: "--chart-2", fill: true },
  ], { legend: false, windowS: 300 });
  const keep = 450;
  let times = [], put = [], got = [], last = 0;
  Trebuchet.poll(2, async () => {
    let answer;
    try {
      const response = await fetch(`${box.dataset.url}?since=${last}`, { headers: { Accept: "application/json" } });
      if (response.redirected || !response.ok) {
        throw new Error(response.redirected ? gettext("you are signed out") : interpolate(gettext("status %s"), [response.status]));
      }
      answer = await response.json();
    } catch (error) {
      state.textContent = interpolate(gettext("The console does not answer: %s."), [error.message]);
      return;
    }
    state.textContent = answer.problem;
    for (const [at, in_, out] of answer.samples) {
      last = at;
      times.push(at / 1000); put.push(in_); got.push(out);
    }
    times = times.slice(-keep); put = put.slice(-keep); got = got.slice(-keep);
    const shown = times.length ? [times, put, got] : [[], [], []];
    chart.set(shown);
  });
});
