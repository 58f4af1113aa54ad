// The matrix of pool sizes and connections: a map for each contestant, curves over pool sizes, and the published figures.

// The published columns first, then ours; those that are smaller where things go better are mapped the other way round.
const MATRIX_FIGURES = {
  total_s: ["total time, s", "less"], requests_per_s: ["requests/s", "more"], per_request_ms: ["time a request, ms", "less"],
  avg_cpu_pct: ["average CPU, % of a core", "less"], max_cpu_pct: ["most CPU, % of a core", "less"],
  avg_mem_pct: ["average memory, %", "less"], max_mem_pct: ["most memory, %", "less"],
  received_kB_s: ["received, kB/s", "more"], sent_kB_s: ["sent, kB/s", "more"], connect_ms: ["connect, ms", "less"],
  processing_ms: ["processing, ms", "less"], processing_p99_ms: ["processing p99, ms", "less"],
  server_cpu_us_per_request: ["server's CPU a request, us", "less"], client_busy_pct: ["client's CPU, %", "less"],
  avg_resident_kB: ["resident memory, kB", "less"],
};

const sizeOf = (cell) => (isNumber(cell.pool_size) ? String(cell.pool_size) : "its own");

drawings.matrix = (record, section) => {
  const cells = (record.lines.cell ?? []).map((cell) => ({ ...cell, name: cell.control ? `${cell.contestant} (again)` : cell.contestant,
    requests_per_s: cell.requests_per_s ?? cell.requests / cell.total_s }));
  const methods = distinct(cells, (cell) => cell.method ?? "get");
  const theirs = methods.flatMap((method) => (data.published[`matrix_${method}`] ?? []).map((row) =>
    ({ ...row, method, name: `published: ${row.lang}`, requests_per_s: row.requests / row.total_s, dashed: true })));
  const labels = new Map(Object.entries(MATRIX_FIGURES).map(([field, [label]]) => [label, field]));
  const there = [...labels.keys()].filter((label) => cells.some((cell) => isNumber(cell[labels.get(label)])));
  // The client limits the throughput of most cells, so the processor time is first.
  const usual = ["server's CPU a request, us", "requests/s"];
  const figures = [...usual.filter((label) => there.includes(label)), ...there.filter((label) => !usual.includes(label))];
  const of = (rows, chosen) => middles(rows.filter((row) => (row.method ?? "get") === chosen.Method), labels.get(chosen.Figure));

  chart(section, "Pool size x connections", "A map for each contestant, one scale for all; darker is better. With several rounds, their median.",
    (width, chosen) => maps(width, of(cells, chosen), MATRIX_FIGURES[labels.get(chosen.Figure)]), { Figure: figures, Method: methods });
  if (theirs.length > 0) {
    chart(section, "Pool size x connections, published", "Another machine, another year: compare shapes, not values.",
      (width, chosen) => maps(width, of(theirs, chosen), MATRIX_FIGURES[labels.get(chosen.Figure)]),
      { Figure: figures.filter((label) => theirs.some((row) => isNumber(row[labels.get(label)]))), Method: methods });
  }
  const connections = distinct(cells, (cell) => cell.connections).sort((a, b) => a - b);
  chart(section, "Against the pool's size", "Dashed, where they are shown: the published figures. Contestants without a pool stand as a line across.",
    (width, chosen) => {
      const shown = chosen.Published === "shown" ? [...cells, ...theirs] : cells;
      const rows = of(shown.filter((cell) => cell.connections === Number(chosen.Connections)), chosen);
      const sizes = distinct(rows.filter((row) => isNumber(row.pool_size)), (row) => row.pool_size).sort((a, b) => a - b);
      const points = rows.flatMap((row) => (isNumber(row.pool_size) || sizes.length === 0 ? [row.pool_size ?? 1] : [sizes[0], sizes.at(-1)])
        .map((x) => ({ name: row.name, x, y: row.value, dashed: row.dashed })));
      return curves(width, d3.sort(points, (point) => point.x), {
        x: { type: "log", base: 2, label: "pool size", ticks: sizes, tickFormat: String }, y: { label: chosen.Figure, zero: true },
      });
    }, { Figure: figures, Method: methods, Connections: connections, Published: theirs.length ? ["hidden", "shown"] : ["hidden"] });
};

// The median over rounds of a figure: a row for each contestant, pool and number of connections.
function middles(rows, field) {
  const filled = rows.filter((row) => isNumber(row[field]));
  return d3.flatRollup(filled, (same) => ({ ...same[0], value: d3.median(same, (row) => row[field]) }),
    (row) => row.name, sizeOf, (row) => row.connections).map(([, , , row]) => row);
}

function maps(width, rows, [label, better]) {
  if (rows.length === 0) return null;
  const names = distinct(rows, (row) => row.name);
  const sizes = distinct(rows, sizeOf).sort((a, b) => (a === "its own") - (b === "its own") || a - b);
  const connections = distinct(rows, (row) => row.connections).sort((a, b) => a - b);
  const left = 44;
  const room = width - left - 8;
  // A cell is as wide as its figure where that can be.
  const longest = Math.min(270, d3.max(names, (name) => name.length) * 7.2);
  const columns = Math.max(1, Math.min(names.length, Math.floor(room / Math.max(longest, sizes.length * 44 + 20))));
  const each = room / columns / sizes.length;
  const [low, high] = d3.extent(rows, (row) => row.value);
  const scheme = (share) => d3.interpolateYlGnBu(0.08 + 0.87 * share);
  const share = (value) => (high === low ? 0.5 : (value - low) / (high - low));
  const fill = (row) => scheme(better === "more" ? share(row.value) : 1 - share(row.value));
  const ink = (row) => (contrast(fill(row), "#ffffff") > contrast(fill(row), "#101418") ? "#ffffff" : "#101418");
  const place = new Map(names.map((name, at) => [name, { fx: at % columns, fy: Math.floor(at / columns) }]));
  const faceted = rows.map((row) => ({ ...row, ...place.get(row.name) }));
  const fits = Math.floor(room / columns / 7.4);
  const short = (name) => (name.length > fits ? `${name.slice(0, fits / 2)}…${name.slice(-fits / 2 + 1)}` : name);
  const titles = names.map((name) => ({ name: short(name), ...place.get(name) }));
  const size = Math.min(34, Math.max(20, each));
  const drawn = plot(width, {
    marginLeft: left, marginRight: 8, marginTop: 30, marginBottom: 44,
    height: Math.ceil(names.length / columns) * (connections.length * size + 34) + 70,
    x: { type: "band", domain: sizes, label: "pool size", tickSize: 0, padding: 0.04 },
    y: { type: "band", domain: connections, label: null, tickSize: 0, padding: 0.04 },
    fx: { axis: null, padding: 0.06 }, fy: { axis: null, padding: 34 / (connections.length * size + 34) },
    marks: [
      Plot.cell(faceted, { x: sizeOf, y: "connections", fx: "fx", fy: "fy", fill, rx: 2, tip: true,
        title: (row) => `${row.name}\npool of ${sizeOf(row)}, ${row.connections} connections\n${label}: ${brief(row.value)}` }),
      each >= 34 ? Plot.text(faceted, { x: sizeOf, y: "connections", fx: "fx", fy: "fy", text: (row) => brief(row.value), fill: ink, fontSize: 10, pointerEvents: "none" }) : null,
      Plot.text(titles, { fx: "fx", fy: "fy", text: "name", frameAnchor: "top-left", dy: -14, fontWeight: 600 }),
    ],
  });
  const legend = Plot.legend({ color: { type: "linear", domain: [low, high], interpolate: (share) => scheme(better === "more" ? share : 1 - share) },
    label: `${label}; rows: connections`, width: Math.min(300, width), tickFormat: brief, ticks: 4, style: { background: "none" } });
  return h("div", {}, legend, drawn);
}
