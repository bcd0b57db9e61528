// The panel of a selected task run.

import { absence, closeButton, definitions, make } from "../dom.js";
import { lineList } from "../flame/sources.js";
import { formatBytes, formatCell, formatCount, formatSeconds, shortened, visible } from "../format.js";
import { functionButton } from "../functions/drawer.js";
import { stateTitle, statusTitle } from "../words.js";

const LISTED_KEYS = 40;
const LISTED_LINES = 12;
/** Maximum characters of a text that are shown. */
const LONG_TEXT = 20_000;

/** Fills the panel. A click on a key calls `select(row)`, and one on the function `about(name)`. */
export function showDetails(pane, { tasks, row, flames, select, about }) {
  pane.hidden = row < 0 || !tasks.complete;
  if (pane.hidden) return;
  const key = tasks.keys[row];
  const [type, dtype, shape] = tasks.detail("results", row);
  const open = tasks.isOpen(row);
  const track = tasks.trackTitle(tasks.trackOfRow[row]);
  const facts = [
    ["Key", longText(tasks.keyText(key))],
    ["Function", functionButton(tasks.functionName(row), about)],
    ["Step", visible(tasks.stepName(row) ?? "")],
    ["Built at", visible(tasks.lineName(row) ?? "")],
    ["Worker", visible(track.worker)],
    ["Thread", track.thread],
    ["Start", `${formatCell(tasks.starts[row], 3)} s`],
    ["Duration", `${formatSeconds(tasks.durations[row])}${open ? ", unfinished" : ""}`],
    ["CPU", formatSeconds(tasks.cpu[row])],
    ...tasks.statuses.map((status) => [visible(status.name), formatSeconds(status.seconds[row])]),
    [open ? "State" : "Final state", visible(tasks.stateName(row))],
    ["Worker process", visible(tasks.facts.exits[row] ?? "")],
    ["Annotations", visible(tasks.detail("annotations", row))],
    ["Inputs", formatBytes(tasks.details.input_sizes[row])],
    ["Result", formatBytes(tasks.details.sizes[row])],
    ["Type", visible(type)],
    ["dtype", visible(dtype)],
    ["Shape", visible(shape)],
  ];
  const list = definitions(facts.filter(([, text]) => text !== "unknown"), (name, text) =>
    name === "Final state" ? stateTitle(text) : statusTitle(tasks.facts, name),
  );
  const title = make("h3", {}, shortened(tasks.functionName(row), 60));
  const parts = [list];
  const [exception, raised] = ["exceptions", "raised"].map((name) => tasks.detail(name, row));
  if (exception) {
    parts.push(make("h4", { class: "error" }, "Exception"), make("pre", {}, longText(exception)));
  }
  if (raised) parts.push(make("p", { class: "raised" }, "Raised at ", make("b", {}, visible(raised))));
  parts.push(
    ...tracebackText(tasks.facts.tracebacks[row] ?? ""),
    ...argumentText(tasks.detail("arguments", row)),
    ...runLines(flames, row, track.thread),
    ...logRecords(tasks.facts.logs[row] ?? []),
    ...functionCode(tasks.codeOf(tasks.functionName(row))),
    ...otherRuns(tasks, row, select),
    ...keyList("Dependencies", "needs", tasks, tasks.inputsOf(row), select),
    ...keyList("Dependents", "needed", tasks, tasks.takersOf(row), select),
  );
  const header = make("header", {}, title, closeButton(() => select(-1)));
  pane.replaceChildren(header, make("div", { class: "parts" }, ...parts));
  pane.scrollTop = 0;
}

function longText(text) {
  const more = text.length - LONG_TEXT;
  return more > 0
    ? `${visible(text.slice(0, LONG_TEXT))} … and ${formatCount(more)} more characters`
    : visible(text);
}

function tracebackText(text) {
  if (text === "") return [];
  const lines = text.split("\n").map(visible).join("\n");
  return [
    make("details", { class: "traceback" }, make("summary", {}, "Traceback"), make("pre", { class: "code" }, lines)),
  ];
}

function argumentText(text) {
  return text === "" ? [] : [make("h4", {}, "Arguments"), make("p", { class: "arguments" }, longText(text))];
}

/** Returns the sampled lines of the task run, or why there are none. */
function runLines(flames, row, thread) {
  if (!flames.sampled) return [];
  const lines = flames.linesOfRun(row);
  const { fewest } = flames.facts.lines;
  const none =
    thread === "event loop"
      ? "No samples: coroutines, and task runs on an unknown thread, are not sampled."
      : fewest > 1
        ? `Fewer than ${formatCount(fewest)} samples. The report leaves out the samples of such task runs.`
        : "No samples: the task was not running when stacks were sampled.";
  const shown = lines.length ? lineList(lines.slice(0, LISTED_LINES)) : absence(none);
  return [make("h4", {}, "Sampled lines"), shown];
}

/** Returns the location of each function that the task calls, with its source if known. */
function functionCode(functions) {
  return functions.map(([place, source]) => {
    const lines = source.split("\n").map(visible).join("\n");
    const shown = source ? [make("pre", { class: "code" }, lines)] : [];
    return make("details", {}, make("summary", {}, `Code: ${visible(place)}`), ...shown);
  });
}

/** Lists the log records of the task run. */
function logRecords(records) {
  if (!records.length) return [];
  const list = make("ul", { class: "logs" });
  for (const [level, message, exception, line] of records) {
    const what = exception ? `${message} (${exception})` : message;
    const place = make("small", {}, ` ${visible(line)}`);
    list.append(make("li", {}, make("b", {}, visible(level)), ` ${visible(what)}`, place));
  }
  return [make("h4", {}, `Log records (${formatCount(records.length)})`), list];
}

/** Lists the other runs of a task run's key. */
function otherRuns(tasks, row, select) {
  const runs = tasks.runsOf(tasks.keys[row]);
  if (runs.length < 2) return [];
  const entries = Array.from(runs, (run, at) => ({
    row: run,
    text: `run ${at + 1}`,
    about: `${formatCell(tasks.starts[run], 3)} s, ${visible(tasks.stateName(run))}`,
  }));
  const title = `Run ${runs.indexOf(row) + 1} of ${formatCount(runs.length)} of this key`;
  return linkList(title, "runs", entries.filter((entry) => entry.row !== row), select);
}

function keyList(title, kind, tasks, links, select) {
  const entries = links.slice(0, LISTED_KEYS).map(({ key, row }) => ({
    row,
    text: shortened(tasks.keyText(key), 80),
    about: row >= 0 ? formatBytes(tasks.details.sizes[row]) : "task run unknown",
  }));
  const count = links.length;
  return count
    ? linkList(`${title} (${formatCount(count)})`, kind, entries, select, count - entries.length)
    : [];
}

/** Lists task runs as links, and keys without a known run as text. */
function linkList(title, kind, entries, select, unlisted = Math.max(entries.length - LISTED_KEYS, 0)) {
  const list = make("ul", { class: kind });
  for (const { row, text, about } of entries.slice(0, LISTED_KEYS)) {
    const name =
      row >= 0
        ? make("button", { type: "button", onclick: () => select(row) }, text)
        : make("span", {}, text);
    list.append(make("li", {}, name, make("small", {}, ` ${about}`)));
  }
  if (unlisted > 0) list.append(make("li", {}, `and ${formatCount(unlisted)} more`));
  return [make("h4", {}, title), list];
}
