// Stores without a server: each workload along each axis, latencies, all stores against the baseline, what entities take; and
// what the seam costs.

const loadOf = (point) => [point.workload, point.dist].filter(Boolean).join(" ");
const placeOf = (point) => `${brief(point.x)} ${point.axis}`;

// Label -> [what it is of a point, format].
const STORE_FIGURES = {
  "operations/s": [(point) => point.per_s, brief], "operations/s, many outstanding": [(point) => point.windowed_per_s, brief],
  "against the baseline": [(point) => point.beside?.ratio, ratio], "against its bare map": [(point) => point.beside_bare?.ratio, ratio],
  "CPU an operation": [(point) => point.cpu_us, time], median: [(point) => point.p50_us, time], "99 %": [(point) => point.p99_us, time],
  "99.9 %": [(point) => point.p999_us, time], longest: [(point) => point.max_us, time],
};

drawings.stores = (record, section) => {
  const { points = [], memory = [], baseline = "the baseline", unfinished = [] } = record.derived ?? {};
  for (const axis of distinct(points, (point) => point.axis)) alongStores(section, axis, points.filter((point) => point.axis === axis));
  againstStores(section, points.filter((point) => point.beside), baseline);
  const timed = points.filter((point) => isNumber(point.p50_us));
  if (timed.length > 0) {
    chart(section, "Latency by percentile", "Of single operations, each waited for before the next; a look at the clock is in it.",
      (width, chosen) => percentileCurves(width, timed.filter((point) => loadOf(point) === chosen.Workload && placeOf(point) === chosen.At)
        .flatMap((point) => (percentiles(point) ?? []).map((one) => ({ name: point.name, ...one })))),
      { Workload: distinct(timed, loadOf), At: distinct(timed, placeOf) });
  }
  memoryOfStores(section, memory.filter((point) => isNumber(point.filled)));
  for (const { why } of unfinished) section.append(h("p", { class: "note" }, `${why}.`));
};

function alongStores(section, axis, own) {
  const there = Object.keys(STORE_FIGURES).filter((label) => own.some((point) => isNumber(STORE_FIGURES[label][0](point))));
  chart(section, `Along ${axis}`, "Medians over rounds; each operation waits for the previous answer, unless the load says otherwise.",
    (width, chosen) => {
      const [of, format] = STORE_FIGURES[chosen.Figure];
      const shown = own.filter((point) => loadOf(point) === chosen.Workload && of(point) > 0)
        .map((point) => ({ name: point.name, x: Math.max(point.x, 1), y: of(point) }));
      return curves(width, d3.sort(shown, (point) => point.x), {
        x: { type: "log", label: axis, tickFormat: brief, ticks: distinct(shown, (point) => point.x).sort((a, b) => a - b) },
        y: { type: "log", label: chosen.Figure, tickFormat: format, ticks: 5 },
        title: ({ name, x, y }) => `${name}\n${brief(x)} ${axis}: ${format(y)}`,
      });
    }, { Workload: distinct(own, loadOf), Figure: there });
}

function againstStores(section, rows, baseline, title = "Against the baseline") {
  if (rows.length === 0) return;
  const again = `${baseline} (again)`;
  chart(section, title, `Throughput against ${baseline}: medians of ratios within rounds, 95 % intervals. The grey band is the baseline against itself (A/A): an interval that meets it is a tie.`,
    (width, chosen) => {
      const own = rows.filter((point) => loadOf(point) === chosen.Workload && placeOf(point) === chosen.At);
      const shown = d3.sort(own, (point) => -point.beside.ratio).map((point) => ({
        name: point.name, value: point.beside.ratio, ...point.beside.interval, group: kindOfStore(point.name, again),
        title: `${ratio(point.beside.ratio)}, ${interval(point.beside.interval)}\n${(point.verdict ?? "").replaceAll("_", " ")}`,
      }));
      const band = own.find((point) => point.name === again)?.beside.interval ?? null;
      return bars(width, shown, { label: `throughput, ${baseline} = 1`, format: (value) => value.toFixed(2), mark: 1, group: true, dots: true, band });
    }, { Workload: distinct(rows, loadOf), At: distinct(rows, placeOf) });
}

function kindOfStore(name, again) {
  if (name === again) return "the baseline again";
  return name.startsWith("bare/") ? "a bare map" : "a repo";
}

function memoryOfStores(section, rows) {
  if (rows.length === 0) return;
  const figures = {
    "bytes an entity": ["filled", bytes], "left when all are removed": ["emptied", bytes],
    "when all are stored again": ["refilled", bytes], "against bare/hash_map": ["of_plain", ratio],
  };
  const there = Object.keys(figures).filter((label) => rows.some((row) => isNumber(row[figures[label][0]])));
  const places = distinct(d3.sort(rows, (row) => -row.x), placeOf);
  chart(section, "Memory", "Resident memory of a process that did nothing else, divided by its entities; the allocator's share is in it.",
    (width, chosen) => {
      const [field, format] = figures[chosen.Figure];
      const own = rows.filter((row) => placeOf(row) === chosen.At && isNumber(row[field]));
      return bars(width, d3.sort(own, (row) => row[field]).map((row) => ({ name: row.name, value: row[field], group: kindOfStore(row.name) })),
        { label: chosen.Figure, format, group: true, mark: field === "of_plain" ? 1 : null });
    }, { Figure: there, At: places });
}

drawings.seam = (record, section) => {
  const rows = record.derived?.rows ?? [];
  if (rows.length === 0) return;
  const against = (row) => `against ${row.baseline}, ${row.threads} ${row.threads === 1 ? "thread" : "threads"}`;
  const kinds = d3.sort(new Set(rows.map((row) => row.lookups)));
  chart(section, "Time against the bare map", "Of the same gets, in turn in one process: medians of ratios within rounds, 95 % intervals. To the right of 1 it takes longer. A dependent get waits for the one before it, as a request does; of independent ones a core has several under way.",
    (width, chosen) => bars(width, rows.filter((row) => row.lookups === chosen.Gets).map((row) => ({
      name: `${row.name} ${against(row)}`, value: row.time.ratio, ...row.time.interval, group: "a store",
      title: `${ratio(row.time.ratio)}, ${interval(row.time.interval)}\nthe baseline again: ${interval(row.same?.interval)}`,
    })), { label: "time, bare map = 1", format: (value) => value.toFixed(3), mark: 1, dots: true }), { Gets: kinds });
};
