"use strict";
// The cells of a page: numbers as people read them, the rows that charts and tables show, and what the filters leave.
function ngraphCells(data, address, changed) {
  const { texts, columns, reasons } = data.cells;
  const count = columns.batch.length;
  const AXES = [...data.filters, "outcome", "verdict"];

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
    share: (value) => String(Number(value.toPrecision(4))),
    joules: (value) => stepped(value, [1e3, 1, 1e-3, 1e-6, 1e-9].map((step, at) => [step, `${["k", "", "m", "µ", "n"][at]}J`])),
    watts: (value) => stepped(value, [1e3, 1, 1e-3, 1e-6, 1e-9].map((step, at) => [step, `${["k", "", "m", "µ", "n"][at]}W`])),
    number: digits,
  };

  // How well outputs agree: facts of a launch, not estimates.
  const OUTPUTS = { max_error: "Largest error", cosine: "Cosine", centred_cosine: "Centred cosine", top1_agreement: "Top-1 agreement" };

  function write(metric, value) {
    if (value === null || value === undefined) return "?";
    if (metric === "max_error") return value === 0 ? "0" : value.toExponential(1);
    if (metric in OUTPUTS) return value.toFixed(metric === "top1_agreement" ? 2 : 5);
    return WRITERS[data.metrics[metric].kind](value);
  }

  function interval(metric, numbers, at) {
    if (!numbers.low || numbers.low[at] === null) return "";
    const low = numbers.low[at], high = numbers.high[at];
    // As units.interval says it.
    return 0 < low && low < high / 10000 ? "(too few launches for an interval)" : `[${write(metric, low)}, ${write(metric, high)}]`;
  }

  // Rows: the same ones that content.py makes for figures.

  const shown = new Uint8Array(count).fill(1), everything = new Uint8Array(count).fill(1);
  const text = (name, cell) => texts[name][columns[name][cell]];
  const of = (axis, cell) => (axis in texts ? text(axis, cell) : columns[axis][cell]);

  // Names and numbers in the order in which people expect them, what is not set last.
  function natural(one, other) {
    if (one === null || other === null) return (one === null) - (other === null);
    return typeof one === "number" ? one - other : String(one).localeCompare(String(other), "en", { numeric: true });
  }

  function valuesOf(axis) {
    if (axis === data.by) return Object.keys(data.colours);
    const values = axis in texts ? texts[axis] : columns[axis];
    const more = axis === "verdict" ? data.verdicts.map((row) => row.verdict) : [];
    return [...new Set([...values, ...more])].sort(natural);
  }

  const filters = ngraphFilters(document.getElementById("filters"), AXES, address, valuesOf, data, changed);
  const chosen = filters.chosen;

  // Whether the filters leave a cell, but for those of some axes.
  const isLeft = (cell, but = []) => AXES.every((axis) => chosen[axis] === null || but.includes(axis) || chosen[axis].has(of(axis, cell)));

  function choose() {
    for (let cell = 0; cell < count; cell++) shown[cell] = isLeft(cell) ? 1 : 0;
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
    if (data.by === "run") { // where colours are runs' there is a panel for each compiler
      row.series = `${row.subject} · ${row.compiler}`;
      row.layers = `${row.stack} · ${row.compiler}`;
    }
    row.cell = cell;
    return row;
  }

  function estimates(metrics, visible) {
    const rows = [];
    for (const metric of metrics) {
      const numbers = data.estimates[metric];
      if (numbers === undefined) continue;
      const what = OUTPUTS[metric] ?? data.metrics[metric].title;
      numbers.cell.forEach((cell, at) => {
        if (!visible[cell] || numbers.value[at] === null) return;
        const row = { ...rowOf(cell), metric, what, value: numbers.value[at] };
        if (metric === "max_error") {
          row.value = Math.max(row.value, data.smallest_error);
          row.limit = numbers.limit[at];
          row.precision = numbers.precision[at];
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

  // Speed-ups, those of stacks where they have several depths, with the slope and the retention of each written at the end of its line.
  function depths(visible) {
    const stackOf = (row) => [row.run, row.compiler, row.stack].join("\n");
    const [slopes, kept] = ["slope", "retention"].map((metric) => new Map(estimates([metric], visible).map((row) => [stackOf(row), row.value])));
    const rows = estimates(["speedup"], visible), found = new Map();
    const place = (row) => [row.run, row.stack].join("\n");
    for (const row of rows) found.set(place(row), (found.get(place(row)) ?? new Set()).add(row.depth));
    return rows.filter((row) => row.depth === null || found.get(place(row)).size > 1).map((row) => {
      const stack = stackOf(row), name = data.by === "run" ? "" : row.compiler; // a run's name leaves no room for the rest
      if (!slopes.has(stack) || !kept.has(stack)) return { ...row, label: name };
      const slope = slopes.get(stack).toFixed(3);
      return { ...row, label: `${name && `${name} `}${slope.startsWith("-") ? "" : "+"}${slope}/layer, ${kept.get(stack).toFixed(2)} kept` };
    });
  }

  // Values over length, at the end of a line of times by which exponent they grow where all of its lengths are there.
  function lengths(chart, visible) {
    const lotOf = new Map(data.lengths.lots.flatMap((lot) => lot[1].map((cell) => [cell, lot])));
    const grows = data.estimates.sequence_scaling, place = new Map((grows?.cell ?? []).map((cell, at) => [cell, at]));
    return estimates(chart.metrics, visible).filter((row) => lotOf.has(row.cell)).map((row) => {
      const [named, lot] = lotOf.get(row.cell), at = place.get(lot[lot.length - 1]), label = data.by === "run" ? "" : row.compiler;
      const made = { ...row, sequence: columns.sequence[row.cell], lengths: data.lengths.names[named], label };
      if (data.by === "run") made.spans = `${made.lengths} · ${row.compiler}`;
      if (row.metric !== "latency" || at === undefined || grows.value[at] === null || !lot.every((cell) => visible[cell])) return made;
      const ends = grows.low[at] === null ? "" : ` [${grows.low[at].toFixed(2)}, ${grows.high[at].toFixed(2)}]`;
      return { ...made, label: `${label && `${label} `}n^${grows.value[at].toFixed(2)}${ends}` };
    });
  }

  // What the prompt and what each further token takes, by what generates them.
  const tokens = (chart, visible) => estimates(chart.metrics, visible).map((row) => ({ ...row, place: `${row.subject} batch${row.batch}` }));

  // What charts are made of, by the name of its source: what the filters leave, or all of it.
  const ROWS = {
    estimates: (chart, visible = shown) => estimates(chart.metrics, visible),
    break_even: (_, visible = shown) => breakEven(visible),
    depths: (_, visible = shown) => depths(visible),
    lengths: (chart, visible = shown) => lengths(chart, visible),
    tokens: (chart, visible = shown) => tokens(chart, visible),
  };

  return {
    AXES, count, texts, columns, reasons, text, of, write, interval, seconds, digits, natural, shown, everything, filters,
    chosen, isLeft, choose, keeps, rowOf, estimates, ROWS, OUTPUTS,
  };
}
