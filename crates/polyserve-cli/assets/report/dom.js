// Elements, and what went wrong. Whatever a record says becomes text, never markup.

const data = unpacked(JSON.parse(document.getElementById("data").textContent));

// A list of objects of the same fields is written as a table: the fields once, then a row for each object.
function unpacked(value) {
  if (Array.isArray(value)) return value.map(unpacked);
  if (value === null || typeof value !== "object") return value;
  const { $columns: columns, $rows: rows } = value;
  if (columns && rows) return rows.map((row) => Object.fromEntries(columns.map((name, place) => [name, unpacked(row[place])])));
  return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, unpacked(one)]));
}

// The errors while the page was drawn, for the console and the self-test.
const errors = [];
const consoleError = console.error.bind(console);
console.error = (...parts) => { errors.push(parts.map(String).join(" ")); consoleError(...parts); };
window.addEventListener("error", (event) => errors.push(`error: ${event.message}`));
window.addEventListener("unhandledrejection", (event) => errors.push(`rejection: ${event.reason}`));
document.addEventListener("securitypolicyviolation", (event) => errors.push(`policy: ${event.violatedDirective}`));

// An element; an attribute that is null is left out, a function listens.
function h(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return element;
}

// A word for an address within the page.
function slug(text) {
  return text.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "");
}

// A choice: its label, and a list that calls `chosen` with what was taken.
function choice(label, options, value, chosen) {
  const list = h("select", { change: () => chosen(list.value) });
  for (const option of options) list.append(h("option", { value: option }, String(option)));
  list.value = value;
  return h("label", { class: "choice" }, `${label} `, list);
}

// What draws an experiment's record: (record, section) for each name.
const drawings = {};
