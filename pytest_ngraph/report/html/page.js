"use strict";
// The page of one run: its claims, what could not run, its scoreboard, its cells and its charts.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const address = ngraphAddress(), cells = ngraphCells(data, address, () => refresh());
  const { AXES, chosen, columns, everything, filters, keeps, shown, text } = cells;
  const board = ngraphBoard(data, cells), column = ngraphColumns(data, cells), { plain, verdict } = column;

  // How the times of one cell are distributed: that which was chosen, else the first that has any.
  let looked = data.spreads.findIndex((spread) => spread !== null);

  function visits() {
    if (looked < 0) return [];
    const [launches, percentiles] = data.spreads[looked];
    const row = (launch, what, value) => ({ launch, what, value, text: cells.seconds(value) });
    return [
      ...launches.flatMap(([number, times]) => times.map((value) => row(number, "visit", value))),
      ...percentiles.map((value, at) => row(null, SHARES[at], value)),
    ];
  }

  // A percentile of the latency by how many calls arrive a second.
  const SHARES = ["p50", "p90", "p99"];

  function loads(chart, visible) {
    return chart.metrics.flatMap((what) => data.loads.cells.filter(([cell]) => visible[cell]).map(([cell, rate, name]) => {
      const value = data.spreads[cell][1][SHARES.indexOf(what)];
      return { ...cells.rowOf(cell), rate, served: data.loads.names[name], metric: what, what, value, low: null, high: null, text: cells.seconds(value) };
    }));
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

  const of = (name, is = () => true) => (_, visible = shown) => data[name].filter((row) => (visible === everything || keeps(row)) && is(row));
  const ROWS = {
    ...cells.ROWS,
    verdicts: of("verdicts", (row) => row.estimate !== null),
    reversals: of("reversals"),
    scores: (_, visible = shown) => board.rows(visible === everything),
    loads: (chart, visible = shown) => loads(chart, visible),
    capacities: (_, visible = shown) => data.capacities.filter((row) => visible[row.cell]),
    visits,
  };

  const charts = ngraphCharts(data, ROWS, OF_CELL);

  const tables = ngraphTables(address), table = tables.table;

  // Shows the row of a cell, wherever it is.
  function reveal(id) {
    const cell = /^cell-(\d+)$/.exec(id);
    if (!cell || Number(cell[1]) >= cells.count) return false;
    if (!shown[Number(cell[1])]) filters.clearAll();
    return tables.reveal("results", id);
  }

  const frame = ngraphFrame(data, cells, ROWS, reveal);

  function refresh() {
    cells.choose();
    charts.redraw();
    tables.fill();
    hide();
    hideFigures("fronts");
    hideFigures("layers");
    hideFigures("stacks");
    fillBoard();
    count();
    frame.sayWhatIsHidden();
  }

  // Tables

  // The name of a cell that has times shows how they are distributed.
  function looker(row) {
    const has = charts.chooseCell !== undefined && data.spreads[row.cell] !== null;
    return has ? { says: "Show its launches, visits and percentiles", run: () => charts.chooseCell(row.cell, true) } : null;
  }

  function resultColumns() {
    // Of names that only a model knows: accuracy:top1.
    const NAMED = Object.keys(data.estimates).filter((metric) => metric.includes(":"));
    const RESULTS = ["throughput", "speedup", "ase", "bsr", "latency", "time_to_first_token", "time_per_token", "tokens_per_second", "sequence_scaling", "cpu_percent", "cpu_reduction_percent", "compile_seconds", "tuning_seconds", "first_call_seconds", "load_seconds", "new_shape_seconds", "peak_memory_bytes", "run_peak_memory_bytes", "peak_gpu_memory_bytes", "gpu_utilisation_percent", "joules_per_sample", "joules_above_idle", "busy_watts", "idle_watts", "model_bytes", "parameters_removed_percent", "macs_removed_percent", "sparsity_percent", "packed_bytes", "sparse_bytes", "slope", "retention", "friction", ...NAMED, ...Object.keys(cells.OUTPUTS)];
    const NEVER = "never", metrics = RESULTS.filter((metric) => metric in data.estimates).map((metric) => column.ofMetric(metric));
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
      column.outcome(),
      { ...verdict, key: (row) => columns.verdict[row.cell], show: (row) => column.signed(columns.verdict[row.cell]), look: (row) => columns.verdict[row.cell] ?? "" },
    ];
  }

  const CLAIMS = [
    { ...plain("claim", "about", "text"), link: (row) => (row.cell === null ? null : `#cell-${row.cell}`) },
    verdict,
    plain("measured [interval]", "text"),
    plain("bound", "bound"),
    { ...plain("off by", "off"), key: (row) => row.estimate, says: "Sorted by tolerances from the bound", columns: ["off by", "tolerances from the bound"], csv: (row) => [["", row.off], ["", row.estimate]] },
    plain("why", "reason", "text"),
    { ...plain("launches", "launches", "number"), number: true },
    { ...plain("state", "state"), used: () => data.verdicts.some((row) => row.state) },
    plain("test", "test", "text"),
  ];
  const WORST = new Set(data.worst), claims = (isWorst) => data.verdicts.filter((row) => keeps(row) && WORST.has(row.verdict) === isWorst);

  table("results", resultColumns(), () => [...shown.keys()].filter((cell) => shown[cell]).map((cell) => ({ cell })), { name: (row) => `cell-${row.cell}` });
  table("claims", CLAIMS, () => claims(true));
  table("others", CLAIMS, () => claims(false));
  table("placement", [plain("compiler", "compiler"), plain("device", "device"), plain("what ran", "ran", "text"), { ...plain("cells", "cells", "number"), number: true }], () => data.placement.map((row) => ({ ...row, cells: row.of.filter((cell) => shown[cell]).length })).filter((row) => row.cells));
  table("environment", [plain("fact", "what"), plain("device", "device"), plain("value", "is", "text")], () => data.environment.filter(keeps));

  document.querySelectorAll("#fronts .table, #stacks .table, #history .table, #layers .table").forEach(tables.standing);

  // What could not run, as the file has it already: what of it the filters leave.

  function hide() {
    const missing = document.getElementById("not-run");
    if (missing === null) return;
    for (const one of missing.querySelectorAll("[data-model], [data-compiler], [data-outcome]")) one.hidden = !keeps(one.dataset);
    for (const one of missing.querySelectorAll("[data-cells]")) {
      const mine = one.dataset.cells.split(" ").map(Number), left = mine.filter((cell) => shown[cell]);
      one.hidden = !left.length;
      const small = one.querySelector("small");
      small.dataset.whole ??= small.textContent;
      const batches = [...new Set(left.map((cell) => columns.batch[cell]))].sort((one, other) => one - other);
      small.textContent = left.length === mine.length ? small.dataset.whole : `${left.length.toLocaleString("en")} of these that the filters leave: batch ${batches.join(", ")}`;
    }
    for (const row of missing.querySelectorAll("tbody tr")) row.hidden ||= row.querySelector("td:not([hidden]) > div:not([hidden])") === null;
    const isEmpty = missing.querySelector("tbody tr:not([hidden])") === null;
    missing.querySelector(".table").hidden = isEmpty;
    missing.querySelector(".empty").hidden = !isEmpty;
  }

  // Fronts and what ran stand in the file as well. Their numbers are of the whole run: only what is shown of them is less.

  function hideFigures(id) {
    const section = document.getElementById(id);
    if (section === null) return;
    for (const one of section.querySelectorAll("[data-cell]")) one.toggleAttribute("hidden", !shown[Number(one.dataset.cell)]);
    const figures = [...section.querySelectorAll("figure")];
    for (const figure of figures) {
      if (figure.querySelector("tbody [data-cell]") !== null) figure.hidden = figure.querySelector("tbody [data-cell]:not([hidden])") === null;
    }
    section.querySelector(".empty").hidden = figures.some((figure) => !figure.hidden);
  }

  // The scoreboard of what the filters leave

  let onBoard = address.word("scoreboard");

  function fillBoard() {
    const whole = board.scores(true), found = board.scores(), narrowed = AXES.filter((axis) => chosen[axis] !== null);
    const note = document.getElementById("scoreboard-note"), holder = document.querySelector("#scoreboard .table");
    if (!whole.length) return;
    note.hidden = narrowed.every((axis) => axis === "device" || axis === "compiler");
    note.textContent = board.isByResult()
      ? "The means are of the cells that the filters leave. These were chosen by outcome or verdict, so by what was measured of them: no interval would hold, and there is no claim."
      : "Means and intervals are of the cells that the filters leave.";
    const devices = [...new Set(found.map((score) => score.device))].filter((device) => onBoard === null || device === onBoard);
    if (!devices.length) holder.replaceChildren(frame.hiddenWords("The filters leave nothing that has a speed-up."));
    else holder.replaceChildren(...devices.map((device) => tableOf(device, found.filter((score) => score.device === device))));
  }

  function tableOf(device, found) {
    const families = [...new Set(found.map((score) => score.family))].sort((one, other) => (one !== board.ALL) - (other !== board.ALL) || naturally(one, other));
    const baselines = [...new Set(found.map((score) => score.baseline))], rows = new Map();
    for (const score of found) {
      const key = JSON.stringify([score.compiler, score.baseline]);
      rows.set(key, [...(rows.get(key) ?? []), score]);
    }
    const whole = element("table", "", { "data-device": device }), top = element("thead"), head = element("tr"), body = element("tbody");
    for (const name of ["compiler", ...families]) head.append(element("th", name, { scope: "col" }));
    for (const mine of rows.values()) {
      const [{ compiler, baseline }] = mine, line = element("tr", "", { "data-compiler": compiler });
      line.append(element("th", baselines.length > 1 ? `${compiler} over ${baseline}` : compiler, { scope: "row" }));
      for (const family of families) line.append(scoreCell(mine.find((score) => score.family === family)));
      body.append(line);
    }
    top.append(head);
    whole.append(element("caption", `${device}: times the throughput of ${baselines.join(", ")}`), top, body);
    return whole;
  }

  function scoreCell(score) {
    if (score === undefined) return element("td", "not measured", { class: "none" });
    const [value, ...spread] = score.text.split(" "), cell = element("td", "", { class: score.claim });
    cell.append(element("b", value), " ", element("small", spread.join(" ")), " ");
    cell.append(element("span", score.claim === "none" ? "no claim" : score.claim, { class: "claim" }), element("small", score.basis, { class: "basis" }));
    return cell;
  }

  function boardSwitch() {
    const devices = [...new Set(board.scores(true).map((score) => score.device))];
    if (!devices.includes(onBoard)) onBoard = null;
    if (devices.length < 2) return;
    const group = element("div", "", { class: "switch", role: "group", "aria-label": "Devices of the scoreboard" });
    for (const [name, device] of [["all devices", null], ...devices.map((each) => [each, each])]) {
      const button = element("button", name, { type: "button", "aria-pressed": String(onBoard === device) });
      button.addEventListener("click", () => {
        onBoard = device;
        address.say("scoreboard", device);
        for (const other of group.children) other.setAttribute("aria-pressed", String(other === button));
        fillBoard();
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
    document.getElementById("family-of-all")?.toggleAttribute("hidden", !filters.isOn());
    const hidden = data.verdicts.filter((row) => WORST.has(row.verdict)).length - claims(true).length;
    none.hidden = claims(true).length > 0 || (!hidden && !data.verdicts.length);
    none.replaceChildren(hidden ? `The filters hide ${claim(hidden, "that does not hold", "that do not hold")}. ` : "No claim fails or is undecided.", ...(hidden ? [frame.clearButton()] : []));
  }

  boardSwitch();
  refresh();
  if (location.hash.length > 1) frame.anchor();
  // For a look at the numbers from the console, and for tests.
  window.ngraph = { ...charts, csv: tables.csv };
})();
