"use strict";
// Columns of tables that every page has. ``cellOf`` gives the cell of a row, null where there is none of that run.
function ngraphColumns(data, cells) {
  const { OUTPUTS, columns, count, interval, reasons, write } = cells;
  const ABSENT = ["", "not in this run"];
  const plain = (title, name, look) => ({ title, key: (row) => row[name], show: (row) => row[name] ?? "", look: look && (() => look) });
  const signed = (verdict) => (verdict ? `${data.signs[verdict] ?? ""} ${verdict}` : "");
  const verdict = { title: "verdict", key: (row) => row.verdict, show: (row) => signed(row.verdict), look: (row) => row.verdict ?? "" };

  function ofMetric(metric, cellOf = (row) => row.cell, run = "") {
    const numbers = data.estimates[metric], place = new Int32Array(count).fill(-1), beside = run && `, ${run}`;
    numbers.cell.forEach((cell, at) => { place[cell] = at; });
    const at = (row) => (cellOf(row) === null ? -1 : place[cellOf(row)]);
    const value = (row) => (at(row) < 0 ? null : numbers.value[at(row)]);
    const title = OUTPUTS[metric] ?? data.metrics[metric].title, unit = OUTPUTS[metric] ? "" : data.metrics[metric].unit;
    const named = `${title}${unit ? ` [${unit}]` : ""}${beside}`, ends = numbers.low ? ["value", "low", "high"] : ["value"];
    return {
      title: `${title}${beside}`,
      number: true,
      key: value,
      show: (row) => (cellOf(row) === null ? ABSENT : value(row) === null ? "" : [write(metric, value(row)), interval(metric, numbers, at(row))]),
      look: () => "number",
      columns: ends.map((end) => (end === "value" ? named : `${named} ${end}`)),
      csv: (row) => ends.map((end) => [end, at(row) < 0 ? null : numbers[end][at(row)]]),
    };
  }

  function outcome(cellOf = (row) => row.cell, run = "") {
    const title = `outcome${run && `, ${run}`}`, of = (row) => (cellOf(row) === null ? ABSENT : [columns.outcome[cellOf(row)], reasons[cellOf(row)] ?? ""]);
    return {
      title, show: of, key: (row) => (cellOf(row) === null ? null : of(row)[0]),
      columns: [title, `reason${run && `, ${run}`}`],
      csv: (row) => (cellOf(row) === null ? ["", ""] : of(row)).map((each) => ["", each]),
    };
  }

  return { ABSENT, plain, signed, verdict, ofMetric, outcome };
}
