// The page's own test, run where its address ends with #self-test: every choice of every chart has marks, every column of
// every table sorts both ways, nothing is wider than the window, texts can be read in both schemes, and nothing went wrong.
// The findings are in the page as JSON, for the program that drives the browser.

const MARKS = "bar|dot|line|rect|cell|area|link|tick|vector".split("|").map((mark) => `svg g[aria-label^="${mark}"] :is(rect, path, circle, line)`).join(",");

function marksOf(figure) {
  const place = figure.querySelector(".place");
  const broken = [...place.querySelectorAll("svg *")].some((element) =>
    [...element.attributes].some((attribute) => /NaN|undefined|Infinity/.test(attribute.value)));
  return broken ? 0 : place.querySelectorAll(MARKS).length;
}

// The names of a chart and of its drawn parts, with the experiment: several experiments have charts of one name.
function drawnOf(figure) {
  const section = figure.closest("section");
  const place = [...document.querySelectorAll("main > section[id^=record-]")].indexOf(section);
  const title = `${data.records[place]?.experiment ?? section.id}: ${figure.dataset.chart}`;
  const parts = [...figure.querySelectorAll(".place svg .part")].filter((part) => part.querySelector("path, line"));
  return [title, ...parts.map((part) => `${title}: ${part.getAttribute("class").replace("part ", "")}`)];
}

// Every choice by itself, the others as they stand.
function testChart(figure, failures) {
  const counts = [];
  const drawn = drawnOf(figure);
  const look = (how) => {
    const marks = marksOf(figure);
    counts.push(marks);
    if (marks === 0) failures.push(`the chart ${figure.dataset.chart}${how} has no marks`);
  };
  look("");
  for (const list of figure.querySelectorAll("select")) {
    for (const option of [...list.options].map((one) => one.value)) {
      list.value = option;
      list.dispatchEvent(new Event("change"));
      look(` with ${option}`);
    }
  }
  return { drawn, marks: counts };
}

function testTable(table, failures) {
  const heads = [...table.querySelectorAll("thead th")];
  const cells = (column) => [...table.querySelectorAll("tbody tr")].map((row) => row.children[column].textContent);
  const say = (head, what) => failures.push(`the table ${table.dataset.table}, column ${head.textContent}: ${what}`);
  table.querySelector(".more:not([hidden])")?.click();
  heads.forEach((head, column) => {
    const before = cells(column).sort();
    for (const _ of [1, 2]) {
      head.querySelector("button").click();
      const sorted = cells(column);
      const way = { ascending: 1, descending: -1 }[head.getAttribute("aria-sort")];
      if (!way) return say(head, "does not say how it is sorted");
      if (heads.some((other) => other !== head && other.hasAttribute("aria-sort"))) say(head, "is not the only one");
      const filled = sorted.filter((cell) => cell !== "" && cell !== "-");
      if (filled.some((cell, place) => cell !== sorted[place])) say(head, "has a gap above a cell");
      const isFigures = head.classList.contains("figure");
      const keys = isFigures ? filled.map(magnitude).filter((key) => key !== null) : filled;
      const by = (a, b) => (isFigures ? a - b : a.localeCompare(b, "en", { numeric: true }));
      if (keys.some((key, place) => place > 0 && by(keys[place - 1], key) * way > 0)) say(head, `is not ${head.getAttribute("aria-sort")}`);
      if (sorted.sort().join("\n") !== before.join("\n")) say(head, "has lost cells");
    }
  });
  return table.dataset.table;
}

// Contrast, as WCAG 2 has it.
function contrast(one, other) {
  const light = (text) => {
    const { r, g, b } = d3.rgb(text);
    const [red, green, blue] = [r, g, b].map((part) => part / 255).map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue + 0.05;
  };
  const [low, high] = [light(one), light(other)].sort((a, b) => a - b);
  return high / low;
}

// Both schemes by the page's own switch: texts at 4.5, marks at 3 against what they stand on.
function testSchemes(failures) {
  const button = document.querySelector(".theme");
  const probe = document.body.appendChild(h("span", {}));
  const value = (name) => { probe.style.color = `var(--${name})`; return getComputedStyle(probe).color; };
  const seen = [];
  for (const _ of [1, 2, 3]) {
    button.click();
    const scheme = document.documentElement.dataset.theme ?? "system";
    seen.push(scheme);
    for (const name of ["text", "quiet", "accent", "good", "bad", "warn", ...d3.range(1, COLOURS + 1).map((place) => `series-${place}`)]) {
      const least = name.startsWith("series") ? 3 : 4.5;
      for (const ground of ["page", "surface", ...(name === "warn" ? ["warn-surface"] : [])]) {
        const found = contrast(value(name), value(ground));
        if (!(found >= least)) failures.push(`${scheme}: ${name} on ${ground} has a contrast of ${found.toFixed(2)}`);
      }
    }
    const isDark = contrast(value("page"), "black") < contrast(value("page"), "white");
    if (scheme !== "system" && isDark !== (scheme === "dark")) failures.push(`the switch to ${scheme} does nothing`);
  }
  probe.remove();
  return seen;
}

function tests(failures) {
  for (const details of document.querySelectorAll("details")) details.open = true;
  const charts = [...document.querySelectorAll(".chart")].map((figure) => testChart(figure, failures));
  const tables = [...document.querySelectorAll("[data-table]")].map((table) => testTable(table, failures));
  for (const [place, record] of data.records.entries()) {
    const part = document.querySelectorAll("main > section[id^=record-]")[place];
    if (drawings[record.experiment] && !part?.querySelector(".chart")) failures.push(`${record.file} has no chart`);
    if (!part?.querySelector("dl")) failures.push(`${record.file} has no environment`);
  }
  // The answer comes first, the claims last, each with its evidence.
  const order = [...document.querySelectorAll("main > section")].map((section) => section.id);
  if (order.includes("ranking") && order[0] !== "ranking") failures.push("the ranking is not the first section");
  if (order.includes("claims") && order.at(-1) !== "claims") failures.push("the claims are not the last section");
  const claims = data.records.flatMap((record) => record.claims);
  const listed = [...document.querySelectorAll("#claims details")];
  if (listed.length !== claims.length) failures.push(`${listed.length} of ${claims.length} claims are listed`);
  const evidence = (claim) => [claim?.figure, claim?.published].filter(Boolean);
  if (listed.some((shown, place) => evidence(claims[place]).some((text) => !shown.textContent.includes(text)))) failures.push("a claim has no evidence");
  const schemes = testSchemes(failures);
  const { scrollWidth, clientWidth } = document.documentElement;
  if (scrollWidth > clientWidth) failures.push(`the page is ${scrollWidth} wide in a window of ${clientWidth}`);
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const marks = d3.sum(charts, (one) => d3.sum(one.marks));
  const drawn = distinct(charts.flatMap((one) => one.drawn), (one) => one);
  return { width: window.innerWidth, dark, records: data.records.length, charts: charts.length, marks, tables: tables.length, drawn, schemes };
}

function selfTest() {
  const failures = [];
  let found = {};
  try {
    found = tests(failures);
  } catch (error) {
    failures.push(`the self-test itself: ${error.stack ?? error}`);
  }
  failures.push(...errors);
  found = { passed: failures.length === 0, failures, ...found };
  const text = JSON.stringify(found);
  document.body.append(h("pre", { id: "self-test", hidden: "" }, text));
  document.title = found.passed ? "self-test: passed" : "self-test: FAILED";
  // To the page that holds this one in a frame of some width.
  if (window.parent !== window) window.parent.postMessage(text, "*");
}

// After what was to come next: an error there is one too.
if (location.hash === "#self-test") window.addEventListener("load", () => setTimeout(selfTest, 50));
