// A comparison: all contestants relative to the baseline, with intervals; CPU and memory; latencies at a fixed rate.

drawings.compare = (record, section) => {
  const ranking = record.derived;
  const rows = ranking?.rows ?? [];
  if (rows.length === 0) return;
  section.append(h("p", {}, `Against ${ranking.baseline}, ${ranking.rounds} rounds. ${ranking.asked ? `Asked: ${ranking.asked}.` : ""}`));
  const what = { "requests a second": "throughput", "requests per CPU second": "cost" };
  chart(section, "Throughput and cost against the baseline",
    "Medians of ratios within rounds, 95 % intervals. The grey band is the baseline against itself (A/A): an interval that meets it is a tie.",
    (width, chosen) => {
      const field = what[chosen.Figure];
      const shown = rows.map((row) => ({
        name: row.name, value: row[field]?.ratio, ...row[field]?.interval,
        title: `${ratio(row[field]?.ratio)}, ${interval(row[field]?.interval)}\n${verdict(row, field)}`,
        group: role(row),
      }));
      return bars(width, shown, {
        label: `${chosen.Figure}, baseline = 1`, format: (value) => value.toFixed(2), mark: 1, group: true,
        band: ranking.bands?.[field] ?? null,
      });
    }, { Figure: Object.keys(what) });

  const rate = ranking.rate ? ` at ${brief(ranking.rate.requests_per_s)} requests/s, half of ${ranking.rate.half_of}'s` : "";
  const bounded = rows.filter((row) => row.bound).map((row) => `${row.name}: at most ${row.bound}, by its shape`);
  const turns = d3.group((record.lines.turn ?? []).filter((turn) => turn.round > 0), (turn) => turn.name);
  const points = rows.filter((row) => !row.bound && row.latency && !row.latency.overloaded).flatMap((row) => {
    const recorded = histogram((turns.get(row.name) ?? []).map((turn) => turn.latency?.histogram));
    return (recorded ?? percentiles(row.latency) ?? []).map((point) => ({ name: row.name, ...point }));
  });
  const over = rows.filter((row) => row.latency?.overloaded).map((row) => `${row.name}: that rate is more than it can do`);
  const notes = [`From the intended start${rate}. The curves are of all rounds together; tables have medians of rounds.`, ...bounded, ...over].join(" ");
  if (points.length > 0) chart(section, "Latency by percentile", notes, (width) => percentileCurves(width, points));
  else if (rows.some((row) => row.latency)) section.append(h("p", { class: "note" }, `Latencies: ${notes}`));
  took(section, rows, {
    "server's CPU, of its cores": ["server_busy", percent],
    "client's CPU, of its cores": ["client_busy", percent],
    "memory under load": ["loaded_bytes", bytes],
    "memory a connection": ["bytes_per_connection", bytes],
    "context switches a request": ["switches_per_request", brief],
    "requests per CPU second": ["requests_per_cpu_s", brief],
  });
};

function role(row) {
  if (typeof row.role === "object") return "slowed on purpose";
  return { ranked: "ranked", baseline: "the baseline", same: "the baseline again", limit: "a limit, no server" }[row.role] ?? "";
}

function verdict(row, field) {
  if (row.role === "baseline") return "the baseline";
  const said = (row[field]?.verdict ?? "").replaceAll("_", " ");
  return field === "cost" && row.cost_void ? `${said}; does not count: ${(row.cost_void.why ?? "").replaceAll("_", " ")}` : said;
}

// CPU, memory and the like: `figures` are label -> [field or function, format]; a figure that no contestant has is left out.
function took(section, rows, figures) {
  const value = (row, of) => (typeof of === "function" ? of(row) : row[of]);
  const there = Object.keys(figures).filter((label) => rows.some((row) => isNumber(value(row, figures[label][0]))));
  if (there.length === 0) return;
  chart(section, "CPU and memory", null, (width, chosen) => {
    const [of, format] = figures[chosen.Figure];
    return bars(width, rows.map((row) => ({ name: row.name, value: value(row, of), group: row.group })),
      { label: chosen.Figure, format });
  }, { Figure: there });
}
