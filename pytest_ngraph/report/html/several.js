"use strict";
// The page of several runs: the same of each of them side by side. Nothing of one is divided by another's.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const address = ngraphAddress(), cells = ngraphCells(data, address, () => refresh());
  const { chosen, columns, everything, keeps, shown, text } = cells;
  const board = ngraphBoard(data, cells), column = ngraphColumns(data, cells);
  const METRICS = ["throughput", "speedup"], WORST = new Set(data.worst);

  const ROWS = { ...cells.ROWS, scores: (_, visible = shown) => board.rows(visible === everything) };
  const charts = ngraphCharts(data, ROWS);
  const tables = ngraphTables(address);
  const frame = ngraphFrame(data, cells, ROWS);

  function refresh() {
    cells.choose();
    charts.redraw();
    tables.fill();
    for (const one of document.querySelectorAll("[data-run]")) one.hidden = !keeps(one.dataset);
    sayOfTables();
    frame.sayWhatIsHidden();
  }

  // Rows with what each run has of one thing, by the run's name.
  function beside(things, keyOf, runOf) {
    const rows = new Map();
    for (const thing of things) {
      const key = JSON.stringify(keyOf(thing));
      if (!rows.has(key)) rows.set(key, { first: thing, of: new Map() });
      rows.get(key).of.set(runOf(thing), thing);
    }
    return [...rows.values()];
  }

  // A column for each run that the filters leave.
  const forRuns = (make) => data.runs.flatMap((run) => make(run).map((heading) => ({ ...heading, used: () => chosen.run === null || chosen.run.has(run) })));
  const ofRun = (run) => (row) => row.of.get(run) ?? null;

  // Claims

  const claimOf = (row) => `${row.about} (bound ${row.bound})`;

  function claims() {
    const rows = beside(data.verdicts.filter(keeps), (row) => [row.test, row.about, row.bound], (row) => row.run);
    return rows.filter((row) => [...row.of.values()].some((each) => WORST.has(each.verdict)));
  }

  tables.table("claims", [
    { title: "claim", key: (row) => claimOf(row.first), show: (row) => claimOf(row.first) },
    ...forRuns((run) => {
      const mine = ofRun(run), of = (row, name) => mine(row)?.[name] ?? "";
      const launches = (row) => `${mine(row).launches} ${mine(row).launches === 1 ? "launch" : "launches"}`;
      return [{
        title: run,
        key: (row) => of(row, "verdict"),
        show: (row) => (mine(row) === null ? column.ABSENT : [`${column.signed(of(row, "verdict"))} ${of(row, "text")}`, launches(row)]),
        look: (row) => of(row, "verdict"),
        columns: ["verdict", "measured", "launches"].map((name) => `${name}, ${run}`),
        csv: (row) => ["verdict", "text", "launches"].map((name) => [name, of(row, name)]),
      }];
    }),
    { title: "test", key: (row) => row.first.test, show: (row) => row.first.test, look: () => "text" },
  ], claims);

  // Scoreboard

  const placeOf = (score) => (data.has_devices ? ` on ${score.device}` : "");
  const nameOf = (score) => `${score.compiler} over ${score.baseline}${placeOf(score)}, ${score.family}`;

  tables.table("scoreboard", [
    { title: "compiler and models", key: (row) => nameOf(row.first), show: (row) => nameOf(row.first) },
    ...forRuns((run) => {
      const mine = ofRun(run), of = (row, name) => mine(row)?.[name] ?? null;
      return [{
        title: run,
        key: (row) => of(row, "value"),
        show: (row) => (mine(row) === null ? column.ABSENT : [of(row, "text"), `${of(row, "claim") === "none" ? "no claim" : of(row, "claim")}, ${of(row, "basis")}`]),
        columns: ["", " low", " high"].map((end) => `geometric mean${end}, ${run}`).concat(`of what, ${run}`),
        csv: (row) => ["value", "low", "high", "basis"].map((name) => [name, of(row, name)]),
      }];
    }),
  ], () => beside(board.scores(), nameOf, (score) => score.run));

  // Cells

  tables.table("results", [
    { title: "what", key: (row) => text("subject", row.first), show: (row) => text("subject", row.first) },
    { title: "batch", number: true, key: (row) => columns.batch[row.first], show: (row) => String(columns.batch[row.first]), look: () => "number" },
    { title: "compiler", key: (row) => text("compiler", row.first), show: (row) => text("compiler", row.first) },
    ...METRICS.filter((metric) => metric in data.estimates).flatMap((metric) => forRuns((run) => [column.ofMetric(metric, ofRun(run), run)])),
    ...forRuns((run) => [column.outcome(ofRun(run), run)]),
  ], () => beside(
    [...shown.keys()].filter((cell) => shown[cell]),
    (cell) => [text("subject", cell), columns.batch[cell], text("compiler", cell)],
    (cell) => text("run", cell),
  ));

  // A table without rows says whether there are none or the filters hide them.

  const words = new Map([...document.querySelectorAll("section > .empty[data-of]")].map((one) => [one, one.textContent]));

  function sayOfTables() {
    for (const [place, usual] of words) {
      place.hidden = !document.querySelector(`#${place.dataset.of} .table`).matches(":empty");
      const isHidden = cells.filters.isOn() && place.dataset.some === "yes";
      place.replaceChildren(isHidden ? "The filters hide all of this. " : usual, ...(isHidden ? [frame.clearButton()] : []));
    }
    document.getElementById("scoreboard-note").hidden = !board.isByResult();
  }

  refresh();
  if (location.hash.length > 1) frame.anchor();
  // For a look at the numbers from the console, and for tests.
  window.ngraph = { ...charts, csv: tables.csv };
})();
