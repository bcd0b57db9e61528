// The pane that tells all of one task run.

import { fill, paneHead } from "../dom.js";
import { lineList } from "../flame/sources.js";
import { formatBytes, formatCell, formatCount, formatSeconds, shortened, visible } from "../format.js";
import { functionButton } from "../functions/drawer.js";
import { html } from "../vendor/lit-html.js";

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
  const known = facts.filter(([, text]) => text !== "" && text !== "unknown");
  const exception = tasks.exceptionText(row);
  const raised = tasks.raisedAt(row);
  fill(
    pane,
    html`${paneHead(shortened(tasks.functionName(row), 60), () => select(-1))}
      <div class="parts">
        <dl>${known.map(([name, text]) => html`<dt>${name}</dt><dd>${text}</dd>`)}</dl>
        ${exception ? html`<h4 class="error">Exception</h4><pre>${longText(exception)}</pre>` : ""}
        ${raised ? html`<p class="raised">Raised at <b>${visible(raised)}</b></p>` : ""}
        ${tracebackText(tasks.tracebackOf(row))} ${argumentText(tasks.argumentsOf(row))}
        ${runLines(flames, row, track.thread)} ${logRecords(tasks.logsOf(row))}
        ${tasks.codeOf(row).map(functionCode)} ${otherRuns(tasks, row, select)}
        ${keyList("Needs", "needs", tasks, tasks.inputsOf(row), select)}
        ${keyList("Is needed by", "needed", tasks, tasks.takersOf(row), select)}
      </div>`,
  );
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
  if (text === "") return "";
  const summary = html`<summary>Traceback</summary>`;
  return html`<details class="traceback">${summary}<pre class="code">${codeText(text)}</pre></details>`;
}

function codeText(text) {
  return text.split("\n").map(visible).join("\n");
}

/** Tells the arguments of a task run: name and type of each. */
function argumentText(text) {
  return text && html`<h4>Arguments</h4><p class="arguments">${longText(text)}</p>`;
}

/** The lines at which the task run was sampled, or why there are none. */
function runLines(flames, row, thread) {
  if (!flames.sampled) return "";
  const lines = flames.linesOfRun(row);
  const { fewest } = flames.facts.lines;
  const none =
    thread === "loop"
      ? "No sample: coroutines are not sampled, nor task runs whose thread is unknown."
      : fewest > 1
        ? `Fewer than ${formatCount(fewest)} samples: too many task runs have so few for this page.`
        : "No sample: it was never running when stacks were looked at.";
  const shown = lines.length ? lineList(lines.slice(0, LISTED_LINES)) : html`<p class="absent">${none}</p>`;
  return html`<h4>Sampled lines</h4>${shown}`;
}

/** Shows the source of what the task calls; of functions without it, where they are. */
function functionCode([place, source]) {
  const shown = source ? html`<pre class="code">${codeText(source)}</pre>` : "";
  return html`<details><summary>Code: ${visible(place)}</summary>${shown}</details>`;
}

/** Lists what the task run logged: level, message, exception and line of each record. */
function logRecords(records) {
  if (!records.length) return "";
  const items = records.map(([level, message, exception, line]) => {
    const what = visible(exception ? `${message} (${exception})` : message);
    return html`<li><b>${visible(level)}</b> ${what}<small> ${visible(line)}</small></li>`;
  });
  return html`<h4>Logged (${formatCount(records.length)})</h4><ul class="logs">${items}</ul>`;
}

/** Lists the other runs of a task run's key. */
function otherRuns(tasks, row, select) {
  const runs = tasks.runsOf(tasks.keys[row]);
  if (runs.length < 2) return "";
  const entries = Array.from(runs, (run, at) => ({
    row: run,
    text: `run ${at + 1}`,
    about: `${formatCell(tasks.starts[run], 3)} s, ${visible(tasks.stateName(run))}`,
  }));
  const title = `Run ${runs.indexOf(row) + 1} of ${formatCount(runs.length)} of this key`;
  return linkList(title, "runs", entries.filter((entry) => entry.row !== row), select);
}

function keyList(title, kind, tasks, links, select) {
  if (!links.length) return "";
  const entries = links.slice(0, LISTED_KEYS).map(({ key, row }) => ({
    row,
    text: shortened(tasks.keyText(key), 80),
    about: row >= 0 ? formatBytes(tasks.details.sizes[row]) : "run not known",
  }));
  return linkList(`${title} (${formatCount(links.length)})`, kind, entries, select, links.length);
}

/** Lists task runs to follow, and others that are not there; `count`: of all. */
function linkList(title, kind, entries, select, count = entries.length) {
  const link = ({ row, text }) =>
    row >= 0 ? html`<button type="button" @click=${() => select(row)}>${text}</button>` : html`<span>${text}</span>`;
  const shown = entries.slice(0, LISTED_KEYS);
  const unlisted = count - shown.length;
  return html`<h4>${title}</h4>
    <ul class=${kind}>
      ${shown.map((entry) => html`<li>${link(entry)}<small> ${entry.about}</small></li>`)}
      ${unlisted > 0 ? html`<li>and ${formatCount(unlisted)} more</li>` : ""}
    </ul>`;
}
