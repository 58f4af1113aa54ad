// The requests of ci/clients.sh by Node: node client.js URL CA
const fs = require('fs');
const https = require('https');

const [url, ca] = process.argv.slice(2);
const agent = new https.Agent({ ca: fs.readFileSync(ca), keepAlive: true, maxSockets: 1 });
const MIB = 1 << 20;

// The JSON of an entity of this number of bytes, at least.
function entity(id, length = 15) {
  const frame = JSON.stringify({ id, description: '', value: 1.5 }).length;
  return JSON.stringify({ id, description: 'x'.repeat(Math.max(15, length - frame)), value: 1.5 });
}

function ask(method, path, status, body, headers = { 'Content-Type': 'application/json' }) {
  return new Promise((resolve, reject) => {
    if (body) headers = { ...headers, 'Content-Length': Buffer.byteLength(body) };
    const request = https.request(url + path, { method, agent, headers, timeout: 20000 }, (answer) => {
      let content = '';
      answer.on('data', (part) => { content += part; });
      answer.on('end', () => {
        if (answer.statusCode !== status) reject(new Error(`${method} ${path}: ${answer.statusCode} instead of ${status}`));
        resolve({ content, tag: answer.headers.etag, kept: request.reusedSocket });
      });
    });
    request.on('timeout', () => request.destroy(new Error(`${method} ${path}: no answer`)));
    request.on('error', reject);
    request.end(body);
  });
}

async function main() {
  await ask('PUT', '/', 201, entity(201));
  const { content, tag, kept } = await ask('GET', '/201', 200);
  if (content !== entity(201)) throw new Error(`the entity: ${content}`);
  if (!kept) throw new Error('the connection was not kept');
  await ask('GET', '/201', 304, undefined, { 'If-None-Match': tag });
  await ask('PUT', '/', 201, entity(202, MIB));
  await ask('DELETE', '/202', 204);
  await ask('DELETE', '/201', 204);
  await ask('GET', '/201', 404);
  await ask('PUT', '/', 413, entity(203, MIB + 1));
}

main().then(() => agent.destroy(), (error) => {
  console.error(error.message);
  process.exit(1);
});
