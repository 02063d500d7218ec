import { element, listen, show } from "./page.js";

const client = document.querySelector("[data-client]").dataset.client;
const state = document.getElementById("state");

listen(`/ui/client/live?id=${encodeURIComponent(client)}`, (found) => {
  show(found);
  const [text, kind] = found.blocked
    ? ["blocked: its socket takes nothing", "bad"]
    : found.connected
      ? ["connected", "good"]
      : ["offline", ""];
  if (state.textContent !== text) state.replaceChildren(element("span", text, { class: `badge ${kind}` }));
});
