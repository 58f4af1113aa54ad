// Charts: a frame with a title, choices and a note, in which one is drawn for the width that there is, again where that
// changes; and the forms that several experiments share. A mark that a chart must not lose has the class "part NAME".

// As many colours as can be told apart; after them they come again with dashes.
const COLOURS = 10;
const colour = (place) => `var(--series-${(place % COLOURS) + 1})`;

// A colour for each name, the same in all charts of a record; `known` is that of the chart being drawn.
const ofSections = new WeakMap();
let known = new Map();
function colours(names) {
  for (const name of names) if (!known.has(name)) known.set(name, known.size);
  return { domain: names, range: names.map((name) => colour(known.get(name))),
    tickFormat: (name) => (dashes(name) ? `${name} - -` : name) };
}
const dashes = (name) => (known.get(name) >= COLOURS ? "5 3" : null);

const distinct = (rows, of) => [...new Set(rows.map(of))];

// A chart: `draw(width, chosen)` returns a plot, or null if there is nothing to draw. `choices`: name -> options.
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
      if (!ofSections.has(section)) ofSections.set(section, new Map());
      known = ofSections.get(section);
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
  return Plot.plot({ width, marginRight: 22, marginBottom: 42, style: { fontSize: "12px", background: "none" }, ...options,
    x: { labelOffset: 36, ...options.x } });
}

// Names on the left if there is room, else above their bars.
function named(width, names) {
  const longest = d3.max(names, (name) => name.length) ?? 0;
  const left = Math.min(longest * 6.8 + 14, 340);
  const above = isNarrow(width) || left > width * 0.42;
  return {
    above,
    height: names.length * (above ? 42 : 26) + 48,
    options: { marginLeft: above ? 18 : left, y: { domain: names, label: null, padding: above ? 0.55 : 0.25 } },
    marks: above
      ? [Plot.axisY([]), Plot.text(names, { y: (name) => name, text: (name) => name, frameAnchor: "left", dy: -17, textAnchor: "start" })]
      : [Plot.axisY({ tickSize: 0, label: null })],
  };
}

// Bars, one a row: {name, value, low, high, title, group}. `band`: where differences are ties. `mark`: a line at a value.
// `dots` in place of bars show small differences: their axis need not begin at 0.
function bars(width, rows, { label, format = brief, band = null, mark = null, group = null, dots = false }) {
  const filled = rows.filter((row) => isNumber(row.value));
  if (filled.length === 0) return null;
  const side = named(width, rows.map((row) => row.name));
  const groups = distinct(rows, (row) => row.group ?? "");
  return plot(width, {
    ...side.options,
    height: side.height,
    x: { label, grid: true, zero: !dots, ticks: isNarrow(width) ? 4 : 8, tickFormat: format, nice: true },
    color: { domain: groups, range: groups.map((_, at) => colour(at)), legend: group && groups.length > 1 },
    marks: [
      band ? Plot.rectX([band], { x1: "low", x2: "high", fill: "currentColor", fillOpacity: 0.12 }) : null,
      (dots ? Plot.dot : Plot.barX)(filled, { y: "name", x: "value", fill: (row) => row.group ?? "", fillOpacity: dots ? 1 : 0.85, r: dots ? 5 : 1,
        title: (row) => `${row.name}\n${row.title ?? format(row.value)}`, tip: "y" }),
      Plot.ruleY(filled.filter((row) => isNumber(row.low)), { y: "name", x1: "low", x2: "high", stroke: "currentColor",
        strokeWidth: 1.5, marker: "tick" }),
      mark === null ? null : Plot.ruleX([mark], { stroke: "currentColor", strokeDasharray: "3 3" }),
      dots ? null : Plot.ruleX([0]),
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
  const ticks = [];
  // The best known first, then those that there is room for.
  for (const at of d3.sort(shares.keys(), (one) => (one === LONGEST || Number.isInteger(Number(one.toFixed(6))) ? 0 : 1), (one) => one)) {
    const gap = (LONGEST / width) * 62;
    if (ticks.every((other) => Math.abs(other - at) > gap)) ticks.push(at);
  }
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

// Those ticks of a logarithmic axis that have room for their labels.
function apart(ticks, points, width) {
  const [low, high] = d3.extent(points, (point) => point.x).map(Math.log);
  const room = width - 90;
  const at = (tick) => (high > low ? ((Math.log(tick) - low) / (high - low)) * room : 0);
  const kept = [];
  for (const tick of ticks) if (kept.length === 0 || at(tick) - at(kept.at(-1)) > 38) kept.push(tick);
  return kept;
}

// Curves: {x, y, name, low, high}, one a name.
function curves(width, points, options) {
  const { x, y, title, more = [], under = [] } = options;
  const filled = points.filter((point) => isNumber(point.x) && isNumber(point.y));
  if (filled.length === 0) return null;
  const names = distinct(points, (point) => point.name);
  const places = x.type === "log" && Array.isArray(x.ticks) ? apart(x.ticks, filled, width) : null;
  return plot(width, {
    marginLeft: 62,
    height: isNarrow(width) ? 300 : 400,
    x: { grid: true, ticks: isNarrow(width) ? 5 : 10, ...x, ...(places ? { axis: null, grid: false } : {}) },
    y: { grid: true, tickFormat: brief, ...y },
    color: { ...colours(names), legend: true },
    marks: [
      // A logarithmic axis by itself would leave out the labels of what is no power.
      ...(places ? [Plot.gridX(places), Plot.axisX(places, { text: (at) => x.tickFormat(at), label: x.label, labelOffset: 36 })] : []),
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
