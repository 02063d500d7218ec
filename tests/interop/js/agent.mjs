// Does with MQTT.js what it is told: a JSON object per line comes in, one per answer and per message goes out.
//
// {"id": 1, "client": "a", "act": "subscribe", "with": {...}} is answered with {"id": 1, "result": ...} or
// {"id": 1, "error": "..."}; a message that client "a" receives is {"client": "a", "message": {...}}.

import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import mqtt from "mqtt";

const clients = new Map();
const say = (what) => process.stdout.write(JSON.stringify(what) + "\n");
const bytes = (text) => Buffer.from(text, "base64");
const text = (data) => data && Buffer.from(data).toString("base64");

function properties(found) {
  const { contentType, responseTopic, correlationData, userProperties, topicAlias } = found;
  const users = Object.entries(userProperties ?? {}).flatMap(([name, values]) =>
    [values].flat().map((value) => [name, value]),
  );
  return { contentType, responseTopic, correlationData: text(correlationData), userProperties: users, topicAlias };
}

function packet({ qos, retain, properties: { correlationData, ...more } = {} }) {
  if (correlationData) more.correlationData = bytes(correlationData);
  return { qos, retain, ...(Object.keys(more).length ? { properties: more } : {}) };
}

const acts = {
  connect(name, { url, options: { ca, will, ...options } }) {
    if (ca) options.ca = readFileSync(ca);
    if (will) options.will = { topic: will.topic, payload: bytes(will.payload), ...packet(will) };
    const client = mqtt.connect(url, { reconnectPeriod: 0, ...options });
    clients.set(name, client);
    client.sent = [];
    client.on("packetsend", (sent) => sent.cmd === "publish" && client.sent.push(sent.topic));
    client.on("message", (topic, payload, { qos, retain, properties: found = {} }) =>
      say({ client: name, message: { topic, payload: text(payload), qos, retain, properties: properties(found) } }),
    );
    return new Promise((resolve, reject) => {
      client.once("connect", (connack) => {
        client.stream.setNoDelay?.(true); // else each packet that follows an acknowledgement waits for 40 ms
        resolve(connack.sessionPresent);
      });
      client.on("error", reject);
    });
  },
  async subscribe(name, { filters, qos }) {
    const granted = await clients.get(name).subscribeAsync(filters, { qos });
    return granted.map((grant) => grant.qos);
  },
  async publish(name, { topic, payload, ...more }) {
    await clients.get(name).publishAsync(topic, bytes(payload), packet(more));
  },
  async sent(name) {
    return clients.get(name).sent;
  },
  async end(name) {
    await clients.get(name).endAsync();
    clients.delete(name);
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const { id, client, act, with: what } = JSON.parse(line);
  acts[act](client, what).then(
    (result) => say({ id, result }),
    (error) => say({ id, error: String(error) }),
  );
}
process.exit();
