// sockets.mjs URL: subscribes and publishes by WebSocket in JSON with the package ws; prints what came as JSON.

import WebSocket from "ws";

const socket = new WebSocket(process.argv[2]);
const received = [];
socket.on("open", () => socket.send(JSON.stringify({ type: "subscribe", id: 1, topic: "web/#", qos: 1 })));
socket.on("message", (data) => {
  const message = JSON.parse(data);
  received.push(message);
  if (message.type === "subscribed") {
    socket.send(JSON.stringify({ type: "publish", id: 2, topic: "web/x", payload: { n: 1 }, qos: 1 }));
  }
  if (received.length === 3) socket.close();
});
socket.on("error", (error) => received.push({ type: "failed", detail: String(error) }));
socket.on("close", () => process.stdout.write(JSON.stringify(received)));
