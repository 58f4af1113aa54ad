// Servers under crowds: the cost of an idle connection, and the figures of a good client during a slow crowd.

drawings.crowd = (record, section) => {
  const rows = (record.lines.row ?? []).map((line) => line.row ?? { ...line, kind: line.crowd_kind });
  const idle = rows.filter((row) => row.outcome === "idle");
  if (idle.length > 0) {
    const figures = {
      "bytes a connection": [(row) => row.memory?.bytes_per_connection, bytes],
      "memory with the crowd": [(row) => row.memory?.with_bytes, bytes],
      "memory before": [(row) => row.memory?.before_bytes, bytes],
    };
    took(section, idle, figures);
    chart(section, "A good client during an idle crowd", "With the crowd / without, 95 % intervals.", (width, chosen) => {
      const field = chosen.Figure === "requests a second" ? "throughput" : "cost";
      return bars(width, idle.map((row) => ({
        name: row.name, value: row.beside?.[field]?.ratio, ...row.beside?.[field]?.interval,
        title: `${ratio(row.beside?.[field]?.ratio)}, ${interval(row.beside?.[field]?.interval)}`,
      })), { label: `${chosen.Figure}, with / without`, format: (value) => value.toFixed(2), mark: 1 });
    }, { Figure: ["requests a second", "requests per CPU second"] });
  }
  const slow = rows.filter((row) => row.outcome === "slow");
  if (slow.length > 0) {
    chart(section, "A good client during a slow crowd", "From when a request was due.", (width, chosen) =>
      percentileCurves(width, slow.filter((row) => row.kind === chosen.Crowd).flatMap((row) =>
        (percentiles(row[chosen.Phase]) ?? []).map((point) => ({ name: row.name, ...point })))),
    { Crowd: distinct(slow, (row) => row.kind), Phase: ["with", "before", "after"] });
  }
};
