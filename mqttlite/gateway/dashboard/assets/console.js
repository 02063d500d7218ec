// Publishes over the gateway's route for that, as any program does.

import { say } from "./page.js";

document.getElementById("publish").addEventListener("submit", async (event) => {
  event.preventDefault();
  const fields = new FormData(event.target);
  const path = fields.get("topic").split("/").map(encodeURIComponent).join("/");
  const question = `qos=${fields.get("qos")}&retain=${fields.has("retain")}`;
  const outcome = document.getElementById("outcome");
  try {
    const headers = { "Content-Type": "application/octet-stream" };
    const answer = await fetch(`/topics/${path}?${question}`, { method: "PUT", body: fields.get("payload"), headers });
    const said = await answer.json();
    const whom = `${said.delivered_to} receiver${said.delivered_to === 1 ? "" : "s"}, queued for ${said.queued_for}`;
    outcome.className = answer.ok ? "" : "notice bad";
    if (!answer.ok) say(outcome, said.detail);
    else say(outcome, said.dropped ? `Dropped: ${said.reason}. Delivered to ${whom}.` : `Delivered to ${whom}.`);
  } catch (error) {
    outcome.className = "notice bad";
    say(outcome, `The broker does not answer: ${error.message}`);
  }
});
