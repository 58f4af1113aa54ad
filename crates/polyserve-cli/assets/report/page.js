// The page: the ranking, a section for each record, the claims, and the switch of its colours.

const SHOWN_ENVIRONMENT = ["date", "command", "cpu", "cores", "server_cores", "client_cores", "kernel", "rustc", "profile",
  "allocator", "commit", "seed"];
const VERDICTS = ["confirmed", "refuted", "undecided"];

function verdictShown(cell) {
  return VERDICTS.includes(cell) ? h("span", { class: `verdict ${cell}` }, cell) : cell;
}

// The switch: as the system has it, dark, light.
function theme() {
  const kept = { get: () => { try { return localStorage.getItem("theme"); } catch { return null; } },
    set: (value) => { try { localStorage.setItem("theme", value); } catch { /* a page from a file may keep nothing */ } } };
  const button = h("button", { type: "button", class: "theme", click: () => {
    const next = { system: "dark", dark: "light", light: "system" }[now];
    kept.set(next);
    apply(next);
  } });
  let now = "system";
  function apply(value) {
    now = value;
    if (value === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = value;
    button.textContent = `Colours: ${value}`;
  }
  apply({ dark: "dark", light: "light" }[kept.get()] ?? "system");
  return button;
}

function environment(record) {
  const [first, ...others] = record.environments;
  if (!first) return h("p", { class: "short" }, "Nothing says where and with what this was measured.");
  const shown = (value) => (typeof value === "object" && value !== null ? JSON.stringify(value) : String(value));
  const names = [...SHOWN_ENVIRONMENT.filter((name) => name in first),
    ...Object.keys(first).filter((name) => !SHOWN_ENVIRONMENT.includes(name) && !["kind", "experiment", "plan"].includes(name))];
  const list = h("dl", {}, names.map((name) => [h("dt", {}, name.replaceAll("_", " ")), h("dd", {}, shown(first[name]))]),
    Object.entries(first.plan ?? {}).map(([name, value]) => [h("dt", {}, `plan: ${name}`), h("dd", {}, shown(value))]),
    others.map((header) => [h("dt", {}, "gone on with"), h("dd", {}, shown(header.date))]));
  const day = String(first.date ?? "").slice(0, 10);
  return [h("p", { class: "origin" }, h("code", {}, first.command), ` ${day}, ${first.cpu}, ${first.cores} cores, commit ${first.commit}`),
    h("details", {}, h("summary", {}, "Environment and plan"), list)];
}

// One line for each claim; its evidence opens below it.
function claimsList(records) {
  const claims = records.flatMap((record) => record.claims.map((claim) => ({ ...claim, record })));
  if (claims.length === 0) return null;
  return h("ul", { class: "claims" }, claims.map(({ claim, published, verdict, figure, record }) => h("li", {}, h("details", {},
    h("summary", {}, verdictShown(verdict), ` ${claim}`),
    h("p", {}, figure), published ? h("p", {}, `Published: ${published}`) : null, h("p", { class: "origin" }, `${record.article ?? record.title}; ${record.file}`)))));
}

// The contestants without figures, with the reasons.
const WITHOUT_FIGURES = ["not_run", "refusal", "failure"];

function leftOut(record) {
  const lines = WITHOUT_FIGURES.flatMap((kind) => record.lines[kind] ?? []);
  const name = (line) => [line.name ?? line.contestant ?? line.server, line.pool_size ?? line.workers ?? line.tasks].filter((part) => part !== null && part !== undefined).join(", ");
  const said = distinct(lines, (line) => `${name(line)}: ${line.why}`);
  if (said.length === 0) return null;
  return h("details", { class: "left-out", open: said.length <= 12 ? "" : null },
    h("summary", {}, `Not measured, or failed on the way: ${said.length}`), h("ul", {}, said.map((one) => h("li", {}, one))));
}

function section(record, place) {
  const id = `record-${place + 1}-${slug(record.experiment)}`;
  const part = h("section", { id }, h("h2", {}, record.title),
    record.article ? h("p", { class: "article" }, `Published: ${record.article}`) : null,
    h("p", { class: "file" }, record.file), environment(record),
    record.short_of ? h("p", { class: "short", role: "note" }, `Not complete: ${record.short_of}.`) : null,
    record.not_shown.map((said) => h("p", { class: "short", role: "note" }, said)), leftOut(record));
  return { id, part };
}

// Drawn once it is on the page: a chart asks how wide it may be.
function fill(record, part) {
  try {
    drawings[record.experiment]?.(record, part);
  } catch (error) {
    console.error(`${record.file}: ${error.stack ?? error}`);
    part.append(h("p", { class: "short" }, `Its charts cannot be drawn: ${error.message}`));
  }
  for (const table of record.tables) {
    const shown = sortable(table.name, table.rows);
    part.append(h("details", { open: table.rows.length > FEW_ROWS / 2 ? null : "" },
      h("summary", {}, `Table: ${table.name}, ${table.rows.length - 1}`), shown));
  }
}

function draw() {
  const { records } = data;
  const parts = records.map(section);
  const claims = claimsList(records);
  const ranking = rankingSection(records);
  const title = (record) => (records.filter((other) => other.title === record.title).length > 1
    ? `${record.title} (${record.file})` : record.title);
  const links = parts.map(({ id }, place) => h("li", {}, h("a", { href: `#${id}` }, title(records[place]))));
  const days = distinct(records.flatMap((record) => record.environments), (header) => String(header.date ?? "").slice(0, 10)).filter(Boolean).sort();
  document.body.append(
    h("header", {}, h("h1", {}, "polyserve: measurements"),
      h("p", {}, `${records.length} ${records.length === 1 ? "record" : "records"}`,
        days.length ? `, ${days.length > 1 ? `${days[0]} to ${days.at(-1)}` : days[0]}` : "",
        ". Figures of one machine: compare ratios and shapes, and measure on your own."), theme()),
    h("nav", { "aria-label": "Records" }, h("ul", {},
      ranking ? h("li", {}, h("a", { href: "#ranking" }, "Ranking")) : null, links,
      claims ? h("li", {}, h("a", { href: "#claims" }, "Claims")) : null)),
    h("main", {}, ranking, parts.map(({ part }) => part),
      claims ? h("section", { id: "claims" }, h("h2", {}, "Published claims, and what was measured here"), claims) : null),
    h("footer", {}, `Made by polyserve ${data.version} from recorded runs. Drawn with D3 and Observable Plot; their licences are in this page's source.`));
  if (ranking) fillRanking(ranking, records);
  parts.forEach(({ part }, place) => fill(records[place], part));
}

draw();
