"use strict";
// The page: filters, charts that are drawn when they come into view, and tables. All data are in the element "data".
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const { texts, columns, reasons } = data.cells;
  const cells = columns.batch.length;
  const AXES = [...data.filters, "outcome", "verdict"];
  const address = ngraphAddress();

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

  const shown = new Uint8Array(cells).fill(1), everything = new Uint8Array(cells).fill(1);
  const text = (name, cell) => texts[name][columns[name][cell]];
  const of = (axis, cell) => (axis in texts ? text(axis, cell) : columns[axis][cell]);

  // Names and numbers in the order in which people expect them, what is not set last.
  function natural(one, other) {
    if (one === null || other === null) return (one === null) - (other === null);
    return typeof one === "number" ? one - other : String(one).localeCompare(String(other), "en", { numeric: true });
  }

  function valuesOf(axis) {
    if (axis === "compiler") return Object.keys(data.colours);
    const values = axis in texts ? texts[axis] : columns[axis];
    const more = axis === "verdict" ? data.verdicts.map((row) => row.verdict) : [];
    return [...new Set([...values, ...more])].sort(natural);
  }

  const filters = ngraphFilters(document.getElementById("filters"), AXES, address, valuesOf, data.colours, () => refresh());
  const chosen = filters.chosen;

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
    row.cell = cell;
    return row;
  }

  function estimates(metrics, visible = shown) {
    const rows = [];
    for (const metric of metrics) {
      const numbers = data.estimates[metric];
      if (numbers === undefined) continue;
      const what = OUTPUTS[metric] ?? data.metrics[metric].title;
      numbers.cell.forEach((cell, at) => {
        if (!visible[cell]) return;
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

  // After how many calls compiling has paid, where it ever does.
  function breakEven(visible) {
    return data.break_even.flatMap((calls, cell) => (!visible[cell] || calls === null || calls === "never" ? [] : [{
      ...rowOf(cell), what: "Pays after", value: Math.max(1, calls), low: null, high: null,
      text: `${calls.toLocaleString("en")} ${calls === 1 ? "call" : "calls"}`,
    }]));
  }

  // How the times of one cell are distributed: that which was chosen, else the first that has any.
  let looked = data.spreads.findIndex((spread) => spread !== null);

  function visits() {
    if (looked < 0) return [];
    const [launches, percentiles] = data.spreads[looked];
    const row = (launch, what, value) => ({ launch, what, value, text: seconds(value) });
    return [
      ...launches.flatMap(([number, times]) => times.map((value) => row(number, "visit", value))),
      ...percentiles.map((value, at) => row(null, ["p50", "p90", "p99"][at], value)),
    ];
  }

  const OF_CELL = {
    cells: () => data.spreads.map((spread, cell) => (spread !== null && shown[cell] ? cell : -1)).filter((cell) => cell >= 0),
    name: (cell) => `${text("compiler", cell)}, ${text("subject", cell)} batch${columns.batch[cell]}`,
    chosen: () => looked,
    choose: (cell) => { looked = cell; },
    about(cell) {
      const [launches, , samples, calls, state] = data.spreads[cell];
      const each = calls === 1 ? "single calls" : calls ? `means of ${calls.toLocaleString("en")} calls` : "means of several calls";
      return `${launches.length} ${launches.length === 1 ? "launch" : "launches"}; percentiles over ${samples.toLocaleString("en")} samples, which are ${each}${state ? `; state of the machine: ${state}` : ""}.`;
    },
  };

  // Speed-ups of stacks, with the slope and the retention of each written at the end of its line.
  function depths(visible) {
    const [slopes, kept] = ["slope", "retention"].map((metric) => new Map(estimates([metric], visible).map((row) => [`${row.compiler}\n${row.stack}`, row.value])));
    return estimates(["speedup"], visible).map((row) => {
      const stack = `${row.compiler}\n${row.stack}`;
      if (!slopes.has(stack) || !kept.has(stack)) return { ...row, label: row.compiler };
      const slope = slopes.get(stack).toFixed(3);
      return { ...row, label: `${row.compiler} ${slope.startsWith("-") ? "" : "+"}${slope}/layer, ${kept.get(stack).toFixed(2)} kept` };
    });
  }

  const MAKERS = {
    estimates: (chart) => estimates(chart.metrics),
    verdicts: () => data.verdicts.filter((row) => keeps(row) && row.estimate !== null),
    reversals: () => data.reversals.filter(keeps),
    scores: () => data.scores.filter(keeps),
    break_even: () => breakEven(shown),
    depths: () => depths(shown),
    visits: () => visits(),
  };

  // How many rows a chart would have without any filter.
  const WITHOUT_FILTERS = {
    estimates: (chart) => estimates(chart.metrics, everything),
    verdicts: () => data.verdicts.filter((row) => row.estimate !== null),
    reversals: () => data.reversals,
    scores: () => data.scores,
    break_even: () => breakEven(everything),
    depths: () => depths(everything),
    visits: () => visits(),
  };

  const charts = ngraphCharts(data, MAKERS, OF_CELL);

  const tables = ngraphTables(address), table = tables.table;

  function refresh() {
    choose();
    charts.redraw();
    tables.fill();
    hide();
    count();
    sayWhatIsHidden();
  }

  // Tables

  const plain = (title, name, look) => ({ title, key: (row) => row[name], show: (row) => row[name] ?? "", look: look && (() => look) });
  const verdict = { title: "verdict", key: (row) => row.verdict, show: (row) => (row.verdict ? `${data.signs[row.verdict] ?? ""} ${row.verdict}` : ""), look: (row) => row.verdict ?? "" };

  // The name of a cell that has times shows how they are distributed.
  function looker(row) {
    const has = charts.chooseCell !== undefined && data.spreads[row.cell] !== null;
    return has ? { says: "Show its launches, visits and percentiles", run: () => charts.chooseCell(row.cell, true) } : null;
  }

  function resultColumns() {
    const places = {};
    const RESULTS = ["throughput", "speedup", "ase", "bsr", "latency", "cpu_percent", "cpu_reduction_percent", "compile_seconds", "tuning_seconds", "first_call_seconds", "load_seconds", "peak_memory_bytes", "model_bytes", "slope", "retention", "friction", ...Object.keys(OUTPUTS)];
    const NEVER = "never", titleOf = (metric) => OUTPUTS[metric] ?? data.metrics[metric].title + (data.metrics[metric].unit ? ` [${data.metrics[metric].unit}]` : "");
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
        columns: numbers.low ? [titleOf(metric), `${titleOf(metric)} low`, `${titleOf(metric)} high`] : [titleOf(metric)],
        csv: (row) => (numbers.low ? ["value", "low", "high"] : ["value"]).map((name) => [name, place[row.cell] < 0 ? null : numbers[name][place[row.cell]]]),
      };
    });
    const breakEven = {
      title: "Pays after",
      says: "Calls after which compiling and tuning are won back against the baseline",
      number: true,
      used: () => data.break_even.some((calls) => calls !== null),
      key: (row) => (data.break_even[row.cell] === NEVER ? Infinity : data.break_even[row.cell]),
      show: (row) => { const calls = data.break_even[row.cell]; return calls === null ? "" : calls === NEVER ? "never" : [calls.toLocaleString("en"), calls === 1 ? "call" : "calls"]; },
      look: () => "number",
      columns: ["Pays after [calls]"],
      csv: (row) => [["", data.break_even[row.cell]]],
    };
    return [
      { title: "what", key: (row) => text("subject", row.cell), show: (row) => text("subject", row.cell), act: looker },
      { title: "batch", number: true, key: (row) => columns.batch[row.cell], show: (row) => String(columns.batch[row.cell]), look: () => "number" },
      { title: "compiler", key: (row) => text("compiler", row.cell), show: (row) => [text("compiler", row.cell), data.baselines.includes(text("compiler", row.cell)) ? "baseline" : ""] },
      ...metrics,
      breakEven,
      { title: "outcome", columns: ["outcome", "reason"], csv: (row) => [["", columns.outcome[row.cell]], ["", reasons[row.cell] ?? ""]], key: (row) => columns.outcome[row.cell], show: (row) => [columns.outcome[row.cell], reasons[row.cell] ?? ""] },
      { ...verdict, key: (row) => columns.verdict[row.cell], show: (row) => verdict.show({ verdict: columns.verdict[row.cell] }), look: (row) => columns.verdict[row.cell] ?? "" },
    ];
  }

  const CLAIMS = [
    { ...plain("claim", "about", "text"), link: (row) => (row.cell === null ? null : `#cell-${row.cell}`) },
    verdict,
    plain("measured [interval]", "text"),
    plain("bound", "bound"),
    { ...plain("off by", "off"), key: (row) => row.estimate, says: "Sorted by tolerances from the bound", columns: ["off by", "tolerances from the bound"], csv: (row) => [["", row.off], ["", row.estimate]] },
    { ...plain("launches", "launches", "number"), number: true },
    { ...plain("state", "state"), used: () => data.verdicts.some((row) => row.state) },
    plain("why", "reason", "text"),
    plain("test", "test", "text"),
  ];
  const WORST = new Set(data.worst), claims = (isWorst) => data.verdicts.filter((row) => keeps(row) && WORST.has(row.verdict) === isWorst);

  table("results", resultColumns(), () => [...shown.keys()].filter((cell) => shown[cell]).map((cell) => ({ cell })), { name: (row) => `cell-${row.cell}` });
  table("claims", CLAIMS, () => claims(true));
  table("others", CLAIMS, () => claims(false));
  table("placement", [plain("compiler", "compiler"), plain("device", "device"), plain("what ran", "ran", "text"), { ...plain("cells", "cells", "number"), number: true }], () => data.placement.filter(keeps));
  table("environment", [plain("fact", "what"), plain("device", "device"), plain("value", "is", "text")], () => data.environment.filter(keeps));

  // What stands in the file already: rows and columns that the filters leave, and counts of them.

  let board = address.word("scoreboard");

  function hide() {
    for (const one of document.querySelectorAll("#not-run [data-model], #scoreboard [data-compiler], #not-run [data-compiler]")) {
      one.hidden = !keeps(one.dataset);
    }
    for (const one of document.querySelectorAll("#scoreboard table")) {
      one.hidden = !keeps(one.dataset) || (board !== null && one.dataset.device !== board);
    }
    const others = AXES.some((axis) => axis !== "device" && axis !== "compiler" && chosen[axis] !== null);
    document.getElementById("scoreboard-note").hidden = !others;
  }

  function boardSwitch() {
    const devices = [...document.querySelectorAll("#scoreboard table")].map((one) => one.dataset.device);
    if (!devices.includes(board)) board = null;
    if (devices.length < 2) return;
    const group = element("div", "", { class: "switch", role: "group", "aria-label": "Devices of the scoreboard" });
    for (const [name, device] of [["all devices", null], ...devices.map((each) => [each, each])]) {
      const button = element("button", name, { type: "button", "aria-pressed": String(board === device) });
      button.addEventListener("click", () => {
        board = device;
        address.say("scoreboard", device);
        for (const other of group.children) other.setAttribute("aria-pressed", String(other === button));
        hide();
      });
      group.append(button);
    }
    document.querySelector("#scoreboard .table").before(group);
  }

  function count() {
    const found = data.verdicts.filter(keeps);
    for (const box of document.querySelectorAll(".count")) {
      const verdict = box.dataset.verdict;
      box.querySelector("b").textContent = found.filter((row) => row.verdict === verdict).length.toLocaleString("en");
    }
    const some = claims(false), folded = document.getElementById("others"), none = document.getElementById("no-worst");
    folded.hidden = !some.length;
    const held = some.filter((row) => row.verdict === "pass").length, rest = some.length - held;
    const claim = (number, one, many) => `${number.toLocaleString("en")} ${number === 1 ? `claim ${one}` : `claims ${many}`}`;
    document.getElementById("others-title").textContent = [held ? claim(held, "that holds", "that hold") : "", rest ? claim(rest, "not judged", "not judged") : ""].filter(Boolean).join(" and ");
    const hidden = data.verdicts.filter((row) => WORST.has(row.verdict)).length - claims(true).length;
    none.hidden = claims(true).length > 0 || (!hidden && !data.verdicts.length);
    none.replaceChildren(hidden ? `The filters hide ${claim(hidden, "that does not hold", "that do not hold")}. ` : "No claim fails or is undecided.", ...(hidden ? [clearButton()] : []));
  }

  function clearButton() {
    const button = element("button", "Clear the filters", { type: "button" });
    button.addEventListener("click", filters.clearAll);
    return button;
  }

  // A chart without rows says whether there are none or the filters hide them; charts.js shows and hides the words.
  const usual = new Map();

  function sayWhatIsHidden() {
    for (const chart of data.charts) {
      const place = document.querySelector(`#${chart.name} .empty`);
      if (place === null || !(chart.rows in WITHOUT_FILTERS)) continue;
      if (!usual.has(chart.name)) {
        const rows = WITHOUT_FILTERS[chart.rows](chart).filter((row) => chart.needs === null || row[chart.needs] !== null);
        usual.set(chart.name, { rows: rows.length, words: place.textContent });
      }
      const { rows, words } = usual.get(chart.name);
      if (filters.isOn() && rows) {
        place.replaceChildren(`The filters hide what was measured of this: ${rows.toLocaleString("en")} ${rows === 1 ? "value" : "values"}. `, clearButton());
      } else {
        place.textContent = words;
      }
    }
    const left = shown.reduce((sum, one) => sum + one, 0);
    filters.say(`${left.toLocaleString("en")} of ${cells.toLocaleString("en")} cells`);
    document.getElementById("of-all").hidden = !filters.isOn();
  }

  // Links: what is linked stays in view while charts above it are drawn, until the reader moves on.

  let held = null, until = 0;

  function hold(hash) {
    const id = decodeURIComponent(hash.slice(1));
    const cell = /^cell-(\d+)$/.exec(id);
    if (cell && Number(cell[1]) < cells) {
      if (!shown[Number(cell[1])]) filters.clearAll();
      tables.reveal("results", id);
    }
    document.querySelectorAll("[aria-current]").forEach((one) => one.removeAttribute("aria-current"));
    held = document.getElementById(id);
    until = performance.now() + 4000;
    if (held === null) return;
    if (cell) held.setAttribute("aria-current", "true");
    for (let one = held; one !== null; one = one.parentElement) if (one.tagName === "DETAILS") one.open = true;
    held.scrollIntoView({ block: cell ? "center" : "start", behavior: "instant" });
  }

  function anchor() {
    try { hold(location.hash); } catch { held = null; /* An address that nobody can decode leads nowhere. */ }
  }

  new ResizeObserver(() => {
    if (held === null || !held.isConnected || performance.now() > until) return;
    held.scrollIntoView({ block: held.tagName === "TR" ? "center" : "start", behavior: "instant" });
  }).observe(document.body);
  for (const kind of ["wheel", "touchstart", "keydown", "pointerdown"]) {
    window.addEventListener(kind, () => { held = null; }, { passive: true, capture: true });
  }
  window.addEventListener("hashchange", anchor);
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.('a[href^="#"]');
    // The same link twice is no change of the address.
    if (link && link.getAttribute("href") === location.hash) anchor();
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
  boardSwitch();
  refresh();
  tellTheme();
  if (location.hash.length > 1) anchor();
  // For a look at the numbers from the console, and for tests.
  window.ngraph = { ...charts, csv: tables.csv };
})();
