// CPU tasks: durations, cost and profit against how many run at once, the published figures dashed; what the time was.

drawings.tasks = (record, section) => {
  const cells = (record.lines.cell ?? []).filter((cell) => isNumber(cell.tasks)); // the others are single runs
  const atOnce = cells.filter((cell) => !cell.series);
  const sizes = distinct(cells.filter((cell) => cell.series), (cell) => cell.series).sort((a, b) => a - b);
  const plan = record.environments[0]?.plan ?? {};
  section.append(h("p", {}, `${brief(plan.core_count)} cores; one task takes about ${brief(plan.task_ms)} ms.`));
  const series = ["all at once", ...sizes.map((size) => `in series of ${size}`)];
  const some = (chosen) => cells.filter((cell) => (cell.series || 0) === (sizes[series.indexOf(chosen.Tasks) - 1] ?? 0));

  chart(section, "Durations against the number of tasks",
    "A contestant's own single task is 1; dashed: the published runs, on 8 cores. Mean: of a task from its start to its end. Total: from the first start to the last end.",
    (width, chosen) => {
      const field = chosen.Figure === "total duration" ? "total_duration_ms" : "mean_duration_ms";
      const inTasks = chosen.Unit === "single tasks";
      const ours = some(chosen).map((cell) => ({ name: cell.contestant, x: cell.tasks, y: cell[field] / (inTasks ? cell.d1_ms : 1) }));
      return taskCurves(width, ours, inTasks && chosen.Tasks === series[0] ? publishedTasks((row, first) => row[field] / first) : [],
        inTasks ? `${chosen.Figure}, in single tasks` : `${chosen.Figure}, ms`);
    }, { Figure: ["total duration", "mean duration"], Unit: ["single tasks", "ms"], Tasks: series });

  const profits = { profit: "profit_pct", cost: "cost_pct" };
  chart(section, "Cost and profit", "Profit: 1 - total / (t x a single task). Cost: 1 - t x a single task / the sum of all durations. Dashed: published, on 8 cores.",
    (width, chosen) => {
      const field = profits[chosen.Figure];
      const ours = some(chosen).map((cell) => ({ name: cell.contestant, x: cell.tasks, y: cell[field] }));
      return taskCurves(width, ours, chosen.Tasks === series[0] ? publishedTasks((row) => row[field]) : [], `${chosen.Figure}, %`);
    }, { Figure: Object.keys(profits), Tasks: series });

  shares(section, atOnce);
  if (atOnce.some((cell) => isNumber(cell.threads))) {
    chart(section, "Threads", "Of the process, while the tasks ran.", (width) =>
      taskCurves(width, atOnce.map((cell) => ({ name: cell.contestant, x: cell.tasks, y: cell.threads })), [], "threads"));
  }
  gantt(section, cells);
};

function publishedTasks(figure) {
  return ["go", "rust"].flatMap((language) => {
    const rows = data.published[`tasks_${language}`];
    return rows.map((row) => ({ name: `published: ${language}`, x: row.tasks, y: figure(row, rows[0].mean_duration_ms), dashed: true }));
  });
}

function taskCurves(width, ours, theirs, label) {
  const most = d3.max(ours, (point) => point.x);
  const points = d3.sort([...ours, ...theirs.filter((point) => point.x <= most)], (point) => point.x);
  return curves(width, points, {
    x: { label: "tasks at once", ticks: d3.ticks(1, most, isNarrow(width) ? 6 : 12).filter(Number.isInteger), tickFormat: String }, y: { label, zero: true },
    title: ({ name, x, y }) => `${name}\n${x} tasks: ${brief(y)}`,
  });
}

// What a task's duration was: processor time, and time waited for a core or a lock. Told apart by threads' CPU time.
function shares(section, cells) {
  const told = cells.filter((cell) => isNumber(cell.working_pct));
  if (told.length === 0) return;
  const kinds = { working: "working_pct", waiting: "waiting_pct" };
  chart(section, "Working and waiting", "Shares of all tasks' durations: working is CPU time; waiting is time without a core, which is no overhead of the program's.",
    (width, chosen) => {
      const rows = told.filter((cell) => cell.contestant === chosen.Contestant).flatMap((cell) =>
        Object.entries(kinds).map(([kind, field]) => ({ tasks: cell.tasks, kind, share: cell[field] })));
      const ticks = distinct(rows, (row) => row.tasks);
      const every = Math.ceil(ticks.length / (isNarrow(width) ? 8 : 20));
      return plot(width, {
        marginLeft: 46, height: 280,
        x: { label: "tasks at once", ticks: ticks.filter((_, place) => place % every === 0) }, y: { label: "%", grid: true },
        color: { domain: Object.keys(kinds), range: [colour(2), colour(9)], legend: true },
        marks: [Plot.barY(rows, { x: "tasks", y: "share", fill: "kind", fillOpacity: 0.85, tip: true,
          title: (row) => `${row.tasks} tasks, ${row.kind}: ${brief(row.share)} %` }), Plot.ruleY([0])],
      });
    }, { Contestant: distinct(told, (cell) => cell.contestant) });
}
