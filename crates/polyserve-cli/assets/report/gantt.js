// The schedule of one run: each task from its submission over its start to its end; all at once, and in series.

function gantt(section, cells) {
  const drawn = cells.filter((cell) => Array.isArray(cell.schedule) && cell.schedule.length > 0);
  if (drawn.length === 0) return;
  const inSeries = drawn.filter((cell) => cell.series);
  // Those counts first that were run both ways; of them the most.
  const both = distinct(inSeries, (cell) => cell.tasks).sort((a, b) => b - a);
  const counts = [...both, ...distinct(drawn, (cell) => cell.tasks).sort((a, b) => b - a).filter((count) => !both.includes(count))];
  chart(section, "Schedule", "Bars: from a task's start to its end. Thin lines: from its submission to its start. In series a batch starts when the last one has ended.",
    (width, chosen) => {
      const runs = drawn.filter((cell) => cell.contestant === chosen.Contestant && cell.tasks === Number(chosen.Tasks));
      return schedule(width, d3.sort(runs, (cell) => cell.series));
    }, { Contestant: distinct(drawn, (cell) => cell.contestant), Tasks: counts });
}

function schedule(width, runs) {
  const named = (cell) => (cell.series ? `in series of ${cell.series}` : "all at once");
  const rows = runs.flatMap((cell) => cell.schedule.map((task) => ({ ...task, how: named(cell) })));
  if (rows.length === 0) return null;
  const hows = distinct(runs, named);
  const count = d3.max(rows, (row) => row.task);
  const every = Math.ceil(count / 20);
  return plot(width, {
    marginLeft: 44, marginRight: 24, marginTop: 34,
    height: hows.length * Math.min(460, Math.max(90, count * 13 + 40)) + 50,
    x: { label: "ms", grid: true, ticks: isNarrow(width) ? 5 : 10 },
    y: { label: "task", ticks: d3.range(1, count + 1).filter((task) => (task - 1) % every === 0), tickSize: 0 },
    fy: { domain: hows, label: null, padding: 0.14, axis: null },
    color: { domain: hows, range: [colour(0), colour(2)] },
    marks: [
      Plot.text(hows, { fy: (how) => how, text: (how) => how, frameAnchor: "top-left", dy: -14, fontWeight: 600 }),
      Plot.ruleY(rows, { y: "task", fy: "how", x1: "submitted_ms", x2: "started_ms", strokeOpacity: 0.5 }),
      Plot.barX(rows, { y: "task", fy: "how", x1: "started_ms", x2: "finished_ms", fill: "how", inset: 0.5, tip: "y",
        title: (row) => `task ${row.task}: submitted ${brief(row.submitted_ms)}, started ${brief(row.started_ms)}, finished ${brief(row.finished_ms)} ms` }),
    ],
  });
}
