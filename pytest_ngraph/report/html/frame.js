"use strict";
// What stands around charts and tables in every page: what the filters hide, links that stay in view, and the theme.
// ``reveal`` shows what an address names that is not in the page yet, and returns whether it did.
function ngraphFrame(data, cells, ROWS, reveal = () => false) {
  const { filters, shown, everything, count } = cells;

  function clearButton() {
    const button = element("button", "Clear the filters", { type: "button" });
    button.addEventListener("click", filters.clearAll);
    return button;
  }

  // Words in place of what the filters hide.
  function hiddenWords(words) {
    const place = element("p", `${words} `, { class: "empty" });
    place.append(clearButton());
    return place;
  }

  // A chart without rows says whether there are none or the filters hide them; charts.js shows and hides the words.
  const usual = new Map();

  function sayWhatIsHidden() {
    for (const chart of data.charts) {
      const place = document.querySelector(`#${chart.name} .empty`);
      if (place === null) continue;
      if (!usual.has(chart.name)) {
        const rows = ROWS[chart.rows](chart, everything).filter((row) => chart.needs === null || row[chart.needs] !== null);
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
    filters.say(`${left.toLocaleString("en")} of ${count.toLocaleString("en")} cells`);
    document.getElementById("of-all").hidden = !filters.isOn();
  }

  // Links: what is linked stays in view while charts above it are drawn, until the reader moves on.

  let held = null, until = 0;

  function hold(hash) {
    const id = decodeURIComponent(hash.slice(1));
    const isRow = reveal(id);
    document.querySelectorAll("[aria-current]").forEach((one) => one.removeAttribute("aria-current"));
    held = document.getElementById(id);
    until = performance.now() + 4000;
    if (held === null) return;
    if (isRow) held.setAttribute("aria-current", "true");
    for (let one = held; one !== null; one = one.parentElement) if (one.tagName === "DETAILS") one.open = true;
    held.scrollIntoView({ block: isRow ? "center" : "start", behavior: "instant" });
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

  // Theme

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
  tellTheme();

  return { sayWhatIsHidden, hiddenWords, clearButton, anchor };
}
