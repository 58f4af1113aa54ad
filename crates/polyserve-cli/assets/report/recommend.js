// A recommendation: what was asked for, the choice with the lines of Rust that use it, and all that were in question.

drawings.recommend = (record, section) => {
  const found = record.lines.recommendation?.at(-1);
  if (!found) return;
  const name = (one) => `${one.server}/${one.repo}${isNumber(one.workers) ? `, ${one.workers} workers` : ""}`;
  const ranked = found.ranked ?? [];
  const asked = record.environments[0]?.plan?.asked;
  if (asked) section.append(h("p", {}, `Asked: ${asked}.`));
  const { answer = [], rate } = record.derived ?? {};
  if (answer.length > 0) {
    section.append(h("p", {}, h("strong", {}, answer[0])));
    if (answer.length > 1) section.append(h("ul", {}, answer.slice(1).map((line) => h("li", {}, line))));
  }
  const lines = found.choice?.lines;
  if (lines) section.append(h("pre", {}, h("code", {}, [lines.import, ...(lines.code ?? [])].filter(Boolean).join("\n"))));
  if (ranked.length === 0) return;
  chart(section, "Against the choice", "Requests a second, 95 % intervals. The grey band is the choice against itself: an interval that meets it is a tie.", (width) =>
    bars(width, ranked.map((one) => ({
      name: name(one), ...(one.of_winner ? { value: one.of_winner.ratio, ...one.of_winner.interval } : { value: 1 }),
      title: one.of_winner ? `${ratio(one.of_winner.ratio)}, ${interval(one.of_winner.interval)}\n${(one.verdict ?? "").replaceAll("_", " ")}` : "the choice",
    })), { label: "requests a second, the choice = 1", format: (value) => value.toFixed(2), mark: 1, band: found.tie_band ?? null }));
  const points = ranked.filter((one) => one.latency && !one.latency.overloaded)
    .flatMap((one) => (percentiles(one.latency) ?? []).map((point) => ({ name: name(one), ...point })));
  if (points.length > 0) {
    chart(section, "Latency by percentile", rate ? `From the intended start, at ${rate}.` : "From the intended start.",
      (width) => percentileCurves(width, points));
  }
  took(section, ranked.map((one) => ({ ...one, name: name(one) })), {
    "requests a second": ["requests_per_s", brief], "requests per CPU second": ["requests_per_cpu_s", brief], "memory under load": ["loaded_bytes", bytes],
  });
};
