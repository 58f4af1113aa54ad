// The answer, before anything else: capacities, servers and stores, the best first, with their intervals.

// The part of a contestant's name that differs: `tokio_tcp/two_level` is a server and a store.
function contestant(name, places) {
  const words = name.split("/");
  return places === "all" ? name : words.slice(0, -1).join("/") || name;
}

// Comparisons of servers: the workload -> its ranking. Those of our own servers come first, and those with kept connections.
function rankingsOfServers(records) {
  const measured = records.filter((one) => one.experiment === "compare" && one.derived?.rows?.length);
  const isForeign = ({ derived }) => String(derived.baseline).startsWith("peer/");
  const isClosed = ({ derived }) => !/kept alive/.test(derived.asked ?? "");
  const file = (record) => record.file.split("/").at(-1).replace(/\.jsonl$/, "");
  const isAlone = ({ derived }) => measured.filter((other) => other.derived.asked === derived.asked).length === 1;
  const label = (record) => [record.derived.asked, isAlone(record) && record.derived.asked ? null : `(${file(record)})`].filter(Boolean).join(" ");
  return new Map(d3.sort(measured, isForeign, isClosed).map((record) => [label(record), record.derived]));
}

function serversRanked(section, records) {
  const rankings = rankingsOfServers(records);
  if (rankings.size === 0) return false;
  chart(section, "Servers", "Requests a second against the baseline: medians of ratios within rounds, 95 % intervals. An interval that meets the grey band is a tie with the baseline.",
    (width, chosen) => {
      const ranking = rankings.get(chosen.Load);
      const stores = distinct(ranking.rows, (row) => row.name.split("/").at(-1));
      const shown = d3.sort(ranking.rows.filter((row) => isNumber(row.throughput?.ratio)), (row) => -row.throughput.ratio).map((row) => ({
        name: contestant(row.name, stores.length > 1 ? "all" : "server"), value: row.throughput.ratio, ...row.throughput.interval,
        title: `${ratio(row.throughput.ratio)}, ${interval(row.throughput.interval)}\n${verdict(row, "throughput")}`, group: role(row),
      }));
      return bars(width, shown, { label: "throughput, baseline = 1", format: (value) => value.toFixed(2), mark: 1, group: true, band: ranking.bands?.throughput ?? null });
    }, { Load: [...rankings.keys()] });
  return true;
}

function storesRanked(section, records) {
  const measured = records.filter((one) => one.experiment === "stores" && one.derived?.points?.some((point) => point.beside));
  if (measured.length === 0) return false;
  // The record with the most places answers for all.
  const [record] = d3.sort(measured, (one) => -one.derived.points.length);
  // A worker for each core first.
  const isOther = (point) => point.axis !== "workers" || point.x !== record.environments[0]?.cores;
  const points = d3.sort(record.derived.points.filter((point) => point.beside), isOther);
  againstStores(section, points, record.derived.baseline ?? "the baseline", "Stores");
  return true;
}

// The headline figure. The record with the most contestants answers for all.
function capacitiesRanked(section, records) {
  const measured = records.filter((one) => one.experiment === "capacity" && goalsOf(one).length > 0);
  if (measured.length === 0) return false;
  const [record] = d3.sort(measured, (one) => -d3.max(goalsOf(one), (goal) => goal.rows.length));
  capacityChart(section, "Capacity", goalsOf(record));
  return true;
}

// The section at the top, or null if no record ranks anything.
function rankingSection(records) {
  const ranks = records.some((one) => (one.experiment === "compare" && one.derived?.rows?.length)
    || (one.experiment === "capacity" && goalsOf(one).length > 0)
    || (one.experiment === "stores" && one.derived?.points?.some((point) => point.beside)));
  return ranks ? h("section", { id: "ranking" }, h("h2", {}, "Which server, which store")) : null;
}

function fillRanking(section, records) {
  const [capacities, servers, stores] = [capacitiesRanked, serversRanked, storesRanked].map((ranked) => ranked(section, records));
  const missing = [capacities ? null : "capacities: polyserve capacity --out DIR", servers ? null : "servers: polyserve compare --out DIR", stores ? null : "stores: polyserve scale --in-process --out DIR"].filter(Boolean);
  for (const one of missing) section.append(h("p", { class: "note" }, `No record here ranks ${one} makes one.`));
}
