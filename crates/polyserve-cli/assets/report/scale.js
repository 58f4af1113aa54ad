// How cost grows along an axis: medians at each place, and the fitted growth as thin lines with its exponent.

// Label -> [the field of a cell, the growth's metric, format].
const SCALE_FIGURES = {
  "requests/s": ["per_s", "throughput", brief], "CPU a request": ["cpu_us", "cpu", time], "p99 at a fixed rate": ["p99_us", "p99", time],
  "memory under load": ["loaded_bytes", "memory", bytes],
};

drawings.scale = (record, section) => {
  const cells = record.lines.cell ?? [];
  const axes = distinct(cells, (cell) => cell.axis);
  const growth = record.derived?.growth ?? record.lines.growth ?? [];
  const there = Object.keys(SCALE_FIGURES).filter((label) => cells.some((cell) => isNumber(cell[SCALE_FIGURES[label][0]])));
  if (there.length === 0) return;
  for (const axis of axes) {
    const own = cells.filter((cell) => cell.axis === axis);
    const some = there.filter((label) => own.some((cell) => isNumber(cell[SCALE_FIGURES[label][0]])));
    const isFitted = growth.some((one) => one.axis === axis);
    chart(section, `Along ${axis}`, `Medians over rounds.${isFitted ? " Dotted: the fitted growth; point at it for its law." : ""}`,
      (width, chosen) => {
        const [field, metric, format] = SCALE_FIGURES[chosen.Figure];
        const usable = own.filter((cell) => isNumber(cell[field]) && !(field === "p99_us" && cell.overloaded));
        const points = d3.flatRollup(usable, (same) => d3.median(same, (cell) => cell[field]), (cell) => cell.name, (cell) => cell.x)
          .map(([name, x, y]) => ({ name, x, y })).filter((point) => point.x > 0 && point.y > 0);
        const fits = growth.filter((one) => one.axis === axis && one.metric === metric).flatMap(fitted);
        const places = distinct(points, (point) => point.x).sort((a, b) => a - b);
        return curves(width, d3.sort(points, (point) => point.x), {
          x: { type: "log", label: axis, tickFormat: brief, ticks: places },
          y: { type: "log", label: chosen.Figure, tickFormat: format, ticks: 5 },
          title: ({ name, x, y }) => `${name}\n${brief(x)} ${axis}: ${format(y)}`,
          under: [Plot.line(fits, { x: "x", y: "y", z: "name", stroke: "name", strokeDasharray: "1 3", tip: true, title: "law", className: "part growth" })],
        });
      }, { Figure: some });
  }
};

// Points of a fitted curve between its ends, with its law in words.
function fitted(one) {
  const [first, last] = (one.ends ?? []).map(([x]) => x);
  if (!(first > 0 && last > first)) return [];
  const isLine = one.law === "line";
  const at = isLine ? `, ${interval(one.interval)}` : `, exponent ${interval(one.interval)}`;
  const law = isLine ? `${one.name}\n${bytes(one.a)} + ${bytes(one.b)} each` : `${one.name}\ngrows as x^${one.b.toFixed(2)}${at}`;
  return d3.range(0, 21).map((step) => first * (last / first) ** (step / 20))
    .map((x) => ({ name: one.name, law, x, y: isLine ? one.a + one.b * x : one.a * x ** one.b })).filter((point) => point.y > 0);
}
