// Publishes over the gateway's route for that, as any program does.

import { say } from "./page.js";
import { root } from "./root.js";

// Who would lose such a message now, as the answer to a publish has only numbers.
async function receiversOfDrops(fields, reason) {
  const question = new URLSearchParams({
    topic: fields.get("topic"),
    qos: fields.get("qos"),
    payload_bytes: new TextEncoder().encode(fields.get("payload")).length,
  });
  const answer = await fetch(`${root}/api/v1/explain/publish?${question}`);
  if (!answer.ok) return "";
  const { receivers } = await answer.json();
  const losers = receivers.filter((each) => each.outcome === "dropped" && each.reason === reason);
  return losers.map((each) => each.client_id || each.sink).join(", ");
}

document.getElementById("publish").addEventListener("submit", async (event) => {
  event.preventDefault();
  const fields = new FormData(event.target);
  const path = fields.get("topic").split("/").map(encodeURIComponent).join("/");
  const question = `qos=${fields.get("qos")}&retain=${fields.has("retain")}`;
  const outcome = document.getElementById("outcome");
  try {
    const headers = { "Content-Type": "application/octet-stream" };
    const answer = await fetch(`${root}/topics/${path}?${question}`, {
      method: "PUT",
      body: fields.get("payload"),
      headers,
    });
    const said = await answer.json();
    const whom = `${said.delivered_to} receiver${said.delivered_to === 1 ? "" : "s"}, queued for ${said.queued_for}`;
    outcome.className = answer.ok ? "" : "notice bad";
    if (!answer.ok) say(outcome, said.detail);
    else if (!said.dropped) say(outcome, `Delivered to ${whom}.`);
    else {
      const losers = await receiversOfDrops(fields, said.reason);
      say(outcome, `Dropped${losers ? ` for ${losers}` : ""}: ${said.reason}. Delivered to ${whom}.`);
    }
  } catch (error) {
    outcome.className = "notice bad";
    say(outcome, `The broker does not answer: ${error.message}`);
  }
});
