// Sortable tables: a button heads each column, by pointer or by keyboard; a table scrolls within its own frame.

// More rows than these are shown when they are asked for.
const FEW_ROWS = 100;

// The order of two cells: figures by their size in one unit, before texts; gaps stand last, whichever way.
function order(one, other, descending) {
  if (one.key === null || other.key === null) return (one.key === null) - (other.key === null);
  const isText = (key) => typeof key === "string";
  if (isText(one.key) !== isText(other.key)) return isText(one.key) - isText(other.key);
  const by = isText(one.key) ? one.key.localeCompare(other.key, "en", { numeric: true }) : one.key - other.key;
  return descending ? -by : by;
}

// A figure with its unit or interval is no longer; a sentence may begin with a figure too.
const LONGEST_FIGURE = 32;

// A column is of figures where most of its cells begin with one.
function keyed(rows, column) {
  const cells = rows.map((row) => row[column] ?? "");
  const filled = cells.filter((cell) => cell !== "" && cell !== "-");
  const figures = filled.filter((cell) => magnitude(cell) !== null).length;
  const numeric = figures > 0 && figures * 2 >= filled.length && filled.every((cell) => cell.length <= LONGEST_FIGURE);
  const key = (cell) => (cell === "" || cell === "-" ? null : numeric ? magnitude(cell) ?? cell : cell);
  return { numeric, cells: cells.map((cell) => ({ key: key(cell) })) };
}

// A table of texts, the header first. `shown` may make more of a cell than its text.
function sortable(name, [header, ...rows], shown = (cell) => cell) {
  const columns = header.map((_, column) => keyed(rows, column));
  const state = { column: null, descending: false, all: rows.length <= FEW_ROWS };
  const body = h("tbody");
  const heads = header.map((title, column) => h("th", { scope: "col", class: columns[column].numeric ? "figure" : null },
    h("button", { type: "button", click: () => sort(column) }, title || "\u00a0",
      h("span", { class: "arrow", "aria-hidden": "true" }))));
  const more = h("button", { type: "button", class: "more", click: () => { state.all = true; fill(); } },
    `Show all ${rows.length} rows`);

  function fill() {
    const places = d3.range(rows.length);
    if (state.column !== null) {
      const { cells } = columns[state.column];
      places.sort((a, b) => order(cells[a], cells[b], state.descending) || a - b);
    }
    body.replaceChildren(...places.slice(0, state.all ? rows.length : FEW_ROWS).map((place) => h("tr", {},
      header.map((_, column) => h(column === 0 ? "th" : "td", {
        scope: column === 0 ? "row" : null, class: columns[column].numeric ? "figure" : null,
      }, shown(rows[place][column] ?? "", column))))));
    more.hidden = state.all;
  }

  // The first time the largest figure or the first name comes first.
  function sort(column) {
    const first = columns[column].numeric;
    state.descending = state.column === column ? !state.descending : first;
    state.column = column;
    heads.forEach((head, at) => {
      if (at === column) head.setAttribute("aria-sort", state.descending ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    fill();
  }

  fill();
  return h("div", { class: "table", "data-table": name },
    h("div", { class: "scroll", role: "region", tabindex: "0", "aria-label": `Table: ${name}` },
      h("table", {}, h("thead", {}, h("tr", {}, heads)), body)), more);
}
