// Charts: a frame with a title, choices and a note, in which one is drawn for the width that there is, again where that
// changes; and the forms that several experiments share.

// As many colours as can be told apart; after them they come again with dashes.
const COLOURS = 10;
const colour = (place) => `var(--series-${(place % COLOURS) + 1})`;

// A colour for each name, the same on the whole page wherever that name is.
const known = new Map();
function colours(names) {
  for (const name of names) if (!known.has(name)) known.set(name, known.size);
  return { domain: names, range: names.map((name) => colour(known.get(name))) };
}
const dashes = (name) => (known.get(name) >= COLOURS ? "5 3" : null);

const distinct = (rows, of) => [...new Set(rows.map(of))];

// A chart: `draw(width, chosen)` answers a plot, or null where there is nothing to be drawn. `choices`: name -> options.
function chart(section, title, note, draw, choices = {}) {
  const chosen = Object.fromEntries(Object.entries(choices).map(([name, options]) => [name, String(options[0])]));
  const place = h("div", { class: "place" });
  const lists = Object.entries(choices).filter(([, options]) => options.length > 1).map(([name, options]) =>
    choice(name, options, String(options[0]), (value) => { chosen[name] = value; render(); }));
  const figure = h("figure", { class: "chart", "data-chart": title }, h("figcaption", {}, title),
    lists.length ? h("div", { class: "choices" }, lists) : null, place, note ? h("p", { class: "note" }, note) : null);
  let width = 0;
  function render() {
    width = Math.floor(place.clientWidth);
    if (width < 50) return; // not laid out yet
    try {
      const drawn = draw(width, chosen);
      place.replaceChildren(drawn ?? h("p", { class: "gap" }, "Nothing was recorded that could be drawn here."));
      figure.dataset.empty = String(drawn === null);
    } catch (error) {
      console.error(`${title}: ${error.stack ?? error}`);
      place.replaceChildren(h("p", { class: "gap" }, `This cannot be drawn: ${error.message}`));
    }
  }
  section.append(figure);
  new ResizeObserver(() => { if (Math.floor(place.clientWidth) !== width) render(); }).observe(place);
  render();
  return figure;
}

const isNarrow = (width) => width < 560;

// A plot in the page's own style. The title is the frame's.
function plot(width, options) {
  return Plot.plot({ width, marginRight: 16, marginBottom: 42, style: { fontSize: "12px", background: "none" }, ...options });
}

// Names on the left where there is room, above their bars where there is not.
function named(width, names) {
  const longest = d3.max(names, (name) => name.length) ?? 0;
  const left = Math.min(longest * 6.8 + 14, 340);
  const above = isNarrow(width) || left > width * 0.42;
  return {
    above,
    height: names.length * (above ? 42 : 26) + 48,
    options: { marginLeft: above ? 6 : left, y: { domain: names, label: null, padding: above ? 0.55 : 0.25 } },
    marks: above
      ? [Plot.axisY([]), Plot.text(names, { y: (name) => name, text: (name) => name, frameAnchor: "left", dy: -17, textAnchor: "start" })]
      : [Plot.axisY({ tickSize: 0, label: null })],
  };
}

// Bars, one a row: {name, value, low, high, title, group}. `band`: where differences are ties. `mark`: a line at a value.
function bars(width, rows, { label, format = brief, band = null, mark = null, group = null }) {
  const filled = rows.filter((row) => isNumber(row.value));
  if (filled.length === 0) return null;
  const side = named(width, rows.map((row) => row.name));
  const groups = distinct(rows, (row) => row.group ?? "");
  return plot(width, {
    ...side.options,
    height: side.height,
    x: { label, grid: true, zero: true, ticks: isNarrow(width) ? 4 : 8, tickFormat: format, nice: true },
    color: group ? { ...colours(groups), legend: groups.length > 1 } : {},
    marks: [
      band ? Plot.rectX([band], { x1: "low", x2: "high", fill: "currentColor", fillOpacity: 0.12 }) : null,
      Plot.barX(filled, { y: "name", x: "value", fill: group ? (row) => row.group ?? "" : colour(0), fillOpacity: 0.85,
        channels: { said: "title" }, title: (row) => `${row.name}\n${row.title ?? format(row.value)}`, tip: "y" }),
      Plot.ruleY(filled.filter((row) => isNumber(row.low)), { y: "name", x1: "low", x2: "high", stroke: "currentColor",
        strokeWidth: 1.5, marker: "tick" }),
      mark === null ? null : Plot.ruleX([mark], { stroke: "currentColor", strokeDasharray: "3 3" }),
      Plot.ruleX([0]),
      ...side.marks,
    ],
  });
}

// Lines, a name each: whole, or dashed where its colour is another's too or `dashed` is set. A line has one pattern.
function lines(points, options) {
  const pattern = (point) => (point.dashed ? "2 4" : dashes(point.name));
  return [...d3.group(points, pattern)].map(([strokeDasharray, some]) =>
    Plot.lineY(some, { stroke: "name", z: "name", strokeWidth: 1.75, strokeDasharray, ...options }));
}

// Latencies by percentile: {name, at, us}, an axis of nines.
function percentileCurves(width, points) {
  if (points.length === 0) return null;
  const names = distinct(points, (point) => point.name);
  const shares = new Map(points.map((point) => [point.at, point.label]));
  const ticks = [...shares.keys()].sort((a, b) => a - b).filter((at, place, all) => place === 0 || at - all[place - 1] > (isNarrow(width) ? 0.5 : 0.12));
  return plot(width, {
    marginLeft: 58,
    height: isNarrow(width) ? 300 : 380,
    x: { label: "of all requests", ticks, tickFormat: (at) => shares.get(at) ?? "", grid: true },
    y: { type: "log", label: "took at most", tickFormat: time, grid: true, ticks: 5 },
    color: { ...colours(names), legend: true },
    marks: [
      ...lines(points, { x: "at", y: "us", curve: "monotone-x" }),
      Plot.dot(points, { x: "at", y: "us", fill: "name", r: 3, tip: true,
        title: (point) => `${point.name}\n${point.label}: ${time(point.us)}` }),
    ],
  });
}

// Curves: {x, y, name, low, high}, one a name.
function curves(width, points, options) {
  const { x, y, title, more = [], under = [] } = options;
  const filled = points.filter((point) => isNumber(point.x) && isNumber(point.y));
  if (filled.length === 0) return null;
  const names = distinct(points, (point) => point.name);
  return plot(width, {
    marginLeft: 62,
    height: isNarrow(width) ? 300 : 400,
    x: { grid: true, ticks: isNarrow(width) ? 5 : 10, ...x },
    y: { grid: true, tickFormat: brief, ...y },
    color: { ...colours(names), legend: true },
    marks: [
      ...under,
      Plot.ruleX(filled.filter((point) => isNumber(point.low)), { x: "x", y1: "low", y2: "high", stroke: "name",
        marker: "tick" }),
      ...lines(filled, { x: "x", y: "y" }),
      Plot.dot(filled, { x: "x", y: "y", fill: "name", r: filled.length > 400 ? 1.5 : 3, tip: true,
        title: title ?? ((point) => `${point.name}\n${brief(point.x)}: ${brief(point.y)}`) }),
      ...more,
    ],
  });
}
