"use strict";
// Draws the charts of the element `data` with uPlot, in place of the static pictures. Words from results are only ever set as text.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const probe = document.createElement("span");
  probe.hidden = true;
  document.body.append(probe);
  const palette = (number) => {
    probe.className = "c" + number;
    return getComputedStyle(probe).color;
  };
  const faint = (rgb, part) => rgb.replace(/^rgb\(/, "rgba(").replace(/\)$/, ", " + part + ")");

  const short = (value) => {
    if (value == null) return "–";
    const size = Math.abs(value);
    if (size >= 1e9) return +(value / 1e9).toPrecision(3) + "G";
    if (size >= 1e6) return +(value / 1e6).toPrecision(3) + "M";
    if (size >= 1e4) return +(value / 1e3).toPrecision(3) + "k";
    return String(+value.toPrecision(size >= 1000 ? 4 : 3));
  };

  const names = (axis) => (axis.scale.names ? axis.scale.names : null);
  const element = (parent, className, text) => {
    const made = document.createElement("div");
    made.className = className;
    made.textContent = text;
    parent.append(made);
    return made;
  };

  const label = (series) => series.label + (series.source === "published" ? " (published)" : "");

  // Points of all series, at the places of any of them.
  const table = (chart) => {
    if (chart.kind === "heat") {
      const places = chart.heat.counts.map((_, column) => (column + 0.5) * chart.heat.column);
      const totals = chart.heat.counts.map((counts) => counts.reduce((sum, count) => sum + count, 0));
      return [places, totals];
    }
    if (names(chart.x)) {
      const places = names(chart.x).map((_, place) => place);
      return [places, ...chart.series.map((series) => places.map((place) => {
        const at = series.x.indexOf(place);
        return at < 0 ? null : series.y[at];
      }))];
    }
    const tables = chart.series.map((series) => [series.x, series.y]);
    return tables.length ? uPlot.join(tables) : [[]];
  };

  const drawLabels = (chart) => (plot) => {
    if (!chart.labels.length) return;
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.font = "600 " + 12 * devicePixelRatio + "px system-ui, sans-serif";
    ctx.fillStyle = color("--warn");
    ctx.textAlign = "right";
    ctx.textBaseline = "bottom";
    ctx.fillText(chart.labels.join(" · "), bbox.left + bbox.width, bbox.top - 3 * devicePixelRatio);
    ctx.restore();
  };

  const drawMarks = (chart) => (plot) => {
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.strokeStyle = ctx.fillStyle = color("--ink");
    ctx.setLineDash([2 * devicePixelRatio, 3 * devicePixelRatio]);
    ctx.font = 11 * devicePixelRatio + "px system-ui, sans-serif";
    ctx.textBaseline = "bottom";
    for (const mark of chart.marks) {
      const x = plot.valToPos(mark.at, "x", true);
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
      ctx.fillText(mark.label, x + 3 * devicePixelRatio, bbox.top + bbox.height - 2 * devicePixelRatio);
    }
    ctx.restore();
  };

  const drawCells = (chart) => (plot) => {
    const { ctx } = plot;
    const { column, bounds, counts } = chart.heat;
    const most = Math.max(...counts.flat());
    ctx.save();
    ctx.fillStyle = color("--heat");
    counts.forEach((rows, number) => {
      const left = plot.valToPos(number * column, "x", true);
      const right = plot.valToPos((number + 1) * column, "x", true);
      rows.forEach((count, row) => {
        if (!count) return;
        const bottom = plot.valToPos(bounds[row], "y", true);
        const top = plot.valToPos(bounds[row + 1], "y", true);
        ctx.globalAlpha = 0.15 + (0.85 * Math.log1p(count)) / Math.log1p(most);
        ctx.fillRect(left, top, right - left, bottom - top);
      });
    });
    ctx.restore();
  };

  const bars = (chart, number) => {
    const width = 0.8 / chart.series.length;
    return uPlot.paths.bars({
      disp: {
        x0: { unit: 1, values: (plot) => plot.data[0].map((place) => place - 0.4 + number * width) },
        size: { unit: 1, values: () => [width * 0.92] },
      },
    });
  };

  const lines = (chart) => chart.series.map((series, number) => {
    const stroke = palette(series.color);
    const published = series.source !== "measured";
    const one = {
      label: label(series),
      stroke,
      width: 2,
      dash: series.dashed ? [6, 4] : undefined,
      spanGaps: true,
      value: (_, value) => short(value),
    };
    if (chart.kind === "bars") {
      const fill = published ? faint(stroke, 0.25) : series.dashed ? faint(stroke, 0.6) : stroke;
      return { ...one, width: published ? 1 : 0, fill, paths: bars(chart, number), points: { show: false } };
    }
    if (chart.kind === "points") return { ...one, paths: () => null, points: { show: true, size: 10, fill: stroke } };
    return { ...one, points: { show: series.x.length < 2 } };
  });

  const heatLine = () => [{ label: "operations", stroke: color("--heat"), paths: () => null, points: { show: false }, scale: "count" }];

  const bounds = (values) => {
    const positive = values.filter((value) => value > 0);
    if (!positive.length) return [1, 10];
    const low = Math.floor(Math.log10(Math.min(...positive)));
    const high = Math.max(low + 1, Math.ceil(Math.log10(Math.max(...positive)) - 1e-9));
    return [10 ** low, 10 ** high];
  };

  // The same ends of the axes as in the static pictures.
  const scale = (axis, values) => {
    if (names(axis)) return { time: false, range: [-0.5, names(axis).length - 0.5] };
    if (axis.scale === "log") return { time: false, distr: 3, range: bounds(values) };
    const most = values.reduce((most, value) => Math.max(most, value), 0);
    return { time: false, range: [0, most > 0 ? most * 1.02 : 1] };
  };

  const axis = (side, own) => {
    const made = { label: own.label, stroke: color("--soft"), grid: { stroke: color("--grid"), width: 1 }, ticks: { stroke: color("--grid") } };
    if (side === "y") made.size = 64;
    made.values = (_, ticks) => ticks.map((tick) => (tick == null ? "" : short(tick)));
    if (names(own)) {
      made.splits = () => names(own).map((_, place) => place);
      made.values = () => names(own);
      made.grid = { show: false };
      made.space = 1;
      if (names(own).length > 5) Object.assign(made, { rotate: -30, size: 70 });
    }
    return made;
  };

  const draw = (figure) => {
    const chart = data.charts[+figure.dataset.document].find((one) => one.id === figure.dataset.chart);
    figure.querySelector(".plot")?.remove();
    const place = element(figure, "plot", "");
    element(place, "head", chart.title);
    element(place, "sub", chart.subtitle);
    const heat = chart.heat;
    const xs = heat ? [heat.column * heat.counts.length] : chart.series.flatMap((series) => series.x);
    const ys = heat ? heat.bounds : chart.series.flatMap((series) => series.y);
    figure.classList.add("drawn");
    const options = {
      width: Math.max(300, figure.clientWidth),
      // Above: the labels. To the right: the end of the last name.
      padding: [20, names(chart.x) ? 48 : 16, 0, 0],
      height: figure.clientWidth < 500 ? 260 : 340,
      scales: { x: scale(chart.x, xs), y: scale(chart.y, ys), count: {} },
      axes: [axis("x", chart.x), axis("y", chart.y)],
      series: [
        { label: chart.x.label, value: (_, value) => (value == null ? "–" : names(chart.x)?.[value] ?? short(value)) },
        ...(heat ? heatLine() : lines(chart)),
      ],
      hooks: { draw: [...(heat ? [drawCells(chart)] : []), drawMarks(chart), drawLabels(chart)] },
      cursor: { drag: { x: !names(chart.x), y: false } },
    };
    new uPlot(options, table(chart), place);
  };

  const drawAll = () => document.querySelectorAll("figure.chart").forEach(draw);
  drawAll();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
  let width = innerWidth;
  addEventListener("resize", () => {
    if (width === innerWidth) return;
    width = innerWidth;
    drawAll();
  });
})();
