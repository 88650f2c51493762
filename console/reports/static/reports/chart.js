/* The chart of a report run: messages by topic over time, stacked; the legend follows the cursor. */
"use strict";

(() => {
  const BARS_MAX = 120;
  const WORDS = { 1: "per minute", 5: "per 5 minutes", 10: "per 10 minutes", 30: "per half hour", 60: "per hour", 240: "per 4 hours", 720: "per half day", 1440: "per day", 10080: "per week", 43200: "per 30 days" };

  function stacked(series) {
    // Drawn from the top of the stack down, so that each area covers what is above it no more.
    const sums = [];
    series.forEach((each, index) => {
      sums.push(each.counts.map((count, at) => count + (index ? sums[index - 1][at] : 0)));
    });
    return sums;
  }

  function draw(element, chart) {
    const legend = document.getElementById("report-legend");
    const step = document.getElementById("report-step");
    if (step) step.textContent = `messages ${WORDS[chart.stepMinutes] || `per ${chart.stepMinutes} minutes`}, in your time zone`;
    const sums = stacked(chart.series);
    const values = chart.series.map((each, index) => {
      const item = document.createElement("span");
      const swatch = document.createElement("i");
      swatch.className = `swatch report-swatch-${index + 1}`;
      const name = document.createElement("span");
      name.textContent = each.label;
      const value = document.createElement("b");
      item.append(swatch, name, value);
      legend.append(item);
      return value;
    });
    const totals = chart.series.map((each) => each.counts.reduce((sum, count) => sum + count, 0));
    const showLegend = (at) => chart.series.forEach((each, index) => {
      values[index].textContent = Trebuchet.grouped(at == null ? totals[index] : each.counts[at]);
    });
    showLegend(null);

    // A single minute stands in the middle of ten: uPlot would show it at the edge of a day.
    const edge = (chart.times.length === 1 ? 300 : chart.times.length <= BARS_MAX ? 30 : 0) * chart.stepMinutes;
    const spanOf = (_, low, high) => (chart.times.length === 1 ? [chart.times[0] - edge, chart.times[0] + edge] : [low - edge, high + edge]);

    let plot = null;
    function build() {
      plot?.destroy();
      const axis = { stroke: Trebuchet.colour("--faint"), grid: { stroke: Trebuchet.colour("--chart-grid"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
      const bars = chart.times.length <= BARS_MAX;
      const order = chart.series.map((_, index) => chart.series.length - 1 - index);
      plot = new uPlot({
        width: element.clientWidth,
        height: element.clientHeight,
        cursor: { points: { show: false }, drag: { x: true, y: false } },
        legend: { show: false },
        padding: [10, 12, 0, 0],
        scales: { x: { time: true, range: spanOf }, y: { range: (_, low, high) => [0, high > 0 ? high * 1.1 : 1] } },
        axes: [{ ...axis, space: 70 }, { ...axis, size: 52, values: (_, ticks) => ticks.map((tick) => (Number.isInteger(tick) ? Trebuchet.grouped(tick) : "")) }],
        series: [{}, ...order.map((index) => ({
          label: chart.series[index].label,
          stroke: Trebuchet.colour(`--chart-${index + 1}`),
          fill: Trebuchet.colour(`--chart-${index + 1}`),
          width: 0,
          paths: bars ? uPlot.paths.bars({ size: [0.8, 44], radius: 0.1 }) : uPlot.paths.stepped({ align: 1 }),
          points: { show: false },
        }))],
        hooks: { setCursor: [(self) => showLegend(self.cursor.idx)] },
      }, [chart.times, ...order.map((index) => sums[index])], element);
    }
    build();
    document.addEventListener("trebuchet:theme", build);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", build);
    new ResizeObserver(() => {
      if (element.clientWidth) plot.setSize({ width: element.clientWidth, height: element.clientHeight });
    }).observe(element);
  }

  document.addEventListener("DOMContentLoaded", async () => {
    const element = document.querySelector("[data-report-chart]");
    if (!element) return;
    const answer = await fetch(element.dataset.reportChart, { headers: { accept: "application/json" } });
    if (!answer.ok) {
      element.textContent = "The chart's numbers could not be loaded; reload the page.";
      return;
    }
    const chart = await answer.json();
    if (chart.series?.length) draw(element, chart);
  });
})();
