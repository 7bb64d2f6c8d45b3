"use strict";
// The tables: sorted by a heading, filled as the filters leave rows, copied as CSV. Markup of before is replaced.

// Formulas of spreadsheets, as texts/escaping.py knows them: who drops the first apostrophe has the text.
function csvText(value) {
  if (value === null || value === undefined) return "";
  if (typeof value === "number") return Number.isFinite(value) ? String(value) : "";
  const text = /^\s*[=+\-@'＝＋－＠]/.test(String(value)) ? `'${value}` : String(value);
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch { // Not every browser lets a file write to the clipboard.
    const area = element("textarea", "", { "aria-hidden": "true", class: "copied" });
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}

// A button above a table that copies it.
function copyTools(holder, csv, countNow) {
  const copy = element("button", "Copy as CSV", { type: "button", class: "copy" });
  const said = element("output", "", { "aria-live": "polite" });
  const tools = element("div", "", { class: "tools" });
  tools.append(copy, said);
  holder.before(tools);
  copy.addEventListener("click", async () => {
    const text = csv(), count = countNow();
    said.textContent = (await copied(text)) ? `Copied ${count.toLocaleString("en")} ${count === 1 ? "row" : "rows"}.` : "Not copied: the browser does not allow it.";
  });
  return { tools, said };
}

// What a table says that stands in the file; <data> has all digits of a number, and the unit of its column. A heading
// with several of them stands for as many columns, such as a value and the ends of its interval.
const rowsLeft = (table) => [...table.tBodies[0].rows].filter((row) => !row.hidden);

function csvOf(table) {
  const heads = [...table.tHead.rows[0].cells], exact = (cell) => [...cell.querySelectorAll("data")].map((one) => one.getAttribute("value"));
  const counts = heads.map((cell) => exact(cell).length);
  const number = (value) => (value === undefined || value === "" ? null : Number(value));
  const of = (cell, at) => {
    const found = exact(cell);
    if (counts[at] > 1) return Array.from({ length: counts[at] }, (_, place) => number(found[place]));
    return [found.length ? number(found[0]) : cell.textContent];
  };
  const names = heads.flatMap((cell, at) => (counts[at] ? exact(cell) : [cell.textContent]));
  const lines = rowsLeft(table).map((row) => [...row.cells].flatMap(of));
  return [names, ...lines].map((line) => line.map(csvText).join(",")).join("\n") + "\n";
}

function ngraphTables(address) {
  const FIRST_ROWS = 100, MORE_ROWS = 500;
  const known = new Map();

  // A heading has a title, a key to sort by, and shows a text or a text with what is said beside it. ``csv`` gives
  // columns and values where they are not title and key.
  function table(section, headings, rowsNow, { name = (row) => undefined } = {}) {
    const holder = document.querySelector(`#${section} .table`);
    let sorted = null, rising = true, limit = FIRST_ROWS;
    const used = () => headings.filter((heading) => heading.used === undefined || heading.used());
    const [wanted, down] = address.sort(section);
    if (wanted !== null) {
      sorted = headings.find((heading) => heading.title === wanted) ?? null;
      rising = !down;
    }
    holder.tabIndex = 0;
    holder.setAttribute("role", "region");
    holder.setAttribute("aria-labelledby", `${section}-title`);

    function rowsSorted() {
      const rows = rowsNow();
      if (sorted === null) return rows;
      const key = sorted.key, sign = rising ? 1 : -1;
      const place = (value) => (value === null || value === undefined || value === "" ? null : value);
      return rows.sort((one, other) => {
        const mine = place(key(one)), theirs = place(key(other));
        if (mine === null || theirs === null) return (mine === null) - (theirs === null);
        if (typeof mine === "string" && typeof theirs === "string")
          return sign * mine.localeCompare(theirs, "en", { numeric: true });
        return sign * (mine < theirs ? -1 : mine > theirs ? 1 : 0);
      });
    }

    function csv() {
      const cellsOf = (heading, row) => (heading.csv ? heading.csv(row) : [[heading.title, heading.key(row)]]);
      const rows = rowsSorted(), columns = used();
      const head = columns.flatMap((heading) => (heading.columns ?? [heading.title]));
      const lines = rows.map((row) => columns.flatMap((heading) => cellsOf(heading, row).map(([, value]) => csvText(value))));
      return [head.map(csvText), ...lines].map((line) => line.join(",")).join("\n") + "\n";
    }

    const { tools, said } = copyTools(holder, csv, () => rowsNow().length);

    function headOf(columns) {
      const head = element("tr");
      for (const heading of columns) {
        const cell = element("th", "", { scope: "col", ...(heading.number ? { class: "number" } : {}) });
        const button = element("button", heading.title, { type: "button", ...(heading.says ? { title: heading.says } : {}) });
        button.addEventListener("click", () => {
          rising = sorted === heading ? !rising : !heading.number;
          sorted = heading;
          address.sorted(section, heading.title, !rising);
          fill();
          holder.querySelectorAll("thead button")[columns.indexOf(heading)].focus();
        });
        if (sorted === heading) cell.setAttribute("aria-sort", rising ? "ascending" : "descending");
        cell.append(button);
        head.append(cell);
      }
      return head;
    }

    function lineOf(columns, row) {
      const id = name(row), line = element("tr", "", id === undefined ? {} : { id });
      columns.forEach((heading, at) => {
        const [main, beside] = [heading.show(row)].flat();
        const look = heading.look ? heading.look(row) : "";
        const cell = element(at ? "td" : "th", "", { ...(at ? {} : { scope: "row" }), ...(look ? { class: look } : {}) });
        const link = heading.link && heading.link(row);
        const act = heading.act && heading.act(row);
        const holds = link ? element("a", main ?? "", { href: link }) : act ? element("button", main ?? "", { type: "button", class: "name", title: act.says }) : (main ?? "");
        if (act && !link) holds.addEventListener("click", act.run);
        cell.append(holds);
        if (beside) cell.append(" ", element("small", beside));
        line.append(cell);
      });
      return line;
    }

    function fill() {
      const rows = rowsSorted(), columns = used();
      tools.hidden = !rows.length;
      said.textContent = "";
      holder.replaceChildren();
      if (!rows.length) return;
      const whole = element("table"), top = element("thead"), body = element("tbody");
      for (const row of rows.slice(0, limit)) body.append(lineOf(columns, row));
      top.append(headOf(columns));
      whole.append(top, body);
      holder.append(whole);
      if (rows.length > limit) {
        const more = element("button", `Show more (${(rows.length - limit).toLocaleString("en")} left)`, { type: "button", class: "more" });
        more.addEventListener("click", () => { limit += MORE_ROWS; fill(); });
        holder.append(more, element("p", `The first ${limit} of ${rows.length} rows`, { class: "printed" }));
      }
    }

    // Shows the row of an id, however far down it is. Returns whether there is one.
    function reveal(id) {
      const at = rowsSorted().findIndex((row) => name(row) === id);
      if (at >= limit) {
        limit = Math.ceil((at + 1) / FIRST_ROWS) * FIRST_ROWS;
        fill();
      }
      return at >= 0;
    }

    known.set(section, { fill, csv, reveal });
  }

  // A table that stands in the file and is not filled again.
  function standing(holder) {
    const table = holder.querySelector("table");
    copyTools(holder, () => csvOf(table), () => rowsLeft(table).length);
  }

  return {
    table,
    standing,
    fill: () => known.forEach((one) => one.fill()),
    csv: (section) => known.get(section).csv(),
    reveal: (section, id) => known.get(section).reveal(id),
  };
}
