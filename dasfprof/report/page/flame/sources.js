// Lines of a file with their seconds, and the recorded source.

import { absence, make } from "../dom.js";
import { formatSeconds, formatShare, visible } from "../format.js";
import { sumOf } from "../numbers.js";

export class Sources {
  /** `code` has location, source, file and first line of functions, by the function of the tasks. */
  constructor(code) {
    this.functions = Object.values(code)
      .flat()
      .map(([, source, file, first]) => ({ file, first, lines: source.replace(/\n$/, "").split("\n"), source }))
      .filter(({ source }) => source !== "");
  }

  /** Returns the source of the function that contains a line, or null if none or several were recorded. */
  find(file, line) {
    const around = this.functions.filter(
      (source) => source.file === file && line >= source.first && line < source.first + source.lines.length,
    );
    // Functions may be nested.
    const first = Math.max(...around.map((source) => source.first));
    const inner = around.filter((source) => source.first === first);
    return new Set(inner.map(({ source }) => source)).size === 1 ? inner[0] : null;
  }
}

/** The text that replaces all lines after the hundredth, which are not recorded. */
const OMITTED_LINES = /^\.\.\. and \d+ lines$/;

/** Creates a table of lines of a file, with their source if known. For `spent`, see `sourceTable`. */
export function lineTable(sources, file, spent) {
  const source = spent.map(({ line }) => sources.find(file, line)).find(Boolean) ?? null;
  const none = "The source is not recorded. Sources are recorded for functions that tasks call.";
  return make("div", {}, ...(source ? [] : [absence(none)]), sourceTable(source, spent));
}

/** Creates a table of lines. `spent` has `line` and the seconds for `dressSpent`. The source may be null. */
export function sourceTable(source, spent) {
  const byLine = new Map(spent.map((entry) => [entry.line, entry]));
  const longest = Math.max(...spent.map(({ seconds }) => seconds), 1e-9);
  const rows = [];
  for (const [at, text] of (source?.lines ?? []).entries()) {
    const line = source.first + at;
    if (OMITTED_LINES.test(text)) rows.push(lineRow(null, text, null, longest));
    else rows.push(lineRow(line, text, byLine.get(line), longest));
    byLine.delete(line);
  }
  for (const entry of byLine.values()) rows.push(lineRow(entry.line, null, entry, longest));
  const table = make("table", { class: "lines", "aria-label": "Lines" }, make("tbody", {}, ...rows));
  return make("div", { class: "lines-box", tabindex: "0" }, table);
}

function lineRow(line, text, spent, longest) {
  const seconds = spent ? formatSeconds(spent.seconds) : "";
  const code = make("code", {}, text === null ? "" : visible(text.replaceAll("\t", "    ")));
  return make(
    "tr",
    { class: spent ? "" : "unseen-line" },
    make("td", { class: "number" }, line ? String(line) : ""),
    make("td", { class: "number" }, seconds),
    make("td", { class: "spent" }, ...(spent ? [spentBar(spent, spent.seconds / longest)] : [])),
    make("td", {}, code),
  );
}

/** Creates a list of lines of any files. */
export function lineList(lines) {
  const longest = Math.max(...lines.map(({ seconds }) => seconds), 1e-9);
  const items = lines.map((line) =>
    make(
      "li",
      {},
      make("span", { class: "seconds" }, formatSeconds(line.seconds)),
      make("span", { class: "spent" }, spentBar(line, line.seconds / longest)),
      make("span", { class: "place", title: visible(line.file) }, placeOfLine(line)),
    ),
  );
  return make("ol", { class: "line-list" }, ...items);
}

/** Returns the file name, number and function of a line. */
export function placeOfLine({ file, line, name }) {
  const base = file.split(/[\\/]/).at(-1);
  return visible(line ? `${base}:${line} ${name}` : name);
}

/** Creates a bar of computing and waiting time, whose width is a fraction. */
function spentBar(spent, share) {
  const bar = make("div", { class: "spent-bar", title: spentWords(spent) });
  bar.style.width = `${Math.max(share * 100, 1)}%`;
  dressSpent(bar, spent);
  return bar;
}

/** Threshold (fraction): if more of the time is uncertain, computing and waiting are not distinguished. */
const MAX_UNCERTAIN = 0.1;

/** Adds stripes, hatching or dots to the parts of an element's width that are not computing. */
export function dressSpent(element, { seconds, computing, core, lock, uncertain }) {
  const ready = (core || 0) + (lock || 0);
  const parts = [["waits", computing + ready, seconds - computing - ready]];
  if (!Number.isFinite(computing)) parts.splice(0, 1, ["unknown", 0, seconds]);
  else if (uncertain > MAX_UNCERTAIN * seconds) parts.push(["unknown", 0, computing + ready]);
  else parts.push(["ready", computing, ready]);
  for (const [kind, before, length] of parts) {
    if (!(length > 0.005 * seconds)) continue;
    const part = make("i", { class: kind });
    part.style.left = `${(before / seconds) * 100}%`;
    part.style.width = `${(length / seconds) * 100}%`;
    element.prepend(part);
  }
}

/** Returns the percentages of computing and waiting time as text. */
export function spentWords({ seconds, computing, core, lock, uncertain }) {
  if (!Number.isFinite(computing)) return "computing or waiting: unknown";
  const isSome = ([part]) => seconds > 0 && part / seconds >= 0.005;
  const parts = [
    [computing, "computing"],
    [core || 0, "waiting for CPU"],
    [lock || 0, "waiting for the GIL"],
  ];
  const active = sumOf(parts.map(([part]) => part));
  const either = parts.filter(isSome).map(([, text]) => text);
  const shown = uncertain > MAX_UNCERTAIN * seconds ? [[active, either.join(" or ")]] : parts;
  const all = [...shown, [Math.max(seconds - active, 0), "waiting"]].filter(isSome);
  return all.map(([part, text]) => `${formatShare(part / seconds)} ${text}`).join(", ");
}
