// The server of the experiment "a page that sometimes waits", on Deno's own HTTP server: one thread, with the timer and
// the file API of Deno. It prints its address. At the end it prints the number of its answers: on SIGINT, on SIGTERM,
// or with --until-stdin-ends at the end of standard input.

const flags = new Map([["listen", "127.0.0.1:0"], ["page-every", "10"], ["page-wait", "2000ms"]]);
for (const argument of Deno.args) {
  const [name, value] = argument.replace(/^--/, "").split("=");
  flags.set(name, value ?? "true");
}

function number(name) {
  const text = flags.get(name).replace(/ms$/, "");
  if (!/^[0-9]+$/.test(text)) {
    throw new Error(`--${name} cannot be "${flags.get(name)}"`);
  }
  return Number(text);
}

const file = flags.get("page-file");
const every = number("page-every");
const wait = number("page-wait");
const [hostname, port] = flags.get("listen").split(":");
Deno.readFileSync(file); // fail early if the file cannot be read

let count = 0;
let answered = 0;

async function answer(request) {
  count += 1;
  if (every > 0 && count % every === 0) {
    await new Promise((resume) => setTimeout(resume, wait));
  }
  if (request.method !== "GET" || new URL(request.url).pathname !== "/") {
    return new Response(null, { status: 404 });
  }
  try {
    const page = await Deno.readFile(file);
    return new Response(page, { headers: { "Content-Type": "text/html; charset=utf-8" } });
  } catch {
    return new Response(null, { status: 500 });
  }
}

async function handle(request) {
  const response = await answer(request);
  answered += 1;
  return response;
}

function print(line) {
  Deno.stdout.writeSync(new TextEncoder().encode(`${line}\n`));
}

function end() {
  print(`{"answered":${answered}}`);
  Deno.exit(0);
}

Deno.addSignalListener("SIGINT", end);
Deno.addSignalListener("SIGTERM", end);
const onListen = (address) => print(`listening on http://${address.hostname}:${address.port}`);
Deno.serve({ hostname, port: Number(port), onListen }, handle);
if (flags.has("until-stdin-ends")) {
  for await (const _ of Deno.stdin.readable) { /* discard the input until it ends */ }
  end();
}
