// Reads an AsyncAPI document from standard input with AsyncAPI's own parser, and prints what that found as JSON.
import { readFileSync } from "node:fs";
import { Parser } from "@asyncapi/parser";

const { document, diagnostics } = await new Parser().parse(readFileSync(0, "utf8"));
const found = diagnostics.map(({ severity, code, message, path }) => ({ severity, code, message, path: path.join(".") }));
const channels = document === undefined ? [] : document.channels().all().map((each) => each.address());
console.log(JSON.stringify({ valid: document !== undefined, channels, found }));
