// What MQTT.js does at the broker, the same in Node and in a page: publishes at each QoS and in a burst, subscribes,
// answers, and tells what it got. It ends, with what it waited for or with an error.

const BURST = 300;
const PATIENCE_MS = 20_000;

export async function exercise(mqtt, url, options) {
  const late = new Promise((_, reject) => setTimeout(() => reject(new Error("nothing came in time")), PATIENCE_MS));
  return await Promise.race([converse(mqtt, url, options), late]);
}

async function converse(mqtt, url, options) {
  const client = mqtt.connect(url, { reconnectPeriod: 0, ...options });
  await new Promise((resolve, reject) => {
    client.once("connect", resolve);
    client.once("error", reject);
    client.once("close", () => reject(new Error("closed before it was connected")));
  });
  const received = [];
  const answered = new Promise((resolve, reject) => {
    client.on("error", reject);
    client.on("message", (topic, payload, packet) => {
      received.push({ topic, payload: Array.from(payload), qos: packet.qos });
      if (topic === "to/js/last") resolve();
    });
  });
  const granted = await client.subscribeAsync("to/js/#", { qos: 2 });
  for (const qos of [0, 1, 2]) {
    await client.publishAsync(`from/js/${qos}`, `grüße ${qos}`, { qos });
  }
  const large = "x".repeat(5_000); // all at once: in a page MQTT.js puts many packets into one frame
  await Promise.all(Array.from({ length: BURST }, () => client.publishAsync("from/js/burst", large, { qos: 1 })));
  await client.publishAsync("from/js/last", "", { qos: 1 });
  await answered;
  const closed = new Promise((resolve) => client.stream.once("close", resolve));
  await client.endAsync();
  await closed;
  return { granted: granted.map((grant) => grant.qos), received };
}
