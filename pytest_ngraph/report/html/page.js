"use strict";
// The page: filters, charts that are drawn when they come into view, and tables. All data are in the element "data".
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const { texts, columns, reasons } = data.cells;
  const cells = columns.batch.length;
  const AXES = data.filters;
  const FIRST_ROWS = 100, MORE_ROWS = 500;

  // Numbers as the terminal writes them (units.py).

  function digits(value) {
    if (value === null || !Number.isFinite(value)) return "?";
    const amount = Math.abs(value);
    if (amount >= 100 || value === 0) return value.toFixed(0);
    if (amount >= 10) return value.toFixed(1);
    if (amount >= 0.1) return value.toFixed(2);
    return amount < 1e-3 ? String(Number(value.toPrecision(2))) : value.toFixed(3);
  }

  function stepped(value, steps) {
    const [step, unit] = steps.find(([each]) => Math.abs(value) >= each) || steps[steps.length - 1];
    return `${digits(value / step)} ${unit}`;
  }

  function seconds(value) {
    if (value >= 120) {
      const whole = Math.round(value);
      return `${Math.floor(whole / 60)} min ${String(whole % 60).padStart(2, "0")} s`;
    }
    return value ? stepped(value, [[1, "s"], [1e-3, "ms"], [1e-6, "µs"], [1e-9, "ns"]]) : "0 s";
  }

  const WRITERS = {
    seconds,
    size: (value) => stepped(value, [[2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"], [1, "B"]]),
    factor: (value) => `${digits(value)}x`,
    rate: (value) => `${digits(value)} /s`,
    percent: (value) => `${digits(value)} %`,
    number: digits,
  };

  // How well outputs agree: no metrics that anybody makes claims about.
  const OUTPUTS = { max_error: "Largest error", cosine: "Cosine", centred_cosine: "Centred cosine", top1_agreement: "Top-1 agreement" };

  function write(metric, value) {
    if (value === null || value === undefined) return "?";
    if (metric === "max_error") return value === 0 ? "0" : value.toExponential(1);
    if (metric in OUTPUTS) return value.toFixed(metric === "top1_agreement" ? 2 : 5);
    return WRITERS[data.metrics[metric].kind](value);
  }

  function interval(metric, numbers, at) {
    return numbers.low && numbers.low[at] !== null ? `[${write(metric, numbers.low[at])}, ${write(metric, numbers.high[at])}]` : "";
  }

  // Rows: the same ones that content.py makes for figures.

  const chosen = Object.fromEntries(AXES.map((axis) => [axis, null])); // null: all
  const shown = new Uint8Array(cells).fill(1);
  const text = (name, cell) => texts[name][columns[name][cell]];
  const of = (axis, cell) => (axis in texts ? text(axis, cell) : columns[axis][cell]);

  function choose() {
    for (let cell = 0; cell < cells; cell++) {
      shown[cell] = AXES.every((axis) => chosen[axis] === null || chosen[axis].has(of(axis, cell))) ? 1 : 0;
    }
  }

  function keeps(row) {
    if (chosen.model !== null && row.first !== undefined) {
      if (!chosen.model.has(row.first) || !chosen.model.has(row.second)) return false;
    }
    return AXES.every((axis) => chosen[axis] === null || row[axis] === undefined || row[axis] === null || chosen[axis].has(row[axis]));
  }

  function rowOf(cell) {
    const row = { batch: columns.batch[cell], depth: columns.depth[cell], width: columns.width[cell] };
    for (const name in texts) row[name] = text(name, cell);
    for (const axis of AXES) row[axis] = of(axis, cell);
    row.map = `${row.compiler} · ${row.blocks}`;
    return row;
  }

  function estimates(metrics) {
    const rows = [];
    for (const metric of metrics) {
      const numbers = data.estimates[metric];
      if (numbers === undefined) continue;
      const what = OUTPUTS[metric] ?? data.metrics[metric].title;
      numbers.cell.forEach((cell, at) => {
        if (!shown[cell]) return;
        const row = { ...rowOf(cell), metric, what, value: numbers.value[at] };
        if (metric === "max_error") {
          row.value = Math.max(row.value, data.smallest_error);
          row.limit = data.limits[row.precision] ?? null;
        } else {
          row.low = numbers.low[at];
          row.high = numbers.high[at];
          row.text = `${write(metric, row.value)} ${interval(metric, numbers, at)}`;
        }
        rows.push(row);
      });
    }
    return rows;
  }

  const MAKERS = {
    estimates: (chart) => estimates(chart.metrics),
    trends: (chart) => estimates(chart.metrics).map((row) => ({ ...row, neutral: row.metric === "slope" ? 0 : 1 })),
    verdicts: () => data.verdicts.filter((row) => keeps(row) && row.estimate !== null),
    reversals: () => data.reversals.filter(keeps),
  };

  const charts = ngraphCharts(data, MAKERS);

  function refresh() {
    charts.redraw();
    for (const fill of tables) fill();
    status();
  }

  // Tables

  const tables = [];

  function table(section, headings, rowsNow) {
    const holder = document.querySelector(`#${section} .table`);
    let sorted = null, rising = true, limit = FIRST_ROWS;
    holder.tabIndex = 0;
    holder.setAttribute("role", "region");
    holder.setAttribute("aria-labelledby", `${section}-title`);

    function fill() {
      const rows = rowsNow();
      const used = headings.filter((heading) => heading.used === undefined || heading.used());
      if (sorted !== null) {
        const key = sorted.key, sign = rising ? 1 : -1;
        const place = (value) => (value === null || value === undefined || value === "" ? null : value);
        rows.sort((one, other) => {
          const mine = place(key(one)), theirs = place(key(other));
          if (mine === null || theirs === null) return (mine === null) - (theirs === null);
          if (typeof mine === "string" && typeof theirs === "string")
            return sign * mine.localeCompare(theirs, "en", { numeric: true });
          return sign * (mine < theirs ? -1 : mine > theirs ? 1 : 0);
        });
      }
      holder.replaceChildren();
      if (!rows.length) return;
      const whole = element("table"), head = element("tr"), body = element("tbody");
      for (const heading of used) {
        const cell = element("th", "", { scope: "col", ...(heading.number ? { class: "number" } : {}) });
        const button = element("button", heading.title, { type: "button" });
        button.addEventListener("click", () => {
          rising = sorted === heading ? !rising : !heading.number;
          sorted = heading;
          fill();
          holder.querySelectorAll("th button")[used.indexOf(heading)].focus();
        });
        if (sorted === heading) cell.setAttribute("aria-sort", rising ? "ascending" : "descending");
        cell.append(button);
        head.append(cell);
      }
      for (const row of rows.slice(0, limit)) {
        const line = element("tr");
        for (const heading of used) {
          const [main, beside] = [heading.show(row)].flat();
          const cell = element("td", main ?? "", heading.look ? { class: heading.look(row) } : {});
          if (beside) cell.append(" ", element("small", beside));
          line.append(cell);
        }
        body.append(line);
      }
      const top = element("thead");
      top.append(head);
      whole.append(top, body);
      holder.append(whole);
      if (rows.length > limit) {
        const more = element("button", `Show more (${(rows.length - limit).toLocaleString("en")} left)`, { type: "button", class: "more" });
        more.addEventListener("click", () => { limit += MORE_ROWS; fill(); });
        holder.append(more, element("p", `The first ${limit} of ${rows.length} rows`, { class: "printed" }));
      }
    }
    tables.push(fill);
  }

  const plain = (title, name, look) => ({ title, key: (row) => row[name], show: (row) => row[name] ?? "", look: look && (() => look) });
  const verdict = { title: "verdict", key: (row) => row.verdict, show: (row) => (row.verdict ? `${data.signs[row.verdict] ?? ""} ${row.verdict}` : ""), look: (row) => row.verdict ?? "" };

  function resultColumns() {
    const places = {};
    const RESULTS = ["throughput", "speedup", "ase", "bsr", "latency", "cpu_percent", "cpu_reduction_percent", "compile_seconds", "tuning_seconds", "first_call_seconds", "load_seconds", "peak_memory_bytes", "model_bytes", "slope", "retention", "friction", ...Object.keys(OUTPUTS)];
    const metrics = RESULTS.filter((metric) => metric in data.estimates).map((metric) => {
      const numbers = data.estimates[metric], place = new Int32Array(cells).fill(-1);
      numbers.cell.forEach((cell, at) => { place[cell] = at; });
      places[metric] = place;
      const value = (row) => (place[row.cell] < 0 ? null : numbers.value[place[row.cell]]);
      return {
        title: OUTPUTS[metric] ?? data.metrics[metric].title,
        number: true,
        key: value,
        show: (row) => (value(row) === null ? "" : [write(metric, value(row)), interval(metric, numbers, place[row.cell])]),
        look: () => "number",
      };
    });
    return [
      { title: "what", key: (row) => text("subject", row.cell), show: (row) => text("subject", row.cell) },
      { title: "batch", number: true, key: (row) => columns.batch[row.cell], show: (row) => String(columns.batch[row.cell]), look: () => "number" },
      { title: "compiler", key: (row) => text("compiler", row.cell), show: (row) => [text("compiler", row.cell), data.baselines.includes(text("compiler", row.cell)) ? "baseline" : ""] },
      ...metrics,
      { title: "outcome", key: (row) => columns.outcome[row.cell], show: (row) => [columns.outcome[row.cell], reasons[row.cell] ?? ""] },
      { ...verdict, key: (row) => columns.verdict[row.cell], show: (row) => verdict.show({ verdict: columns.verdict[row.cell] }), look: (row) => columns.verdict[row.cell] ?? "" },
    ];
  }

  table("results", resultColumns(), () => [...shown.keys()].filter((cell) => shown[cell]).map((cell) => ({ cell })));
  table("claims", [verdict, plain("claim", "claim", "text"), plain("estimate", "text"), plain("bound", "bound"), { ...plain("launches", "launches", "number"), number: true }, plain("state", "state", "text"), plain("test", "test", "text"), plain("reason", "reason", "text")], () => data.verdicts.filter(keeps));
  table("placement", [plain("device", "device"), plain("compiler", "compiler"), plain("what ran", "ran", "text"), { ...plain("cells", "cells", "number"), number: true }], () => data.placement.filter(keeps));
  table("environment", [plain("device", "device"), plain("fact", "what"), plain("value", "is", "text")], () => data.environment.filter(keeps));

  // Filters

  const bar = document.getElementById("filters"), said = element("output", "", { "aria-live": "polite" });

  function status() {
    const count = shown.reduce((sum, one) => sum + one, 0);
    said.textContent = `${count.toLocaleString("en")} of ${cells.toLocaleString("en")} cells`;
  }

  function valuesOf(axis) {
    if (axis === "compiler") return Object.keys(data.colours);
    if (axis in texts) return texts[axis];
    return [...new Set(columns[axis])].sort((one, other) => (one > other ? 1 : one < other ? -1 : (one !== null) - (other !== null)));
  }

  function filter(axis) {
    const title = axis.replaceAll("_", " "), named = (value) => (value === null ? "not set" : String(value));
    const values = valuesOf(axis), group = element("details"), field = element("fieldset"), summary = element("summary");
    const boxes = values.map((value) => {
      const label = element("label"), box = element("input", "", { type: "checkbox", value: String(value), name: axis });
      box.checked = true;
      box.addEventListener("change", apply);
      label.append(box);
      if (axis === "compiler") {
        const dot = element("span", "", { class: "dot", "aria-hidden": "true" });
        dot.style.background = data.colours[value];
        label.append(dot);
      }
      label.append(element("span", named(value)));
      field.append(label);
      return box;
    });

    function apply() {
      const kept = values.filter((_, at) => boxes[at].checked);
      chosen[axis] = kept.length === values.length ? null : new Set(kept);
      summary.textContent = chosen[axis] === null ? `${title}: all` : `${title}: ${kept.length === 1 ? named(kept[0]) : `${kept.length} of ${values.length}`}`;
      group.classList.toggle("narrowed", chosen[axis] !== null);
      choose();
      refresh();
    }

    function all(state) {
      boxes.forEach((box) => { if (!box.parentElement.hidden) box.checked = state; });
      apply();
    }

    summary.textContent = `${title}: all`;
    const pick = element("div", "", { class: "pick" });
    for (const [name, state] of [["All", true], ["None", false]]) {
      const button = element("button", name, { type: "button" });
      button.addEventListener("click", () => all(state));
      pick.append(button);
    }
    field.prepend(element("legend", `Filter by ${title}`), pick);
    if (values.length > 12) {
      const search = element("input", "", { type: "search", placeholder: `Find a ${title}`, "aria-label": `Find a ${title}` });
      search.addEventListener("input", () => {
        boxes.forEach((box, at) => { box.parentElement.hidden = !String(values[at]).toLowerCase().includes(search.value.toLowerCase()); });
      });
      pick.after(search);
    }
    group.append(summary, field);
    group.addEventListener("keydown", (event) => {
      if (event.key === "Escape") { group.open = false; summary.focus(); }
    });
    group.addEventListener("toggle", () => {
      if (group.open) bar.querySelectorAll("details[open]").forEach((other) => { other.open = other === group; });
    });
    return group;
  }

  for (const axis of AXES) bar.append(filter(axis));
  bar.append(said);
  document.addEventListener("click", (event) => {
    if (!bar.contains(event.target)) bar.querySelectorAll("details[open]").forEach((group) => { group.open = false; });
  });

  // Theme, print, size

  const themeButton = document.getElementById("theme"), root = document.documentElement;
  const prefersDark = matchMedia("(prefers-color-scheme: dark)");

  function isDark() {
    return root.dataset.theme ? root.dataset.theme === "dark" : prefersDark.matches;
  }

  function tellTheme() {
    themeButton.textContent = isDark() ? "Light" : "Dark";
    themeButton.setAttribute("aria-pressed", String(isDark()));
  }

  themeButton.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    tellTheme();
  });
  prefersDark.addEventListener("change", tellTheme);
  for (const fill of tables) fill();
  status();
  tellTheme();
  // For a look at the numbers from the console, and for tests.
  window.ngraph = { rows: charts.rows, drawAll: charts.drawAll, drawn: charts.drawn };
})();
