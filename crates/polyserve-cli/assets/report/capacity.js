// Capacities: the max rate of Poisson arrivals with which a contestant meets a goal.

// The goals of a record that have rows, with their names.
const goalsOf = (record) => (record.derived?.goals ?? []).filter((goal) => goal.rows.length > 0)
  .map((goal) => ({ ...goal, name: `p99 at most ${time(goal.goal_us)}` }));

// A chart of capacities, one goal at a time.
function capacityChart(section, title, goals) {
  const group = (row) => (row.client_full ? "client full" : / \(again\)$/.test(row.name) ? "the baseline again" : "measured");
  chart(section, title, "The max rate of Poisson arrivals: medians over rounds, 95 % intervals. A server whose client was full may be able to do more.",
    (width, chosen) => bars(width, goals.find((goal) => goal.name === chosen.Goal).rows.map((row) => ({
      name: row.name, value: row.per_s, ...(row.interval ?? {}), group: group(row),
      title: `${{ below: "less than ", above: "at least " }[row.end] ?? ""}${brief(row.per_s)} requests/s, `
        + (row.interval ? `${brief(row.interval.low)} to ${brief(row.interval.high)}` : "too few rounds for an interval")
        + (isNumber(row.cpu_us) ? `\n${row.cpu_us.toFixed(2)} us of CPU time for each request` : ""),
    })), { label: "requests/s", group: true }),
    { Goal: goals.map((goal) => goal.name) });
}

drawings.capacity = (record, section) => {
  const goals = goalsOf(record);
  if (goals.length > 0) capacityChart(section, "The max rate for a latency", goals);
};
