"use strict";
// Makes an element of the page: what users named is text in it, whatever it contains.
function element(name, content = "", attributes = {}) {
  const made = document.createElement(name);
  if (content !== "") made.textContent = content;
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

// The charts: each is drawn when it comes near the view, from the rows that the filters leave.
function ngraphCharts(data, MAKERS) {
  function rowsOf(chart) {
    const rows = MAKERS[chart.rows](chart).filter((row) => chart.needs === null || row[chart.needs] !== null);
    if (chart.limits === null) return { rows, left: 0 };
    const known = [...new Set(rows.map((row) => row[chart.limits]))];
    const kept = new Set(known.slice(0, chart.most));
    return { rows: rows.filter((row) => kept.has(row[chart.limits])), left: known.length - kept.size };
  }

  // Charts

  const charts = new Map(data.charts.map((chart) => [chart.name, chart]));
  const stale = new Set(charts.keys()), near = new Set(), views = new Map();
  let turn = Promise.resolve();

  function fitted(chart, width, rows) {
    const spec = structuredClone(chart.spec);
    const narrow = width < 640;
    // A telephone scrolls rather than cut every name.
    const labels = narrow ? (chart.panel === null ? 240 : 150) : Math.min(330, width * 0.42);
    spec.config.axis.labelLimit = labels;
    spec.config.legend.columns = Math.max(1, Math.floor(width / 190));
    const inner = spec.spec && spec.spec.width;
    const panels = spec.facet ? [...new Set(rows.map((row) => row[spec.facet.field]))] : [];
    if (spec.facet) spec.facet.sort = panels;
    if (chart.panel === null) {
      spec.width = Math.max(190, width - labels - 100);
    } else if (inner && inner.step) {
      const batches = new Set(rows.map((row) => row.batch)).size;
      const title = 7 * Math.max(...panels.map((panel) => panel.length));
      spec.columns = Math.max(1, Math.floor((width - Math.min(labels, 220)) / (Math.max(inner.step * batches, title) + 24)));
    } else {
      const gap = chart.rows === "trends" || chart.metrics[0] === "max_error" ? Math.min(labels, 180) : 62;
      // A title that is longer than its panel widens its column, up to the limit of titles.
      const wide = Math.max(chart.panel, Math.min(chart.panel + 60, 7 * Math.max(...panels.map((panel) => String(panel).length))));
      spec.columns = Math.max(1, Math.floor((width - (gap > 62 ? gap : 0)) / (wide + 62)));
      if (spec.columns === 1) spec.spec.width = Math.max(150, Math.min(chart.panel * 1.5, width - gap - 40));
    }
    spec.datasets = { rows };
    return spec;
  }

  async function draw(chart) {
    stale.delete(chart.name);
    const section = document.getElementById(chart.name);
    const holder = section.querySelector(".chart"), empty = section.querySelector(".empty");
    const note = section.querySelector(".left-out");
    const { rows, left } = rowsOf(chart);
    empty.hidden = rows.length > 0;
    holder.hidden = rows.length === 0;
    note.hidden = left === 0;
    note.textContent = left ? `Shown are the first ${chart.most}; ${left.toLocaleString("en")} more are left out: choose by the filters.` : "";
    if (views.has(chart.name)) views.get(chart.name).finalize();
    views.delete(chart.name);
    holder.classList.remove("waiting");
    if (!rows.length) return;
    const place = element("div");
    holder.replaceChildren(place);
    const drawn = await vegaEmbed(place, fitted(chart, holder.clientWidth, rows), {
      mode: "vega-lite",
      renderer: "svg",
      ast: true, // expressions are interpreted: the page allows no code but its own
      logLevel: 1, // errors only: that all intervals of a chart are unbounded is no news
      actions: { export: { svg: true, png: true }, source: false, compiled: false, editor: false },
      downloadFileName: `ngraph-${chart.name}`,
    });
    views.set(chart.name, drawn);
  }

  // One after the other, so that a filter that is changed twice is drawn as it was chosen last.
  function drawNear(names = near) {
    for (const name of names) {
      turn = turn.then(() => (stale.has(name) ? draw(charts.get(name)) : null)).catch((error) => console.error(error));
    }
    return turn;
  }



  let width = document.documentElement.clientWidth, waiting = 0;
  window.addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      if (document.documentElement.clientWidth === width) return;
      width = document.documentElement.clientWidth;
      for (const name of charts.keys()) stale.add(name);
      drawNear();
    }, 150);
  });

  const observer = new IntersectionObserver((entries) => {
    for (const entry of entries) near[entry.isIntersecting ? "add" : "delete"](entry.target.id);
    drawNear();
  }, { rootMargin: "400px" });
  for (const name of charts.keys()) {
    document.querySelector(`#${name} .chart`).classList.add("waiting");
    observer.observe(document.getElementById(name));
  }
  document.getElementById("print").addEventListener("click", async () => {
    await drawNear(charts.keys());
    window.print();
  });

  return {
    redraw() {
      for (const name of charts.keys()) stale.add(name);
      drawNear();
    },
    rows: (name) => rowsOf(charts.get(name)).rows,
    drawAll: () => drawNear(charts.keys()),
    drawn: () => [...views.keys()],
  };
}
