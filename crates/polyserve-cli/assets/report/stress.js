// The stress scenario: each group's measured and published figures, by the published columns.

drawings.stress = (record, section) => {
  const rounds = record.lines.round ?? [];
  // A server that was asked again counts as it was last.
  const latest = [...new Map(rounds.map((round) => [`${round.server}/${round.repo}, ${round.mode}`, round])).entries()];
  const ours = latest.flatMap(([name, round]) => (round.groups ?? []).map((group) => ({ ...group, name, mode: round.mode })));
  const theirs = data.published.stress.map((row) => ({ ...row, name: `published: ${row.lang}`, mode: "published" }));
  if (ours.length === 0) return;
  chart(section, "The stress scenario", "Three groups of requests at once. Published: all connections at once, JMeter on the same machine; another machine, another year.",
    (width, chosen) => bars(width, [...ours, ...theirs].filter((row) => row.phase === chosen.Group)
      .map((row) => ({ name: row.name, group: row.mode, value: row[chosen.Column] })), { label: chosen.Column, group: true }),
    { Group: ["total", ...distinct(ours, (row) => row.phase).filter((phase) => phase !== "total")],
      Column: ["requests_per_s", "received_kB_s", "sent_kB_s", "error_pct", "samples"] });
};
