// node.mjs URL VERSION [CA]: runs the exercise in Node and prints what came of it as JSON.

import { readFileSync } from "node:fs";
import mqtt from "mqtt";
import { exercise } from "./exercise.mjs";

const [url, version, ca] = process.argv.slice(2);
const options = { protocolVersion: Number(version), clientId: `node-${version}` };
if (ca) options.ca = readFileSync(ca);
let result;
try {
  result = await exercise(mqtt, url, options);
} catch (error) {
  result = { error: String(error) };
}
process.stdout.write(JSON.stringify(result), () => process.exit());
