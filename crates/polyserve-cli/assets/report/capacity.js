// Capacities: the max rate of Poisson arrivals with which a contestant meets a goal.

drawings.capacity = (record, section) => {
  const goals = (record.derived?.goals ?? []).map((goal) => ({ ...goal, name: `p99 at most ${time(goal.goal_us)}` }));
  if (goals.every((goal) => goal.rows.length === 0)) return;
  const asked = (row) => (/ \(again\)$/.test(row.name) ? "the baseline again" : "measured");
  chart(section, "The max rate for a latency", "Poisson arrivals, medians over rounds with 95 % intervals. A server whose client was full may be able to do more.",
    (width, chosen) => bars(width, goals.find((goal) => goal.name === chosen.Goal).rows.map((row) => ({
      name: row.name, value: row.per_s, ...row.interval, group: row.client_full ? "client full" : asked(row),
      title: `${brief(row.per_s)} requests/s, ${brief(row.interval.low)} to ${brief(row.interval.high)}`
        + (isNumber(row.cpu_us) ? `\n${row.cpu_us.toFixed(2)} us of CPU time for each request` : ""),
    })), { label: "requests/s", group: true }),
    { Goal: goals.map((goal) => goal.name) });
};
