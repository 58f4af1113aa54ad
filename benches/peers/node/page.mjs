// The server of the experiment "a page that sometimes waits", on Node's own http module: one thread, with the timer and
// the file API of Node. It prints its address. At the end it prints the number of its answers: on SIGINT, on SIGTERM,
// or with --until-stdin-ends at the end of standard input.

import { readFile } from "node:fs/promises";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { setTimeout } from "node:timers/promises";
import { parseArgs } from "node:util";

const flags = parseArgs({
  options: {
    "listen": { type: "string", default: "127.0.0.1:0" },
    "page-file": { type: "string" },
    "page-every": { type: "string", default: "10" },
    "page-wait": { type: "string", default: "2000ms" },
    "until-stdin-ends": { type: "boolean", default: false },
  },
}).values;

function number(name, text) {
  if (!/^[0-9]+$/.test(text)) {
    throw new Error(`--${name} cannot be "${flags[name]}"`);
  }
  return Number(text);
}

const file = flags["page-file"];
const every = number("page-every", flags["page-every"]);
const wait = number("page-wait", flags["page-wait"].replace(/ms$/, ""));
const [host, port] = flags["listen"].split(":");
readFileSync(file); // fail early if the file cannot be read

let count = 0;
let answered = 0;

const server = createServer(async (request, response) => {
  count += 1;
  if (every > 0 && count % every === 0) {
    await setTimeout(wait);
  }
  if (request.method !== "GET" || request.url !== "/") {
    response.writeHead(404).end();
    answered += 1;
    return;
  }
  let page;
  try {
    page = await readFile(file);
  } catch {
    response.writeHead(500).end();
    answered += 1;
    return;
  }
  response.writeHead(200, { "Content-Type": "text/html; charset=utf-8", "Content-Length": page.length });
  response.end(page);
  answered += 1;
});

function end() {
  process.stdout.write(`{"answered":${answered}}\n`, () => process.exit(0));
}

process.on("SIGINT", end);
process.on("SIGTERM", end);
if (flags["until-stdin-ends"]) {
  process.stdin.on("end", end).resume();
}
server.listen(Number(port), host, 1024, () => {
  const { address, port } = server.address();
  process.stdout.write(`listening on http://${address}:${port}\n`);
});
