// Figures: how they are written for people, and how written ones are ordered.

const isNumber = (value) => typeof value === "number" && Number.isFinite(value);

// Three digits, or whole: 0.123, 12.3, 1,234, 123k, 1.2M.
function brief(value) {
  if (!isNumber(value)) return "";
  const size = Math.abs(value);
  if (size >= 99999.5) return d3.format(".3~s")(value).replace("G", "B");
  if (size >= 1000) return d3.format(",.0f")(value);
  if (size === 0) return "0";
  return size < 0.001 ? d3.format(".2~e")(value) : String(Number(value.toPrecision(3)));
}

// A time given in microseconds.
function time(us) {
  if (!isNumber(us)) return "";
  const [unit, size] = Math.abs(us) < 1000 ? ["us", 1] : Math.abs(us) < 1e6 ? ["ms", 1e3] : ["s", 1e6];
  return `${Number((us / size).toPrecision(3))} ${unit}`;
}

// Bytes, in powers of a thousand.
function bytes(count) {
  if (!isNumber(count)) return "";
  const [unit, size] = Math.abs(count) < 1e3 ? ["B", 1] : Math.abs(count) < 1e6 ? ["kB", 1e3]
    : Math.abs(count) < 1e9 ? ["MB", 1e6] : ["GB", 1e9];
  return `${Number((count / size).toPrecision(3))} ${unit}`;
}

const percent = (share) => (isNumber(share) ? `${Number((share * 100).toPrecision(3))} %` : "");
const ratio = (value) => (isNumber(value) ? value.toFixed(3) : "");
const interval = (at) => (at && isNumber(at.low) ? `${ratio(at.low)} to ${ratio(at.high)}` : "no interval");

const UNITS = {
  ns: 1e-3, us: 1, "µs": 1, ms: 1e3, s: 1e6, min: 6e7, B: 1, kB: 1e3, KB: 1e3, MB: 1e6, GB: 1e9, KiB: 1024,
  MiB: 1048576, GiB: 1073741824, "%": 1, x: 1, k: 1e3, M: 1e6,
};

// What a cell is ordered by: its first figure in its unit's least part, or nothing.
function magnitude(cell) {
  const found = /^[\s~<>=≤≥+[(]*([-−]?\d[\d,]*(?:\.\d+)?(?:[eE][-+]?\d+)?)\s*([a-zA-Zµ%]*)/.exec(cell);
  if (!found) return null;
  const number = Number(found[1].replaceAll(",", "").replace("−", "-"));
  return number * (UNITS[found[2]] ?? 1);
}

// Percentiles from fields such as p50_us or p99_ms: {at, us}, `at` in nines, the longest last. Null if there are none.
function percentiles(fields) {
  const found = [];
  for (const [name, value] of Object.entries(fields ?? {})) {
    const parts = /^(?:p(\d+)|(max))_(us|ms|s)$/.exec(name);
    if (!parts || !isNumber(value)) continue;
    const us = value * UNITS[parts[3]];
    if (parts[2]) found.push({ share: 1, at: LONGEST, label: "max", us });
    else {
      // p999 is 99.9 %.
      const share = Number(parts[1]) / 10 ** Math.max(2, parts[1].length);
      found.push({ share, at: -Math.log10(1 - share), label: `${Number((share * 100).toPrecision(6))} %`, us });
    }
  }
  return found.length > 1 ? found.sort((a, b) => a.at - b.at) : null;
}

const SHARES = [0, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999, 0.9999];

// The same from histograms, [[nanoseconds, count], ...], added up; only the shares that this number of requests can show. Null
// without any.
function histogram(histograms) {
  const counts = histograms.filter(Array.isArray).flat().sort((a, b) => a[0] - b[0]);
  const all = d3.sum(counts, ([, count]) => count);
  if (all === 0) return null;
  const points = [];
  let [place, below] = [0, 0];
  for (const share of SHARES.filter((one) => (1 - one) * all >= 1)) {
    while (place < counts.length - 1 && below + counts[place][1] < share * all) below += counts[place++][1];
    points.push({ share, at: -Math.log10(1 - share), label: `${Number((share * 100).toPrecision(6))} %`, us: counts[place][0] / 1000 });
  }
  const most = counts.at(-1)[0] / 1000;
  return [...points, { share: 1, at: LONGEST, label: "max", us: most }];
}

// Where the longest of all stands on an axis of nines.
const LONGEST = 4.5;
