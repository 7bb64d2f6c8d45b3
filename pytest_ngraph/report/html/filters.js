"use strict";
// What is chosen: filters for every axis, and the address that keeps them, to be sent to somebody or loaded again.

// Values of an axis in the address. "~" begins what is no value: nothing set, nothing chosen, all but the following.
function ngraphAddress() {
  const NULL = "~null", NONE = "~none", NOT = "~not";
  const given = new URLSearchParams(location.search);
  const text = (value) => (value === null ? NULL : String(value).startsWith("~") ? `~${value}` : String(value));

  function write() {
    const query = given.toString();
    try {
      history.replaceState(history.state, "", `${query ? `?${query}` : location.pathname}${location.hash}`);
    } catch { /* Where a page may have no other address the choice is not kept. */ }
  }

  // What of these values the address chooses: null for all of them, also where it names none that there is.
  function chosen(axis, values) {
    const named = given.getAll(axis), words = new Set(named);
    if (!named.length) return null;
    if (words.has(NONE)) return new Set();
    const found = values.filter((value) => words.has(text(value)));
    if (!found.length) return null;
    const kept = words.has(NOT) ? values.filter((value) => !words.has(text(value))) : found;
    return kept.length === values.length ? null : new Set(kept);
  }

  function choose(axis, values, kept) {
    given.delete(axis);
    if (kept !== null) {
      const others = values.filter((value) => !kept.has(value));
      const words = kept.size === 0 ? [NONE] : others.length < kept.size ? [NOT, ...others.map(text)] : [...kept].map(text);
      for (const word of words) given.append(axis, word);
    }
    write();
  }

  // A table's heading, and whether it is sorted downwards.
  function sort(section) {
    const found = given.getAll("sort").find((each) => each.startsWith(`${section}:`));
    if (found === undefined) return [null, false];
    const title = found.slice(section.length + 1);
    return title.startsWith("-") ? [title.slice(1), true] : [title, false];
  }

  function sorted(section, title, down) {
    const others = given.getAll("sort").filter((each) => !each.startsWith(`${section}:`));
    given.delete("sort");
    for (const each of others) given.append("sort", each);
    given.append("sort", `${section}:${down ? "-" : ""}${title}`);
    write();
  }

  return { chosen, choose, sort, sorted, word: (name) => given.get(name), say: (name, value) => { value === null ? given.delete(name) : given.set(name, value); write(); } };
}

// The bar of filters. ``valuesOf`` gives an axis its values in order; that which colours are of has dots. ``changed`` is
// called after.
function ngraphFilters(bar, axes, address, valuesOf, { by, colours }, changed) {
  const chosen = Object.fromEntries(axes.map((axis) => [axis, address.chosen(axis, valuesOf(axis))])); // null: all
  const shown = new Map();
  const clear = element("button", "Clear filters", { type: "button", class: "clear" });
  const said = element("output", "", { "aria-live": "polite" });

  // Keeps what is open inside the window: under a filter at the right edge it begins further left.
  function stay(field) {
    field.style.left = "0";
    const beyond = field.getBoundingClientRect().right + 8 - document.documentElement.clientWidth;
    if (beyond > 0) field.style.left = `${-beyond}px`;
  }

  function filter(axis) {
    const title = axis.replaceAll("_", " "), unset = axis === "verdict" ? "no claim" : "not set";
    const named = (value) => (value === null ? unset : String(value));
    const values = valuesOf(axis), group = element("details"), field = element("fieldset"), summary = element("summary");
    const boxes = values.map((value) => {
      const label = element("label"), box = element("input", "", { type: "checkbox", value: String(value), name: axis });
      box.addEventListener("change", apply);
      label.append(box);
      if (axis === by) {
        const dot = element("span", "", { class: "dot", "aria-hidden": "true" });
        dot.style.background = colours[value];
        label.append(dot);
      }
      label.append(element("span", named(value)));
      field.append(label);
      return box;
    });

    // What the boxes and the summary say, from what is chosen.
    function show() {
      const kept = chosen[axis];
      boxes.forEach((box, at) => { box.checked = kept === null || kept.has(values[at]); });
      const which = kept === null ? "all" : kept.size === 1 ? named([...kept][0]) : `${kept.size} of ${values.length}`;
      summary.textContent = `${title}: ${which}`;
      group.classList.toggle("narrowed", kept !== null);
    }

    function apply() {
      const kept = values.filter((_, at) => boxes[at].checked);
      chosen[axis] = kept.length === values.length ? null : new Set(kept);
      address.choose(axis, values, chosen[axis]);
      show();
      after();
    }

    function all(state) {
      boxes.forEach((box) => { if (!box.parentElement.hidden) box.checked = state; });
      apply();
    }

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
        boxes.forEach((box, at) => { box.parentElement.hidden = !named(values[at]).toLowerCase().includes(search.value.toLowerCase()); });
      });
      pick.after(search);
    }
    group.append(summary, field);
    group.addEventListener("keydown", (event) => {
      if (event.key === "Escape") { group.open = false; summary.focus(); }
    });
    group.addEventListener("toggle", () => {
      if (!group.open) return;
      bar.querySelectorAll("details[open]").forEach((other) => { other.open = other === group; });
      stay(field);
    });
    shown.set(axis, { show, values });
    show();
    return group;
  }

  const isOn = () => axes.some((axis) => chosen[axis] !== null);

  function after() {
    clear.hidden = !isOn();
    changed();
  }

  function clearAll() {
    for (const axis of axes) {
      if (chosen[axis] === null) continue;
      chosen[axis] = null;
      address.choose(axis, [], null);
      shown.get(axis).show();
    }
    after();
    bar.querySelector("summary")?.focus();
  }

  for (const axis of axes) bar.append(filter(axis));
  clear.hidden = !isOn();
  clear.addEventListener("click", clearAll);
  bar.append(clear, said);
  document.addEventListener("click", (event) => {
    if (!bar.contains(event.target)) bar.querySelectorAll("details[open]").forEach((group) => { group.open = false; });
  });

  window.addEventListener("resize", () => bar.querySelectorAll("details[open] fieldset").forEach(stay));

  return { chosen, isOn, clearAll, say: (words) => { said.textContent = words; } };
}
