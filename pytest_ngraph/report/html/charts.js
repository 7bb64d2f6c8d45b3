"use strict";
// Makes an element of the page: what users named is text in it, whatever it contains.
function element(name, content = "", attributes = {}) {
  const made = document.createElement(name);
  if (content !== "") made.textContent = content;
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

// Names as people sort them (results/natural.py): width64 before width128.
function naturally(one, other) {
  const [mine, theirs] = [one, other].map((name) => String(name).split(/(\d+)/).map((part, at) => (at % 2 ? Number(part) : part)));
  for (let at = 0; at < Math.min(mine.length, theirs.length); at++) {
    if (mine[at] !== theirs[at]) return mine[at] < theirs[at] ? -1 : 1;
  }
  return mine.length - theirs.length;
}

// The charts: room is made for all of them at once, and each is drawn when it comes near the view.
function ngraphCharts(data, MAKERS, OF_CELL = null) {
  const SHARE = 0.3, USUAL = 3, ROOM = 0.04; // as in axes.py
  const CAPTION = 21, AXIS = 48, GAP = 19, PAPER = 700;
  const SHAPES = {
    circle: "M-3.4,0a3.4,3.4 0 1,0 6.8,0a3.4,3.4 0 1,0 -6.8,0", square: "M-3,-3h6v6h-6z", diamond: "M0,-4.4L3.4,0L0,4.4L-3.4,0z",
    cross: "M-4,-1.4h2.6v-2.6h2.8v2.6h2.6v2.8h-2.6v2.6h-2.8v-2.6h-2.6z", "triangle-up": "M0,-4L4,3.2H-4z",
    "triangle-down": "M0,4L4,-3.2H-4z", "triangle-right": "M4,0L-3.2,4V-4z", "triangle-left": "M-4,0L3.2,4V-4z",
  };
  const charts = new Map(data.charts.map((chart) => [chart.name, chart]));
  const models = new Map(data.models.map((name, at) => [name, at]));
  const state = new Map(); // of each chart: its rows, panels, what is drawn, and how many more were asked for
  const near = new Set();
  let turn = Promise.resolve();

  // Names

  const canvas = document.createElement("canvas").getContext("2d");

  // Names in no more than so many pixels, long ones cut in the middle, no two alike (texts/fitting.py: in columns).
  function cutApart(names, limit, font) {
    canvas.font = font;
    const fits = (text) => canvas.measureText(text).width <= limit;
    const longest = (least, most, text) => {
      while (least < most) {
        const middle = Math.ceil((least + most) / 2);
        if (fits(text(middle))) least = middle;
        else most = middle - 1;
      }
      return text(least);
    };
    const parts = names.map((name) => (fits(name) ? null : Array.from(name)));
    const isLong = (at) => parts[at] !== null;
    const said = (shown) => (new Set(shown).size === names.length ? new Map(names.map((name, at) => [name, shown[at]])) : null);
    for (const share of [0.5, 0.4, 0.6, 0.25, 0.75, 0.1, 0.9, 0, 1]) {
      const around = (letters, kept) => {
        const head = Math.round(kept * share);
        return `${letters.slice(0, head).join("")}…${letters.slice(letters.length - (kept - head)).join("")}`;
      };
      const found = said(names.map((name, at) => (isLong(at) ? longest(0, parts[at].length - 1, (kept) => around(parts[at], kept)) : name)));
      if (found) return found;
    }
    // They differ in their middle alone: they are shown from there on, and numbered where not even that helps.
    const long = parts.filter((letters) => letters !== null);
    let alike = 0;
    while (long.every((letters) => alike < letters.length && letters[alike] === long[0][alike])) alike += 1;
    const taken = new Set(names.filter((name, at) => !isLong(at)));
    return new Map(names.map((name, at) => {
      if (!isLong(at)) return [name, name];
      const head = parts[at].slice(0, Math.min(5, alike)).join(""), rest = parts[at].slice(alike);
      let text = longest(0, rest.length, (kept) => `${head}…${rest.slice(0, kept).join("")}${kept < rest.length ? "…" : ""}`);
      for (let number = 2; taken.has(text); number++) {
        text = longest(0, parts[at].length, (kept) => `${parts[at].slice(0, kept).join("")}…~${number}`);
      }
      taken.add(text);
      return [name, text];
    }));
  }

  // Rows

  function rowsOf(chart, most = chart.most) {
    let rows = MAKERS[chart.rows](chart).filter((row) => chart.needs === null || row[chart.needs] !== null);
    if (chart.limits === null) return { rows, left: 0 };
    const known = [...new Set(rows.map((row) => row[chart.limits]))];
    if (chart.natural) {
      // Models by family and size (pictures/sizes.py), stacks of blocks after them.
      const first = new Map(!["subject", "series"].includes(chart.limits) ? [] : rows.map((row) => [row[chart.limits], row]));
      const rank = (name) => (first.has(name) ? (first.get(name).depth !== null) * models.size + models.get(first.get(name).model) : 0);
      known.sort((one, other) => rank(one) - rank(other) || naturally(one, other));
      const place = new Map(known.map((name, at) => [name, at]));
      rows = rows.sort((one, other) => place.get(one[chart.limits]) - place.get(other[chart.limits]));
    }
    const kept = new Set(known.slice(0, most));
    return { rows: rows.filter((row) => kept.has(row[chart.limits])), left: known.length - kept.size };
  }

  // Axes: the same that axes.py gives to figures.

  const distinct = (values) => [...new Set(values)];
  const isOn = (value, log) => value !== null && value !== undefined && Number.isFinite(value) && (!log || value > 0);
  const median = (values) => {
    const sorted = Float64Array.from(values).sort(), middle = sorted.length >> 1;
    return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
  };

  function extremes(values) {
    return values.reduce(([low, high], value) => [Math.min(low, value), Math.max(high, value)], [Infinity, -Infinity]);
  }

  function spanOf(chart, rows) {
    const log = chart.is_log, scaled = log ? Math.log : Number, back = log ? Math.exp : Number;
    const marks = rows.filter((row) => isOn(row.value, log)).map((row) => scaled(row.value));
    if (chart.line_at !== null) marks.push(scaled(chart.line_at));
    if (!marks.length) return log ? [0.1, 1] : [0, 1];
    const [low, high] = extremes(marks), arms = [], ends = [];
    for (const row of rows) {
      for (const end of [row.low, row.high]) {
        if (!isOn(end, log)) continue;
        ends.push(scaled(end));
        if (isOn(row.value, log)) arms.push(Math.abs(scaled(end) - scaled(row.value)));
      }
    }
    const reach = Math.max(SHARE * (high - low), arms.length ? USUAL * median(arms) : 0);
    const [least, most] = extremes([low, high, ...ends]);
    const from = Math.max(low - reach, least), to = Math.min(high + reach, most);
    const room = ROOM * (to - from) || (log ? 0.1 : Math.abs(to) * 0.1 || 1);
    return [back(from - room), back(to + room)];
  }

  function along(rows, field) {
    const ticks = distinct(rows.map((row) => row[field])).sort((one, other) => one - other);
    const first = ticks[0], last = ticks[ticks.length - 1];
    if (["batch", "sequence", "rate"].includes(field)) {
      const beyond = Math.max(1.08, (last / first) ** ROOM);
      return { first_end: first / beyond, last_end: last * beyond, ticks };
    }
    const beyond = Math.max(0.1, (last - first) * ROOM);
    return { first_end: first - beyond, last_end: last + beyond, ticks };
  }

  const labelOf = (row) => row.label ?? row[data.by];

  // What stands at the ends of lines, cut to the room that is beside them.
  function labelsOf(chart, rows) {
    return cutApart(distinct(rows.map(labelOf)), chart.names_width - 12, `11px ${chart.spec.config.font}`);
  }

  function placeNames(chart, rows, [low, high], gap, labels) {
    const log = chart.is_log, scaled = log ? Math.log : Number, back = log ? Math.exp : Number;
    const last = new Map();
    for (const row of rows) {
      if (isOn(row.value, log) && !(row[chart.along] < last.get(row[data.by])?.[chart.along])) last.set(row[data.by], row);
    }
    const order = [...last.values()].sort((one, other) => one.value - other.value);
    const from = scaled(low), size = scaled(high) - from;
    const places = order.map((row) => (scaled(row.value) - from) / size);
    for (let at = 1; at < places.length; at++) places[at] = Math.max(places[at], places[at - 1] + gap);
    for (let at = places.length - 1, ceiling = 1; at >= 0; at--) {
      places[at] = Math.min(places[at], ceiling);
      ceiling = places[at] - gap;
    }
    const named = new Map(order.map((row, at) => [row, back(from + places[at] * size)]));
    return rows.map((row) => (named.has(row) ? { ...row, label: labels.get(labelOf(row)), label_at: named.get(row) } : row));
  }

  // Room: panels of sizes that are known before anything is drawn, so that nothing moves when it is.

  const placeOf = (name) => document.querySelector(`.of-chart[data-chart="${name}"]`);

  function heightOf(chart, rows) {
    return chart.height + chart.line.reduce((sum, field) => sum + chart.step * distinct(rows.map((row) => row[field])).length, 0);
  }

  function legend(chart, rows, holder) {
    const used = new Set(rows.map((row) => row[chart.legend]));
    const names = chart.legend === "verdict" ? Object.keys(data.verdict_colours) : Object.keys(data.colours);
    holder.replaceChildren(...names.filter((name) => used.has(name)).map((name) => {
      const item = element("span"), isVerdict = chart.legend === "verdict";
      const sign = document.createElementNS("http://www.w3.org/2000/svg", "svg");
      sign.setAttribute("viewBox", "-17 -6 34 12");
      sign.setAttribute("width", "34");
      sign.setAttribute("height", "12");
      const colour = isVerdict ? data.verdict_colours[name] : data.colours[name];
      const drawn = [["path", { d: SHAPES[isVerdict ? data.verdict_shapes[name] : data.shapes[name]], fill: colour }]];
      if (chart.along !== null) drawn.unshift(["path", { d: "M-17,0H17", stroke: colour, "stroke-width": "1.8", fill: "none", "stroke-dasharray": data.dashes[name].join(" ") }]);
      for (const [kind, attributes] of drawn) {
        const made = document.createElementNS("http://www.w3.org/2000/svg", kind);
        for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
        sign.append(made);
      }
      item.append(sign, name);
      return item;
    }));
    holder.hidden = !chart.legend || rows.length === 0;
  }

  // Makes the room of a chart as the filters leave it, and forgets what was drawn there.
  function makeRoom(chart) {
    const place = placeOf(chart.name), holder = place.querySelector(".chart"), before = state.get(chart.name);
    for (const view of before?.views ?? []) view.finalize();
    const most = before?.most ?? chart.most;
    const { rows, left } = rowsOf(chart, most);
    const empty = place.querySelector(".empty"), note = place.querySelector(".left-out");
    empty.hidden = rows.length > 0;
    holder.hidden = rows.length === 0;
    note.hidden = left === 0;
    if (left) {
      const more = element("button", `Show ${Math.min(left, chart.most)} more`, { type: "button" });
      more.addEventListener("click", () => {
        state.get(chart.name).most += chart.most;
        makeRoom(chart);
        drawNear();
      });
      note.replaceChildren(`The first ${most} are shown, ${left.toLocaleString("en")} more are not.`, more);
    }
    legend(chart, rows, place.querySelector(".legend"));
    const panels = new Map();
    for (const row of rows) {
      const key = chart.panel === null ? "" : row[chart.panel];
      if (!panels.has(key)) panels.set(key, { key, rows: [] });
      panels.get(key).rows.push(row);
    }
    // Families side by side and their models below one another, where there is room for all families.
    const isStack = (panel) => chart.beside === null && panel.rows[0].depth !== null;
    const lines = chart.beside === null ? [] : distinct([...panels.values()].map((panel) => panel.rows[0][chart.beside]));
    const columns = chart.columns === null ? [] : distinct([...panels.values()].filter((panel) => !isStack(panel)).map((panel) => panel.rows[0][chart.columns])).sort(naturally);
    const isGrid = columns.length > 1 && (holder.clientWidth || document.querySelector("main").clientWidth) >= columns.length * (chart.width + GAP);
    const filled = new Map(columns.map((name) => [name, 1]));
    let stacks = 0;
    const headings = isGrid ? columns.map((name, at) => {
      const heading = element("p", name, { class: "family" });
      heading.style.gridColumn = String(at + 1);
      return heading;
    }) : [];
    holder.style.gridTemplateColumns = isGrid ? `repeat(${columns.length}, minmax(0, 1fr))` : chart.width ? `repeat(auto-fill, minmax(min(100%, ${chart.width}px), 1fr))` : "minmax(0, 1fr)";
    holder.replaceChildren(...headings, ...[...panels.values()].map((panel) => {
      panel.height = heightOf(chart, panel.rows);
      panel.figure = element("figure", "", { class: "panel" });
      const room = panel.height + (chart.panel === null ? 0 : CAPTION);
      panel.figure.style.height = `${room}px`;
      if (isGrid) {
        const name = panel.rows[0][chart.columns];
        if (!isStack(panel)) filled.set(name, filled.get(name) + 1);
        const below = Math.max(...filled.values()) + 1; // the models stand before the stacks
        panel.figure.style.gridColumn = String(isStack(panel) ? (stacks % columns.length) + 1 : columns.indexOf(name) + 1);
        if (chart.beside !== null) panel.figure.style.gridRow = String(lines.indexOf(panel.rows[0][chart.beside]) + 2);
        else panel.figure.style.gridRow = String(isStack(panel) ? below + Math.floor(stacks++ / columns.length) : filled.get(name));
      }
      if (chart.panel !== null) panel.figure.append(element("figcaption", String(panel.key), { title: String(panel.key) }));
      return panel.figure;
    }));
    const numbers = place.querySelector(".numbers");
    numbers.hidden = rows.length === 0;
    state.set(chart.name, { rows, panels: [...panels.values()], views: [], drawn: false, most });
    if (numbers.open) fillNumbers(chart);
  }

  // Its table, for who does not see the chart or wants the numbers.

  function fillNumbers(chart) {
    const { rows } = state.get(chart.name), ends = chart.span ? spanOf(chart, rows) : null;
    const holder = placeOf(chart.name).querySelector(".numbers .table"), whole = element("table");
    const head = element("tr"), body = element("tbody");
    const titles = { text: "value [interval]", what: "metric", subject: "model", lengths: "model", served: "model", rate: "calls a second", sequence: "length", label: "line", place: "claim" };
    for (const name of chart.numbers) head.append(element("th", titles[name] ?? name, { scope: "col" }));
    for (const row of rows) {
      const line = element("tr");
      for (const name of chart.numbers) {
        const isCut = name === "text" && ends !== null && isOn(row.low, false) && (row.low < ends[0] || row.high > ends[1]);
        const cell = element("td", row[name] === null || row[name] === undefined ? "" : String(row[name]));
        if (isCut) cell.append(" ", element("small", "wider than the chart's axis"));
        line.append(cell);
      }
      body.append(line);
    }
    const top = element("thead");
    top.append(head);
    whole.append(top, body);
    holder.replaceChildren(whole);
  }

  // Drawing

  function specOf(chart, rows, panel, width) {
    const { facet, spec, ...outer } = structuredClone(chart.spec);
    const whole = facet ? { ...spec, data: outer.data, transform: [...(outer.transform ?? []), ...(spec.transform ?? [])], config: outer.config } : outer;
    for (const name of ["columns", "spacing", "resolve"]) delete whole[name];
    const limit = Math.min(330, width * (width < 640 ? 0.45 : 0.42));
    const known = { ...knownOf(chart, rows), ...namesOf(chart, panel.rows, limit) };
    whole.params = Object.entries(known).map(([name, value]) => ({ name, value }));
    whole.autosize = { type: "fit", contains: "padding" };
    whole.padding = { left: 2, top: 6, right: chart.names_width > 100 ? 24 : 8, bottom: 2 };
    // A map of few batches is no band.
    whole.width = chart.line.includes("width") ? Math.min(width, 100 + 60 * distinct(panel.rows.map((row) => row.batch)).length) : width;
    whole.height = panel.height;
    // The page has one legend for all panels.
    for (const layer of whole.layer ?? []) {
      for (const name of ["color", "shape", "strokeDash"]) {
        if (layer.encoding?.[name]?.scale) layer.encoding[name].legend = null;
      }
    }
    // Beside names there is too little room for a title in the middle: it ends where the axis does, and begins below them.
    const besideNames = chart.line.length === 1 && width < 640;
    const title = besideNames ? { titleAnchor: "end", titleLimit: width - 24 } : { titleLimit: Math.max(100, width * 0.5 - 20) };
    whole.config.axisX = { ...whole.config.axisX, ...title, labelFlush: true };
    whole.config.style = { ...whole.config.style, cell: { stroke: null } };
    // In a narrow panel names would leave nothing of the lines, and those of runs are long: the legend says who is who.
    const isNamed = chart.along !== null && (data.by !== "run" || ["depths", "lengths"].includes(chart.rows)) && width >= Math.max(250, 1.9 * chart.names_width);
    const shown = !isNamed ? panel.rows : placeNames(chart, panel.rows, spanOf(chart, rows), 13 / (panel.height - AXIS), labelsOf(chart, rows));
    whole.datasets = { rows: shown };
    return whole;
  }

  function knownOf(chart, rows) {
    const known = {};
    if (chart.span) [known.low_end, known.high_end] = spanOf(chart, rows);
    return chart.along === null ? known : { ...known, ...along(rows, chart.along) };
  }

  // The names at the axis of what stands below one another, and as there is room for them.
  function namesOf(chart, rows, limit) {
    if (chart.line.length !== 1) return {};
    const names = distinct(rows.map((row) => row[chart.line[0]]));
    return { whole_names: names, shown_names: [...cutApart(names, limit, `11px ${chart.spec.config.font}`).values()] };
  }

  // The names of panels, which stand above them.
  function nameCaptions(panels) {
    const captions = panels.map((panel) => panel.figure.querySelector("figcaption")).filter((caption) => caption !== null);
    if (!captions.length || !captions[0].clientWidth) return;
    const look = getComputedStyle(captions[0]), names = captions.map((caption) => caption.title);
    const shown = cutApart(names, captions[0].clientWidth - 1, `${look.fontWeight} ${look.fontSize} ${look.fontFamily}`);
    for (const caption of captions) caption.textContent = shown.get(caption.title);
  }

  const HOW = {
    mode: "vega-lite",
    renderer: "svg",
    ast: true, // expressions are interpreted: the page allows no code but its own
    logLevel: 1, // errors only: that all intervals of a chart are unbounded is no news
    actions: false,
  };

  async function draw(chart) {
    const mine = state.get(chart.name);
    if (mine.drawn || placeOf(chart.name).hidden) return;
    mine.drawn = true;
    nameCaptions(mine.panels);
    for (const panel of mine.panels) {
      if (state.get(chart.name) !== mine) return; // a filter has been changed meanwhile
      const place = element("div", "", { class: "drawn" });
      panel.figure.append(place);
      const drawn = await vegaEmbed(place, specOf(chart, mine.rows, panel, panel.figure.clientWidth), HOW);
      const picture = place.querySelector("svg");
      picture.setAttribute("aria-label", `${placeOf(chart.name).querySelector(".chart").getAttribute("aria-label")}${panel.key ? `, ${panel.key}` : ""}`);
      mine.views.push(drawn);
      drawn.view.addEventListener("click", (_, item) => {
        if (OF_CELL !== null && data.spreads[item?.datum?.cell]) chooseCell(item.datum.cell, true);
      });
    }
  }

  // One after the other, so that a filter that is changed twice is drawn as it was chosen last.
  function drawNear(names = near) {
    for (const name of [...names]) {
      turn = turn.then(() => draw(charts.get(name))).catch((error) => console.error(error));
    }
    return turn;
  }

  // The whole chart as one file, with its legend, as figures are made.
  async function save(chart, format) {
    const { rows, panels } = state.get(chart.name), spec = structuredClone(chart.spec);
    const known = { ...knownOf(chart, rows), ...namesOf(chart, rows, Infinity) };
    if (spec.facet) {
      known.whole_panels = distinct(rows.map((row) => row[spec.facet.field]));
      known.shown_panels = [...cutApart(known.whole_panels.map(String), 300, `600 12px ${spec.config.font}`).values()];
    }
    spec.params = Object.entries(known).map(([name, value]) => ({ name, value }));
    if (spec.facet) spec.facet.sort = panels.map((panel) => panel.key);
    const labels = chart.along === null ? null : labelsOf(chart, rows);
    spec.datasets = { rows: labels === null ? rows : panels.flatMap((panel) => placeNames(chart, panel.rows, spanOf(chart, rows), 13 / 150, labels)) };
    const ground = getComputedStyle(document.body);
    const text = JSON.stringify(spec).replaceAll("currentColor", ground.color);
    const place = element("div");
    const drawn = await vegaEmbed(place, { ...JSON.parse(text), background: ground.backgroundColor }, HOW);
    const link = element("a", "", { href: await drawn.view.toImageURL(format, 2), download: `ngraph-${chart.name}.${format}` });
    link.click();
    drawn.finalize();
  }

  // Sections that several charts share

  function choose(name) {
    const section = placeOf(name).closest("section");
    for (const place of section.querySelectorAll(".of-chart")) place.hidden = place.dataset.chart !== name;
    for (const button of section.querySelectorAll(".choices button")) button.setAttribute("aria-pressed", String(button.dataset.chart === name));
    drawNear();
  }

  function chooseByAddress() {
    // No name has anything that an address would encode.
    const name = location.hash.slice(1);
    if (charts.has(name) && !charts.get(name).hidden) {
      choose(name);
      placeOf(name).closest("section").scrollIntoView();
    }
  }

  for (const section of document.querySelectorAll("section:has(> .choices)")) {
    const names = [...section.querySelectorAll(".of-chart")].map((place) => place.dataset.chart);
    for (const button of section.querySelectorAll(".choices button")) {
      button.addEventListener("click", () => choose(button.dataset.chart));
    }
    for (const place of section.querySelectorAll(".of-chart")) place.hidden = place.dataset.chart !== names[0];
    section.querySelector(".choices button").setAttribute("aria-pressed", "true");
  }
  window.addEventListener("hashchange", chooseByAddress);

  // One cell, of all that were measured

  const cellPlace = placeOf("visits"), cellList = element("select", "", { "aria-label": "Cell" });
  const cellFacts = element("p", "", { class: "says" });

  function listCells() {
    const known = OF_CELL.cells(), now = OF_CELL.chosen();
    if (!known.includes(now)) known.unshift(now);
    cellList.replaceChildren(...known.map((cell) => element("option", OF_CELL.name(cell), { value: String(cell) })));
    cellList.value = String(now);
  }

  function chooseCell(cell, isFar) {
    OF_CELL.choose(cell);
    cellList.replaceChildren(element("option", OF_CELL.name(cell), { value: String(cell) }));
    cellFacts.textContent = OF_CELL.about(cell);
    makeRoom(charts.get("visits"));
    drawNear(["visits"]);
    if (isFar) cellPlace.closest("section").scrollIntoView({ block: "nearest" });
  }

  if (OF_CELL !== null && OF_CELL.chosen() >= 0) {
    // The list is made when somebody wants it: of thousands of cells it takes a while.
    cellList.addEventListener("focus", listCells);
    cellList.addEventListener("change", () => chooseCell(Number(cellList.value), false));
    const line = element("p", "", { class: "choices" });
    line.append(cellList);
    cellPlace.querySelector(".says").after(line, cellFacts);
    cellList.append(element("option", OF_CELL.name(OF_CELL.chosen()), { value: String(OF_CELL.chosen()) }));
    cellFacts.textContent = OF_CELL.about(OF_CELL.chosen());
  }

  function makeAllRoom() {
    for (const chart of charts.values()) makeRoom(chart);
  }

  for (const chart of charts.values()) {
    const numbers = placeOf(chart.name).querySelector(".numbers"), bar = element("span", "", { class: "save" });
    for (const format of ["svg", "png"]) {
      const button = element("button", `Save as ${format.toUpperCase()}`, { type: "button" });
      button.addEventListener("click", () => save(chart, format));
      bar.append(button);
    }
    numbers.addEventListener("toggle", () => { if (numbers.open) fillNumbers(chart); });
    numbers.querySelector(".table").before(bar);
  }

  let width = document.documentElement.clientWidth, waiting = 0;
  window.addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      if (document.documentElement.clientWidth === width) return;
      width = document.documentElement.clientWidth;
      makeAllRoom();
      drawNear();
    }, 150);
  });

  makeAllRoom();
  const observer = new IntersectionObserver((entries) => {
    for (const entry of entries) near[entry.isIntersecting ? "add" : "delete"](entry.target.dataset.chart);
    drawNear();
  }, { rootMargin: "400px" });
  for (const name of charts.keys()) observer.observe(placeOf(name));
  chooseByAddress();

  // On paper charts are drawn as wide as paper is, so that their type keeps its size. Ctrl+P waits for nobody but for
  // promises that are kept at once: drawing waits for no others.
  let isForPaper = false;

  function forPaper() {
    isForPaper = true;
    document.querySelector("main").style.maxWidth = `${PAPER}px`;
    makeAllRoom();
    return drawNear(charts.keys());
  }

  function fromPaper() {
    if (!isForPaper) return;
    isForPaper = false;
    document.querySelector("main").style.maxWidth = "";
    makeAllRoom();
    drawNear();
  }

  document.getElementById("print").addEventListener("click", async () => {
    await forPaper();
    window.print();
    fromPaper();
  });
  window.addEventListener("beforeprint", () => { if (!isForPaper) forPaper(); });
  window.addEventListener("afterprint", fromPaper);

  return {
    redraw() {
      makeAllRoom();
      drawNear();
    },
    choose,
    chooseCell,
    rows: (name) => rowsOf(charts.get(name)).rows,
    drawAll: () => drawNear(charts.keys()),
    drawn: () => [...state].filter(([, one]) => one.views.length).map(([name]) => name),
  };
}
