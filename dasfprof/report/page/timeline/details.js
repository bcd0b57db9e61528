// The pane that tells all of one task run.

import { closeButton, make } from "../dom.js";
import { lineList } from "../flame/sources.js";
import { formatBytes, formatCell, formatCount, formatSeconds, shortened, visible } from "../format.js";
import { functionButton } from "../functions/drawer.js";
import { stateTitle, statusTitle } from "../words.js";

const LISTED_KEYS = 40;
const LISTED_LINES = 12;
/** More of one text than anyone reads; the rest is counted. */
const LONG_TEXT = 20_000;

/**
 * Fills the pane. `select(row)` is called when the person follows a key, `about(name)` when the
 * function; `flames` knows the lines.
 */
export function showDetails(pane, { tasks, row, flames, select, about }) {
  pane.hidden = row < 0 || !tasks.whole;
  if (pane.hidden) return;
  const key = tasks.keys[row];
  const [type, dtype, shape] = tasks.result(row);
  const open = tasks.isOpen(row);
  const track = tasks.trackTitle(tasks.trackOfRow[row]);
  const facts = [
    ["Key", longText(tasks.keyText(key))],
    ["Function", functionButton(tasks.functionName(row), about)],
    ["Step", visible(tasks.stepName(row) ?? "")],
    ["Built at", visible(tasks.lineName(row) ?? "")],
    ["Worker", visible(track.worker)],
    ["Thread", track.thread],
    ["Started", `${formatCell(tasks.starts[row], 3)} s after the begin`],
    [open ? "Had run for" : "Ran for", formatSeconds(tasks.durations[row])],
    ["CPU", formatSeconds(tasks.cpu[row])],
    ...tasks.statuses.map((status) => [visible(status.name), formatSeconds(status.seconds[row])]),
    [open ? "Had not ended" : "Ended in", visible(tasks.stateName(row))],
    ["Worker's process", visible(tasks.exitOf(row))],
    ["Asked of Dask", visible(tasks.annotationsOf(row))],
    ["Inputs", formatBytes(tasks.details.input_sizes[row])],
    ["Result", formatBytes(tasks.details.sizes[row])],
    ["Type", visible(type)],
    ["dtype", visible(dtype)],
    ["Shape", visible(shape)],
  ];
  const list = make("dl");
  for (const [name, text] of facts) {
    if (text === "" || text === "unknown") continue;
    const title = name.startsWith("Ended") ? stateTitle(text) : statusTitle(tasks.facts, name);
    list.append(make("dt", title ? { title } : {}, name), make("dd", {}, text));
  }
  const title = make("h3", {}, shortened(tasks.functionName(row), 60));
  const parts = [list];
  const exception = tasks.exceptionText(row);
  if (exception !== null && exception !== "") {
    parts.push(make("h4", { class: "error" }, "Exception"), make("pre", {}, longText(exception)));
  }
  const raised = tasks.raisedAt(row);
  if (raised) parts.push(make("p", { class: "raised" }, "Raised at ", make("b", {}, visible(raised))));
  parts.push(
    ...tracebackText(tasks.tracebackOf(row)),
    ...argumentText(tasks.argumentsOf(row)),
    ...runLines(flames, row, track.thread),
    ...logRecords(tasks.logsOf(row)),
    ...functionCode(tasks.codeOf(row)),
    ...otherRuns(tasks, row, select),
    ...keyList("Needs", "needs", tasks, tasks.inputsOf(row), select),
    ...keyList("Is needed by", "needed", tasks, tasks.takersOf(row), select),
  );
  const header = make("header", {}, title, closeButton(() => select(-1)));
  pane.replaceChildren(header, make("div", { class: "parts" }, ...parts));
  pane.scrollTop = 0;
}

function longText(text) {
  const rest = text.length - LONG_TEXT;
  return rest > 0
    ? `${visible(text.slice(0, LONG_TEXT))} … and ${formatCount(rest)} characters`
    : visible(text);
}

/** Shows the traceback of a failed task run. */
function tracebackText(text) {
  if (text === "") return [];
  const lines = text.split("\n").map(visible).join("\n");
  return [
    make("details", { class: "traceback" }, make("summary", {}, "Traceback"), make("pre", { class: "code" }, lines)),
  ];
}

/** Tells the arguments of a task run: name and type of each. */
function argumentText(text) {
  return text === "" ? [] : [make("h4", {}, "Arguments"), make("p", { class: "arguments" }, longText(text))];
}

/** The lines at which the task run was sampled, or why there are none. */
function runLines(flames, row, thread) {
  if (!flames.sampled) return [];
  const lines = flames.linesOfRun(row);
  const { fewest } = flames.facts.lines;
  const none =
    thread === "event loop"
      ? "No sample: coroutines are not sampled, nor task runs whose thread is unknown."
      : fewest > 1
        ? `Fewer than ${formatCount(fewest)} samples: too many task runs have so few for this page.`
        : "No sample: it was never running when stacks were looked at.";
  const shown = lines.length ? lineList(lines.slice(0, LISTED_LINES)) : make("p", { class: "absent" }, none);
  return [make("h4", {}, "Sampled lines"), shown];
}

/** Shows the source of what the task calls; of functions without it, where they are. */
function functionCode(functions) {
  return functions.map(([place, source]) => {
    const lines = source.split("\n").map(visible).join("\n");
    const shown = source ? [make("pre", { class: "code" }, lines)] : [];
    return make("details", {}, make("summary", {}, `Code: ${visible(place)}`), ...shown);
  });
}

/** Lists what the task run logged: level, message, exception and line of each record. */
function logRecords(records) {
  if (!records.length) return [];
  const list = make("ul", { class: "logs" });
  for (const [level, message, exception, line] of records) {
    const what = exception ? `${message} (${exception})` : message;
    const place = make("small", {}, ` ${visible(line)}`);
    list.append(make("li", {}, make("b", {}, visible(level)), ` ${visible(what)}`, place));
  }
  return [make("h4", {}, `Logged (${formatCount(records.length)})`), list];
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
    about: row >= 0 ? formatBytes(tasks.details.sizes[row]) : "run not known",
  }));
  const count = links.length;
  return count
    ? linkList(`${title} (${formatCount(count)})`, kind, entries, select, count - entries.length)
    : [];
}

/** Lists task runs to follow, and others that are not there. */
function linkList(title, kind, entries, select, unlisted = entries.length - LISTED_KEYS) {
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
