/* The history charts: points are loaded as JSON, gaps stay gaps, events are marks. Dragging over a chart narrows the
   page's time range, and a click opens the messages of that point if the chart has any. All charts of a page share their
   cursor; a range that ends now moves on. */
"use strict";

document.addEventListener("DOMContentLoaded", () => {
  const section = document.getElementById("history");
  if (!section) return;
  const isLive = section.dataset.live !== "";
  const colours = ["--chart-1", "--chart-2", "--chart-3", "--chart-4", "--chart-5", "--chart-6"];
  const markColours = {
    restart: "--warn", failover: "--bad", back: "--bad", alert: "--bad", "alert-end": "--ok", reset: "--chart-3", change: "--info",
    deploy: "--accent", rebalance: "--chart-4",
  };
  const EARLIER_ALPHA = 0.4;
  const SHORTEST_MS = 600000;

  const spanMs = Number(section.dataset.to) - Number(section.dataset.from);

  function numberText(value) {
    if (value == null) return "–";
    const size = Math.abs(value);
    if (size >= 1e9) return `${(value / 1e9).toFixed(1)}G`;
    if (size >= 1e6) return `${(value / 1e6).toFixed(1)}M`;
    if (size >= 100 || value === Math.round(value)) return Trebuchet.grouped(Math.round(value));
    return size >= 0.1 ? value.toFixed(1) : value.toPrecision(1);
  }

  /** Vertical lines for events, with their text on hover. */
  function marksPlugin(chart) {
    return {
      hooks: {
        draw: (plot) => {
          const ctx = plot.ctx;
          ctx.save();
          for (const mark of chart.marks) {
            const x = Math.round(plot.valToPos(mark.atMs / 1000, "x", true)) + 0.5;
            if (x < plot.bbox.left || x > plot.bbox.left + plot.bbox.width) continue;
            ctx.strokeStyle = Trebuchet.colour(markColours[mark.what] || "--faint");
            ctx.setLineDash([4, 3]);
            ctx.beginPath();
            ctx.moveTo(x, plot.bbox.top);
            ctx.lineTo(x, plot.bbox.top + plot.bbox.height);
            ctx.stroke();
          }
          ctx.restore();
        },
        setCursor: (plot) => {
          const at = plot.cursor.left >= 0 ? plot.posToVal(plot.cursor.left, "x") * 1000 : null;
          const near = at == null ? null : chart.marks.filter((mark) => Math.abs(mark.atMs - at) < spanMs / 80);
          const hint = at != null && chart.card.dataset.messages && !chart.text ? gettext("Click to open the messages at this point.") : chart.text;
          chart.note.textContent = near?.length ? near.map((mark) => `${Times.exact(mark.atMs)} ${mark.text}`).join(" · ") : hint;
        },
        // Without a cursor, the legend shows the last known values.
        setLegend: (plot) => { if (plot.legend.idx == null) showLast(plot); },
        ready: (plot) => {
          showLast(plot);
          leadToMessages(plot, chart);
        },
      },
    };
  }

  function showLast(plot) {
    for (let index = plot.data[0].length - 1; index >= 0; index -= 1) {
      if (plot.data.some((values, line) => line && values[index] != null)) {
        plot.setLegend({ idx: index }, false);
        return;
      }
    }
  }

  /** A click without dragging opens the messages of the point under it. */
  function leadToMessages(plot, chart) {
    if (!chart.card.dataset.messages) return;
    let pressedAt = null;
    plot.over.dataset.leads = "true";
    plot.over.addEventListener("pointerdown", (event) => { pressedAt = event.clientX; });
    plot.over.addEventListener("click", (event) => {
      if (pressedAt == null || Math.abs(event.clientX - pressedAt) > 3 || plot.cursor.idx == null) return;
      const from = chart.answer.times[plot.cursor.idx];
      location.assign(`${chart.card.dataset.messages}from=${from}&to=${from + chart.answer.stepMs}`);
    });
  }

  function options(chart, answer) {
    const axis = { stroke: Trebuchet.colour("--faint"), grid: { stroke: Trebuchet.colour("--chart-grid"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
    // Counts, such as consumers, have no fractions.
    const isWhole = answer.lines.every((line) => line.values.every((value) => value == null || Number.isInteger(value)));
    return {
      width: chart.box.clientWidth,
      height: 190,
      cursor: { sync: { key: "history" }, drag: { x: true, y: false, setScale: false } },
      // Room for half a label at the end of the axis.
      padding: [10, 32, 0, 0],
      scales: {
        x: { time: true, range: () => [chart.from / 1000, endOf(answer) / 1000] },
        y: { range: (_, low, high) => [Math.min(0, low ?? 0), high > 0 ? high * 1.12 : 1] },
      },
      axes: [
        { ...axis, space: 84, size: 28, values: (_, ticks) => Times.ticks(ticks.map((each) => each * 1000), endOf(answer) - chart.from) },
        { ...axis, size: 52, values: (_, ticks) => ticks.map((tick) => (isWhole && !Number.isInteger(tick) ? "" : numberText(tick))) },
      ],
      series: [
        { label: gettext("Time"), value: (_, value) => (value == null ? "–" : Times.exact(value * 1000)) },
        ...answer.lines.map((line, index) => ({
          label: line.label,
          stroke: Trebuchet.colour(colours[index % colours.length]),
          width: index ? 1.25 : 1.75,
          // With many points, dashes blur.
          dash: index && answer.times.length < 400 ? [5, 3] : undefined,
          spanGaps: false,
          points: { show: true, filter: () => lone(line.values) },
          value: (_, value) => numberText(value),
        })),
        ...answer.earlier.map((values, index) => ({
          label: `${answer.lines[index].label}, ${answer.earlierBy}`,
          stroke: Trebuchet.colour(colours[index % colours.length]),
          width: 1.25,
          alpha: EARLIER_ALPHA,
          spanGaps: false,
          points: { show: true, filter: () => lone(values) },
          value: (_, value) => numberText(value),
        })),
      ],
      tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), Times.zone),
      plugins: [marksPlugin(chart)],
      hooks: { setSelect: [(plot) => narrow(plot)] },
    };
  }

  const endOf = (answer) => answer.times.at(-1) + answer.stepMs;
  const firstKnown = (values) => Math.min(...values.map((each) => {
    const at = each.findIndex((value) => value != null);
    return at < 0 ? Infinity : at;
  }), Infinity);

  /** Where the time axis begins: a range that ends now shows the data there is, and ten minutes at least. */
  function beginOf(answer, first) {
    const [begin] = answer.times;
    const isLate = isLive && Number.isFinite(first) && answer.times[first] - begin > spanMs / 10;
    return isLate ? Math.max(begin, Math.min(answer.times[first], endOf(answer) - SHORTEST_MS)) : begin;
  }

  /** Single values between two gaps, drawn as points because they have no line. */
  function lone(values) {
    return [...values.keys()].filter((at) => values[at] != null && values[at - 1] == null && values[at + 1] == null);
  }

  function narrow(plot) {
    if (plot.select.width < 8) return;
    const from = Math.round(plot.posToVal(plot.select.left, "x") * 1000);
    const to = Math.round(plot.posToVal(plot.select.left + plot.select.width, "x") * 1000);
    if (to - from < 60000) return;
    const address = new URL(location.href);
    address.searchParams.delete("range");
    address.searchParams.set("from", String(from));
    address.searchParams.set("to", String(to));
    location.assign(address);
  }

  function draw(chart, answer) {
    chart.marks = answer.marks;
    chart.answer = answer;
    const values = [...answer.lines.map((line) => line.values), ...answer.earlier];
    const data = [answer.times.map((ms) => ms / 1000), ...values];
    const first = firstKnown(values);
    const isKnown = Number.isFinite(first);
    chart.from = beginOf(answer, first);
    chart.text = answer.problem || (isKnown ? "" : gettext("No history for this time."));
    chart.note.textContent = chart.text;
    chart.step.textContent = interpolate(gettext("one point = %s"), [Times.span(answer.stepMs / 1000)]);
    if (chart.from > answer.times[0]) {
      chart.step.textContent += ` · ${interpolate(gettext("since %s"), [Times.minute(answer.times[first])])}`;
    }
    if (answer.lastSampleMs) {
      chart.age.innerHTML = "";
      const age = document.createElement("time");
      age.dataset.age = String(answer.lastSampleMs);
      chart.age.append(gettext("last sample"), " ", age);
      Times.refresh(chart.age);
    }
    chart.plot?.destroy();
    chart.plot = new uPlot(options(chart, answer), data, chart.box);
  }

  async function load(chart) {
    let response;
    try {
      response = await fetch(chart.card.dataset.history, { headers: { Accept: "application/json" } });
      if (response.redirected || !response.ok) {
        throw new Error(response.redirected ? gettext("you are signed out") : interpolate(gettext("status %s"), [response.status]));
      }
      draw(chart, await response.json());
    } catch (error) {
      chart.card.dataset.stale = "true";
      chart.note.textContent = interpolate(gettext("The console isn't responding: %s."), [error.message]);
      return;
    }
    delete chart.card.dataset.stale;
  }

  /** The legend of a picture, in rows that fit its width: [label, colour, alpha, x, row] each. */
  function legendOf(chart, ctx, ratio, width) {
    const { lines, earlier, earlierBy } = chart.answer;
    const entries = lines.map((line, index) => [line.label, index, 1]);
    earlier.forEach((_, index) => entries.push([`${lines[index].label}, ${earlierBy}`, index, EARLIER_ALPHA]));
    let x = 12 * ratio;
    let row = 0;
    return entries.map(([label, index, alpha]) => {
      const wide = ctx.measureText(label).width + 30 * ratio;
      if (x > 12 * ratio && x + wide > width) [x, row] = [12 * ratio, row + 1];
      const placed = [label, index, alpha, x, row];
      x += wide;
      return placed;
    });
  }

  /** The chart as a picture: title, time range, legend, and the chart's own canvas. */
  function picture(chart) {
    if (!chart.plot) return;
    const drawn = chart.plot.ctx.canvas;
    const ratio = devicePixelRatio;
    const canvas = document.createElement("canvas");
    const ctx = canvas.getContext("2d");
    const small = `${11 * ratio}px system-ui`;
    ctx.font = small;
    const legend = legendOf(chart, ctx, ratio, drawn.width);
    const top = 52 * ratio;
    const head = top + 18 * ratio * (legend.at(-1)[4] + 1) - 6 * ratio;
    canvas.width = drawn.width;
    canvas.height = drawn.height + head;
    ctx.fillStyle = Trebuchet.colour("--surface");
    ctx.fillRect(0, 0, canvas.width, canvas.height);
    ctx.fillStyle = Trebuchet.colour("--text");
    ctx.font = `600 ${13 * ratio}px system-ui`;
    const title = `${document.querySelector("h1").textContent.trim()} · ${chart.card.querySelector("h3").textContent.trim()}`;
    // Condense text that is wider than the picture instead of cutting it off.
    const wide = canvas.width - 24 * ratio;
    ctx.fillText(title, 12 * ratio, 18 * ratio, wide);
    ctx.font = small;
    ctx.fillStyle = Trebuchet.colour("--muted");
    ctx.fillText(`${Times.exact(chart.from)} – ${Times.exact(endOf(chart.answer))} ${Times.zone}`, 12 * ratio, 36 * ratio, wide);
    for (const [label, index, alpha, x, row] of legend) {
      const y = top + 18 * ratio * row;
      ctx.globalAlpha = alpha;
      ctx.fillStyle = Trebuchet.colour(colours[index % colours.length]);
      ctx.fillRect(x, y - 8 * ratio, 9 * ratio, 9 * ratio);
      ctx.globalAlpha = 1;
      ctx.fillStyle = Trebuchet.colour("--muted");
      ctx.fillText(label, x + 14 * ratio, y, wide - 14 * ratio);
    }
    ctx.drawImage(drawn, 0, head);
    canvas.toBlob((blob) => {
      const link = document.createElement("a");
      link.href = URL.createObjectURL(blob);
      link.download = `${chart.card.dataset.file}.png`;
      link.click();
      URL.revokeObjectURL(link.href);
    });
  }

  const charts = [...section.querySelectorAll("[data-history]")].map((card) => ({
    card,
    box: card.querySelector(".chart"),
    note: card.querySelector(".chart__note"),
    step: card.querySelector(".chart__step"),
    age: card.querySelector(".chart__age"),
    marks: [],
    text: "",
    from: 0,
    plot: null,
    answer: null,
  }));
  for (const chart of charts) {
    chart.card.querySelector("[data-history-png]").addEventListener("click", () => picture(chart));
    new ResizeObserver(() => {
      if (chart.plot && chart.box.clientWidth) chart.plot.setSize({ width: chart.box.clientWidth, height: 190 });
    }).observe(chart.box);
  }
  const redraw = () => charts.forEach((chart) => chart.answer && draw(chart, chart.answer));
  document.addEventListener("trebuchet:theme", redraw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);

  const all = () => Promise.all(charts.map(load));
  if (isLive) Trebuchet.poll(spanMs <= 6 * 3600000 ? 10 : 60, all);
  else all();
});
