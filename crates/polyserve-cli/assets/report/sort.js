// Sorts a table by the column whose header is clicked: figures by size, before texts; cells without a figure last.
"use strict";
// The factors of units: bytes, or microseconds.
const units = { ns: 1e-3, us: 1, ms: 1e3, s: 1e6, min: 6e7, kB: 1e3, MB: 1e6, GB: 1e9, KiB: 1024, MiB: 2 ** 20, GiB: 2 ** 30, k: 1e3, M: 1e6 };

function key(cell) {
  const found = /^[~<>=+\s(]*(-?\d[\d,]*(?:\.\d+)?(?:[eE][-+]?\d+)?)\s*([a-zA-Z]*)/.exec(cell);
  return found ? Number(found[1].replaceAll(",", "")) * (units[found[2]] ?? 1) : cell;
}

function order(one, other) {
  const [isText, isOtherText] = [typeof one === "string", typeof other === "string"];
  if (isText !== isOtherText) return isText - isOtherText;
  return isText ? one.localeCompare(other, "en", { numeric: true }) : one - other;
}

document.addEventListener("click", ({ target }) => {
  const head = target.closest("thead th");
  if (!head) return;
  const isDescending = head.getAttribute("aria-sort") === "ascending";
  for (const other of head.parentNode.children) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", isDescending ? "descending" : "ascending");
  const body = head.closest("table").tBodies[0];
  const rows = [...body.rows].map((row) => ({ row, cell: row.cells[head.cellIndex]?.textContent ?? "" }));
  const isEmpty = ({ cell }) => cell === "" || cell === "-";
  const filled = rows.filter((one) => !isEmpty(one)).sort((one, other) => order(key(one.cell), key(other.cell)));
  if (isDescending) filled.reverse();
  body.append(...filled.concat(rows.filter(isEmpty)).map(({ row }) => row));
});
