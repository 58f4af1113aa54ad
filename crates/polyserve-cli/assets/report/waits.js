// The page that sometimes waits: pools of every size against the bound of their waiting workers, and the published four.

// The numbers of workers, those first that most servers had.
const choicesOf = (cells) => d3.sort(d3.rollups(cells, (some) => some.length, workers), ([, count]) => -count).map(([name]) => name);

drawings.page = (record, section) => {
  // A twin has several rounds, and a server may have its page in memory and from a file.
  const cells = (record.lines.cell ?? []).filter((cell) => (cell.round ?? 1) === 1)
    .map((cell) => (cell.page === "file" && cell.part !== "twins" ? { ...cell, server: `${cell.server}, from a file` } : cell));
  const sweep = cells.filter((cell) => (cell.part ?? "sweep") === "sweep");
  const listings = cells.filter((cell) => cell.part === "twins" && cell.published_as);
  const waits = distinct(cells, (cell) => `Every ${cell.every}th request waits ${cell.wait_s} s`).join("; ");
  if (waits) section.append(h("p", {}, `${waits}; ${distinct(cells, (cell) => cell.connections).join(", ")} connections.`));
  chart(section, "Requests a second against the pool's size",
    "Dashed: workers x every / wait, the max of a pool with workers that sleep through the wait, up to what the connections can ask for. A server that holds no thread during a wait has no such bound.",
    (width) => poolCurves(width, sweep));
  chart(section, "Latency by percentile", "Closed loop, a connection for each request; from the connection's first packet.",
    (width, chosen) => {
      const some = cells.filter((cell) => workers(cell) === chosen.Workers);
      return percentileCurves(width, some.flatMap((cell) =>
        (percentiles(cell) ?? []).map((point) => ({ name: cell.server, ...point }))));
    }, { Workers: choicesOf(cells) });
  againstPublished(section, listings.length > 0 ? listings : cells.filter((cell) => cell.published_as && cell.page !== "file"));
  chart(section, "CPU", null, (width, chosen) => bars(width, cells.filter((cell) => workers(cell) === chosen.Workers)
    .map((cell) => ({ name: cell.server, value: cell.server_busy })), { label: "server's CPU, in cores", format: percent }),
  { Workers: choicesOf(cells) });
};

const workers = (cell) => (isNumber(cell.workers) ? (cell.workers === 1 ? "1 worker" : `${cell.workers} workers`) : "its own workers");

function poolCurves(width, cells) {
  const sized = cells.filter((cell) => isNumber(cell.workers));
  const points = sized.map((cell) => ({ name: cell.server, x: cell.workers, y: cell.requests_per_s, cell }));
  const sizes = distinct(sized, (cell) => cell.workers).sort((a, b) => a - b);
  const most = d3.max(cells, (cell) => cell.connections_bound_per_s);
  const { every, wait_s: wait } = sized.find((cell) => cell.every && cell.wait_s) ?? {};
  const formula = every && most ? d3.range(sizes[0], sizes.at(-1) + 0.5, 0.5)
    .map((size) => ({ x: size, y: Math.min(most, (size * every) / wait) })) : [];
  return curves(width, d3.sort(points, (point) => point.x), {
    x: { type: "log", base: 2, label: "workers", ticks: sizes, tickFormat: String },
    y: { type: "log", label: "requests/s", ticks: 5 },
    title: ({ name, x, y, cell }) => `${name}, ${x} workers\n${brief(y)} requests/s, ${percent(cell.of_bound)} of its bound`,
    under: [Plot.line(formula, { x: "x", y: "y", stroke: "currentColor", strokeDasharray: "4 3", strokeOpacity: 0.7, className: "part bound" })],
  });
}

// Ours and theirs, by their own columns.
function againstPublished(section, cells) {
  if (cells.length === 0) return;
  const theirs = new Map(data.published.page.map((row) => [row.server, row]));
  const both = cells.flatMap((cell) => [["here", cell], ["published", theirs.get(cell.published_as)]]
    .filter(([, row]) => row).map(([origin, row]) => ({ origin, name: `${cell.published_as}, ${origin}`, row, ours: cell.server })));
  chart(section, "Against the published figures", "Published: another machine, another year; the wait decides, not the machine.",
    (width, chosen) => bars(width, both.map(({ origin, name, row, ours }) => ({
      name, group: origin, value: row[chosen.Column], title: `${origin === "here" ? `${ours}: ` : ""}${brief(row[chosen.Column])}`,
    })), { label: chosen.Column, group: true }),
    { Column: ["requests_per_s", "total_s", "mean_ms", "p50_ms", "p66_ms", "p75_ms", "p80_ms", "p90_ms", "p95_ms", "p98_ms", "p99_ms", "max_ms"] });
}
