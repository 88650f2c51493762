/* The chart of a report run: values over time, stacked by series; the legend follows the cursor. */
"use strict";

(() => {
  const BARS_MAX = 120;

  function stacked(series) {
    // Draw the top of the stack first, so that each area covers those above it.
    const sums = [];
    series.forEach((each, index) => {
      sums.push(each.values.map((value, at) => (value == null ? null : value + (index ? sums[index - 1][at] : 0))));
    });
    return sums;
  }

  /* A series' total: its sum, or for readings, which can't be summed, the last value. */
  function outcome(chart, values) {
    const known = values.filter((value) => value != null);
    return chart.isReading ? known.at(-1) : known.reduce((sum, value) => sum + value, 0);
  }

  const shown = (value) => (value == null ? "–" : Trebuchet.grouped(value));

  function draw(element, chart) {
    const legend = document.getElementById("report-legend");
    const step = document.getElementById("report-step");
    if (step) step.textContent = chart.step;
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
    const outcomes = chart.series.map((each) => outcome(chart, each.values));
    const showLegend = (at) => chart.series.forEach((each, index) => {
      values[index].textContent = shown(at == null ? outcomes[index] : each.values[at]);
    });
    showLegend(null);

    // Centre a single point in ten steps; uPlot would show it at the edge of a day.
    const edge = (chart.times.length === 1 ? 5 : chart.times.length <= BARS_MAX ? 0.5 : 0) * chart.stepSeconds;
    const spanOf = (_, low, high) => (chart.times.length === 1 ? [chart.times[0] - edge, chart.times[0] + edge] : [low - edge, high + edge]);

    const spanMs = (chart.times[chart.times.length - 1] - chart.times[0]) * 1000;
    const tzDate = (seconds) => uPlot.tzDate(new Date(seconds * 1000), Times.zone);

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
        tzDate,
        // Room for half a label at the end of the axis.
        padding: [10, 32, 0, 0],
        scales: { x: { time: true, range: spanOf }, y: { range: (_, low, high) => [0, high > 0 ? high * 1.1 : 1] } },
        axes: [{ ...axis, space: 84, values: (_, ticks) => Times.ticks(ticks.map((each) => each * 1000), spanMs) }, { ...axis, size: 52, values: (_, ticks) => ticks.map((tick) => (Number.isInteger(tick) ? Trebuchet.grouped(tick) : "")) }],
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

  /* The chart as displayed, with its title, series and totals above it. */
  function picture(element, chart, name) {
    const drawn = element.querySelector("canvas");
    const ratio = devicePixelRatio;
    const head = 44 * ratio;
    const canvas = document.createElement("canvas");
    canvas.width = drawn.width;
    canvas.height = drawn.height + head;
    const ctx = canvas.getContext("2d");
    ctx.fillStyle = Trebuchet.colour("--surface");
    ctx.fillRect(0, 0, canvas.width, canvas.height);
    ctx.fillStyle = Trebuchet.colour("--text");
    ctx.font = `600 ${13 * ratio}px system-ui`;
    const title = element.closest(".card").querySelector("h2").textContent.trim();
    ctx.fillText(`${title} · ${chart.step}`, 12 * ratio, 18 * ratio);
    ctx.font = `${11 * ratio}px system-ui`;
    let x = 12 * ratio;
    chart.series.forEach((each, index) => {
      ctx.fillStyle = Trebuchet.colour(`--chart-${index + 1}`);
      ctx.fillRect(x, 28 * ratio, 9 * ratio, 9 * ratio);
      ctx.fillStyle = Trebuchet.colour("--muted");
      const text = `${each.label} ${shown(outcome(chart, each.values))}`;
      ctx.fillText(text, x + 14 * ratio, 36 * ratio);
      x += ctx.measureText(text).width + 30 * ratio;
    });
    ctx.drawImage(drawn, 0, head);
    canvas.toBlob((blob) => {
      const link = document.createElement("a");
      link.href = URL.createObjectURL(blob);
      link.download = `${name}.png`;
      link.click();
      URL.revokeObjectURL(link.href);
    });
  }

  document.addEventListener("DOMContentLoaded", async () => {
    const element = document.querySelector("[data-report-chart]");
    if (!element) return;
    const answer = await fetch(element.dataset.reportChart, { headers: { accept: "application/json" } });
    if (!answer.ok) {
      element.textContent = element.dataset.failed;
      return;
    }
    const chart = await answer.json();
    if (!chart.series?.length) return;
    draw(element, chart);
    const button = document.querySelector("[data-report-png]");
    if (!button) return;
    button.hidden = false;
    button.addEventListener("click", () => picture(element, chart, button.dataset.reportPng));
  });
})();
