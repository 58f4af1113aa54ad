// The ladder: each rung against the one below and against the references, and how the rungs add up.

drawings.ladder = (record, section) => {
  const rungs = climbed(record);
  if (rungs.length === 0) return;
  const subjects = distinct(rungs.filter((rung) => rung.role === "rung"), (rung) => rung.subject);
  const references = rungs.filter((rung) => rung.role === "reference");
  const of = (chosen) => rungs.filter((rung) => rung.role !== "reference" && rung.subject === chosen.Server);

  chart(section, "What each rung adds", "Each rung against the rung below, with the 95 % interval; right of 1 is a gain. The second entry of the lowest rung shows the noise.",
    (width, chosen) => bars(width, of(chosen).filter((rung) => rung.below || rung.role === "control").map((rung) => {
      const isCost = chosen.Figure === "requests per CPU second";
      const [value, low, high] = isCost ? [rung.cost_ratio, rung.cost_low, rung.cost_high] : [rung.ratio, rung.low, rung.high];
      return { name: rung.step ? `+ ${rung.step}` : rung.rung, value, low, high,
        group: rung.role === "control" ? "the lowest rung again" : rung.aside ? "tried aside" : "kept",
        title: `${rung.rung}\n${ratio(value)}, ${interval({ low, high })} against ${rung.below ?? "itself"}${isCost ? "" : `\n${(rung.verdict ?? "").replaceAll("_", " ")}`}` };
    }), { label: `${chosen.Figure}, rung below = 1`, format: (value) => value.toFixed(3), mark: 1, group: true, dots: true }),
    { Server: subjects, Figure: ["requests a second", "requests per CPU second"] });

  chart(section, "How the rungs add up", "A waterfall: each step from the rung below to its own, medians over rounds; dashed: the references. Side trials are no steps. The axis may begin past 0.",
    (width, chosen) => waterfall(width, of(chosen).filter((rung) => rung.role === "rung" && !rung.aside).map(step), references.map(step)),
    { Server: subjects });

  const against = { "go-fasthttp": "against_fasthttp", "go-nethttp": "against_nethttp" };
  const there = Object.keys(against).filter((name) => rungs.some((rung) => isNumber(rung[against[name]])));
  if (there.length > 0) {
    chart(section, "Against Go's servers", "Every rung of every ladder; 95 % intervals.", (width, chosen) => {
      const field = against[chosen.Against];
      return bars(width, rungs.filter((rung) => rung.role === "rung").map((rung) => ({
        name: rung.rung, group: rung.subject, value: rung[field], low: rung[`${field}_low`], high: rung[`${field}_high`],
        title: `${ratio(rung[field])}, ${interval({ low: rung[`${field}_low`], high: rung[`${field}_high`] })}`,
      })), { label: `requests a second, ${chosen.Against} = 1`, format: (value) => value.toFixed(2), mark: 1, group: true });
    }, { Against: there });
  }

  const theirs = data.published.ladder.map((row, place, all) => ({ name: row.rung, value: row.requests_per_s,
    below: place > 1 ? all[place - 1].rung : null, step: row.rung.split("+").at(-1) }));
  chart(section, "The published ladder", "wrk with 1000 connections on 32 cores; dashed: Go's fasthttp there. Compare the steps, not the values.",
    (width) => waterfall(width, theirs.slice(1), theirs.slice(0, 1)));

  took(section, rungs.map((rung) => ({ ...rung, name: rung.rung, group: rung.subject })), {
    "requests per CPU second": ["requests_per_cpu_s", brief], "server's CPU, of its cores": ["server_busy", percent],
    "client's CPU, of its cores": ["client_busy", percent], "the program's size": ["program_bytes", bytes],
  });
};

// The last line of each rung, or what follows from the turns where the run had no end; with its contestant's role.
function climbed(record) {
  const lines = record.lines.rung ?? record.derived?.rungs ?? [];
  const roles = new Map((record.lines.contestant ?? []).map((one) => [one.name, one.role]));
  const role = (rung) => roles.get(rung.rung) ?? (/ \(again\)$/.test(rung.rung) ? "control" : /^go-/.test(rung.rung) ? "reference" : "rung");
  return [...new Map(lines.map((rung) => [rung.rung, { ...rung, role: role(rung) }])).values()]
    .filter((rung) => isNumber(rung.requests_per_s));
}

const step = (rung) => ({ name: rung.rung, value: rung.requests_per_s, below: rung.below, step: rung.step });

// Steps: {name, value, below, step}; references: {name, value}.
function waterfall(width, steps, references) {
  if (steps.length === 0) return null;
  const values = new Map(steps.map((one) => [one.name, one.value]));
  const rows = steps.map((one) => {
    const from = values.get(one.below);
    return { ...one, label: isNumber(from) ? `+ ${one.step ?? one.name}` : one.name, from,
      kind: !isNumber(from) ? "the lowest rung" : one.value >= from ? "gains" : "loses" };
  });
  // Steps are a few per cent of the whole: an axis from 0 would not show them.
  const [low, high] = d3.extent([...steps, ...references], (one) => one.value);
  const start = Math.max(0, low - Math.max((high - low) * 0.5, high * 0.02));
  const side = named(width, rows.map((row) => row.label));
  return plot(width, {
    ...side.options, height: side.height + 16, marginTop: 34,
    x: { label: "requests/s", grid: true, domain: [start, high + (high - start) * 0.08], ticks: isNarrow(width) ? 3 : 7, tickFormat: brief },
    color: { domain: ["the lowest rung", "gains", "loses"], range: [colour(9), colour(2), colour(1)], legend: true },
    marks: [
      Plot.barX(rows, { y: "label", x1: (row) => row.from ?? start, x2: "value", fill: "kind", tip: "y",
        title: (row) => `${row.name}\n${brief(row.value)} requests/s${isNumber(row.from) ? `, ${ratio(row.value / row.from)} of the rung below` : ""}` }),
      Plot.tickX(rows, { y: "label", x: "value", strokeWidth: 2 }),
      Plot.ruleX(references, { x: "value", stroke: "currentColor", strokeDasharray: "4 3", className: "part references" }),
      Plot.text(references, { x: "value", text: "name", frameAnchor: "top", dy: -14 }),
      ...side.marks,
    ],
  });
}
